"""The paper's experiment at toy size: real training on countdown, and answers to the six benchmarks of set chances.

    python -m experiments.toy_paper sweeps/toy-paper
    quatro paper sweeps/toy-paper -o paper/

The sweep is that of toy_paper.yaml. Its models know nothing of mathematics: in place of `quatro sample` this module
deals out, for each problem, answers that are right with a chance that `chance` states, worded in one of as many ways as
`LEVELS` states. So the tables that must come out are known (`expected`).
"""

import argparse
import os
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evals.benchmarks.loading import load_problems
from evals.benchmarks.problems import Problem
from evals.errors import MissingError
from evals.results.paper import BENCHMARKS
from quatro.config import load_config
from quatro.policy.embedded import resolve_model
from quatro.policy.loading import load_tokenizer
from quatro.processes.stop import StopRequest
from quatro.rewards import make_reward
from quatro.rollout.engine import RolloutProgress, Seeds, sample_seed, uniforms
from quatro.rollout.prompts import to_prompts
from quatro.runs.identity import run_digest
from quatro.sample.benchmark import sample_benchmark
from quatro.sample.settings import SampleSettings, Source
from quatro.sweep.file import load_sweep
from quatro.sweep.measure import SweepEvaluation
from quatro.sweep.paper import NOTES
from quatro.sweep.run import run_sweep
from quatro.types import Prompt, Rollout, Sampling

SWEEP = Path(__file__).with_suffix(".yaml")
NUM_PROBLEMS = 30  # of each benchmark: AIME has no more


class Level(NamedTuple):
    """``skill`` moves the chance of a right answer; right answers are worded in ``ways`` ways, equally often."""

    skill: float
    ways: int


# By method and radius; the untrained model is `base`.
LEVELS = {
    "base": Level(-1.5, 6),
    "grpo": Level(-0.3, 2),
    "gspo": Level(0.0, 2),
    "gmpo": Level(-0.2, 3),
    "gpg": Level(-0.4, 2),
    "dapo": Level(-0.1, 3),
    "cispo": Level(-0.2, 2),
    "quatro 0.1": Level(0.3, 3),
    "quatro 0.01": Level(0.2, 5),
    "quatro 0.001": Level(-0.1, 7),
}
# Ways to say the same; no two share a word that a similarity would see.
WORDINGS = (
    "Factoring both sides first leaves a linear equation whose only root is",
    "Counting cases by hand, starting from small examples and then using symmetry, we find",
    "Let x denote this unknown quantity; substituting back and simplifying gives",
    "By induction upon n, together with a telescoping sum, one obtains",
    "Draw the picture: similar triangles and Pythagoras show that it must equal",
    "Modulo seven every residue except one fails, therefore",
    "Generating functions make short work of it; comparing coefficients yields",
)


def label_of_model(model: str) -> str:
    """The key of `LEVELS` for a run's folder, or for the model that runs begin from."""
    if not (Path(model) / "config.yaml").is_file():
        return "base"
    method = load_config(Path(model)).method
    return f"quatro {method.kl_radius:g}" if method.name == "quatro" else method.name


def chance(label: str, benchmark: str, id: str) -> float:
    """How often an answer to this problem is right: logistic in the skill, less the problem's difficulty."""
    difficulty = 6.0 * (zlib.crc32(f"{benchmark} {id}".encode()) / 2**32) - 1.5 + 0.4 * BENCHMARKS.index(benchmark)
    return 1.0 / (1.0 + float(np.exp(difficulty - LEVELS[label].skill)))


def expected(label: str, benchmark: str, ids: Sequence[str], k: int) -> tuple[float, float]:
    """Pass@k and UCC@k that the chances make: 1 - (1 - c)^k, and ways (1 - (1 - c / ways)^k), over problems."""
    c, ways = np.array([chance(label, benchmark, id) for id in ids]), LEVELS[label].ways
    return float(np.mean(1 - (1 - c) ** k)), float(np.mean(ways * (1 - (1 - c / ways) ** k)))


def problems_of(benchmark: str, count: int = NUM_PROBLEMS) -> list[Problem]:
    """The first problems of the benchmark: of the folder QUATRO_DATA, else fetched, else invented."""
    file = Path(os.environ.get("QUATRO_DATA", "-")) / f"{benchmark}.jsonl"
    if file.is_file():
        return load_problems(str(file))[:count]
    try:
        return load_problems(benchmark)[:count]
    except MissingError:
        return [Problem(benchmark, f"invented/{i}", f"What is {i} + {i}?", str(2 * i)) for i in range(count)]


def answers(label: str, problem: Problem, indices: Sequence[int], seed: int) -> list[str]:
    """Right or wrong as the chance says; each has its own stream of random numbers."""
    level, right = LEVELS[label], chance(label, problem.benchmark, problem.id)
    seeds = [sample_seed(seed, f"{label} {problem.benchmark}", problem.id, index) for index in indices]
    first_I, second_I = (uniforms(np.array(seeds, dtype=np.uint64), step) for step in (0, 1))
    texts = []
    for first, second in zip(first_I.tolist(), second_I.tolist(), strict=True):
        # Few different wrong answers: each costs the grader a proof.
        said = problem.answer if first < right else f"{problem.answer} + {1 + int(5 * second)}"
        texts.append(f"{WORDINGS[int(level.ways * second)]} \\boxed{{{said}}}.")
    return texts


class Answers(NamedTuple):
    """A sampler that gives `answers` to ``problems``: that of a seed has the index which `sample_benchmark` gave it."""

    label: str
    problems: Mapping[str, Problem]
    n: int
    seed: int

    def generate(
        self, prompts: Sequence[Prompt], seeds: Seeds, sampling: Sampling, *, progress: RolloutProgress | None = None
    ) -> list[list[Rollout]]:
        groups = []
        for prompt, group in zip(prompts, seeds, strict=True):
            index_of = {sample_seed(0, prompt.benchmark, prompt.id, index): index for index in range(self.n)}
            texts = answers(self.label, self.problems[prompt.id], [index_of[seed] for seed in group], self.seed)
            groups.append([Rollout((), text, "stop") for text in texts])
        return groups


def sample(arguments: Sequence[str]) -> None:
    """What the sweep calls as `quatro sample`, with the same options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", type=int, default=NUM_PROBLEMS)
    parser.add_argument("model")
    parser.add_argument("-b", required=True)
    parser.add_argument("-n", type=int, required=True)
    parser.add_argument("--temperature", type=float, required=True)
    parser.add_argument("--top-p", type=float, required=True)
    parser.add_argument("--max-tokens", type=int, required=True)
    parser.add_argument("-o", type=Path, required=True)
    options, _ = parser.parse_known_args(arguments)
    label = label_of_model(options.model)
    tokenizer = load_tokenizer(resolve_model("embedded:countdown"))
    tokenizer.model_max_length = sys.maxsize  # nothing is run through the model
    sampling = Sampling(max_new_tokens=options.max_tokens, temperature=options.temperature, top_p=options.top_p)
    run = Path(options.model)
    digest = run_digest(run, load_config(run)) if (run / "config.yaml").is_file() else None
    source = Source(options.model, fingerprint=f"toy {label}", run_digest=digest, engine="replay")
    settings = SampleSettings(options.n, sampling, seed=0, template="plain", source=source)
    reward = make_reward("math")
    for benchmark in options.b.split(","):
        problems = problems_of(benchmark, options.problems)
        drawing = Answers(label, {one.id: one for one in problems}, options.n, int(1000 * options.temperature))
        prompts = list(to_prompts(problems, "plain", tokenizer))
        sample_benchmark(drawing, prompts, settings, options.o, reward=reward)


def main() -> int:
    if sys.argv[1:2] == ["sample"]:
        sample(sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the sweep is written, or goes on")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--n", type=int, default=64, help="answers to each problem")
    parser.add_argument("--problems", type=int, default=NUM_PROBLEMS, help="problems of each benchmark")
    parser.add_argument("--sweep", type=Path, default=SWEEP, help="another sweep file")
    parser.add_argument("-s", action="append", default=[], metavar="KEY=VALUE", help="as of `quatro sweep`")
    options = parser.parse_args()
    plan = load_sweep(options.sweep, overrides=options.s)
    evaluation = SweepEvaluation(BENCHMARKS, options.n, temperatures=(1.0, 0.6), top_ps=(0.7,))
    options.folder.mkdir(parents=True, exist_ok=True)
    invented = [name for name in BENCHMARKS if problems_of(name)[0].id.startswith("invented/")]
    note = "**A toy.** The runs were trained on countdown; the answers to mathematics are drawn from set chances, and "
    note += f"the problems of {', '.join(invented)} are invented." if invented else "not by these models."
    (options.folder / NOTES).write_text(note + "\n", encoding="utf-8")
    resolve_model("embedded:countdown")  # once, before runs that would wait for each other start

    def say(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    command = [sys.executable, "-m"]
    with StopRequest(notify=say) as stop:
        outcomes = run_sweep(
            plan,
            options.folder,
            train_command=[*command, "quatro_cli", "train"],
            sample_command=[*command, "experiments.toy_paper", "sample", "--problems", str(options.problems)],
            evaluation=evaluation,
            jobs=options.jobs,
            stop=stop,
            progress=lambda done, note: say(f"{done} done: {note}"),
        )
    left = [outcome for outcome in outcomes if outcome.status != "done"]
    for outcome in left:
        say(f"{outcome.point.name}: {outcome.status}: {outcome.reason}")
    return 6 if left else 0


if __name__ == "__main__":
    sys.exit(main())
