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
    """List, show and import runs.

    \b
    Examples:
      quatro runs list
      quatro runs show runs/quickstart-quatro-0
      quatro runs import trainer_state.json --from trl -o runs/trl
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
    rows: list[tuple[str, Any]] = [
        ("run", found.path),
        ("status", found.status if found.reason is None else f"{found.status} ({found.reason})"),
        ("step", found.step if found.steps is None else f"{found.step} of {found.steps}"),
        ("model", found.config and found.config.model),
        ("method", found.config and found.config.method.name),
        ("seed", found.config and found.config.seed),
        ("started", found.started),
        ("updated", found.updated),
        ("checkpoints", " ".join(map(str, found.checkpoints)) or None),
        *([("best eval/pass@1", f"{found.best[0]:.4g} in step {found.best[1]}")] if found.best else []),
        *found.metrics.items(),
    ]
    output.table("", ["key", "value"], rows)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Metrics that the other trainer has written.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="RUN", help="The run directory to make.")],
    tool: Annotated[str, typer.Option("--from", metavar="TOOL", help="trl or verl.")],
) -> None:
    """Make a run to look at from metrics of TRL or verl.

    FILE is trainer_state.json of a TRL checkpoint, or its log history as JSON lines; or what verl's file logger wrote.
    A metric gets the name of ours that means the same, as docs/trl.md lists them, and keeps its own where there is
    none. The run cannot be resumed or sampled.

    \b
    Examples:
      quatro runs import trl-quatro/checkpoint-500/trainer_state.json --from trl -o runs/trl
      quatro runs import verl/project/experiment.jsonl --from verl -o runs/verl
      quatro plot training runs/verl runs/math-1.5b-quatro-0 -o both.pdf
    """
    from quatro.runs.imported import import_metrics

    found = import_metrics(file, out, tool=tool)
    output.info(f"{found.num_steps} steps")
    output.info(*(f"{name} is {ours} here" for name, ours in found.renamed.items()))
    output.info(f"{len(found.kept)} metrics keep their names")
    if found.left_out:
        output.warn(f"left out, since some values are no numbers: {', '.join(found.left_out)}")
    output.data(str(out))


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
        "best": None if run.best is None else {"metric": "eval/pass@1", "value": run.best[0], "step": run.best[1]},
        "metrics": run.metrics,
        "config": run.config.model_dump(mode="json") if run.config else None,
    }


app.add("list", list_)
app.add("show", show)
app.add("import", import_)
