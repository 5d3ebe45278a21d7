"""A report as plain JSON values, small enough for a page, and as that page.

Long curves are thinned and numbers rounded. The page is one file that needs and may load nothing else, and never takes
data for markup. Everything that runs did travels as JSON in a script element that no browser executes; the page's own
script puts it on screen as text nodes. The content security policy names that script by its hash and forbids every
other one, every address and every assignment of markup.
"""

import base64
import hashlib
import html
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from evals.estimators import OF_COUNTS
from evals.figures.method_looks import PALETTE
from evals.intervals import kinds_text, mean_of_seeds
from evals.report import BenchmarkView, Report, ReportRun, setting_text
from evals.report.answers import LONGEST_NAME, Json, capped
from evals.report.problems import problem_sets
from evals.results import training_metrics
from evals.results.document import AVERAGE, VALID, Row, largest_value
from evals.results.shown import rows_in_order, title_of
from evals.results.training_metrics import Metric, Rows
from evals.similarity import Setting
from evals.text import visible

MOST_POINTS = 400


def document(report: Report, *, num_problems: int | None = None) -> Json:
    """Everything a page shows, with `notes` on what it leaves out; the same report gives the same values."""
    groups = list(dict.fromkeys(run.group for run in report.runs))
    sets, left_out = problem_sets(report, num_problems=num_problems)
    charts, thinned = _charts(report.runs)
    return {
        "schema": 1,
        "title": visible(report.title),
        "sources": [visible(source) for source in report.sources],
        "latest": max((run.updated for run in report.runs), default="") or None,
        "statuses": dict(Counter(run.status for run in report.runs if run.config)),
        "notes": [*map(visible, report.notes), *thinned, *left_out],
        "last_steps": training_metrics.LAST_ITERATIONS,
        "last_metrics": [metric.column for metric in training_metrics.COLUMNS],
        "groups": [_group(name, report.runs) for name in groups],
        "runs": [_run(run, groups) for run in report.runs],
        "config": _config_table(report.runs),
        "charts": charts,
        "results": _results(report.runs, groups),
        "problems": sets,
    }


def rounded(value: object) -> float | int | None:
    """``value`` with five significant digits; None if it is no finite number."""
    if not training_metrics.is_finite(value):
        return None
    short = float(f"{value:.5g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _name(text: str) -> str:
    return capped(text, LONGEST_NAME).text


def _benchmark(name: str) -> str:
    return _name(title_of(name))


def _group(name: str, runs: Sequence[ReportRun]) -> Json:
    members = [index for index, run in enumerate(runs) if run.group == name]
    first = runs[members[0]]
    return {"label": _name(name), "cell": _name(first.cell), "delta": rounded(first.delta), "runs": members}


def _run(run: ReportRun, groups: Sequence[str]) -> Json:
    return {
        "name": _name(run.name),
        "group": groups.index(run.group),
        "seed": run.seed,
        "method": _name(run.method),
        "status": _name(run.status),
        "reason": _name(run.reason),
        "step": run.step,
        "steps": run.steps,
        "sampled": [[visible(one.sampling), _name(one.step)] for one in run.samples],
        "has_config": bool(run.config),
        "settings": [[_name(key), _name(value)] for key, value in run.settings.items()],
        "last": [rounded(training_metrics.last_mean(run.metrics, metric.name)) for metric in training_metrics.COLUMNS],
    }


def _config_table(runs: Sequence[ReportRun]) -> Json:
    """The keys in which runs differ, with each run's value (None: the run has no such key), and the other keys."""
    known = [(index, run) for index, run in enumerate(runs) if run.config]
    keys = dict.fromkeys(key for _, run in known for key in run.config)
    differing = [key for key in keys if len({run.config.get(key) for _, run in known}) > 1]
    columns = [
        [None if (value := run.config.get(key)) is None else _name(value) for _, run in known] for key in differing
    ]
    shared = [[key, _name(known[0][1].config[key])] for key in keys if key not in set(differing)]
    return {"keys": differing, "runs": [index for index, _ in known], "columns": columns, "shared": shared}


def _charts(runs: Sequence[ReportRun]) -> tuple[list[Json], list[str]]:
    longest = max((len(run.metrics) for run in runs), default=0)
    width = max(1, math.ceil(longest / MOST_POINTS))
    charts = []
    names = training_metrics.evaluation_metrics(key for run in runs for row in run.metrics for key in row)
    names.sort(key=lambda name: not name.endswith("/pass@1"))  # first those of each benchmark
    most = sum(name.endswith("/pass@1") for name in names)
    own = [
        Metric(name, title=_name(name.removeprefix(training_metrics.EVALUATED)), unit="during training")
        for name in names[: max(4, most)]
    ]
    named = {panel.name for panel in own}
    for panel in (*(panel for panel in training_metrics.PANELS if panel.name not in named), *own):
        curves = [_curve(index, run.metrics, panel.name, width) for index, run in enumerate(runs)]
        drawn = [curve for curve in curves if curve is not None]
        if drawn:
            look = {"is_log": panel.is_log, "is_share": panel.is_share, "lines": panel.lines}
            head = {"title": panel.title, "unit": panel.unit, "metric": panel.name}
            charts.append({**head, **look, "curves": drawn})
    notes = [f"curves of {longest} steps: each point is the mean of {width} steps"] if width > 1 else []
    return charts, notes


def _curve(run: int, rows: Rows, metric: str, width: int) -> Json | None:
    """Steps and values where the metric is a finite number, means of ``width`` rows each."""
    xs, ys = [], []
    rows = training_metrics.with_base(rows)
    for start in range(0, len(rows), width):
        found = [
            (float(row["step"]), float(row[metric]))
            for row in rows[start : start + width]
            if training_metrics.is_finite(row.get("step")) and training_metrics.is_finite(row.get(metric))
        ]
        if found:
            xs.append(rounded(math.fsum(step for step, _ in found) / len(found)))
            ys.append(rounded(math.fsum(value for _, value in found) / len(found)))
    return {"run": run, "x": xs, "y": ys} if ys else None


def _results(runs: Sequence[ReportRun], groups: Sequence[str]) -> list[Json]:
    """One entry for each sampling, benchmark, metric and clustering: curves of runs, and of the seeds of groups."""
    found: dict[tuple[str, str, str, str], dict[int, list[Row]]] = {}
    for index, run in enumerate(runs):
        for samples in run.samples:
            is_alone = len({row.benchmark for row in samples.rows} - {AVERAGE}) == 1
            for row in rows_in_order(samples.rows):
                if row.k is None or (row.benchmark == AVERAGE and is_alone):
                    continue
                key = (samples.sampling, row.benchmark, row.metric, setting_text(Setting.of(row)))
                found.setdefault(key, {}).setdefault(index, []).append(row)
    results = []
    for (sampling, benchmark, metric, setting), by_run in found.items():
        head = {"sampling": visible(sampling), "benchmark": _benchmark(benchmark), "metric": metric, "setting": setting}
        curves = []
        for index, rows in by_run.items():
            rows = sorted(rows, key=lambda row: row.k or 0)
            values = [(row.value, row.ci_low, row.ci_high) for row in rows]
            curves.append({"run": index, **_points(rows, values, [rows[0].ci_over])})
        means = [
            mean
            for position, group in enumerate(groups)
            if (mean := _seed_curve(position, [i for i in by_run if runs[i].group == group], runs, by_run, head))
        ]
        results.append({**head, "curves": curves, "seeds": means})
    return results


def _points(rows: Sequence[Row], values: Sequence[tuple[float | None, ...]], over: Sequence[str | None]) -> Json:
    """A curve: at the k of each of ``rows`` the value and the ends of its interval, and what this is over."""
    value, low, high = (list(map(rounded, column)) for column in zip(*values, strict=True))
    head = {"k": [row.k for row in rows], "v": value, "low": low, "high": high}
    return {**head, "n": rows[0].n, "problems": rows[0].num_problems, "over": kinds_text({"": over})}


def _seed_curve(
    group: int, members: Sequence[int], runs: Sequence[ReportRun], by_run: dict[int, list[Row]], head: Json
) -> Json | None:
    """Mean over the seeds of a group and its 95 % interval at each k that all of them have; None for a single one."""
    if len(members) < 2:
        return None
    rows_of = [{row.k: row for row in by_run[index]} for index in members]
    ks = sorted(k for k in rows_of[0] if k is not None and all(k in rows for rows in rows_of))
    ks = [k for k in ks if len({rows[k].n for rows in rows_of}) == 1]
    if not ks:
        return None
    views = [_views(runs[index], head) for index in members]
    is_same = all(own.keys() == views[0].keys() for own in views)
    names = list(views[0]) if is_same else []
    means = []
    for k in ks:
        by_problem = [[_by_problem(own[name], head["metric"], k) for own in views] for name in names]
        largest = largest_value(head["metric"], k, None)
        means.append(mean_of_seeds([rows[k].value for rows in rows_of], by_problem, largest))
    points = _points(
        [rows_of[0][k] for k in ks], [mean[:3] for mean in means], [mean.over for mean in means if mean.low is not None]
    )
    return {"group": group, **points, "num_seeds": len(members)}


def _views(run: ReportRun, head: Json) -> dict[str, BenchmarkView]:
    """The samples of a run that ``head`` is about, by benchmark."""
    views = (view for one in run.samples if visible(one.sampling) == head["sampling"] for view in one.views)
    return {
        view.benchmark: view for view in views if head["benchmark"] in (_benchmark(view.benchmark), _benchmark(AVERAGE))
    }


def _by_problem(view: BenchmarkView, metric: str, k: int) -> dict[str, float]:
    """Pass@k or UCC@k of each problem by its id."""
    of_counts, is_valid = OF_COUNTS[metric.removeprefix(VALID)], metric.startswith(VALID)
    counts = filter(None, (one.valid if is_valid else one.counts for one in view.problems))
    return {one.id: of_counts(one.n, one.correct, one.sizes or (), k) for one in counts}


# ---- the page

SCRIPTS = ("report_base.js", "report_charts.js", "report_tables.js", "report_problems.js", "report.js")
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def report_page(values: Json) -> str:
    """The page of a `document` as HTML; the same values give the same bytes.

    With a `token` among the values it may ask the server that it came from, as that of `quatro view` does.
    """
    is_live = "token" in values
    colors = "".join(f"--c{position}:{color};" for position, color in enumerate(PALETTE))
    style = f":root{{{colors}}}\n{_asset('report.css')}"
    names = (*SCRIPTS[:-1], *["live.js"] * is_live, SCRIPTS[-1])
    script = '"use strict";\n(() => {\n' + "\n".join(map(_asset, names)) + "})();\n"
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash_source(script)}",
            f"style-src {_hash_source(style)}",
            "img-src data:",
            *["connect-src 'self'"] * is_live,
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
    parts = {
        "POLICY": policy,
        "TITLE": html.escape(str(values["title"])),
        "STYLE": style,
        "DATA": embedded(values),
        "SCRIPT": script,
    }
    # In one pass: what was put in is not searched again.
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda match: parts[match.group(1)], _asset("report.html"))


def embedded(values: object) -> str:
    """JSON that can stand inside a script element: plain ASCII without `<`, `>` and `&`."""
    return json.dumps(values, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


def _hash_source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


@cache
def _asset(name: str) -> str:
    return files("evals.report").joinpath("assets", name).read_text(encoding="utf-8")
