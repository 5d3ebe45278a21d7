"""Draws samples of a benchmark into a folder, and continues where an earlier call stopped.

    <folder>/<benchmark>.jsonl   one line a sample, written a few problems at a time
    <folder>/sampling.json       how they were drawn; other settings into the same folder are refused

The seed of a sample depends on nothing but the run's seed, the problem and the sample's index: samples are the same
however often sampling was interrupted and however problems were batched.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.errors import DataError, UsageError
from evals.records import Sample, SampleWriter
from quatro.atomic import write_json
from quatro.rollout.streams import sample_seed
from quatro.types import Prompt, Rollout, Sampling

if TYPE_CHECKING:
    from quatro.rewards import Reward
    from quatro.rollout.engine import Engine

logger = logging.getLogger(__name__)

ROWS_PER_CALL = 1024  # what a crash can lose, against how well an engine batches

Progress = Callable[[int, int], None]  # (samples in the file, samples wanted)


@dataclass(frozen=True)
class Source:
    """Where samples come from. ``fingerprint`` tells two models apart that share a name."""

    model: str
    method: str | None = None
    fingerprint: str | None = None


@dataclass(frozen=True)
class Drawn:
    path: Path
    num_problems: int
    num_new: int
    num_present: int


def sample_benchmark(
    engine: Engine,
    prompts: Sequence[Prompt],
    *,
    n: int,
    sampling: Sampling,
    seed: int,
    template: str,
    source: Source,
    folder: Path,
    reward: Reward | None = None,
    progress: Progress | None = None,
) -> Drawn:
    """``n`` samples of every prompt (all of one benchmark) in ``folder``; only what is missing is drawn.

    With a ``reward`` each row says whether it is correct.

    Raises:
        UsageError: ``folder`` holds samples that were drawn with other settings.
        DataError: no prompts, or the file in ``folder`` cannot be read.
    """
    if not prompts:
        raise DataError("no prompts to sample from")
    if n < 1:
        raise UsageError(f"n is the number of samples per problem and at least 1, found {n}")
    benchmark = prompts[0].benchmark
    claim_folder(folder, settings_of(sampling, seed=seed, template=template, source=source), n=n)
    path = folder / f"{file_stem(benchmark)}.jsonl"
    with SampleWriter(path) as writer:
        for warning in writer.warnings:
            logger.warning(warning)
        missing = {
            prompt.id: [index for index in range(n) if (prompt.id, index) not in writer.present] for prompt in prompts
        }
        num_wanted = len(prompts) * n
        num_present = num_wanted - sum(map(len, missing.values()))
        num_done = num_present
        for chunk in _chunks([prompt for prompt in prompts if missing[prompt.id]], missing):

            def report(num_finished: int, num_tokens: int, num_before: int = num_done) -> None:
                if progress is not None:
                    progress(num_before + num_finished, num_wanted)

            seeds = [
                [sample_seed(seed, benchmark, prompt.id, index) for index in missing[prompt.id]] for prompt in chunk
            ]
            rollouts = engine.generate(chunk, seeds, sampling, progress=report)
            correct = reward.score(chunk, rollouts).correct if reward is not None else None
            for i, prompt in enumerate(chunk):
                verdicts = correct[i] if correct is not None else [None] * len(rollouts[i])
                drawn = zip(missing[prompt.id], rollouts[i], verdicts, strict=True)
                writer.append(_sample(prompt, index, rollout, verdict) for index, rollout, verdict in drawn)
                num_done += len(rollouts[i])
            report(0, 0, num_done)
    return Drawn(path, len(prompts), num_done - num_present, num_present)


def _sample(prompt: Prompt, index: int, rollout: Rollout, is_correct: bool | None) -> Sample:
    return Sample(
        benchmark=prompt.benchmark,
        id=prompt.id,
        sample_index=index,
        completion=rollout.text,
        answer=prompt.answer,
        prompt=prompt.text,
        finish_reason=rollout.finish_reason,
        correct=is_correct,
    )


def default_tag(sampling: Sampling, *, step: int | None = None) -> str:
    """``T1-p0.7-step000100``: temperature, top_p, top_k where it is on, and the step of the checkpoint."""
    parts = [f"T{sampling.temperature:g}", f"p{sampling.top_p:g}"]
    if sampling.top_k:
        parts.append(f"k{sampling.top_k}")
    if step is not None:
        parts.append(f"step{step:06d}")
    return "-".join(parts)


def file_stem(name: str) -> str:
    """``name`` where it is a safe file name, else a slug of it with a short hash."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._-")[:60]
    if slug and slug == name:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{slug}-{digest}" if slug else digest


def settings_of(sampling: Sampling, *, seed: int, template: str, source: Source) -> dict[str, Any]:
    """What must agree for samples to belong together, in the form of sampling.json."""
    return {
        "schema": 1,
        "model": source.model,
        "fingerprint": source.fingerprint,
        "method": source.method,
        "seed": seed,
        "sampling": {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "max_tokens": sampling.max_new_tokens,
            "prompt": template,
        },
    }


def claim_folder(folder: Path, settings: Mapping[str, Any], *, n: int) -> None:
    """Write sampling.json, or compare with the one that is there; a larger n is a continuation.

    Raises:
        UsageError: another setting than n differs, or there are samples but no sampling.json.
        DataError: sampling.json cannot be read.
    """
    path = folder / "sampling.json"
    if path.exists():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            found_n = found["sampling"].pop("n")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path} cannot be read ({type(error).__name__}: {error}); choose another --tag") from error
        there, wanted = _flat(found), _flat(settings)
        differing = [key for key in wanted if there.get(key) != wanted[key]]
        if differing:
            lines = "; ".join(f"{key}: there {there.get(key)}, asked {wanted[key]}" for key in differing)
            raise UsageError(f"{folder} holds samples drawn with other settings ({lines}); choose another --tag or -o")
        n = max(n, found_n)
    elif folder.is_dir() and any(folder.glob("*.jsonl")):
        raise UsageError(
            f"{folder} holds samples but no sampling.json that says how they were drawn; choose another -o"
        )
    folder.mkdir(parents=True, exist_ok=True)
    document = {**settings, "sampling": {"n": n, **settings["sampling"]}}
    write_json(path, document)


def fingerprint(model_folder: Path) -> str:
    """Tells two versions of a model folder apart: sizes of its files, whole small ones, both ends of large ones."""
    digest = hashlib.sha256()
    end_bytes = 2**20
    for path in sorted(model_folder.glob("*")):
        if path.suffix not in (".json", ".safetensors", ".bin"):
            continue
        size = path.stat().st_size
        digest.update(f"{path.name}:{size}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(end_bytes))
            if size > end_bytes:
                file.seek(max(end_bytes, size - end_bytes))
                digest.update(file.read(end_bytes))
    return digest.hexdigest()[:16]


def _chunks(prompts: Sequence[Prompt], missing: Mapping[str, Sequence[int]]) -> list[list[Prompt]]:
    """Prompts in groups of about `ROWS_PER_CALL` missing samples, at least one prompt each."""
    chunks: list[list[Prompt]] = []
    num_rows = ROWS_PER_CALL
    for prompt in prompts:
        if num_rows + len(missing[prompt.id]) > ROWS_PER_CALL:
            chunks.append([])
            num_rows = 0
        chunks[-1].append(prompt)
        num_rows += len(missing[prompt.id])
    return chunks


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in settings.items() if key != "sampling"}, **settings["sampling"]}
