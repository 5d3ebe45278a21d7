"""The same benchmarks sampled several times, such as at several temperatures: how right and how diverse they are.

Hotter sampling gives more different answers and fewer right ones. UCR, clusters of correct answers per sample, counts
only answers that are both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from evals.errors import UsageError
from evals.files.strict_json import shown
from evals.metrics.comparing import namesakes
from evals.metrics.counting import BY_DEFAULT, Clustering, Counted
from evals.metrics.passk_ucc import passk_result, ucc_result
from evals.results.document import About, Result, Row, SamplingInfo
from evals.samples.graders import agreed_grader
from evals.samples.types import Samples
from evals.similarity import Setting

METRIC = "ucr"


class Side(NamedTuple):
    """One set of samples and what is known of how they were drawn."""

    label: str
    samples: Samples | Counted
    about: About


def temperature_result(
    sides: Sequence[Side],
    *,
    clustering: Clustering = BY_DEFAULT,
    ks: Sequence[int] = (),
    ci: bool = False,
    seed: int = 0,
    jobs: int | None = 1,
    on_progress: Callable[[int, int], None] | None = None,
) -> Result:
    """pass@1, UCR, clusters and effective number of each side and benchmark, and Pass@k and UCC@k of ``ks``.

    Rows also have ``label``, ``temperature``, ``top_p`` and ``top_k``, null if unknown. Options are as in `ucc_result`.
    The head names the grader that all sides share. UCR falls as n grows, so a warning names sides with unequal n, and
    sides that hold different problems.

    Raises:
        UsageError: there is no side, or as `ucc_result`.
        DataError: a sample has no grade, or two sides were graded differently.
    """
    if not sides:
        raise UsageError("no samples given; name one file or folder for each temperature")
    rows: list[Row] = []
    warnings: list[str] = []
    counted = [Counted.of(side.samples) for side in sides]
    all_ks = sorted({1, *ks})
    for side, samples in zip(sides, counted, strict=True):
        passed = {(row.benchmark, row.k): row for row in passk_result(samples, ks=all_ks, ci=ci, seed=seed).rows}
        found = ucc_result(
            samples,
            clustering=clustering,
            ks=all_ks,
            ci=ci,
            seed=seed,
            jobs=jobs,
            on_progress=on_progress,
        )
        sampling = side.about.get("sampling", SamplingInfo())
        drawn = {name: getattr(sampling, name) for name in ("temperature", "top_p", "top_k")}
        for row in found.rows:
            if row.metric == "ucc@k":
                setting = row.model_dump(include=set(Setting._fields))
                update = {**setting, "label": side.label, **drawn}
                rows.append(passed[row.benchmark, row.k].model_copy(update=update))
            if (row.metric, row.k) != ("ucc@k", 1):  # which is pass@1
                rows.append(row.model_copy(update={"label": side.label, **drawn}))
        warnings += found.warnings
    warnings += _differences([side.label for side in sides], counted)
    grader = agreed_grader({side.label: side.about["grader"] for side in sides if "grader" in side.about})
    return Result(metric=METRIC, label=None, grader=grader, rows=rows, warnings=list(dict.fromkeys(warnings)))


def _differences(labels: Sequence[str], sides: Sequence[Counted]) -> list[str]:
    n_of = [{(problem.benchmark, problem.id): problem.n for problem in side.problems} for side in sides]
    first, warnings = n_of[0], []
    for label, side, found in zip(labels[1:], sides[1:], n_of[1:], strict=True):
        if found.keys() != first.keys():
            warnings.append(f"{label} and {labels[0]} hold different problems, so their rows cannot be compared")
        elif found != first:
            warnings.append(f"{label} and {labels[0]} have unequal n, and UCR falls as n grows: draw equal n")
        if others := namesakes(sides[0], side):
            one = others[0][0]
            warnings.append(
                f"{label} and {labels[0]} hold different problems under {len(others)} ids, such as {shown(one.id)} of "
                f"{one.benchmark}: rows of different problems cannot be compared"
            )
    return warnings
