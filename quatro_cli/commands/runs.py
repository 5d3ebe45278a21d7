"""`quatro runs`: which runs there are and how they stand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quatro_cli.help import App
from quatro_cli.options import Json, Run
from quatro_cli.output import output

if TYPE_CHECKING:
    from quatro.runs.summary import RunSummary

app = App()


@app.callback()
def _runs() -> None:
    """List and show runs.

    \b
    Examples:
      quatro runs list
      quatro runs show runs/quickstart-quatro-0
    """


def list_(
    root: Annotated[Path, typer.Argument(metavar="ROOT", help="The folder to look in, subfolders included.")] = Path(
        "runs"
    ),
    json: Json = False,
) -> None:
    """List every run below a folder.

    A run is `killed` if its status says `running` and no process holds it.

    \b
    Examples:
      quatro runs list
      quatro runs list sweeps/delta --json
    """
    from quatro.runs.summary import list_runs

    runs = list_runs(root)
    if json:
        output.json({"schema": 1, "runs": [_document(run) for run in runs]})
    elif runs:
        columns = ["run", "status", "step", "method", "seed", "reward", "updated"]
        output.table("", columns, [_row(run) for run in runs])
        for run in runs:
            if run.status == "unreadable":
                output.warn(f"{run.path}: {run.reason}")
    else:
        output.info(f"no runs below {root}; begin one with `quatro train quickstart`")


def show(run: Run, json: Json = False) -> None:
    """Show the status, checkpoints and last metrics of a run.

    \b
    Examples:
      quatro runs show runs/quickstart-quatro-0
      quatro runs show runs/quickstart-quatro-0 --json
    """
    from quatro.runs.summary import describe_run

    found = describe_run(run)
    if json:
        output.json(_document(found))
        return
    assert found.config is not None
    rows: list[tuple[str, Any]] = [
        ("run", found.path),
        ("status", found.status if found.reason is None else f"{found.status} ({found.reason})"),
        ("step", f"{found.step} of {found.steps}"),
        ("model", found.config.model),
        ("method", found.config.method.name),
        ("seed", found.config.seed),
        ("started", found.started),
        ("updated", found.updated),
        ("checkpoints", " ".join(map(str, found.checkpoints)) or None),
        *found.metrics.items(),
    ]
    output.table("", ["key", "value"], rows)


def _row(run: RunSummary) -> list[Any]:
    step = run.step if run.steps is None else f"{run.step}/{run.steps}"
    method = run.config.method.name if run.config else None
    seed = run.config.seed if run.config else None
    return [run.path, run.status, step, method, seed, run.metrics.get("reward/mean"), run.updated]


def _document(run: RunSummary) -> dict[str, Any]:
    return {
        "schema": 1,
        "run": str(run.path),
        "status": run.status,
        "reason": run.reason,
        "step": run.step,
        "steps": run.steps,
        "started": run.started,
        "updated": run.updated,
        "checkpoints": run.checkpoints,
        "metrics": run.metrics,
        "config": run.config.model_dump(mode="json") if run.config else None,
    }


app.add("list", list_)
app.add("show", show)
