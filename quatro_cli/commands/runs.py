"""`quatro runs`: which runs there are and how they stand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quatro_cli import completion
from quatro_cli.help import App
from quatro_cli.options import Json, Run, names
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
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="PATTERN", help="Only runs whose path has this in it, or matches this pattern."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method", metavar="NAME[,NAME]", help="Only runs of these methods.", autocompletion=completion.methods
        ),
    ] = None,
    status: Annotated[
        str | None, typer.Option("--status", metavar="NAME[,NAME]", help="Only runs of this status, such as failed.")
    ] = None,
    sort: Annotated[
        str, typer.Option("--sort", metavar="BY", help="name, age, size, step, reward, or a metric.")
    ] = "name",
    json: Json = False,
) -> None:
    """List every run below a folder.

    A run is `killed` if its status says `running` and no process holds it. `age` is the time since its last iteration,
    `reward` stands in its last row of metrics. --sort puts the newest, largest or furthest run first, and a metric
    that it names in place of the reward.

    \b
    Examples:
      quatro runs list --status interrupted,failed,killed
      quatro runs list sweeps/delta --name 'seed=0' --sort entropy/token_mean
    """
    from quatro.runs.listing import REWARD, choose_runs, metric_of, sort_runs
    from quatro.runs.summary import list_runs

    found = list_runs(root)
    runs = choose_runs(found, methods=names(method, "--method"), statuses=names(status, "--status"), name=name)
    runs = sort_runs(runs, sort)
    if json:
        output.json({"schema": 1, "runs": [_document(run) for run in runs]})
    elif runs:
        metric = metric_of(sort) or REWARD
        shown = "reward" if metric == REWARD else metric
        columns = ["run", "status", "step", "method", "seed", shown, "age", "size"]
        output.table("", columns, [_row(run, metric) for run in runs])
        for run in runs:
            if run.status == "unreadable":
                output.warn(f"{run.path}: {run.reason}")
    elif found:
        output.info(f"none of the {len(found)} runs below {root} is chosen by the options")
    else:
        output.info(f"no runs below {root}; begin one with `quatro train quickstart`")


def show(run: Run, json: Json = False) -> None:
    """Show the status, checkpoints and last metrics of a run.

    \b
    Examples:
      quatro runs show runs/quickstart-quatro-0
      quatro runs show runs/quickstart-quatro-0 --json
    """
    from evals.text import size_text
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
        ("size", size_text(found.size)),
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


def _row(run: RunSummary, metric: str) -> list[Any]:
    from evals.text import size_text, time_text

    step = run.step if run.steps is None else f"{run.step}/{run.steps}"
    method = run.config.method.name if run.config else None
    seed = run.config.seed if run.config else None
    age = None if run.age_s is None else time_text(run.age_s)
    return [run.path, run.status, step, method, seed, run.metrics.get(metric), age, size_text(run.size)]


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
        "age_s": run.age_s,
        "size_bytes": run.size,
        "checkpoints": run.checkpoints,
        "best": None if run.best is None else {"metric": "eval/pass@1", "value": run.best[0], "step": run.best[1]},
        "metrics": run.metrics,
        "config": run.config.model_dump(mode="json") if run.config else None,
    }


app.add("list", list_)
app.add("show", show)
app.add("import", import_)
