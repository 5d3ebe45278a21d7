"""What a person who looks at runs sees: of one, sections of labels and values; of several, a table side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quatro.runs.views.summary import RunSummary

MOST_EVALUATIONS = 8  # shown without --all: the first and the last ones

Rows = list[Sequence[object]]
Table = tuple[str, list[str], Rows]


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
    runs = found["runs"]
    rows: Rows = [("status", *(run["status"] for run in runs))]
    rows.append(("step", *(step_text(run["step"], run["steps"]) for run in runs)))
    failures = [run["reward_failures"] for run in runs]
    if any(counted and counted["count"] for counted in failures):
        rows.append(("reward failures", *(counted and "{count} of {of}".format(**counted) for counted in failures)))
    rows += [(name, *map(_mean_text, values)) for name, values in found["metrics"].items()]
    return "last 10 iterations, mean ± standard deviation", ["metric", *(run["name"] for run in runs)], rows


def _mean_text(value: Mapping[str, float | None] | None) -> str | None:
    if value is None:
        return None
    return f"{value['mean']:.4g}" if value["std"] is None else f"{value['mean']:.4g} ± {value['std']:.2g}"
