"""A grid of training runs: which points there are, running what is missing, and one table of results.

    sweeps/<name>/sweep.yaml  configs/<point>.yaml  runs/<point>/  logs/<point>.txt  summary.csv

A point is trained by a child process, from a file that holds its whole configuration: the runs cannot disturb each
other, and what ran is what was planned. Planning imports no torch.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import logging
import math
import re
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.errors import DataError, UsageError
from quatro.atomic import write_text
from quatro.config import Config, config_to_yaml, load_config, resolve_config
from quatro.rundir import read_status
from quatro.stop import StopRequest

logger = logging.getLogger(__name__)

METHOD_AXIS = "method.name"
AVERAGED_STEPS = 10
POLL_S = 0.1
SUMMARY_METRICS = (
    "reward/mean",
    "accuracy/mean",
    "entropy/token_mean",
    "dual/lam_mean",
    "kl/new_old",
    "kl/old_new",
    "kl/ratio_to_delta",
    "perf/step_s",
)


@dataclass(frozen=True)
class Axis:
    """One key of the configuration and the values it takes, as text."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """One run of the grid. ``settings`` are the axes that apply to it, key -> value as text."""

    name: str
    settings: Mapping[str, str]
    config: Config


@dataclass(frozen=True)
class Plan:
    """``num_collapsed`` combinations differ only in keys that their method does not have; they became one point."""

    name: str
    points: tuple[Point, ...]
    num_collapsed: int


@dataclass(frozen=True)
class Outcome:
    """How a point stands: ``status`` as in its status.json, or ``missing``; ``reason`` where it is not done."""

    point: Point
    status: str
    reason: str = ""


def parse_axis(text: str) -> Axis:
    """``method.delta=0.1,0.01`` as an axis; commas inside brackets or quotes separate nothing.

    Raises:
        UsageError: no key, no value, or the same value twice.
    """
    key, separator, value_text = text.partition("=")
    values = tuple(value.strip() for value in re.findall(r"(?:\[[^\]]*\]|\"[^\"]*\"|'[^']*'|[^,])+", value_text))
    if not separator or not key.strip() or not values or not all(values):
        raise UsageError(f"-g {text}: expected KEY=VALUE,VALUE such as method.delta=0.1,0.01")
    if len(set(values)) < len(values):
        raise UsageError(f"-g {text}: a value stands there twice")
    return Axis(key.strip(), values)


def plan_sweep(
    source: str | Path,
    axes: Sequence[Axis],
    *,
    seeds: Sequence[int] = (),
    overrides: Sequence[str] = (),
    method: str | None = None,
) -> Plan:
    """Every point of the grid, in the order of the axes, with its configuration checked.

    An axis over `method.name` replaces the method block. An axis `method.X` applies to points whose method has X.

    Raises:
        UsageError: an axis stands twice or applies to no point, or a point's configuration is wrong.
    """
    if seeds:
        axes = [*axes, Axis("seed", tuple(map(str, seeds)))]
    keys = [axis.key for axis in axes]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise UsageError(f"the key {twice} has two axes; give it one -g with all of its values")
    resolved = resolve_config(source, overrides=overrides, method=method)
    settings: list[dict[str, str]] = []
    for values in itertools.product(*(axis.values for axis in axes)):
        applicable = _applicable(dict(zip(keys, values, strict=True)), resolved.config)
        if applicable not in settings:
            settings.append(applicable)
    _refuse_idle_axes(keys, settings)
    short = _short_keys(keys)
    points = tuple(
        Point(_point_name(setting, short), setting, _point_config(source, setting, overrides, method))
        for setting in settings
    )
    num_combinations = math.prod(len(axis.values) for axis in axes)
    return Plan(resolved.stem, points, num_combinations - len(points))


def run_sweep(
    plan: Plan,
    folder: Path,
    *,
    train_command: Sequence[str],
    jobs: int = 1,
    stop: StopRequest | None = None,
    progress: Callable[[int, str], None] | None = None,
) -> list[Outcome]:
    """Train every point that is not done, by ``train_command CONFIG -o RUN``, then write summary.csv.

    A failed point does not stop the others. ``progress`` is told how many points are done and what happened last.
    After ``stop`` no point is begun and those that run are asked to save and end.

    Raises:
        UsageError: ``folder`` holds a run of the same name with another configuration.
    """
    write_plan(plan, folder)
    waiting = [point for point in plan.points if status_of(point, folder).status != "done"]
    num_done = len(plan.points) - len(waiting)
    counter = threading.Lock()
    abandoned = threading.Event()

    def run(point: Point) -> None:
        nonlocal num_done
        if stop is not None and stop.requested:
            return
        if progress is not None:
            progress(num_done, f"{point.name} runs")
        _run_point(point, folder, train_command, stop, abandoned)
        outcome = status_of(point, folder)
        with counter:
            num_done += outcome.status == "done"
        if progress is not None:
            progress(num_done, f"{point.name} {outcome.status}")

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        try:
            list(pool.map(run, waiting))
        except BaseException:  # a second Ctrl-C: the threads must let go of their children, or nothing ends
            abandoned.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    outcomes = [status_of(point, folder) for point in plan.points]
    write_summary(outcomes, folder)
    return outcomes


def status_of(point: Point, folder: Path) -> Outcome:
    """What the point's status.json says; never inferred from other files."""
    run = folder / "runs" / point.name
    state = read_status(run)
    if not state:
        return Outcome(point, "missing", _last_error(folder, point) or "not run yet")
    status = str(state.get("status"))
    if status == "done":
        return Outcome(point, status)
    reason = state.get("reason") or _last_error(folder, point) or "ended without a word"
    return Outcome(point, status, str(reason))


def write_plan(plan: Plan, folder: Path) -> None:
    """sweep.yaml and one configuration file a point.

    Raises:
        UsageError: a point of that name was planned with another configuration.
    """
    (folder / "configs").mkdir(parents=True, exist_ok=True)
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "runs").mkdir(exist_ok=True)
    for point in plan.points:
        path = _config_file(folder, point)
        if path.exists() and load_config(path) != point.config:
            raise UsageError(
                f"{path} holds another configuration than the one asked for; name another folder with -o, "
                f"or compare them with `quatro config diff`"
            )
    for point in plan.points:
        write_text(_config_file(folder, point), config_to_yaml(point.config))
    lines = [f"name: {json.dumps(plan.name)}\n", "points:\n"]
    for point in plan.points:
        lines.append(f"  {json.dumps(point.name)}: {json.dumps(dict(point.settings))}\n")
    write_text(folder / "sweep.yaml", "".join(lines))


def write_summary(outcomes: Sequence[Outcome], folder: Path) -> None:
    """summary.csv: one row a point, metrics as means over its last steps."""
    axes = list(dict.fromkeys(key for outcome in outcomes for key in outcome.point.settings))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["point", "status", "steps", *axes, *SUMMARY_METRICS, "reason"])
    for outcome in outcomes:
        rows = list(read_metrics(folder / "runs" / outcome.point.name))
        means = [_mean_of_last(rows, name) for name in SUMMARY_METRICS]
        settings = [outcome.point.settings.get(key) for key in axes]
        cells = [outcome.point.name, outcome.status, len(rows), *settings, *means, outcome.reason]
        writer.writerow([csv_cell(cell) for cell in cells])
    write_text(folder / "summary.csv", buffer.getvalue())


def csv_cell(value: object) -> str:
    """A cell that no spreadsheet takes for a formula: text that starts like one gets an apostrophe in front.

    Numbers stay numbers, negative ones too. Unknown is an empty cell.
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, float):
        return repr(value)
    text = str(value)
    is_number = re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text) is not None
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) and not is_number else text


def read_metrics(run: Path) -> Iterator[dict[str, Any]]:
    """Rows of a run's metrics.jsonl; none if it has not begun. A torn last line of a running process is left out.

    Raises:
        DataError: another line is not a JSON object.
    """
    path = run / "metrics.jsonl"
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line)
            except ValueError as error:
                if not line.endswith("\n"):
                    return
                raise DataError(f"{path}:{number}: not a JSON object ({error})") from error
            if not isinstance(row, dict):
                raise DataError(f"{path}:{number}: expected a JSON object, found {line.strip()[:60]!r}")
            yield row


def _applicable(setting: dict[str, str], base: Config) -> dict[str, str]:
    """``setting`` without keys of a method block that the point's method does not have."""
    from quatro.methods import METHODS

    method = METHODS[setting[METHOD_AXIS]] if METHOD_AXIS in setting else type(base.method)

    def applies(key: str) -> bool:
        block, _, field = key.partition(".")
        return block != "method" or field.split(".")[0] in method.model_fields

    return {key: value for key, value in setting.items() if applies(key)}


def _refuse_idle_axes(keys: Sequence[str], settings: Sequence[Mapping[str, str]]) -> None:
    for key in keys:
        if not any(key in setting for setting in settings):
            raise UsageError(f"-g {key}=...: no method of this sweep has the key {key.removeprefix('method.')!r}")


def _method_field(override: str) -> str | None:
    """``delta`` of `method.delta=0.1`; None for an override of something else."""
    key = override.partition("=")[0].strip()
    return key.removeprefix("method.").split(".")[0] if key.startswith("method.") else None


def _point_config(
    source: str | Path, setting: Mapping[str, str], overrides: Sequence[str], method: str | None
) -> Config:
    others = [f"{key}={value}" for key, value in setting.items() if key != METHOD_AXIS]
    if METHOD_AXIS in setting:
        # -s method.X=... goes to the points whose method has X, like an axis over it.
        from quatro.methods import METHODS

        fields = METHODS[setting[METHOD_AXIS]].model_fields
        overrides = [text for text in overrides if _method_field(text) is None or _method_field(text) in fields]
    return load_config(source, overrides=[*overrides, *others], method=setting.get(METHOD_AXIS, method))


def _short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Each key's last part, or the whole key where two would look the same."""
    last = {key: key.rpartition(".")[2] for key in keys}
    return {key: short if list(last.values()).count(short) == 1 else key for key, short in last.items()}


def _point_name(setting: Mapping[str, str], short: Mapping[str, str]) -> str:
    """``quatro-delta=0.1-seed=0``; what has no place in a file name becomes an underscore and a hash tells it apart."""
    from hashlib import blake2b

    parts = [value if key == METHOD_AXIS else f"{short[key]}={value}" for key, value in setting.items()]
    name = "-".join(parts) or "point"
    safe = re.sub(r"[^A-Za-z0-9._=-]+", "_", name)[:120]
    return (
        safe if safe == name else f"{safe}-{blake2b(name.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"
    )


def _run_point(
    point: Point, folder: Path, command: Sequence[str], stop: StopRequest | None, abandoned: threading.Event
) -> None:
    run = folder / "runs" / point.name
    has_begun = (run / "config.yaml").exists()  # written last: without it nothing has begun
    arguments = [str(run), "--resume"] if has_begun else [str(_config_file(folder, point)), "-o", str(run)]
    with (folder / "logs" / f"{point.name}.txt").open("w", encoding="utf-8") as log:
        # A session of its own: Ctrl-C reaches the child once, from here, and not a second time from the terminal.
        child = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        was_asked = False
        try:
            while child.poll() is None and not abandoned.wait(POLL_S):
                if stop is not None and stop.signal is not None and not was_asked:
                    child.send_signal(stop.signal)
                    was_asked = True
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()


def _last_error(folder: Path, point: Point) -> str:
    """The last error message in the log of the point's child process."""
    path = folder / "logs" / f"{point.name}.txt"
    if not path.exists():
        return ""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or [line for line in lines if line.strip()] or [""])[-1].strip()


def _mean_of_last(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows[-AVERAGED_STEPS:] if isinstance(row.get(name), (int, float))]
    return math.fsum(values) / len(values) if values else None


def _config_file(folder: Path, point: Point) -> Path:
    return folder / "configs" / f"{point.name}.yaml"
