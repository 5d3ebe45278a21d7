"""Draws samples of a benchmark into a folder, and continues where an earlier call stopped.

    <folder>/<benchmark>.jsonl   one line a sample, by problem and index once it is complete
    <folder>/<benchmark>.problems.json   what of its problems is too long for every line, such as tests
    <folder>/sampling.json       how they were drawn; other settings into the same folder are refused

The seed of a sample depends on nothing but the run's seed, the problem and the sample's index: samples are the same
however often sampling was interrupted and however problems were batched, and so is the file in the end.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.benchmarks.catalogue import judged_as
from evals.benchmarks.prompts import THOUGHT
from evals.errors import DataError
from evals.files.strict_json import shown
from evals.files.whole import file_stem, write_bytes
from evals.samples.code import short_values, write_long_values
from evals.samples.types import Sample
from evals.samples.writing import SampleWriter
from evals.text import clock_text
from quatro.rewards import Reward
from quatro.rollout.engine import Arrival, RolloutProgress, Sampler, Seeds, sample_seed
from quatro.sample.settings import SampleSettings, claim_folder, note_drawn
from quatro.types import Prompt, Rollout, Sampling

if TYPE_CHECKING:
    from quatro.rollout.server import ServerSampler

logger = logging.getLogger(__name__)

# What one call of an engine draws, and a crash can lose, against how well an engine batches.
ROWS_PER_CALL = 1024
TOKENS_PER_CALL = 1 << 18

# (benchmark, samples in its file, samples wanted, tokens drawn by this call)
DrawProgress = Callable[[str, int, int, int], None]


@dataclass(frozen=True)
class SampleFile:
    """The samples of a benchmark: how many of them were drawn just now or there before. As a path it is its file."""

    benchmark: str
    path: Path
    num_problems: int
    num_new: int
    num_present: int

    def __fspath__(self) -> str:
        return str(self.path)


def sample_benchmark(
    engine: Sampler | ServerSampler,
    prompts: Sequence[Prompt],
    settings: SampleSettings,
    folder: Path,
    *,
    reward: Reward | None = None,
    progress: DrawProgress | None = None,
    num_rows: int | None = None,
) -> SampleFile:
    """The file with samples of every prompt (all of one benchmark) in ``folder``; only what is missing is drawn.

    With a ``reward`` each new row says whether it is correct; with markers in ``settings.thinking`` it has the thought
    apart. ``num_rows``: samples that one call of the engine draws.

    Raises:
        UsageError: ``folder`` holds samples that were drawn with other settings.
        DataError: no prompts, or the file in ``folder`` cannot be read.
    """
    if not prompts:
        raise DataError("no prompts to sample from")
    n, sampling, benchmark = settings.n, settings.sampling, prompts[0].benchmark
    # What every row says: how the answers of one's own benchmark are judged, and where programs were run.
    said = {**judged_as(benchmark), **(reward.environment() if reward is not None else {})}
    claim_folder(folder, benchmark, settings)
    path = folder / f"{file_stem(benchmark)}.jsonl"
    write_long_values(path, ((prompt.id, prompt.problem, prompt.extra) for prompt in prompts))
    with SampleWriter(path) as writer:
        for warning in writer.warnings:
            logger.warning(warning)
        for prompt in prompts:
            _refuse_another_problem(prompt, *writer.asked.get(prompt.id, (None, prompt.answer)), path)
        wanted = [(prompt, index) for prompt in prompts for index in range(n)]
        missing = [(prompt, index) for prompt, index in wanted if (prompt.id, index) not in writer.present]
        num_wanted, num_present = len(wanted), len(wanted) - len(missing)
        num_done, num_tokens = num_present, 0

        def report(num_finished: int, num_drawn: int) -> None:
            if progress is not None:
                progress(benchmark, num_done + num_finished, num_wanted, num_tokens + num_drawn)

        if num_present < num_wanted:
            report(0, 0)
        num_rows = num_rows or default_rows_per_call(sampling)
        for start in range(0, len(missing), num_rows):
            some = missing[start : start + num_rows]
            groups = [list(group) for _, group in itertools.groupby(some, key=lambda pair: pair[0].id)]
            asked = [group[0][0] for group in groups]
            seeds = [
                [sample_seed(settings.seed, benchmark, prompt.id, index) for prompt, index in group] for group in groups
            ]
            with closing(_arrivals(engine, asked, seeds, sampling, report)) as batches:
                for batch in batches:
                    drawn = [(*groups[one.number][one.row], one) for one in batch]
                    rollouts = [one.rollout.without_thought(settings.thinking, prompt) for prompt, _, one in drawn]
                    verdicts: list[bool | None] = [None] * len(drawn)
                    if reward is not None:
                        grades = reward.score([prompt for prompt, *_ in drawn], [[one] for one in rollouts])
                        verdicts = [grade.correct for (grade,) in grades]
                    writer.append(
                        _sample(prompt, index, rollout, verdict, said)
                        for (prompt, index, _), rollout, verdict in zip(drawn, rollouts, verdicts, strict=True)
                    )
                    num_done += len(batch)
                    num_tokens += sum(one.num_tokens for one in batch)
                    report(0, 0)
        # Also where nothing was missing: a call may have ended between its last row and this.
        if num_present or not hasattr(engine, "generate"):
            put_in_order(path, [prompt.id for prompt in prompts])
        note_drawn(path, benchmark)
    return SampleFile(benchmark, path, len(prompts), num_done - num_present, num_present)


def _refuse_another_problem(prompt: Prompt, text: str | None, answer: object, path: Path) -> None:
    """Raises DataError if the samples in ``path`` are of another problem with the same id."""
    for what, there, now in (("prompt", text, prompt.text), ("reference answer", answer, prompt.answer)):
        if there is not None and there != now:
            raise DataError(
                f"{path}: the samples of {shown(prompt.id)} have the {what} {shown(there)}, and the problem now has "
                f"{shown(now)}: the benchmark was edited; sample into another folder with -o, or remove the file"
            )


def _arrivals(
    engine: Sampler | ServerSampler,
    prompts: Sequence[Prompt],
    seeds: Seeds,
    sampling: Sampling,
    progress: RolloutProgress,
) -> Generator[list[Arrival], None, None]:
    """All rollouts at once, or as they come from a server."""
    if not hasattr(engine, "generate"):
        yield from engine.stream(prompts, seeds, sampling)
        return
    groups = engine.generate(prompts, seeds, sampling, progress=progress)
    yield [
        Arrival(number, row, rollout, len(rollout.token_ids))
        for number, (wanted, group) in enumerate(zip(seeds, groups, strict=True))
        for row, (_, rollout) in enumerate(zip(wanted, group, strict=True))
    ]


def _sample(prompt: Prompt, index: int, rollout: Rollout, is_correct: bool | None, said: Mapping[str, Any]) -> Sample:
    return Sample(
        benchmark=prompt.benchmark,
        id=prompt.id,
        sample_index=index,
        completion=rollout.text,
        answer=prompt.answer,
        prompt=prompt.text,
        finish_reason=rollout.finish_reason,
        correct=is_correct,
        extra={**short_values(prompt.extra), **said, **({THOUGHT: rollout.thought} if rollout.thought else {})},
    )


def put_in_order(path: Path, ids: Sequence[str]) -> None:
    """Sort the rows of a samples file by problem, in the order of ``ids``, and index; other ids come last."""
    rank = {id: position for position, id in enumerate(ids)}
    places: list[tuple[int, str, int, int, int]] = []  # with where a line begins and its length: a file may be large
    offset = 0
    with path.open("rb") as stream:
        for line in stream:
            if not line.isspace():
                row = json.loads(line)
                places.append((rank.get(row["id"], len(rank)), row["id"], row["sample_index"], offset, len(line)))
            offset += len(line)
    ordered = sorted(places)
    if ordered == places:
        return

    def lines() -> Iterator[bytes]:
        with path.open("rb") as stream:
            for *_, start, length in ordered:
                stream.seek(start)
                yield stream.read(length)

    write_bytes(path, lines())


def default_rows_per_call(sampling: Sampling) -> int:
    """Samples that one call of an engine draws: fewer, the longer they may be."""
    return max(1, min(ROWS_PER_CALL, TOKENS_PER_CALL // sampling.max_new_tokens))


def pace(num_new: int, num_left: int, num_tokens: int, elapsed_s: float, max_tokens: int) -> str:
    """``812 tokens/s, 3:10 left``, by the tokens that were drawn in ``elapsed_s`` seconds, unfinished samples included.

    Long samples finish together, so few finished ones say little: a sample is taken to have as many tokens as were
    drawn for each finished one, and at most ``max_tokens``.
    """
    if elapsed_s <= 0 or not num_tokens:
        return ""
    speed = num_tokens / elapsed_s
    each = min(max_tokens, num_tokens / num_new) if num_new else max_tokens
    left_s = ((num_new + num_left) * each - num_tokens) / speed
    return f"{speed:,.0f} tokens/s" + (f", {clock_text(left_s)} left" if num_left else "")
