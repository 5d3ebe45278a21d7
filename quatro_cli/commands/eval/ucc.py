"""`quatro eval ucc`: `count_samples` reads and grades the samples of a file, `ucc_result` clusters and counts them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from quatro_cli.commands.eval.options import (
    BootstrapSeed,
    Files,
    First,
    Grader,
    Interval,
    Jobs,
    Ks,
    Label,
    Linkage,
    Out,
    PerProblem,
    Similarities,
    Thresholds,
    Tokens,
    asked_for,
    check_out,
    check_per_problem,
    clustering,
    counted_samples,
    progress,
    say_and_write,
    say_whose_grades,
)
from quatro_cli.options import Benchmarks, Json, names, numbers, refuse_idle, usage_error
from quatro_cli.output import output

AlsoClustered = Annotated[
    str | None, typer.Option("--also", metavar="NAME[,NAME]", help="vendi (Vendi score), distinct (distinct@k).")
]
Preset = Annotated[
    str | None, typer.Option("--preset", metavar="NAME", help="paper: the paper's clustering, as we read it.")
]


def ucc(
    files: Files,
    benchmarks: Benchmarks,
    k: Ks = None,
    similarity: Similarities = None,
    threshold: Thresholds = None,
    linkage: Linkage = "components",
    tokens: Tokens = None,
    also: AlsoClustered = None,
    preset: Preset = None,
    jobs: Jobs = None,
    ci: Interval = False,
    seed: BootstrapSeed = 0,
    first: First = None,
    per_problem: PerProblem = False,
    label: Label = None,
    grader: Grader = None,
    json: Json = False,
    out: Out = None,
) -> None:
    """UCC@k: how many different solutions k samples hold.

    \b
    Examples:
      quatro eval ucc samples/math500.jsonl --preset paper --k 16,256 --ci
      quatro eval ucc base.jsonl --similarity tfidf,rouge-l --threshold 0.8,0.9 --json
    """
    from evals.metrics.beside import check_beside_ucc
    from evals.metrics.passk_ucc import ucc_result
    from evals.studies.sensitivity import sampling_warnings, sensitivity_rows
    from quatro_cli.commands.eval.tables import show_rows, show_sensitivity

    same: dict[str, Any] = {"similarity": similarity, "threshold": threshold, "linkage": linkage, "tokens": tokens}
    if preset is not None:
        same = _of_preset(preset, same)
    how = clustering(**same)
    further = names(also, "--also") or []
    check_beside_ucc(further, how["similarities"])
    ks = numbers(k, "--k", int)
    asked = asked_for(grader, first=first)
    check_out(out, files)
    check_per_problem(per_problem, json=json, out=out)
    counted, about = counted_samples(files, benchmarks, asked=asked, label=label, jobs=jobs)
    say_whose_grades(about)
    counting: dict[str, Any] = {"also": further, "ks": ks, "ci": ci, "seed": seed, "per_problem": per_problem}
    with progress("clustering") as tell:
        result = ucc_result(counted, **how, **counting, jobs=jobs, on_progress=tell, **about)
    others = None
    if preset is not None:
        with progress("clustering otherwise") as tell:
            others = sensitivity_rows(counted, ks=ks, jobs=jobs, on_progress=tell)
        result = result.model_copy(update={"preset": preset, "sensitivity": others})
        output.warn(*sampling_warnings(result))
    say_and_write(result, json=json, out=out)
    if not json:
        show_rows(result.rows)
    if others is not None and not json:
        show_sensitivity(others)


def _of_preset(preset: str, given: dict[str, Any]) -> dict[str, Any]:
    """The options of the clustering as ``preset`` has them; raises UsageError where they were given, too."""
    from evals.studies.sensitivity import PRESETS

    if preset not in PRESETS:
        raise usage_error(f"--preset {preset!r}: expected {' or '.join(PRESETS)}")
    chosen = {**given, "linkage": given["linkage"] != "components"}
    refuse_idle({f"--{name}": value for name, value in chosen.items()}, "--preset")
    setting = PRESETS[preset]
    return {**setting._asdict(), "threshold": f"{setting.threshold:g}"}
