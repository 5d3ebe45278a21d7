"""Trackers hold what metrics.jsonl holds, after a resume too, and none of them can end a run."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import logging
import math
import os
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evals.errors import MissingError, UsageError
from quatro.config import load_config
from quatro.processes.stop import StopRequest
from quatro.runs import trackers
from quatro.runs.directory import RunDir
from quatro.runs.trackers import Tracked, Trackers, plain_values, require_trackers
from tests.kit import says

needs_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="needs tensorboard: pip install -e '.[tracking]'"
)
needs_wandb = pytest.mark.skipif(
    importlib.util.find_spec("wandb") is None, reason="needs wandb: pip install -e '.[tracking]'"
)
needs_trackio, needs_mlflow = (
    pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"needs {name}: make test-trackers")
    for name in ("trackio", "mlflow")
)

Points = dict[str, dict[int, float]]  # tag -> step -> value


def track(path: Path, steps: range, *settings: str, scale: float = 1.0, cut_to: int | None = None) -> None:
    """Iterations ``steps`` of a run that does not train; ``cut_to`` rows stay of those that are there (a resume)."""
    if cut_to is None:
        run = RunDir.create(path, load_config("quickstart", overrides=settings))
    else:
        run = RunDir.open(path)
        lines = (path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
        run.go_back(cut_to, {"metrics_bytes": sum(map(len, lines[:cut_to]))})
    with run, Trackers(run) as observer:
        for step in steps:
            row = {"step": float(step), "reward/mean": scale * step / 7, "kl/new_old": math.nan, "accuracy/mean": None}
            row |= {"eval/pass@1": step / 3, "loss": -step / 9, "loss/policy": step / 11}
            run.append_metrics(row)
            observer(row)


def recorded(path: Path) -> Points:
    """metrics.jsonl in the form of `from_tensorboard` and `from_wandb`."""
    points: Points = {}
    with (path / "metrics.jsonl").open(encoding="utf-8") as file:
        for row in map(json.loads, file):
            for name, value in row.items():
                if name != "step" and value is not None:
                    points.setdefault(name, {})[int(row["step"])] = value
    return points


def from_tensorboard(path: Path) -> Points:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(path / "tensorboard"), size_guidance={"scalars": 0})
    reader.Reload()
    points: Points = {}
    for tag in reader.Tags()["scalars"]:
        events = reader.Scalars(tag)
        assert max(Counter(event.step for event in events).values()) == 1, f"{tag} has an iteration twice"
        points[tag] = {event.step: event.value for event in events}
    return points


def from_wandb(path: Path) -> Points:
    """The history in the one offline folder of a run."""
    points: Points = {}
    for record in wandb_records(path):
        if record.WhichOneof("record_type") != "history":
            continue
        items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for name, value in items.items():
            if not name.startswith("_"):
                assert items["_step"] not in points.setdefault(name, {}), f"{name} has an iteration twice"
                points[name][items["_step"]] = value
    return points


def wandb_records(path: Path) -> list[Any]:
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # its process writes the last bytes after `finish` has returned
    (file,) = (path / "wandb").glob("offline-run-*/run-*.wandb")
    assert file.stem == "run-" + (path / "wandb" / "run-id").read_text(encoding="utf-8").strip()
    return [Record.FromString(data) for data in log_records(file.read_bytes())]


def log_records(content: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log behind wandb's 7-byte header: blocks of 32 KiB; checksum, length, kind, data."""
    position, whole = 7, b""
    while position + 7 <= len(content):
        room = 32768 - position % 32768
        if room < 7:
            position += room
            continue
        _, length, kind = struct.unpack_from("<IHB", content, position)
        if kind == 0:
            break
        whole += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole in one piece, or the last piece
            yield whole
            whole = b""


def from_trackio(path: Path) -> Points:
    """What trackio has of the run whose id is there; of its name there may be others."""
    from trackio.sqlite_storage import SQLiteStorage

    id = (path / "trackio-id").read_text(encoding="utf-8").strip()
    points: Points = {}
    for row in SQLiteStorage.get_logs("quatro", path.name, run_id=id):
        for name, value in row.items():
            if name not in ("step", "timestamp"):
                assert row["step"] not in points.setdefault(name, {}), f"{name} has an iteration twice"
                points[name][row["step"]] = value
    return points


def from_mlflow(path: Path) -> Points:
    """What mlflow has of the run whose id is there, in the file store that `stores` chose."""
    from mlflow import MlflowClient

    client, id = MlflowClient(os.environ["MLFLOW_TRACKING_URI"]), (path / "mlflow-id").read_text(encoding="utf-8")
    run = client.get_run(id)
    assert (run.info.status, run.info.run_name, run.data.params["method.name"]) == ("FINISHED", path.name, "quatro")
    assert len(client.search_runs([run.info.experiment_id])) == 1  # a resume leaves none behind
    found = {name: client.get_metric_history(id, name) for name in run.data.metrics}
    assert all(len({one.step for one in history}) == len(history) for history in found.values())
    names = {name: name.replace(".", "/").replace("_at_", "@") for name in found}
    return {names[name]: {one.step: one.value for one in history} for name, history in found.items()}


@pytest.fixture(autouse=True)
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the trackers keep what is not in the run; trackio looks once, when it is imported."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    os.environ.setdefault("TRACKIO_DIR", tempfile.mkdtemp(prefix="trackio-"))


def assert_same(found: Points, expected: Points, *, rel: float) -> None:
    assert found.keys() == expected.keys()
    for name, series in expected.items():
        assert found[name] == pytest.approx(series, rel=rel), name


KINDS = [
    pytest.param("tracking.tensorboard=true", from_tensorboard, 1e-6, marks=needs_tensorboard, id="tensorboard"),
    pytest.param("tracking.wandb=offline", from_wandb, 0.0, marks=needs_wandb, id="wandb"),
    pytest.param("tracking.trackers=[trackio]", from_trackio, 0.0, marks=needs_trackio, id="trackio"),
    pytest.param("tracking.trackers=[examples.own_tracker:Mlflow]", from_mlflow, 0.0, marks=needs_mlflow, id="mlflow"),
]


def test_trackers_are_off_unless_asked_for(tmp_path):
    track(tmp_path / "run", range(1, 3))
    assert load_config("quickstart").tracking.enabled == []
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert not (tmp_path / "run" / "wandb").exists()


def test_only_finite_numbers_are_sent_and_the_step_is_none_of_them():
    row = {"step": 3.0, "a": 1, "b": None, "c": math.nan, "d": -math.inf, "e": 0.5}
    assert plain_values(row) == {"a": 1.0, "e": 0.5}


@pytest.mark.parametrize(("setting", "read", "rel"), KINDS)
def test_a_run_and_its_resumes_are_recorded_once(tmp_path, setting, read, rel):
    run = tmp_path / "run"
    track(run, range(1, 6), setting)
    assert_same(read(run), recorded(run), rel=rel)
    # Iterations 3 to 5 are made again with other values, which are the ones that count; then a second resume at once.
    track(run, range(3, 9), cut_to=2, scale=10.0)
    assert_same(read(run), recorded(run), rel=rel)
    assert read(run)["reward/mean"][4] == pytest.approx(40 / 7)
    track(run, range(3, 5), cut_to=2, scale=-1.0)
    assert_same(read(run), recorded(run), rel=rel)
    assert sorted(read(run)["reward/mean"]) == [1, 2, 3, 4]
    track(run, range(1, 2), cut_to=0)
    assert sorted(read(run)["reward/mean"]) == [1]


@pytest.mark.parametrize(("setting", "read", "rel"), KINDS)
def test_a_tracker_that_is_switched_on_later_has_the_whole_run(tmp_path, setting, read, rel):
    run = tmp_path / "run"
    track(run, range(1, 4))
    config = run / "config.yaml"
    key, value = setting.removeprefix("tracking.").split("=")
    text = config.read_text(encoding="utf-8")
    off = {"tensorboard": "false", "wandb": "null", "trackers": "[]"}[key]
    assert f"{key}: {off}" in text
    config.write_text(text.replace(f"{key}: {off}", f"{key}: {value}"), encoding="utf-8")
    track(run, range(4, 6), cut_to=3)
    assert sorted(read(run)["reward/mean"]) == [1, 2, 3, 4, 5]
    assert_same(read(run), recorded(run), rel=rel)


@pytest.mark.parametrize(("setting", "read", "rel"), KINDS)
def test_a_real_run_that_is_interrupted_and_continued_is_recorded_in_full(tmp_path, tiny_config, setting, read, rel):
    pytest.importorskip("torch")
    from quatro.train import train

    run, stop, seen = tmp_path / "run", StopRequest(), []

    def ask_at_two(metrics: Any) -> None:
        seen.append(metrics["step"])
        if metrics["step"] == 2:
            stop.request()

    with RunDir.create(run, tiny_config(setting)) as opened:
        train(opened.config, opened, observer=ask_at_two, stop=stop)
    assert_same(read(run), recorded(run), rel=rel)
    with RunDir.open(run) as opened:
        train(opened.config, opened)
    assert seen == [1, 2]
    assert sorted(read(run)["reward/mean"]) == [1, 2, 3, 4]
    assert_same(read(run), recorded(run), rel=rel)


@needs_tensorboard
def test_a_half_written_event_is_no_obstacle(tmp_path):
    run = tmp_path / "run"
    track(run, range(1, 4), "tracking.tensorboard=true")
    (file,) = (run / "tensorboard").iterdir()
    file.write_bytes(file.read_bytes()[:-9])  # as a killed process leaves it
    track(run, range(3, 5), cut_to=2)
    assert sorted(from_tensorboard(run)["reward/mean"]) == [1, 2, 3, 4]


@needs_tensorboard
def test_the_configuration_is_in_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = tmp_path / "run"
    track(run, range(1, 2), "tracking.tensorboard=true", "method.delta=0.0123")
    reader = EventAccumulator(str(run / "tensorboard"))
    reader.Reload()
    (event,) = reader.Tensors("config")
    assert b"    delta: 0.0123" in event.tensor_proto.string_val[0].replace(b"      delta", b"    delta")


@needs_wandb
def test_a_resumed_run_keeps_its_wandb_id_and_has_its_configuration(tmp_path):
    run = tmp_path / "my-run"
    track(run, range(1, 3), "tracking.wandb=offline", "tracking.project=deltas", "method.delta=0.0123")
    (before,) = [record.run for record in wandb_records(run) if record.WhichOneof("record_type") == "run"]
    track(run, range(2, 4), cut_to=1)
    (begun,) = [record.run for record in wandb_records(run) if record.WhichOneof("record_type") == "run"]
    assert (begun.run_id, begun.project, begun.display_name) == (before.run_id, "deltas", "my-run")
    config = {item.key: json.loads(item.value_json) for item in begun.config.update}
    assert config["method"]["delta"] == 0.0123


class Recording:
    """A tracker that writes down what it is asked in ``said``, and fails where ``fails_at`` says."""

    said: list[Any]
    fails_at: tuple[object, ...] = ()

    def _do(self, what: object) -> None:
        self.said.append(what)
        if what in self.fails_at:
            raise OSError(errno.ENOSPC, "No space left on device")

    def start(self, run: Tracked) -> None:
        self._do("start")

    def log(self, step: int, metrics: Any) -> None:
        self._do(step)

    def end(self, *, is_failed: bool) -> None:
        self._do("failed" if is_failed else "end")


def recording(*fails_at: object) -> type[Recording]:
    return type("Recording", (Recording,), {"said": [], "fails_at": fails_at})


def test_a_tracker_that_fails_is_said_once_and_counted_and_the_run_and_the_others_go_on(tmp_path, monkeypatch, caplog):
    table = {"tensorboard": recording(2, 3, "end"), "wandb": recording(), "trackio": recording("start")}
    monkeypatch.setattr(trackers, "TRACKERS", table)
    with caplog.at_level(logging.WARNING, logger="quatro"):
        track(tmp_path / "run", range(1, 5), "tracking=[tensorboard, wandb, trackio]")
    assert {name: one.said for name, one in table.items()} == {
        "tensorboard": ["start", 1, 2, 3, 4, "end"],
        "wandb": ["start", 1, 2, 3, 4, "end"],
        "trackio": ["start"],
    }
    first, second, counted = [record.getMessage() for record in caplog.records]
    says(first, "trackio", "No space left", "metrics.jsonl")
    says(second, "tensorboard", "No space left", "metrics.jsonl")
    says(counted, "tensorboard", 3)
    assert len(recorded(tmp_path / "run")["reward/mean"]) == 4


def test_a_tracker_that_only_fails_is_not_asked_for_ever(tmp_path, monkeypatch, caplog):
    """Each of its failures may be a wait of a minute."""
    broken = recording(*range(1, 40))
    monkeypatch.setattr(trackers, "TRACKERS", {"wandb": broken})
    track(tmp_path / "run", range(1, 40), "tracking=[wandb]")
    assert broken.said == ["start", *range(1, trackers.MOST_FAILURES + 1), "end"]
    says(caplog.records[-1].getMessage(), "wandb", trackers.MOST_FAILURES)


OWN = """
class Mine:
    def start(self, run):
        self.file = run.path / "mine.txt"
        self.note("start", run.name, run.config.method.name, run.first_step, len(run.rows))
    def log(self, step, metrics):
        self.note(step, metrics["reward/mean"])
        raise SystemExit(f"bad {step}")
    def end(self, is_failed):
        self.note("end", is_failed)
    def note(self, *words):
        with self.file.open("a") as file:
            print(*words, file=file)
class Half:
    def start(self, run): ...
"""


def test_a_tracker_of_ones_own_is_asked_as_ours_are_and_its_failure_names_its_line(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    Path("mine_tracks.py").write_text(OWN, encoding="utf-8")
    track(tmp_path / "run", range(1, 3), "tracking=[mine_tracks:Mine]")
    track(tmp_path / "run", range(2, 4), cut_to=1)
    assert (tmp_path / "run/mine.txt").read_text(encoding="utf-8").splitlines() == [
        *("start run quatro 1 0", f"1 {1 / 7}", f"2 {2 / 7}", "end False"),
        *("start run quatro 2 1", f"2 {2 / 7}", f"3 {3 / 7}", "end False"),
    ]
    says(caplog.records[0].getMessage(), "mine_tracks:Mine", "bad 1", f"{tmp_path / 'mine_tracks.py'}:8")
    assert len(caplog.records) == 4  # of each run the first failure, and their number
    for spec, said in (("mine_tracks:Half", "log, end"), ("mine_tracks:Nobody", "Nobody"), ("nowhere:T", "nowhere")):
        with pytest.raises(UsageError) as refused:
            require_trackers(load_config("quickstart", overrides=[f"tracking=[{spec}]"]).tracking)
        says(refused, spec, said)


def test_a_list_of_trackers_is_short_for_a_block_and_each_counts_once():
    def asked(*settings: str) -> list[str]:
        return load_config("quickstart", overrides=settings).tracking.enabled

    assert asked("tracking=[trackio, wandb, a:B]") == ["trackio", "wandb", "a:B"]
    assert asked("tracking=[trackio, tensorboard]", "tracking.tensorboard=true") == ["tensorboard", "trackio"]
    assert asked("tracking={trackers: [trackio], project: p}") == ["trackio"]
    with pytest.raises(UsageError, match=r"tracking.trackers.*clearml.*trackio, module:Class"):
        asked("tracking=[clearml]")


@needs_tensorboard
def test_a_record_that_was_cut_off_is_taken_back_so_that_those_after_it_are_read(tmp_path, caplog):
    config = load_config("quickstart", overrides=["tracking=[tensorboard]"])
    with RunDir.create(tmp_path / "run", config) as run, Trackers(run) as observer:
        for step in (1, 2, 3, 4):
            if step == 3:  # half of the record reaches the disk, which is full
                (tracker,) = observer._open.values()
                whole, file = tracker._records, tracker._file

                def half(data: bytes, file: Any = file) -> None:
                    file.write(data[: len(data) // 2])
                    raise OSError(errno.ENOSPC, "No space left on device")

                tracker._records = SimpleNamespace(write=half)
            elif step == 4:
                tracker._records = whole
            observer({"step": float(step), "loss": 1.0})
    assert sorted(from_tensorboard(tmp_path / "run")["loss"]) == [1, 2, 4]
    assert len(caplog.records) == 1


@needs_tensorboard
def test_a_real_write_that_fails_is_survived(tmp_path, caplog):
    config = load_config("quickstart", overrides=["tracking.tensorboard=true"])
    with RunDir.create(tmp_path / "run", config) as run, caplog.at_level(logging.WARNING, logger="quatro"):
        (tmp_path / "run" / "tensorboard").write_text("in the way", encoding="utf-8")
        with Trackers(run) as observer:
            for step in (1, 2, 3):
                observer({"step": float(step), "loss": 1.0})
    assert len(caplog.records) == 1
    assert "tensorboard" in caplog.text


def test_a_run_that_failed_says_so_to_its_trackers(tmp_path, monkeypatch):
    tracker = recording()
    monkeypatch.setattr(trackers, "TRACKERS", {"tensorboard": tracker})
    config = load_config("quickstart", overrides=["tracking.tensorboard=true"])
    with RunDir.create(tmp_path / "run", config) as run:
        for divisor in (0, 1):
            with contextlib.suppress(ZeroDivisionError), Trackers(run) as observer:
                observer({"step": 1.0})
                1 / divisor
    assert tracker.said == ["start", 1, "failed", "start", 1, "end"]


@pytest.mark.parametrize(
    ("name", "extra"), [("tensorboard", "tracking"), ("wandb", "tracking"), ("trackio", "trackio")]
)
def test_a_missing_package_is_named_with_what_to_type(monkeypatch, name, extra):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingError, match=rf"pip install -e '.*\[{extra}\]'") as caught:
        require_trackers(load_config("quickstart", overrides=[f"tracking=[{name}]"]).tracking)
    says(caught, name, advice="-s tracking=[]")
    require_trackers(load_config("quickstart").tracking)


def test_a_folder_of_that_name_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "quatro_empty_folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    spec = importlib.util.find_spec("quatro_empty_folder")
    assert spec is not None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(MissingError, match="not installed"):
        require_trackers(load_config("quickstart", overrides=["tracking.wandb=offline"]).tracking)


@needs_wandb
def test_wandb_online_without_credentials_is_refused_before_the_run(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    with pytest.raises(MissingError, match="wandb login"):
        require_trackers(load_config("quickstart", overrides=["tracking.wandb=online"]).tracking)
