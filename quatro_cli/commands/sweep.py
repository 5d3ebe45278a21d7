"""`quatro sweep`: a grid of runs, resumable."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quatro_cli.options import DryRun, Json, Set, split
from quatro_cli.output import output

if TYPE_CHECKING:
    from quatro.sweep import Outcome, Plan


def sweep(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="A YAML file or the name of a shipped one.")],
    grid: Annotated[list[str], typer.Option("-g", "--grid", metavar="KEY=V,V", help="An axis; repeatable.")],
    settings: Set,
    seeds: Annotated[str, typer.Option("--seeds", metavar="0,1,2", help="The same as -g seed=0,1,2.")] = "",
    method: Annotated[str | None, typer.Option("-m", "--method", help="Method of every point.")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="DIR", help="Default: sweeps/<config>.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Runs at a time.")] = 1,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Train every point of a grid; type it again to run only what is missing or failed.

    An axis over method.name replaces the method block; an axis method.X counts only for methods that have X. Ends
    with 6 if a run failed; the results stand in summary.csv.

    \b
    Examples:
      quatro sweep quickstart -g method.delta=0.1,0.01,0.001 --seeds 0,1
      quatro sweep quickstart -g method.name=quatro,gspo -g method.delta=0.1,0.01 --dry-run
    """
    from evals.errors import PartialFailureError
    from quatro.stop import StopRequest
    from quatro.sweep import parse_axis, plan_sweep, run_sweep, status_of

    axes = [parse_axis(text) for text in grid]
    plan = plan_sweep(config, axes, seeds=_seeds(seeds), overrides=settings, method=method)
    folder = out or Path("sweeps") / plan.name
    if dry_run:
        _show(plan, folder, [status_of(point, folder) for point in plan.points], json=json)
        return
    command = [sys.executable, "-m", "quatro_cli.app", "train"]
    with StopRequest(notify=output.warn) as stop, output.progress("runs", len(plan.points)) as bar:
        outcomes = run_sweep(plan, folder, train_command=command, jobs=jobs, stop=stop, progress=bar.update)
    _show(plan, folder, outcomes, json=json)
    output.info(f"results: {folder / 'summary.csv'}")
    if stop.requested:
        output.warn(f"stopped by {stop.signal.name if stop.signal else 'request'}; type the same command to go on")
        raise typer.Exit(stop.exit_code)
    unfinished = [outcome for outcome in outcomes if outcome.status != "done"]
    if unfinished:
        raise PartialFailureError(
            f"{len(unfinished)} of {len(outcomes)} runs are not done; their logs stand in {folder / 'logs'}; "
            "type the same command to run only these"
        )


def _seeds(text: str) -> list[int]:
    from evals.errors import UsageError

    try:
        return [int(part) for part in split([text])]
    except ValueError:
        raise UsageError(f"--seeds {text}: expected whole numbers such as 0,1,2") from None


def _show(plan: Plan, folder: Path, outcomes: list[Outcome], *, json: bool) -> None:
    if json:
        points = [
            {"name": o.point.name, "settings": o.point.settings, "status": o.status, "reason": o.reason}
            for o in outcomes
        ]
        output.json({"schema": 1, "folder": str(folder), "num_collapsed": plan.num_collapsed, "points": points})
        return
    collapsed = (
        f" ({plan.num_collapsed} more collapsed: they differ only in keys their method lacks)"
        if plan.num_collapsed
        else ""
    )
    title = f"{len(plan.points)} runs in {folder}{collapsed}"
    output.table(title, ["point", "status", "reason"], [(o.point.name, o.status, o.reason) for o in outcomes])
