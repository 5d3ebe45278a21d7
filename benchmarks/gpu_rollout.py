"""Parts of gpu.py: decoding against transformers.generate, and where the time of a whole iteration goes.

Weights are random. Same weights, prompts and limits on both sides; a token counts if it is part of a response.
"""

import functools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from earlier import told
from gpu_case import Case, clock, peak_gib, random_model, random_prompts, reset_peak, stop_ids
from random_words import Draws, NumberTokenizer, timed_run, write_words
from record import Records

from quatro.rollout.transformers import TransformersEngine
from quatro.types import Prompt

ENGINES = ("transformers.generate", "quatro")


def decode(records: Records, case: Case) -> Iterator[str]:
    """Ragged prompts, as every run has them, and equally long ones; the engines take turns."""
    limit = min(512, case.max_new_tokens)
    stops = stop_ids(case, limit)

    @functools.cache
    def model() -> Any:
        return random_model(case, torch.bfloat16, eos_token_id=stops, pad_token_id=stops[0])

    def run(engine: str, prompts: Sequence[Prompt], repeat: int, limit: int) -> list[int]:
        draws = Draws(model(), NumberTokenizer(), prompts, case.n, limit, stops, pad=stops[0])
        if engine == "transformers.generate":
            return draws.by_generate()
        return draws.by_engine(TransformersEngine(*draws[:2], eos_ids=stops, collect_entropy=False), repeat)

    def measure(engine: str, lengths: tuple[int, int], repeat: int) -> dict[str, float]:
        prompts = random_prompts(case.config["vocab_size"], case.prompts, lengths, len(stops))
        run(engine, prompts, 0, 8)
        reset_peak(case.device)
        start = clock(case.device)
        drawn = run(engine, prompts, repeat + 1, limit)
        seconds = clock(case.device) - start
        return {"tokens": sum(drawn), "seconds": seconds, "padded": max(drawn) * len(drawn) / sum(drawn)} | {
            "peak_gib": peak_gib(case.device)
        }

    yield "| prompts | transformers.generate, tokens/s | quatro, tokens/s | ratio (of the repeats) | peak GiB |"
    yield "|---|---|---|---|---|"
    middle = sum(case.prompt_tokens) // 2
    for name, lengths in (("ragged", case.prompt_tokens), ("equal", (middle, middle))):
        found = [
            [
                records(f"decode, {name}, {engine}, {repeat}", functools.partial(measure, engine, lengths, repeat))
                for engine in ENGINES
            ]
            for repeat in range(case.repeats)
        ]
        rates = torch.tensor([[each["tokens"] / each["seconds"] for each in pair] for pair in found])
        one, two = rates.median(dim=0).values.tolist()
        peaks = " and ".join(f"{max(pair[i]['peak_gib'] for pair in found):.1f}" for i in range(2))
        yield (
            f"| {name}, {lengths[0]}-{lengths[1]} tokens | {one:,.0f} | {two:,.0f} | "
            f"{told((rates[:, 1] / rates[:, 0]).tolist())} | {peaks} |"
        )


# --- a whole iteration ----------------------------------------------------------------------------------------------

PHASES = ("generate", "old_logp", "ref_logp", "update", "audit", "sync", "reward", "dual")


def measure_iteration(case: Case, num_prompts: int, iterations: int) -> dict[str, float]:
    """Seconds of the phases of training, summed over all iterations but the first."""
    stops = stop_ids(case, case.max_new_tokens)
    model = random_model(case, torch.bfloat16, eos_token_id=stops, pad_token_id=case.config["vocab_size"] - 1)
    prompts = random_prompts(case.config["vocab_size"], num_prompts * iterations, case.prompt_tokens, len(stops))
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as name:
        write_words(Path(name), model, [prompt.token_ids for prompt in prompts])
        del model
        timed_run(
            Path(name),
            "quatro",
            [
                *("dtype=bfloat16", f"device={case.device.type}", f"steps={iterations}"),
                *(f"prompts_per_step={num_prompts}", f"minibatch_prompts={max(1, num_prompts // 4)}"),
                *(f"rollouts_per_prompt={case.n}", "inner_updates=1", "kl.beta=0.001", "optimizer.lr=1e-6"),
                *(f"rollout.max_new_tokens={case.max_new_tokens}", f"microbatch_tokens={case.budgets[1]}"),
                "policy.gradient_checkpointing=true",
            ],
            clock=lambda: clock(case.device),  # the loop's own phase timer then waits for the device
            is_correct=lambda _, rollout: sum(rollout.token_ids) % 2 == 1,
            observer=lambda metrics: rows.append(dict(metrics)),
        )
    found = {phase: sum(row[f"perf/{phase}_s"] for row in rows[1:]) for phase in PHASES}
    tokens = sum(row["tokens"] for row in rows[1:])
    return found | {"whole": sum(row["perf/step_s"] for row in rows[1:]), "tokens": tokens}


def iteration(records: Records, case: Case) -> Iterator[str]:
    """K = 1, four minibatches, beta > 0, gradient checkpointing, our engine: where the time goes."""
    num_prompts, iterations = (2 * case.prompts, 3) if case.shape != "tiny" else (4, 2)
    found = records("iteration", lambda: measure_iteration(case, num_prompts, iterations), about_s=240)
    scoring = found["generate"] + found["old_logp"] + found["ref_logp"]
    yield "| phase | share of an iteration |"
    yield "|---|---|"
    for phase in PHASES:
        yield f"| {phase} | {found[phase] / found['whole']:.1%} |"
    yield f"| the rest | {1 - sum(found[phase] for phase in PHASES) / found['whole']:.1%} |"
    yield f"| generation and log-probabilities (the paper: 60-90 %) | {scoring / found['whole']:.1%} |"
    yield f"| response tokens/s of the whole | {found['tokens'] / found['whole']:,.0f} |"
