"""`quatro runs`: which runs there are and how they stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from quatro_cli.help import App
from quatro_cli.options import DryRun, Json, Run, run_paths, usage_error
from quatro_cli.output import output

if TYPE_CHECKING:
    from quatro.runs.views.summary import RunSummary

app = App()

MOST_EVALUATIONS = 8  # shown without --all: the first and the last ones

Rows = list[Sequence[object]]
Table = tuple[str, list[str], Rows]

_RUNS = Path("runs")
Yes = Annotated[bool, Option("--yes", help="Do not ask.")]
Paths = Annotated[list[Path] | None, run_paths("[PATH...]", "Runs, or folders that contain runs. Default: runs.")]


@app.callback()
def _runs() -> None:
    """List, compare and remove runs.

    \b
    Examples:
      quatro runs list
      quatro runs compare runs/quickstart-quatro-0 runs/quickstart-gspo-0
    """


def list_(paths: Paths = None, json: Json = False) -> None:
    """List runs, and every run below folders.

    A run is `killed` if its status says `running` but no process holds it. `age` is the time since its last
    iteration, and `reward` is that of its last iteration. --json has all metrics of it, and the best evaluation.

    \b
    Examples:
      quatro runs list | grep -E 'interrupted|failed|killed'
      quatro runs list sweeps/delta/runs/*seed=0*
    """
    from evals.text import size_text, time_text
    from quatro.runs.views.summary import REWARD

    runs = _found(paths)
    if json:
        output.json({"schema": 1, "runs": [_document(run) for run in runs]})
    elif runs:
        columns = ["run", "status", "step", "method", "reward", "age", "size"]
        rows = []
        for run in runs:
            method = run.config.method.name if run.config else None
            age, reward = None if run.age_s is None else time_text(run.age_s), run.metrics.get(REWARD)
            rows.append(
                [run.path, run.status, step_text(run.step, run.steps), method, reward, age, size_text(run.size)]
            )
        output.table("", columns, rows)
        for run in runs:
            if run.status == "unreadable":
                output.warn(f"{run.path}: {run.reason}")
    else:
        output.info(f"no runs below {', '.join(map(str, paths or [_RUNS]))}; begin one with `quatro train quickstart`")


def show(
    run: Run,
    whole: Annotated[
        bool, Option("--all", help="Show every metric of the last iteration, and every evaluation.")
    ] = False,
    json: Json = False,
) -> None:
    """Show status, settings, last metrics, evaluations of a run.

    Evaluations during training have a standard error over problems; of many, the first and the last are shown.

    \b
    Examples:
      quatro runs show runs/quickstart-quatro-0
      quatro runs show runs/quickstart-quatro-0 --json
    """
    from quatro.runs.views.summary import describe_run

    found = describe_run(run)
    if json:
        extra = {"reward_failures": found.failures_document, "evaluations": found.evaluations}
        output.json(_document(found) | extra)
        return
    output.sections(run_sections(found, is_whole=whole))


def compare(
    runs: Annotated[list[Path], run_paths("RUN...", "Run directories, at least two.")], json: Json = False
) -> None:
    """Compare settings and last iterations of runs.

    Metrics are means of the last 10 iterations, +- their standard deviation over these iterations; that says nothing
    about other seeds. `quatro eval compare RUN_A RUN_B` has the difference between their samples, with its interval.

    \b
    Examples:
      quatro runs compare runs/quickstart-quatro-0 runs/quickstart-gspo-0
      quatro runs compare runs/* --json
    """
    from quatro.runs.views.summary import compare_runs

    if len(runs) < 2:
        raise usage_error(f"{runs[0]}: a comparison needs two runs or more; `quatro runs show` shows one")
    found = compare_runs(runs)
    if json:
        output.json(found)
        return
    if found["settings"]:
        rows = [(key, *values) for key, values in found["settings"].items()]
        output.table("settings that differ", ["key", *(run["name"] for run in found["runs"])], rows)
    else:
        output.info("the runs agree on every setting")
    output.table(*compared(found))


def rm(runs: Annotated[list[Path], run_paths("RUN...", "Run directories to remove.")], yes: Yes = False) -> None:
    """Remove runs for good, after asking.

    All that is in its folder is removed; what a symbolic link in it leads to stays. A run that a process trains is
    refused. A run that began with a removed checkpoint cannot be resumed.

    \b
    Examples:
      quatro runs rm runs/quickstart-quatro-0
      quatro runs rm runs/old-* --yes
    """
    from evals.text import size_text
    from quatro.runs.removing import refuse_removal, remove_run
    from quatro.runs.views.summary import describe_or_unreadable

    paths = list({run.resolve() if not run.is_symlink() else run: run for run in runs}.values())
    for path in paths:
        refuse_removal(path)
    found = [describe_or_unreadable(path) for path in paths]
    output.table(
        "",
        ["run", "status", "step", "size"],
        [(r.path, r.status, step_text(r.step, r.steps), size_text(r.size)) for r in found],
    )
    _confirm(f"runs: {len(found)}, {size_text(sum(run.size for run in found))}", yes=yes)
    for path in paths:
        remove_run(path)


def prune(
    paths: Paths = None,
    keep: Annotated[
        int, Option(metavar="N", min=1, help="How many of the newest checkpoints to keep.", show_default=True)
    ] = 1,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Remove the older checkpoints of finished runs.

    A run that is `done` keeps its newest checkpoint and the best one, by `checkpoint.keep.best` or else eval/pass@1. So
    it can still be sampled, exported and resumed with more --steps. What is kept is verified first. All other files
    and runs stay. A run that began with a removed checkpoint cannot be resumed.

    \b
    Examples:
      quatro runs prune --dry-run
      quatro runs prune runs/math-1.5b-quatro-0 sweeps/delta --keep 2 --yes
    """
    from evals.text import size_text
    from quatro.runs import removing

    plans, left = [], Counter[str]()
    for run in _found(paths):
        plan = removing.plan_pruning(run.path, run.status, run.best and run.best[2], keep=keep)
        if isinstance(plan, str):
            left[plan] += 1
        else:
            plans.append(plan)
    if left:
        output.info("left alone: " + ", ".join(f"{number} {reason}" for reason, number in left.items()))
    if not plans:
        output.info("there is nothing to prune")
        return
    rows = [(p.run, _steps(p.kept), _steps(p.removed), size_text(p.num_bytes)) for p in plans]
    output.table("", ["run", "stays", "goes", "frees"], rows)
    what = f"checkpoints: {sum(len(plan.removed) for plan in plans)}, {size_text(sum(p.num_bytes for p in plans))}"
    if dry_run:
        output.info(f"would remove {what}")
        return
    _confirm(what, yes=yes)
    for plan in plans:
        removing.prune(plan)


def _found(paths: Sequence[Path] | None) -> list[RunSummary]:
    """The runs at and below ``paths``, each once."""
    from quatro.runs.views.summary import list_runs

    return list({run.path.resolve(): run for path in paths or [_RUNS] for run in list_runs(path)}.values())


def _confirm(what: str, *, yes: bool) -> None:
    if not yes and not output.confirm(f"Remove {what}, for good?", option="--yes"):
        output.info("nothing is removed")
        raise typer.Exit(2)
    output.info(f"removing {what}")


def _steps(checkpoints: Sequence[Path]) -> str:
    from quatro.runs.directory import step_number

    return " ".join(str(step_number(path.name)) for path in checkpoints)


def _document(run: RunSummary) -> dict[str, Any]:
    return {
        "schema": 1,
        "run": str(run.path),
        "status": run.status,
        "reason": run.reason,
        "step": run.step,
        "steps": run.steps,
        "prompts": None if run.num_prompts is None else {"count": run.num_prompts, "skipped": run.num_left_out},
        "started": run.started,
        "updated": run.updated,
        "size_bytes": run.size,
        "checkpoints": run.checkpoints,
        "best": None if run.best is None else dict(zip(("metric", "value", "step"), run.best, strict=True)),
        "metrics": run.metrics,
        "config": run.config.model_dump(mode="json") if run.config else None,
    }


# ---- what a person who looks at a run sees: sections of labels and values


def step_text(step: int | None, steps: int | None) -> object:
    """`20/100`: the finished iterations, of how many."""
    return step if steps is None else f"{step}/{steps}"


def run_sections(run: RunSummary, *, is_whole: bool) -> list[tuple[str, Rows]]:
    """Titles and rows. Some metrics and evaluations of a long run are shown only if ``is_whole``."""
    from evals.results.training_metrics import LAST_ITERATIONS

    last = f"last iteration, and the mean of the last {min(LAST_ITERATIONS, len(run.rows))}"
    found = [
        (f"{run.path}", _state(run)),
        ("training", _training(run)),
        (last, _last(run, is_whole=is_whole)),
        (_evaluation_title(run), _evaluations(run, is_whole=is_whole)),
        ("kept", _kept(run)),
    ]
    return [(title, rows) for title, rows in found if rows]


def _state(run: RunSummary) -> Rows:
    from evals.text import size_text

    failures = run.reward_failures
    rows: Rows = [
        ("status", run.status if run.reason is None else f"{run.status}: {run.reason}"),
        ("iterations", run.step if run.steps is None else f"{run.step} of {run.steps}"),
    ]
    rows += [("started", run.started)] if run.started else []
    rows += [("updated", run.updated), ("size", size_text(run.size))]
    if failures and failures[0]:
        rows.append(("reward failures", "{} of {} responses".format(*failures)))
    return rows


def _training(run: RunSummary) -> Rows:
    config = run.config
    if config is None:
        return []
    left_out = f" ({run.num_left_out} left out as too long)" if run.num_left_out else ""
    number = "" if run.num_prompts is None else f"{run.num_prompts}{left_out} from "
    batch = f"{config.prompts_per_step} prompts x {config.rollouts_per_prompt} rollouts"
    learnt = f"{config.inner_updates} passes, learning rate {config.optimizer.lr:g}"
    return [
        ("model", config.model),
        *([("KL reference", config.kl.reference)] if config.kl.reference else []),
        ("method", method_text(config.method)),
        ("reward", ", ".join(dict.fromkeys(name for one in config.rewards.values() for name in one.names))),
        ("prompts", f"{number}{config.data.said}"),
        ("an iteration", f"{batch}, {learnt}"),
        ("seed", config.seed),
    ]


def method_text(method: Any) -> str:
    """`quatro(delta=0.01)`: its name, its KL radius, and what is not as by default."""
    from quatro.config.load import defaults_of

    defaults = defaults_of(type(method))
    own = {key: value for key, value in method.model_dump().items() if key != "name"}
    shown = [f"{key}={value}" for key, value in own.items() if key == "delta" or value != defaults.get(key)]
    return f"{method.name}({', '.join(shown)})" if shown else str(method.name)


def _last(run: RunSummary, *, is_whole: bool) -> Rows:
    """The metrics in which runs are compared and parts of the reward; all of them where there are none of these."""
    from evals.results.training_metrics import last_mean
    from quatro.runs.views.summary import chosen_metrics

    there = [name for name in run.metrics if name != "step"]
    chosen = there if is_whole else chosen_metrics(there) or there
    rows: Rows = [(name, run.metrics[name], last_mean(run.rows, name)) for name in chosen]
    if len(chosen) < len(there):
        rows.append((f"and {len(there) - len(chosen)} more metrics with --all",))
    return rows


def _names(run: RunSummary) -> list[str]:
    """The metrics of the run's evaluations, without their standard errors and counts."""
    from evals.results.training_metrics import evaluation_metrics

    return evaluation_metrics(name for row in run.evaluations for name in row)


def _evaluation_title(run: RunSummary) -> str:
    from evals.results.training_metrics import EVALUATION_COUNTS

    if not run.evaluations or run.config is None:
        return "evaluation"
    problems, n = (run.evaluations[-1].get(name) for name in EVALUATION_COUNTS)
    counts = "" if None in (problems, n) else f": {problems:g} problems x {n:g} samples"
    error = ", ± standard error" if any(f"{name}_se" in run.evaluations[-1] for name in _names(run)) else ""
    return f"evaluation on {', '.join(one for one, _ in run.config.evaluated.values())}{counts}{error}"


def _evaluations(run: RunSummary, *, is_whole: bool) -> Rows:
    from evals.results.training_metrics import EVALUATED
    from quatro.runs.views.summary import value_text

    names, found = _names(run), run.evaluations
    if not found:
        return []
    steps = [f"{row['step']:g}" if row["step"] else "0 (before)" for row in found]
    rows: Rows = [(step, *(value_text(row, name) for name in names)) for step, row in zip(steps, found, strict=True)]
    if len(rows) > MOST_EVALUATIONS and not is_whole:
        left = len(rows) - MOST_EVALUATIONS
        rows = [rows[0], (f"{left} more with --all",), *rows[left + 1 :]]
    return [("step", *(name.removeprefix(EVALUATED) for name in names)), *rows]


def _kept(run: RunSummary) -> Rows:
    from quatro.runs.views.summary import best_text

    rows: Rows = []
    if run.checkpoints:
        rows.append(("checkpoints", f"after step {', '.join(map(str, run.checkpoints))}"))
    if run.best is not None:
        metric, _, step = run.best
        rows.append((f"best {metric}", best_text(run, metric, step)))
    for folder in sorted(folder for folder in run.path.glob("samples/*") if folder.is_dir()):
        benchmarks = sorted(file.name.partition(".jsonl")[0] for file in folder.glob("*.jsonl*"))
        rows.append(("samples", f"{folder.name}: {', '.join(benchmarks)}"))
    return rows


# ---- several runs: a table with a column for each


def compared(found: Mapping[str, Any]) -> Table:
    """Title, columns and rows of what `compare_runs` found."""
    from quatro.runs.views.summary import spread_text

    runs = found["runs"]
    rows: Rows = [("status", *(run["status"] for run in runs))]
    rows.append(("step", *(step_text(run["step"], run["steps"]) for run in runs)))
    failures = [run["reward_failures"] for run in runs]
    if any(counted and counted["count"] for counted in failures):
        rows.append(("reward failures", *(counted and "{count} of {of}".format(**counted) for counted in failures)))
    for name, values in found["metrics"].items():
        rows.append((name, *(each and spread_text(each["mean"], each["std"]) for each in values)))
    return "last 10 iterations, mean ± standard deviation", ["metric", *(run["name"] for run in runs)], rows


app.add("list", list_)
app.add("show", show)
app.add("compare", compare)
app.add("rm", rm)
app.add("prune", prune)
