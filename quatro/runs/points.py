"""Which folder is a sweep, its points, as its sweep.yaml lists them, and in which settings runs differ.

Settings are leaves: dotted key -> value as text. Runs that differ in their seed alone are one row of a table.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from evals.errors import DataError, UsageError
from evals.files.strict_json import read_document
from evals.results.entries import model_labels
from evals.text import escaped
from quatro.config import Config, differing_keys, load_config
from quatro.config.yaml_text import load_yaml, scalar_text
from quatro.runs.identity import planned_differences, read_config

SWEEP = "sweep.yaml"
_MAX_NAME = 240  # bytes: file systems take 255, and `.yaml` is added
_METHOD = "method."


def is_sweep(folder: Path) -> bool:
    """Whether ``folder`` is the folder of a sweep."""
    return (folder / SWEEP).is_file()


def require_sweep(paths: Sequence[Path], given: Mapping[str, object]) -> None:
    """Raises UsageError if an option of ``given`` has a value and none of ``paths`` is a sweep: it would be ignored."""
    ignored = [option for option, value in given.items() if value is not None]
    if ignored and not any(map(is_sweep, paths)):
        raise UsageError(f"{' and '.join(ignored)}: none of the paths is a sweep (a folder with {SWEEP}); leave it out")


def read_points(sweep: Path) -> dict[str, tuple[str, dict[str, str]]]:
    """The points of a sweep in their order: name -> cell (empty: it has none) and settings, as text.

    Raises DataError if there are none, or they are not in the form that `quatro sweep` writes.
    """
    path = sweep / SWEEP
    try:
        data = load_yaml(path).data
    except UsageError as error:
        raise DataError(f"{error}; repeat the sweep's command, which writes it anew") from error
    points, cells = data.get("points"), data.get("cells") or {}
    if not (isinstance(points, dict) and points and isinstance(cells, dict) and all(map(_is_point, points.items()))):
        raise DataError(
            f"{path} is not in the form that `quatro sweep` writes (it has no points with their settings); repeat its "
            "command"
        )
    return {
        name: (str(cells.get(name, "")), {key: str(value) for key, value in settings.items()})
        for name, settings in points.items()
    }


def config_file(sweep: Path, point: str) -> Path:
    """The file with the whole configuration of a point."""
    return sweep / "configs" / f"{point}.yaml"


def planned_config(sweep: Path, point: str, settings: Mapping[str, str]) -> Config:
    """The configuration that a point was planned with, which has its ``settings``.

    Raises UsageError if there is none, or it cannot be read, and DataError if it has other settings.
    """
    file = config_file(sweep, point)
    config = load_config(file)
    named = load_config(file, overrides=[f"{key}={value}" for key, value in settings.items()])
    as_typed = (one.with_paths({key: path.typed for key, path in one.paths.items()}, {}) for one in (config, named))
    pairs = differing_keys(list(as_typed)).items()
    differing = [f"{key} is {found}, and {named} there" for key, (found, named) in pairs]
    if differing:
        raise DataError(
            f"{file} is not the point {point} of {sweep / SWEEP}: {', '.join(differing)}; one of the two was edited or "
            "is of another point: put back what belongs there"
        )
    return config


def point_config(sweep: Path, point: str, settings: Mapping[str, str]) -> Config:
    """The configuration of a point's run, or if that has not begun, the planned one; all that is there agrees.

    Raises: as `planned_config` and `read_config`; DataError: the run is another point's.
    """
    run = sweep / "runs" / point
    if not (run / "config.yaml").is_file():
        return planned_config(sweep, point, settings)
    if config_file(sweep, point).is_file():
        refuse_other_point(run, planned_config(sweep, point, settings))
    return read_config(run)


def refuse_other_point(run: Path, planned: Config) -> None:
    """Raises DataError unless ``run`` is one of the configuration ``planned``."""
    if differing := planned_differences(planned, load_config(run)):
        raise DataError(
            f"{run / 'config.yaml'} is not the point {run.name} as the sweep planned it: {'; '.join(differing)}; put "
            f"back the run that belongs there, or move this one away and repeat the sweep's command"
        )


def base_name(model: str, label: str | None = None) -> str:
    """What the samples of an untrained model are called in a sweep: a folder goes by its ``label``, not by its path."""
    if Path(model).is_absolute():
        label = label or model_labels({model: ""})[model]
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", label or model).strip("-.")[-80:]
    return f"base-{slug}"


def asked_as(config: Config) -> list[str]:
    """Options with which `quatro sample` asks an untrained model as a run of ``config`` asks its own."""
    thinking, system = config.rollout.thinking, config.data.system
    found = ["--template", escaped(config.data.template)]
    found += [] if thinking is None else ["--thinking", thinking]
    if kwargs := config.data.chat_template_kwargs:
        found.append("--chat-template-kwargs=" + scalar_text(kwargs))
    return found + ([] if system is None else ["--system=" + escaped(system)])


def refuse_other_base(folder: Path) -> None:
    """Raises DataError if ``folder``, where a sweep has samples of an untrained model, holds those of another one."""
    for file in sorted(folder.glob("samples/*/sampling.json")):
        said = read_document(file)
        model, method = said.get("model"), said.get("method")
        labels = (None, str(model), Path(str(model)).name)  # as it may be called here and where it was before a move
        names = tuple(base_name(str(model), label) for label in labels)
        if method is not None or not folder.name.startswith(names):
            raise DataError(
                f"{file} says model {model!a} and method {method!a}, and {folder.name} is for an untrained model of "
                f"that name; put back what belongs there, or remove {folder} and repeat the sweep's command"
            )


def _is_point(entry: tuple[str, Any]) -> bool:
    """Whether it is the name of a folder, and settings with a seed or without one."""
    name, settings = entry
    is_name = len(name.encode()) < _MAX_NAME and not set("/\0") & set(name) and name.strip(".") != ""
    return (
        is_name and isinstance(settings, dict) and re.fullmatch("[0-9]{1,19}", str(settings.get("seed", 0))) is not None
    )


def settings_that_differ(runs: Sequence[Mapping[str, str]], *, besides: Collection[str]) -> list[dict[str, str]]:
    """Of the leaves of each run those on which it disagrees with another one; the keys ``besides`` never count.

    Keys of a method's block count where runs of that method disagree: other methods have other keys. Runs without
    settings have none that differ, and no other run differs from them.
    """

    def differs(key: str, own: Mapping[str, str]) -> bool:
        name = f"{_METHOD}name"
        peers = (one for one in runs if one and (not key.startswith(_METHOD) or one.get(name) == own.get(name)))
        return len({one.get(key) for one in peers}) > 1

    return [{key: own[key] for key in own if key not in besides and differs(key, own)} for own in runs]
