"""Runs as the settings that figures compare; those that differ in their seed alone are one. Imports no torch."""

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evals.errors import DataError, UsageError
from evals.figures.run_settings import RunSetting
from evals.figures.training import TrainingCurve
from evals.files.frames import grouped
from evals.results.entries import model_labels
from evals.results.training_metrics import Rows
from evals.text import visible
from quatro.config import Config, leaves
from quatro.config.blocks import SIZE_KEYS
from quatro.dual import DualSolution, solve_dual
from quatro.runs.identity import read_config
from quatro.runs.metrics import read_metrics
from quatro.runs.points import is_sweep, point_config, read_points, require_sweep, settings_that_differ

# Keys that change no step of a run, only which seed it has, how long it is, and what is kept or measured beside it.
_NEUTRAL = ("seed", "steps", "threads", "processes", "device", "deterministic", "save_rollouts", *SIZE_KEYS)
_NEUTRAL_BLOCKS = ("eval.", "checkpoint.", "audit.", "rollout.gpu_memory_utilization")
# Keys with a field of their own in `RunSetting`.
_NAMED = ("method.name", "method.delta", "method.log_ratio", "optimizer.lr", "inner_updates")

Leaves = dict[str, str]


class RunSettings(NamedTuple):
    """Settings in the order of their first run, and what is worth a warning."""

    settings: list[RunSetting]
    warnings: list[str]


class _Run(NamedTuple):
    path: Path
    config: Config
    rows: Rows
    leaves: Leaves

    @property
    def setting(self) -> Hashable:
        return frozenset(self.leaves.items())


def read_curves(paths: Sequence[Path], *, cell: str | None = None) -> tuple[list[TrainingCurve], list[str]]:
    """A curve for each run at ``paths``, and for each setting of a sweep; and warnings.

    ``cell`` chooses one of a sweep's.

    Raises:
        UsageError: a path is neither a run nor a sweep with runs, or no sweep has such a cell.
        DataError: a metrics.jsonl is broken, or no run of a sweep has metrics.
    """
    curves: list[TrainingCurve] = []
    warnings: list[str] = []
    require_sweep(paths, {"--cell": cell})
    alone = [path for path in paths if (path / "config.yaml").is_file()]
    curve_of = dict(zip(alone, _curves_alone(alone), strict=True))
    for path in paths:
        if path in curve_of:
            curves.append(curve_of[path])
        elif folders := run_folders([path], cell=cell):
            found = read_settings(folders)
            warnings += found.warnings
            labels = _full_labels(found.settings)
            curves += [
                TrainingCurve(label, one.runs, one.delta) for label, one in zip(labels, found.settings, strict=True)
            ]
    return curves, warnings


def _curves_alone(paths: Sequence[Path]) -> list[TrainingCurve]:
    """A curve for each run, called by its settings; where these are the same, with its seed, or else its folder."""
    runs = [_read(path) for path in paths]
    settings = [_setting([run], *text) for run, text in zip(runs, _differences(runs), strict=True)]
    labels = _full_labels(settings)
    seeds, names = [f"seed {run.config.seed}" for run in runs], [one.names[0] for one in settings]
    for more in (seeds, names) if len(set(seeds)) > 1 else (names,):
        before = list(labels)
        labels = [f"{one}, {word}" if before.count(one) > 1 else one for one, word in zip(before, more, strict=True)]
    return [TrainingCurve(label, one.runs, one.delta) for label, one in zip(labels, settings, strict=True)]


def _read(path: Path) -> _Run:
    """The run at ``path``; its leaves are the keys that matter to what it computes, with their values as text."""
    config = read_config(path)
    own = {
        key: f"{value:g}" if isinstance(value, float) else str(value)
        for key, value in leaves(config.model_dump())
        if key not in _NEUTRAL and not key.startswith(_NEUTRAL_BLOCKS)
    }
    return _Run(path, config, list(read_metrics(path)), own)


def _full_labels(settings: Sequence[RunSetting]) -> list[str]:
    """The label of each setting, with its learning rate, K and other keys where the settings differ in them."""
    differs = {kind: len({getattr(one, kind) for one in settings}) > 1 for kind in ("lr", "inner_updates", "shared")}
    labels = []
    for one in settings:
        lr = f"lr {one.lr:g}" if differs["lr"] else ""
        inner = f"K {one.inner_updates}" if differs["inner_updates"] else ""
        labels.append(", ".join(part for part in (one.label, lr, inner, one.shared) if part))
    return labels


def read_settings(paths: Sequence[Path]) -> RunSettings:
    """The runs at ``paths`` (run directories, or sweeps with all of their runs), grouped by configuration.

    A run without metrics is left out. Two runs of one setting with one seed are one run: the longer one is kept.

    Raises:
        UsageError: a path is neither a run nor a sweep.
        DataError: a metrics.jsonl is broken, or no run has metrics.
    """
    warnings = []
    found: dict[tuple[Hashable, int], _Run] = {}
    for path in run_folders(paths):
        run = _read(path)
        if not run.rows:
            warnings.append(f"{path} has no metrics yet and is left out")
            continue
        if (twin := found.get((run.setting, run.config.seed))) is not None:
            kept, dropped = (run, twin) if len(run.rows) > len(twin.rows) else (twin, run)
            warnings.append(f"{dropped.path} is left out: {kept.path} has the same configuration and seed")
            run = kept
        found[run.setting, run.config.seed] = run
    if not found:
        raise DataError("none of the runs has metrics yet; let one finish an iteration, then plot again")
    groups = grouped(found.values(), lambda run: run.setting).values()
    runs = [sorted(group, key=lambda run: run.config.seed) for group in groups]
    for group_runs in runs:
        lengths = sorted({len(run.rows) for run in group_runs})
        if len(lengths) > 1:
            warnings.append(
                f"{group_runs[0].path.name} and its other seeds have {', '.join(map(str, lengths))} iterations; "
                f"their mean ends after {lengths[0]}"
            )
    texts = _differences([group_runs[0] for group_runs in runs])
    return RunSettings([_setting(one, *text) for one, text in zip(runs, texts, strict=True)], warnings)


def run_folders(paths: Sequence[Path], *, cell: str | None = None) -> list[Path]:
    """Run directories at ``paths``, each once; of a sweep, or of its ``cell``, all that have begun, as it planned them.

    Raises:
        UsageError: a path is neither a run nor a sweep with runs, or a sweep has no such cell.
        DataError: a sweep.yaml is damaged.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        folders = [path] if (path / "config.yaml").is_file() else []
        folders = folders or _begun(path, cell)
        if not folders:
            raise UsageError(
                f"{path} is neither a run directory (no config.yaml in it) nor a sweep with runs (no runs/ in it); "
                "`quatro runs list` shows the runs"
            )
        for folder in folders:
            found.setdefault(folder.resolve(), folder)
    return list(found.values())


def _begun(sweep: Path, cell: str | None) -> list[Path]:
    folders = sorted(config.parent for config in sweep.glob("runs/*/config.yaml"))
    points = read_points(sweep) if is_sweep(sweep) else {}
    for folder in folders:
        if folder.name in points:
            point_config(sweep, folder.name, points[folder.name][1])
    if cell is not None:
        known = dict.fromkeys(name for name, _ in points.values() if name)
        if cell not in known:
            raise UsageError(f"--cell {cell}: {sweep} has no such cell; known: {', '.join(known) or 'none'}")
        folders = [folder for folder in folders if points.get(folder.name, ("",))[0] == cell]
    order = {name: place for place, name in enumerate(points)}
    return sorted(folders, key=lambda folder: order.get(folder.name, len(order)))


def dual_by_count(delta: float, num_rollouts: int, **bounds: float | None) -> DualSolution:
    """The dual of N - 1 prompts: c = 1, ..., N - 1 of N rollouts are correct, the correct ones first."""
    counts = np.arange(1, num_rollouts)
    reward_QN = (np.arange(num_rollouts)[None, :] < counts[:, None]).astype(np.float64)
    return solve_dual(reward_QN, delta, **bounds)


def positive_advantages(
    delta: float, num_rollouts: int, **bounds: float | None
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """A of a correct rollout when c = 1, ..., N - 1 of N are correct, and the c at which delta was out of reach."""
    dual = dual_by_count(delta, num_rollouts, **bounds)
    capped = tuple(c for c, status in enumerate(dual.status, start=1) if status != "interior")
    return tuple(dual.advantage[:, 0].tolist()), capped


def _setting(runs: Sequence[_Run], shared: str, own: str) -> RunSetting:
    config = runs[0].config
    is_auto = config.inner_updates == "auto"
    fields = config.method.model_dump()
    delta = config.method.kl_radius
    advantages: tuple[float, ...] = ()
    capped: tuple[int, ...] = ()
    bounds = {name: fields[name] for name in ("boundary_cap", "advantage_floor") if name in fields}
    if delta is not None and len(bounds) == 2:
        advantages, capped = positive_advantages(delta, config.rollouts_per_prompt, **bounds)
    return RunSetting(
        method=config.method.name,
        lr=config.optimizer.lr,
        inner_updates=config.most_inner_updates,
        runs=tuple(run.rows for run in runs),
        delta=delta,
        log_ratio=fields.get("log_ratio"),
        shared=", ".join(text for text in ("inner_updates auto" if is_auto else "", shared) if text),
        own=own,
        advantages=advantages,
        capped=capped,
        names=tuple(visible(run.path.resolve().name) for run in runs),
    )


def _differences(runs: Sequence[_Run]) -> list[tuple[str, str]]:
    """Per run: the keys outside and inside its method's block on which it disagrees with another run, as text."""
    texts, different = [], settings_that_differ([run.leaves for run in runs], besides=_NAMED)
    # Of a path its last part: a legend is no place for folders.
    names = model_labels({text: "" for one in different for text in one.values() if text.startswith(("/", "."))})
    for run, differing in zip(runs, different, strict=True):
        shared = [f"{key} {names.get(text, text)}" for key, text in differing.items() if not key.startswith("method.")]
        own = {key: value for key, value in differing.items() if key.startswith("method.")}
        peers = [other.leaves for other in runs if other.config.method.name == run.config.method.name]
        presets = {tuple(leaves.get(key) for key in own): leaves.get("method.preset") for leaves in peers}
        if len(set(presets.values())) == len(presets):  # the preset's name says it all
            own = {key: value for key, value in own.items() if key == "method.preset"}
        texts.append((", ".join(shared), ", ".join(f"{key.removeprefix('method.')} {own[key]}" for key in own)))
    return texts
