import hashlib
import json
import logging
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evals.errors import DataError, LockedError, UsageError
from quatro.config import Config, load_config
from quatro.runs.directory import RunDir, default_run_path, free_name
from quatro.runs.identity import refuse_changed
from quatro.runs.metrics import read_metrics
from quatro.runs.removing import remove_run
from quatro.runs.status import RunLock, changes, is_locked
from quatro.runs.views.doctor import examine
from quatro.runs.views.summary import describe_run, list_runs
from tests.kit import read_json


@pytest.fixture
def config() -> Config:
    return load_config("quickstart")


@pytest.fixture
def run(tmp_path: Path, config: Config) -> Iterator[RunDir]:
    with RunDir.create(tmp_path / "run", config, argv=["quatro", "train"]) as opened:
        yield opened


# ---- creating and opening


def test_a_new_run_explains_itself_and_is_a_config(run, config):
    assert load_config(run.path) == load_config(run.path / "config.yaml") == config
    status = read_json(run.path / "status.json")
    assert (status["status"], status["step"], status["steps"], status["reason"]) == ("running", 0, 100, None)
    environment = read_json(run.path / "environment.json")
    assert environment["argv"] == ["quatro", "train"]
    assert environment["packages"]["pydantic"]
    assert {"python", "platform", "cpus", "commit", "quatro"} <= environment.keys()


def test_a_run_that_is_begun_anew_starts_now_and_goes_on_in_the_log(run, config):
    run.close()
    (run.path / "log.txt").write_text("KeyError: 'm'\n", encoding="utf-8")
    status = read_json(run.path / "status.json")
    (run.path / "status.json").write_text(json.dumps({**status, "started": "2020-01-01T00:00:00+00:00"}))
    RunDir.create(run.path, config).close()
    assert str(describe_run(run.path).started) > "2026"
    assert (run.path / "log.txt").read_text(encoding="utf-8") == "KeyError: 'm'\n"


def test_an_existing_run_is_refused_with_both_ways_out(run, config):
    run.close()
    (run.path / "checkpoints/step-000001").mkdir()
    with pytest.raises(UsageError, match=r"--resume.* --new.* -o DIR"):
        RunDir.create(run.path, config)


def test_a_run_without_a_checkpoint_is_begun_anew_and_what_it_did_is_moved_inside(run, config, caplog):
    def work(run: RunDir, number: int) -> None:
        run.append_metrics({"step": 1, "number": number})
        run.write_rollouts(1, [{"a": number}])

    work(run, 1)
    run.close()
    (run.path / "tensorboard").mkdir()
    with RunDir.create(run.path, config) as second:
        assert second.metrics_bytes == 0
        assert not list((run.path / "rollouts").iterdir())
        work(second, 2)
    with RunDir.open(run.path) as third:  # as --resume, a sweep and the demo do
        third.go_back(0, {})
        assert third.metrics_bytes == 0
        work(third, 3)
        third.go_back(0, {"metrics_bytes": third.metrics_bytes})  # a checkpoint before the first iteration
        third.append_metrics({"step": 1})
    RunDir.create(run.path, load_config("quickstart", overrides=["seed=4"])).close()
    for number in (1, 2):
        kept = run.path / f"previous-{number}"
        assert [row["number"] for row in read_metrics(kept)] == [number]
        assert (kept / "rollouts/step-000001.jsonl").read_text(encoding="utf-8") == f'{{"a": {number}}}\n'
        assert str(kept) in caplog.text
    assert len(list(read_metrics(run.path / "previous-3"))) == 2
    assert load_config(run.path / "previous-3").seed == 0
    assert {path.name for path in (run.path / "previous-1").iterdir() if path.is_dir()} == {"rollouts", "tensorboard"}
    assert [(one.path, one.config and one.config.seed) for one in list_runs(run.path.parent)] == [(run.path, 4)]
    assert not examine(run.path).damaged
    remove_run(run.path)
    assert not run.path.exists()


def test_nobody_else_begins_a_run_anew(run, config):
    run.close()
    with RunDir.create(run.path, config):
        with pytest.raises(LockedError):
            RunDir.create(run.path, config)
        (run.path / "samples/mine.jsonl").touch()
    with pytest.raises(UsageError, match="already holds a run"):
        RunDir.create(run.path, config)


def test_a_free_name_is_the_first_that_nothing_has(tmp_path):
    assert free_name(tmp_path / "run") == tmp_path / "run"
    for name in ("run", "run-2", "run-4"):
        (tmp_path / name).mkdir()
    assert free_name(tmp_path / "run") == tmp_path / "run-3"


def test_a_directory_of_something_else_is_refused(tmp_path, config):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        RunDir.create(tmp_path, config)
    with pytest.raises(UsageError, match="is a file"):
        RunDir.create(tmp_path / "thesis.tex", config)
    with pytest.raises(UsageError, match="not a run directory"):
        RunDir.open(tmp_path)


def test_a_run_killed_while_being_created_can_be_created_again(tmp_path, config, monkeypatch):
    path = tmp_path / "run"
    real, calls = os.replace, 0

    for stop_at in range(1, 4):  # environment.json, status.json, config.yaml
        calls = 0

        def replace(source: Path, target: Path, stop_at: int = stop_at) -> None:
            nonlocal calls
            calls += 1
            if calls == stop_at:
                raise KeyboardInterrupt
            real(source, target)

        monkeypatch.setattr(os, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            RunDir.create(path, config)
        assert not (path / "config.yaml").exists()
    monkeypatch.setattr(os, "replace", real)
    RunDir.create(path, config).close()


def test_default_names_say_config_method_and_seed(config):
    assert default_run_path("quickstart", config) == Path("runs/quickstart-quatro-0")
    path = default_run_path("../..", config)
    assert path.parent == Path("runs")
    assert ".." not in path.name.split("-")
    assert default_run_path("a b", config) != default_run_path("a_b", config)


# ---- the lock


def test_fault_10_a_second_process_is_told_who_has_the_run(run):
    code = "import sys; from quatro.runs.directory import RunDir; "
    code += "from pathlib import Path; RunDir.open(Path(sys.argv[1]))"
    ran = subprocess.run([sys.executable, "-c", code, str(run.path)], capture_output=True, text=True)
    assert f"LockedError: {run.path} is in use by process {os.getpid()} on {os.uname().nodename}" in ran.stderr
    with pytest.raises(LockedError) as error:
        RunDir.create(run.path, run.config)
    assert error.value.exit_code == 75


def test_a_lock_ends_with_its_process_even_if_a_forked_child_lives_on(tmp_path):
    code = (
        "import os, sys, time; from pathlib import Path; from quatro.runs.status import RunLock\n"
        "lock = RunLock(Path(sys.argv[1]))\n"
        "child = os.fork()\n"
        "if child == 0:\n    print(os.getpid(), flush=True)\n    time.sleep(60)\n    os._exit(0)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        try:
            assert is_locked(tmp_path)
            holder.kill()
            holder.wait()
            os.kill(child, 0)  # still there
            assert not is_locked(tmp_path)
            RunLock(tmp_path).close()
        finally:
            os.kill(child, signal.SIGKILL)
            holder.stdout.close()


def test_fault_10_a_leftover_lock_file_locks_nothing(run):
    run.close()
    (run.path / "lock").write_text('{"pid": 1, "host": "elsewhere"}', encoding="utf-8")
    assert not is_locked(run.path)
    with RunDir.open(run.path) as again:
        assert is_locked(run.path)
        assert read_json(run.path / "lock")["pid"] == os.getpid()
        assert again.config == run.config


def test_a_held_lock_is_refused(run):
    with pytest.raises(LockedError):
        RunDir.open(run.path)


# ---- metrics, rollouts, log


def test_metrics_are_one_line_a_step_and_null_where_not_finite(run):
    run.append_metrics({"step": 1, "reward/mean": 0.5, "kl": math.nan, "nested": [math.inf, {"a": -math.inf}]})
    run.append_metrics({"step": 2, "name": "λ \u2028"})
    lines = (run.path / "metrics.jsonl").read_bytes().split(b"\n")
    assert [json.loads(line) for line in lines[:-1]] == [
        {"step": 1, "reward/mean": 0.5, "kl": None, "nested": [None, {"a": None}]},
        {"step": 2, "name": "λ \u2028"},
    ]
    assert lines[-1] == b""


def test_metrics_are_cut_back_to_a_checkpoint_and_go_on(run):
    run.append_metrics({"step": 1})
    at_checkpoint = run.written
    run.append_metrics({"step": 2})
    run.close()
    with (run.path / "metrics.jsonl").open("ab") as stream:
        stream.write(b'{"step": 3, "torn')
    with RunDir.open(run.path) as again:
        with pytest.raises(DataError, match="rows are gone"):
            refuse_changed(again.path, {**at_checkpoint, "metrics_bytes": 10_000})
        refuse_changed(again.path, at_checkpoint)
        again.go_back(1, at_checkpoint)
        again.append_metrics({"step": 2, "again": True})
        assert again.written["metrics_sha256"] == hashlib.sha256((run.path / "metrics.jsonl").read_bytes()).hexdigest()
    rows = (run.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert list(map(json.loads, rows)) == [{"step": 1}, {"step": 2, "again": True}]


CHANGES: list[tuple[str, Callable[[list[bytes]], list[bytes]]]] = [
    ("metrics.jsonl", lambda rows: [rows[0].replace(b"0.5", b"0.9"), *rows[1:]]),
    ("metrics.jsonl", lambda rows: [*rows[:-1], rows[-1].replace(b"0.5", b"0.9")]),
    ("metrics.jsonl", lambda rows: [rows[1], rows[0], rows[2]]),
    ("metrics.jsonl", lambda rows: [rows[0], rows[0], rows[2]]),
    ("metrics.jsonl", lambda rows: [b"", *rows[1:]]),
    ("metrics.jsonl", lambda rows: [rows[0], *rows]),
    ("metrics.jsonl", lambda rows: []),
    ("rollouts/step-000002.jsonl", lambda rows: [rows[0].replace(b"0.5", b"0.9"), *rows[1:]]),
    ("rollouts/step-000002.jsonl", lambda rows: rows[1:]),
    ("rollouts/step-000002.jsonl", lambda rows: [*rows, rows[0]]),
    ("rollouts/step-000002.jsonl", lambda rows: []),
]


@pytest.mark.parametrize("while_it_runs", [False, True])
@pytest.mark.parametrize(("file", "change"), CHANGES)
def test_any_change_of_what_was_written_is_noticed(run, file, change, while_it_runs):
    """Also one that was made before the checkpoint: hashes are of what was written, not of what is there."""
    for step in (1, 2, 3):
        run.write_rollouts(step, ({"row": row, "reward": 0.5} for row in range(2)))
        run.append_metrics({"step": step, "reward/mean": 0.5})
    written = run.written
    refuse_changed(run.path, written)
    path = run.path / file
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(DataError, match=file):
        refuse_changed(run.path, run.written if while_it_runs else written)


def test_fault_04_a_full_disk_names_the_file_and_leaves_earlier_rows(run):
    run.append_metrics({"step": 1})
    before = (run.path / "metrics.jsonl").read_bytes()
    code = (
        "import resource, signal, sys; from pathlib import Path; from quatro.runs.directory import RunDir\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "run = RunDir.open(Path(sys.argv[1]))\n"
        "limit = run.metrics_bytes + 5\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))\n"
        "run.append_metrics({'step': 2})"
    )
    run.close()
    ran = subprocess.run([sys.executable, "-c", code, str(run.path)], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "OSError: [Errno 27] File too large" in ran.stderr
    assert f"{run.path}/metrics.jsonl" in ran.stderr
    assert (run.path / "metrics.jsonl").read_bytes() == before


def test_rollouts_of_later_steps_are_removed_at_resume(run):
    run.write_rollouts(1, ({"step": 1, "row": row} for row in range(2)))
    at_checkpoint = run.written
    for step in (2, 10):
        run.write_rollouts(step, [{"step": step}])
    run.go_back(1, at_checkpoint)
    assert os.listdir(run.path / "rollouts") == ["step-000001.jsonl"]
    assert (run.path / "rollouts" / "step-000001.jsonl").read_text(encoding="utf-8") == (
        '{"step": 1, "row": 0}\n{"step": 1, "row": 1}\n'
    )
    assert run.written == at_checkpoint


def test_half_written_files_of_a_killed_process_are_removed_when_the_run_is_opened(run):
    run.close()
    rubbish = [run.path / ".status.json.99.tmp", run.path / "rollouts" / ".step-000001.jsonl.99.tmp"]
    for path in rubbish:
        path.write_text("{", encoding="utf-8")
    RunDir.open(run.path).close()
    assert not any(path.exists() for path in rubbish)
    assert (run.path / "status.json").exists()


def test_the_log_takes_any_text(run):
    # Straight into the handler: pytest would keep what a logger says, and cannot send it between processes.
    handler = run.log_handler()
    handler.handle(logging.makeLogRecord({"name": "test_rundir", "levelname": "WARNING", "msg": "λ* of prompt \ud800"}))
    handler.close()
    assert "WARNING test_rundir: λ* of prompt \\ud800" in (run.path / "log.txt").read_text(encoding="utf-8")


# ---- environment


def test_what_changed_since_the_run_began_is_recorded(run):
    assert run.add_to_environment({"threads": 1, "device": "cpu"}) == {}
    run.close()
    path = run.path / "environment.json"
    document = read_json(path)
    document["packages"]["pydantic"] = "0.1"
    document["threads"] = 64
    path.write_text(json.dumps(document), encoding="utf-8")
    with RunDir.open(run.path, argv=["quatro", "train", "--resume"]) as again:
        assert again.add_to_environment({"threads": 1, "device": "cpu"}) == {"threads": (64, 1)}
    resumed = read_json(path)["resumed"]
    assert len(resumed) == 1
    assert resumed[0]["argv"] == ["quatro", "train", "--resume"]
    assert resumed[0]["changes"]["packages.pydantic"][0] == "0.1"


def test_changes_compare_packages_one_by_one():
    before = {"time": "a", "python": "3.11", "packages": {"torch": "2", "old": "1"}}
    after = {"time": "b", "python": "3.12", "packages": {"torch": "2", "new": "1"}}
    assert changes(before, after) == {
        "python": ("3.11", "3.12"),
        "packages.old": ("1", None),
        "packages.new": (None, "1"),
    }


# ---- status and lists


def test_status_keeps_its_start_and_step(run):
    run.set_status("running", step=7)
    run.set_status("interrupted", reason="SIGINT")
    status = read_json(run.path / "status.json")
    assert (status["status"], status["reason"], status["step"]) == ("interrupted", "SIGINT", 7)


def test_running_without_a_process_means_killed(run):
    run.append_metrics({"step": 12, "reward/mean": 0.25})
    assert describe_run(run.path).status == "running"
    run.close()
    summary = describe_run(run.path)
    assert summary.status == "killed"
    assert "--resume" in (summary.reason or "")
    assert (summary.step, summary.steps, summary.metrics["reward/mean"]) == (12, 100, 0.25)


def test_every_run_below_the_root_is_listed_even_broken_ones(tmp_path, config):
    for name in ("b", "a", "sweep/runs/c"):
        with RunDir.create(tmp_path / name, config) as run:
            run.set_status("done", step=100)
    (tmp_path / "a" / "metrics.jsonl").write_text("[]\n", encoding="utf-8")
    (tmp_path / "b" / "samples" / "config.yaml").touch()  # inside a run: not a run
    runs = list_runs(tmp_path)
    assert [(run.path.relative_to(tmp_path).as_posix(), run.status) for run in runs] == [
        ("a", "unreadable"),
        ("b", "done"),
        ("sweep/runs/c", "done"),
    ]
    assert "metrics.jsonl:1: expected a JSON object" in (runs[0].reason or "")
    with pytest.raises(UsageError, match="no such directory"):
        list_runs(tmp_path / "missing")


@pytest.mark.parametrize(("name", "status"), [("status.json", "unknown"), ("metrics.jsonl", "unreadable")])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(run, name, status):
    run.close()
    (run.path / name).unlink()
    os.mkfifo(run.path / name)
    # A process of its own: one that waits for a writer would never come back.
    code = "import sys; from quatro.runs.views.summary import list_runs; from pathlib import Path; "
    code += "print([one.status for one in list_runs(Path(sys.argv[1]))])"
    ran = subprocess.run(
        [sys.executable, "-c", code, str(run.path.parent)], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout == f"['{status}']\n"
    assert name in ran.stderr or status == "unreadable"


def test_a_torn_last_line_of_metrics_is_left_out_and_said_and_a_broken_one_is_named(tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2', encoding="utf-8")
    assert list(read_metrics(tmp_path)) == [{"step": 1}]
    assert f"{path}:2 " in caplog.text
    path.write_text('{"step": 1}\n{"step": 2\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"metrics\.jsonl:2"):
        list(read_metrics(tmp_path))
