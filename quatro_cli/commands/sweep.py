"""`quatro sweep`: a grid of runs, resumable."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from quatro_cli.options import AllowUnsafe, DryRun, Json, Set, numbers, repeated, split, usage_error
from quatro_cli.output import output

if TYPE_CHECKING:
    from quatro.sweep.cost import SweepCost
    from quatro.sweep.measure import SweepEvaluation
    from quatro.sweep.plan import SweepPlan
    from quatro.sweep.run import PointOutcome, SweepProgress


def sweep(
    config: Annotated[
        str,
        Argument(
            metavar="CONFIG|SWEEP|DIR",
            help="A configuration (with -g), a sweep file, the name of one, or a sweep's folder.",
        ),
    ],
    settings: Set,
    grid: Annotated[list[str], repeated("-g", "--grid", metavar="KEY=V,V", help="An axis of the grid; repeatable.")],
    seeds: Annotated[str, Option(metavar="N[,N]", help="Seeds of every point, or a subset of a sweep file's.")] = "",
    cells: Annotated[str, Option("--cell", metavar="NAME[,NAME]", help="Only these cells of a sweep file.")] = "",
    method: Annotated[str | None, Option("-m", "--method", metavar="METHOD", help="Method of every point.")] = None,
    out: Annotated[
        Path | None, Option("-o", "--out", metavar="DIR", help="Folder for the sweep. Default: sweeps/CONFIG.")
    ] = None,
    jobs: Annotated[int | None, Option(metavar="N", min=1, help="Parallel runs, sharing threads. Default: 1.")] = None,
    gpus: Annotated[
        str, Option(metavar="N[,N]", help="Divide these GPUs among the points; each gets one per process.")
    ] = "",
    evaluate: Annotated[
        str | None,
        Option(
            "--eval",
            metavar="NAME[,NAME]|all",
            help="Sample and measure every run, and the base model once, on these benchmarks; all: the paper's.",
        ),
    ] = None,
    eval_n: Annotated[int | None, Option(metavar="N", help="Samples per problem for --eval. Default: 256.")] = None,
    eval_temperature: Annotated[
        str | None, Option(metavar="T[,T]", help="Sampling temperatures for --eval. Default: 1.")
    ] = None,
    eval_top_p: Annotated[str | None, Option(metavar="P[,P]", help="Values of top_p for --eval. Default: 1.")] = None,
    allow_unsafe_code: AllowUnsafe = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Train every point of a grid of settings.

    Repeat the command, or give DIR alone, to run what is missing or failed; more values add points. Ctrl-C also stops
    the runs; if the sweep is killed, they go on. summary.csv has results, `quatro table DIR --ci` means over seeds.
    Exit code 6: a run failed. -g method.name=A,B varies the method; method.X applies to methods that have X.

    \b
    Examples:
      quatro sweep quickstart -g method.delta=0.1,0.01,0.001 --seeds 0,1 --eval countdown
      quatro sweep paper-small --cell S1,S5 --seeds 0,1,2 --jobs 2 --dry-run
    """
    from evals.benchmarks.loading import load_problems
    from quatro.runs.points import SWEEP
    from quatro.sweep.cost import sweep_cost
    from quatro.sweep.file import find_sweep, read_evaluation, recorded_evaluation
    from quatro.sweep.plan import find_begun, read_plan
    from quatro.sweep.run import all_points, status_of

    gpu_list = _gpus(gpus, jobs)
    begun = find_begun(config)
    file = begun / SWEEP if begun else find_sweep(config)
    if begun:
        plan = read_plan(begun)
        given = {"-g": grid, "-s": settings, "--seeds": seeds, "--cell": cells, "-m": method, "-o": out}
        if ignored := [option for option, value in given.items() if value]:
            raise usage_error(
                f"{begun} is a sweep that goes on as it was planned; leave out {' and '.join(ignored)}. To add points, "
                f"repeat the command that began it with more values and -o {begun}; what is done stays"
            )
    else:
        plan = _new_plan(config, file, grid, settings=settings, seeds=seeds, cells=cells, method=method)
    folder = begun or out or Path("sweeps") / plan.name
    recorded = (file and read_evaluation(file)) or recorded_evaluation(folder)
    evaluation = _evaluation(recorded, plan, evaluate, eval_n, eval_temperature, eval_top_p)
    if dry_run:
        points = all_points(plan, evaluation)
        cost = sweep_cost(points, folder, evaluation)
        _show(plan, folder, [status_of(point, folder, evaluation) for point in points], json=json, cost=cost)
        return
    for benchmark in evaluation.benchmarks if evaluation is not None else ():
        load_problems(benchmark)  # one that is not there is refused before hours of training
    _run(plan, folder, evaluation, jobs=jobs or 1, gpus=gpu_list, json=json)


def _new_plan(
    config: str, file: Path | None, grid: list[str], *, settings: list[str], seeds: str, cells: str, method: str | None
) -> SweepPlan:
    """The plan of a sweep ``file``, or where that is None of a configuration with axes."""
    from quatro.config import find_config
    from quatro.sweep.file import load_sweep
    from quatro.sweep.plan import parse_axis, part_of, plan_sweep

    chosen_seeds = numbers(seeds or None, "--seeds", int) or ()
    if file is not None:
        ignored = [name for name, value in (("-g", grid), ("-m", method)) if value]
        if ignored:
            raise usage_error(f"{file} is a sweep file; leave out {' and '.join(ignored)}, or change a copy of it")
        return part_of(load_sweep(file, overrides=settings), split([cells]), chosen_seeds)
    if cells:
        raise usage_error(f"--cell {cells}: {config} has no cells, for it is a configuration; leave --cell out")
    find_config(config)
    if not grid and not seeds:
        raise usage_error(f"{config} is a configuration, not a sweep file: name an axis, -g method.delta=0.1,0.01")
    axes = [parse_axis(text) for text in grid]
    return plan_sweep(config, axes, seeds=chosen_seeds, overrides=settings, method=method)


def _run(
    plan: SweepPlan, folder: Path, evaluation: SweepEvaluation | None, *, jobs: int, gpus: Sequence[str], json: bool
) -> None:
    from evals.errors import PartialFailureError
    from quatro.processes.stop import StopRequest
    from quatro.sweep.cost import sweep_cost
    from quatro.sweep.run import all_points, run_sweep, status_of
    from quatro_cli.warm_start import ensure_model

    points = all_points(plan, evaluation)
    output.info(*sweep_cost(points, folder, evaluation).lines)
    unfinished = [point for point in points if status_of(point, folder, evaluation).status != "done"]
    for model in dict.fromkeys(point.config.model for point in unfinished):
        ensure_model(model)  # once, before points that would wait for each other start
    command = [sys.executable, "-m", "quatro_cli"]
    with StopRequest(notify=output.info) as stop, _progress(folder, len(points)) as progress:
        outcomes = run_sweep(
            plan,
            folder,
            train_command=[*command, "train"],
            sample_command=[*command, "sample"],
            evaluation=evaluation,
            jobs=jobs,
            gpus=gpus,
            stop=stop,
            progress=progress,
        )
    _show(plan, folder, outcomes, json=json)
    output.info(f"results: {folder / 'summary.csv'}")
    if stop.requested:
        output.info(f"stopped by {stop.signal.name if stop.signal else 'request'}; `quatro sweep {folder}` goes on")
        raise typer.Exit(stop.exit_code)
    failed = [outcome for outcome in outcomes if outcome.status != "done"]
    if failed:
        raise PartialFailureError(
            f"{len(failed)} of {len(outcomes)} runs are not done; their logs are in {folder / 'logs'}; "
            f"`quatro sweep {folder}` runs only these"
        )


def _gpus(text: str, jobs: int | None) -> list[str]:
    found = split([text])
    if found and jobs is not None:
        raise usage_error("--gpus says how many points run at a time, so --jobs would be ignored; leave it out")
    if len(set(found)) < len(found):
        raise usage_error(f"--gpus {text}: a GPU is named twice")
    return found


def _evaluation(
    recorded: Mapping[str, Any],
    plan: SweepPlan,
    benchmarks: str | None,
    n: int | None,
    temperature: str | None,
    top_p: str | None,
) -> SweepEvaluation | None:
    """What the options say, and where they say nothing what is ``recorded`` in the sweep's file or folder."""
    from evals.results.paper import BENCHMARKS, CODE_BENCHMARKS
    from quatro.sweep.measure import SweepEvaluation

    names = split([benchmarks]) if benchmarks is not None else recorded.get("benchmarks", [])
    if not names:
        given = (("--eval-n", n), ("--eval-temperature", temperature), ("--eval-top-p", top_p))
        ignored = [name for name, value in given if value is not None]
        if ignored:
            raise usage_error(f"{' and '.join(ignored)} without --eval would be ignored; add --eval countdown")
        return None
    if names == ["all"]:
        is_code = [one.name == "code" for point in plan.points for one in point.config.rewards.values()]
        names = [*(() if all(is_code) else BENCHMARKS), *(CODE_BENCHMARKS if any(is_code) else ())]
    return SweepEvaluation(
        tuple(names),
        n if n is not None else recorded.get("n", 256),
        tuple(numbers(temperature, "--eval-temperature", float) or recorded.get("temperature", [1.0])),
        tuple(numbers(top_p, "--eval-top-p", float) or recorded.get("top_p", [1.0])),
    )


@contextmanager
def _progress(folder: Path, total: int) -> Iterator[SweepProgress]:
    """On a terminal a bar of points done, with what happened last; elsewhere a line for whatever happens."""
    if output.is_terminal("stderr"):
        with output.progress(str(folder), total) as bar:
            yield bar
    else:
        yield lambda done, what: output.info(f"{done}/{total}  {what}")


def _show(
    plan: SweepPlan, folder: Path, outcomes: list[PointOutcome], *, json: bool, cost: SweepCost | None = None
) -> None:
    from quatro.sweep.measure import other_weights

    if json:
        document = {"schema": 1, "folder": str(folder), "num_collapsed": plan.num_collapsed}
        points = [outcome.document() for outcome in outcomes]
        output.json({**document, "points": points, **({"cost": asdict(cost)} if cost is not None else {})})
        return
    num_bases, number = len(outcomes) - len(plan.points), plan.num_collapsed
    bases = f" and {num_bases} untrained model{'s' if num_bases > 1 else ''}" if num_bases else ""
    collapsed = f" ({number} more collapsed: they differ only in keys their method lacks)" if number else ""
    title = f"{len(plan.points)} runs{bases} in {folder}{collapsed}"
    names = list(dict.fromkeys(name for outcome in outcomes for name in outcome.measured))
    # The numbers of several benchmarks are wider than a terminal.
    is_wide = output.is_terminal("stdout") and len({name.split("/")[0] for name in names}) > 1
    beside = [] if is_wide else names
    rows = [(o.point.name, o.status, *map(o.measured.get, beside), o.reason) for o in outcomes]
    output.table(title, ["point", "status", *beside, "reason"], rows)
    if is_wide:
        output.info(f"the numbers: `quatro table {shlex.quote(str(folder))}`")
    if num_warned := sum(1 for one in outcomes if one.warnings):
        places = f"{shlex.quote(str(folder / 'runs'))}/*/log.txt {shlex.quote(str(folder / 'logs'))}/*"
        output.warn(f"{num_warned} of {len(outcomes)} points warned: `grep -i warning {places}`")
    output.warn(*other_weights([one.point for one in outcomes], folder))
    if cost is not None:
        output.info(*cost.lines)
