"""`quatro eval ucc`: `count_samples` reads and grades the samples of a file, `ucc_result` clusters and counts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from quatro_cli.commands.eval import shared
from quatro_cli.options import Benchmarks, Json, names, numbers, refuse_idle, usage_error
from quatro_cli.output import output, visible

if TYPE_CHECKING:
    from evals.results.document import Row

AlsoClustered = Annotated[str | None, Option(metavar="NAME[,NAME]", help="vendi (Vendi score), distinct (distinct@k).")]
Preset = Annotated[str | None, Option(metavar="NAME", help="paper: the paper's clustering, as we read it.")]


def ucc(
    files: shared.Files,
    benchmarks: Benchmarks,
    k: shared.Ks = None,
    similarity: shared.Similarities = None,
    threshold: shared.Thresholds = None,
    linkage: shared.Linkage = "components",
    tokens: shared.Tokens = None,
    also: AlsoClustered = None,
    preset: Preset = None,
    jobs: shared.Jobs = None,
    ci: shared.Interval = False,
    seed: shared.BootstrapSeed = 0,
    first: shared.First = None,
    per_problem: shared.PerProblem = False,
    label: shared.Label = None,
    grader: shared.Grader = None,
    json: Json = False,
    out: shared.Out = None,
) -> None:
    """UCC@k: how many different solutions k samples hold.

    \b
    Examples:
      quatro eval ucc samples/math500.jsonl --preset paper --k 16,256 --ci
      quatro eval ucc base.jsonl --similarity tfidf,rouge-l --threshold 0.8,0.9 --json
    """
    from evals.metrics.passk_ucc import check_beside_ucc, ucc_result
    from evals.studies.sensitivity import sampling_warnings, sensitivity_rows

    same: dict[str, Any] = {"similarity": similarity, "threshold": threshold, "linkage": linkage, "tokens": tokens}
    if preset is not None:
        same = _of_preset(preset, same)
    how = shared.clustering(**same)
    further = names(also, "--also") or []
    check_beside_ucc(further, how.similarities)
    ks = numbers(k, "--k", int)
    asked = shared.asked_for(grader, first=first)
    shared.check_out(out, files)
    shared.check_per_problem(per_problem, json=json, out=out)
    counted, about = shared.counted_samples(files, benchmarks, asked=asked, label=label, jobs=jobs)
    shared.say_whose_grades(about)
    counting: dict[str, Any] = {"also": further, "ks": ks, "ci": ci, "seed": seed, "per_problem": per_problem}
    with shared.progress("clustering") as tell:
        result = ucc_result(counted, clustering=how, **counting, jobs=jobs, on_progress=tell, **about)
    others = None
    if preset is not None:
        with shared.progress("clustering otherwise") as tell:
            others = sensitivity_rows(counted, ks=ks, jobs=jobs, on_progress=tell)
        result = result.model_copy(update={"preset": preset, "sensitivity": others})
        output.warn(*sampling_warnings(result))
    shared.say_and_write(result, json=json, out=out)
    if not json:
        shared.show_rows(result.rows)
    if others is not None and not json:
        _show_sensitivity(others)


def _of_preset(preset: str, given: dict[str, Any]) -> dict[str, Any]:
    """The options of the clustering as ``preset`` has them; raises UsageError where they were given, too."""
    from evals.studies.sensitivity import PRESETS

    if preset not in PRESETS:
        raise usage_error(f"--preset {preset!r}: expected {' or '.join(PRESETS)}")
    chosen = {**given, "linkage": given["linkage"] != "components"}
    refuse_idle({f"--{name}": value for name, value in chosen.items()}, "--preset")
    setting = PRESETS[preset]
    return {**setting._asdict(), "threshold": f"{setting.threshold:g}"}


def _show_sensitivity(rows: Sequence[Row]) -> None:
    """UCC under other clusterings of the same samples: thresholds across, the preset's own cell has a star.

    Of several benchmarks the mean is shown.
    """
    from evals.results.document import AVERAGE
    from evals.similarity.catalogue import Setting
    from evals.studies.sensitivity import PAPER
    from evals.tables.parts import title_of

    names = {row.benchmark for row in rows} - {AVERAGE}
    name = AVERAGE if len(names) > 1 else min(names)
    cells = [
        (
            (row.linkage, row.tokens),
            f">= {row.threshold:g}",
            f"{row.value:.2f} {'*' if Setting.of(row) == PAPER else ' '}",
        )
        for row in rows
        if row.benchmark == name
    ]
    output.info(
        "The paper states neither threshold, linkage nor tokens; * is our reading of it. What the "
        "same samples would give otherwise:"
    )
    title = f"UCC@{rows[0].k} of {visible(title_of(name))} by {PAPER.similarity}, by threshold"
    shared.show_grid(title, ["linkage", "tokens"], cells)
