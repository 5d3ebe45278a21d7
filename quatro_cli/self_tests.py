"""What `quatro doctor` tries on this machine: each test returns what it found, or raises."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evals.similarity.measures import Distinct
    from evals.studies.reference import Agreement


def cache_folder() -> str:
    """Whether models and data can be kept."""
    from quatro.policy.embedded import cache_root

    folder = cache_root()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"quatro")
    return f"{folder} is writable"


def sample_solutions() -> list[Distinct]:
    """Texts that resemble one another, as the solutions of a problem do."""
    from itertools import product

    from evals.similarity.measures import distinct

    ways = ("Add {} and {} first.", "First we add {} and {};", "Let x = {} and y = {}.")
    ends = ("So the sum is $\\boxed{{{}}}$.", "Hence the answer is {}.", "Then x + y = {}, as asked.")
    return [distinct([f"{way.format(a, 9 - a)} {end.format(9)}" for way, end, a in product(ways, ends, (2, 4))])]


def agreement_by_similarity(groups: Sequence[Distinct]) -> dict[str, Agreement]:
    """Our similarities and clusters of each group of texts beside those of scikit-learn, rouge_score and the rules."""
    from evals.clustering import LINKAGES
    from evals.similarity.catalogue import Setting, default_threshold
    from evals.studies.reference import CHECKED, agreement

    return {
        name: agreement(groups, [Setting(name, default_threshold(name), linkage, "math") for linkage in LINKAGES])
        for name in CHECKED
    }


def similarities() -> str:
    """The similarities and clusters of a few texts beside those of scikit-learn, rouge_score and the rules."""
    found = agreement_by_similarity(sample_solutions())
    largest = max(one.largest_difference for one in found.values())
    wrong = [name for name, one in found.items() if not one.is_good]
    if wrong:
        raise ArithmeticError(
            f"{', '.join(wrong)}: similarities differ by up to {largest:.1g}, or clusters are others than those of "
            "scikit-learn and rouge_score; `quatro doctor --similarity` shows more"
        )
    return f"equal to scikit-learn's and rouge_score's to {largest:.1g}; so are the clusters"


def math_grader() -> str:
    """Right and wrong answers: numbers, and formulas by their values."""
    from evals.grading import grade

    cases = [
        ("\\boxed{\\frac12}", "0.5", True),
        ("\\boxed{0.51}", "0.5", False),
        ("\\boxed{(x+1)^2}", "x^2+2x+1", True),
        ("\\boxed{(x+1)^2}", "x^2+2x+2", False),
    ]
    for completion, answer, is_right in cases:
        found = grade(completion, answer)
        if found.correct != is_right:
            raise ArithmeticError(
                f"{completion} against {answer} is graded {found.outcome} ({found.detail}), expected "
                f"{'correct' if is_right else 'incorrect'}"
            )
    return f"{len(cases)} answers got the grades that they deserve"


_IS_LOCKED = """
import sys
from pathlib import Path
from quatro.runs.lock import is_locked
print(is_locked(Path(sys.argv[1])))
"""


def lock() -> str:
    """Whether another process sees a lock of this one, and sees it gone afterwards, in the working directory."""
    from quatro.runs.lock import RunLock

    def is_seen(folder: Path) -> bool:
        command = [sys.executable, "-P", "-c", _IS_LOCKED, str(folder)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() == "True"

    with tempfile.TemporaryDirectory(prefix=".quatro-lock-", dir=Path.cwd()) as name:
        folder = Path(name)
        held = RunLock(folder)
        try:
            if not is_seen(folder):
                raise RuntimeError(f"two processes can lock one run in {Path.cwd()}: train on another file system")
        finally:
            held.close()
        if is_seen(folder):
            raise RuntimeError(f"a lock in {Path.cwd()} outlives its owner")
    return "one process a run: another one sees the lock, and sees it end"


def sampler() -> str:
    """A tiny model with random weights: draws repeat by seed, and their log-probabilities are the model's."""
    import torch

    from quatro.policy import embedded
    from quatro.rollout.transformers import TransformersEngine
    from quatro.tasks import countdown
    from quatro.types import Prompt, Sampling

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        recipe = countdown.CountdownWarmStart(hidden_size=32, num_heads=1, mlp_size=64)
        model = embedded.make_model(recipe).eval()
    tokenizer = embedded.make_tokenizer(recipe.max_positions)
    ids = tuple(tokenizer("7 2 7 -> 11").input_ids)
    prompts, seeds = [Prompt("doctor", "1", "", None, "", ids)], [list(range(8))]
    engine = TransformersEngine(model, tokenizer, eos_ids=[tokenizer.eos_token_id])
    drawn, again = (engine.generate(prompts, seeds, Sampling(max_new_tokens=16))[0] for _ in range(2))
    if drawn != again:
        raise RuntimeError("the same seeds draw other responses the second time")
    worst = 0.0
    for rollout in drawn:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*ids, *rollout.token_ids]])).logits[0, len(ids) - 1 : -1]
        expected = logits.log_softmax(-1).gather(-1, torch.tensor(rollout.token_ids)[:, None])[:, 0]
        worst = max(worst, float((expected - torch.tensor(rollout.logp)).abs().max()))
    if not worst < 1e-4:
        raise ArithmeticError(f"log-probabilities differ from the model's by {worst:.2g}, expected below 1e-4")
    return f"{len(drawn)} responses repeat by seed; log-probabilities are the model's (error {worst:.1g})"


SELF_TESTS: dict[str, Callable[[], str]] = {
    "cache folder": cache_folder,
    "similarity self-test": similarities,
    "grader self-test": math_grader,
    "lock self-test": lock,
}
