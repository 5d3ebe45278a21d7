"""`quatro runs` from the outside: which runs are listed, how they are compared and shown, what is removed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from quatro.config import load_config
from quatro.runs.checkpoint import write_manifest
from quatro.runs.directory import RunDir, Status
from tests.kit import quatro, read_json, says


def make_run(
    path: Path,
    *rows: Mapping[str, float | None],
    settings: tuple[str, ...] = (),
    method: str | None = None,
    status: Status = "done",
    **more: Any,
) -> Path:
    """A run that has these rows of metrics, and ended like this."""
    with RunDir.create(path, load_config("quickstart", overrides=settings, method=method)) as run:
        for step, row in enumerate(rows, start=1):
            run.append_metrics({"step": float(step), **row})
        run.set_status(status, step=len(rows), **more)
    return path


def wind_back(run: Path, **time: float) -> None:
    """Let the status of a run tell that it was written so long ago."""
    file = run / "status.json"
    status = read_json(file)
    status["updated"] = (datetime.now(UTC) - timedelta(**time)).isoformat(timespec="seconds")
    file.write_text(json.dumps(status), encoding="utf-8")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    low, high = {"reward/mean": 0.1, "kl/new_old": 0.5}, {"reward/mean": 0.9, "kl/new_old": 0.25}
    make_run(Path("runs/a"), low, low)
    make_run(Path("runs/b"), high, method="gspo", status="interrupted")
    make_run(Path("runs/c"), status="failed")
    (tmp_path / "runs/a/checkpoints/weights").write_bytes(bytes(5 << 20))
    (tmp_path / "runs/a/outside").symlink_to("/usr")
    wind_back(Path("runs/a"), hours=50)
    wind_back(Path("runs/b"), minutes=5, seconds=5)
    return tmp_path / "runs"


def listed(*words: object) -> list[str]:
    """Names of the runs that are listed, in order."""
    done = quatro("runs", "list", *words)
    return [line.split()[0].removeprefix("runs/") for line in done.stdout.splitlines()[1:]]


def test_a_line_of_a_run_has_its_age_and_its_size_on_disk(runs):
    head, first, second, third = quatro("runs", "list").stdout.splitlines()
    assert head.split() == ["run", "status", "step", "method", "reward", "age", "size"]
    assert first.split() == ["runs/a", "done", "2/100", "quatro", "0.1", "2", "d", "5.0", "MiB"]
    assert second.split()[:7] == ["runs/b", "interrupted", "1/100", "gspo", "0.9", "5", "min"]
    assert third.split()[4] == "-"
    document = json.loads(quatro("runs", "list", "--json").stdout)["runs"][0]
    assert document["size_bytes"] - (5 << 20) == pytest.approx(4000, abs=4000)


def test_each_field_of_a_runs_document_is_that_of_its_file(tmp_path):
    """All numbers and times differ, so none can stand for another."""
    rows = [{"eval/pass@1": value, "reward/mean": value / 2} for value in (0.25, 0.75, 0.5)]
    settings = ("steps=9", "eval.every=1", "eval.benchmark=countdown")
    run = make_run(tmp_path / "run", *rows, settings=settings, status="interrupted")
    add_checkpoints(run, 2)
    status = read_json(run / "status.json")
    status |= {"started": "2026-01-02T03:04:05+00:00", "updated": "2026-02-03T04:05:06+00:00", "reason": "SIGTERM"}
    (run / "status.json").write_text(json.dumps(status), encoding="utf-8")
    (run / "environment.json").write_text('{"prompts": 70, "prompts_left_out": 4}', encoding="utf-8")
    (document,) = json.loads(quatro("runs", "list", run, "--json").stdout)["runs"]
    assert document.pop("config") == load_config("quickstart", overrides=settings).model_dump(mode="json")
    assert document.pop("size_bytes") == sum(file.lstat().st_size for file in run.rglob("*") if file.is_file())
    assert document == {
        "schema": 1,
        "run": str(run),
        "status": "interrupted",
        "reason": "SIGTERM",
        "step": 3,
        "steps": 9,
        "prompts": {"count": 70, "skipped": 4},
        "started": "2026-01-02T03:04:05+00:00",
        "updated": "2026-02-03T04:05:06+00:00",
        "checkpoints": [1, 2],
        "best": {"metric": "eval/pass@1", "value": 0.75, "step": 2},
        "metrics": {"step": 3.0, **rows[2]},
    }


def test_a_run_says_on_how_many_of_all_responses_its_reward_failed(runs):
    assert "reward failures" not in quatro("runs", "show", "runs/a").stdout
    failures = [{"reward/errors": 2.0, "reward/timeouts": 1.0}, {"reward/errors": 0.0}, {"reward/errors": 4.0}]
    make_run(Path("runs/d"), *failures, settings=("prompts_per_step=4", "minibatch_prompts=4", "rollouts_per_prompt=2"))
    (line,) = [one for one in quatro("runs", "show", "runs/d").stdout.splitlines() if "reward failures" in one]
    assert line.split()[2:] == ["7", "of", "24", "responses"]
    document = json.loads(quatro("runs", "show", "runs/d", "--json").stdout)
    assert document["reward_failures"] == {"count": 7, "of": 24}


def test_runs_come_by_name_and_another_order_is_left_to_sort(runs):
    assert listed() == ["a", "b", "c"]
    says(quatro("runs", "list", "--sort", "age", code=2), "`jq`")


def test_a_list_takes_several_runs_and_folders_and_shows_each_run_once(runs):
    assert listed("runs/c", "runs/a") == ["c", "a"]
    assert listed("runs/b", "runs") == ["b", "a", "c"]


def test_a_list_of_runs_opens_no_more_of_a_run_than_it_shows(runs, monkeypatch):
    monkeypatch.setattr("quatro.runs.views.summary.read_metrics", lambda run: pytest.fail("all metrics are read"))
    assert listed() == ["a", "b", "c"]


# ---- compare


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs of twelve iterations that differ in method and seed."""
    rewards = [9.0, 9.0, *(0.0, 1.0) * 5]
    accuracies = (0.25, 0.5, 0.375)
    rows = [{"reward/mean": reward, "entropy/token_mean": 2.0} for reward in rewards]
    for place, accuracy in zip((3, 7, 11), accuracies, strict=True):
        rows[place] |= {"eval/pass@1": accuracy, "eval/n": 4.0}
    a = make_run(tmp_path / "a", *rows)
    b = make_run(tmp_path / "b", *({"reward/mean": 0.5} for _ in rows), settings=("seed=3",), method="gspo")
    return a, b


def test_runs_are_compared_by_settings_and_last_iterations(pair):
    lines = [line.split() for line in quatro("runs", "compare", *pair).stdout.splitlines()]
    assert ["seed", "0", "3"] in lines
    assert ["method.name", "quatro", "gspo"] in lines
    assert not any(line[0] == "model" for line in lines)
    assert ["reward/mean", "0.5", "±", "0.53", "0.5", "±", "0"] in lines
    assert ["entropy/token_mean", "2", "±", "0", "-"] in lines

    document = json.loads(quatro("runs", "compare", *pair, "--json").stdout)
    assert [run["name"] for run in document["runs"]] == ["a", "b"]
    assert document["settings"]["seed"] == ["0", "3"]
    # Ten values, five of them 0 and five 1: the squared deviations sum to 2.5, and 2.5 / 9 is the variance.
    assert document["metrics"]["reward/mean"][0] == {"mean": 0.5, "std": pytest.approx(0.5270463), "num_iterations": 10}


def test_runs_side_by_side_have_rows_of_failures_and_parts_of_the_reward(tmp_path):
    a, b = ({"reward/mean": 0.5, "reward/parts/bonus": 1.0, "reward/errors": errors} for errors in (2.0, 0.0))
    b |= {"reward/mean": 0.25}
    runs = [make_run(tmp_path / "a", a), make_run(tmp_path / "b", b)]
    lines = [line.split() for line in quatro("runs", "compare", *runs).stdout.splitlines()]
    assert ["metric", "a", "b"] in lines
    assert ["reward", "failures", "2", "of", "256", "0", "of", "256"] in lines
    assert ["reward/mean", "0.5", "0.25"] in lines
    assert ["reward/parts/bonus", "1", "1"] in lines


def test_what_is_no_pair_of_runs_is_refused(pair, tmp_path):
    mistakes = [("two runs or more", [pair[0]]), ("is named twice", [pair[0]] * 2), ("is not a run", [*pair, tmp_path])]
    for said, words in mistakes:
        says(quatro("runs", "compare", *words, code=2), said)


# ---- show


def shown(*words: object) -> str:
    return quatro("runs", "show", *words).stdout


def cells(text: str, label: str) -> list[str]:
    """The rest of the line that begins with ``label``."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"  {label} ")]
    return line.removeprefix(f"  {label}").split()


def test_a_run_is_shown_in_sections_and_the_lines_of_an_error_stay_lines(tmp_path):
    row = {f"log_ratio/{place}": 1.0 for place in range(60)} | {"reward/mean": 0.5, "reward/parts/bonus": 2.0}
    reason = "the reward failed:\n  my_reward.py:3 in f: return {}[1]\nKeyError: 1"
    run = make_run(
        tmp_path / "run", {"step": 1, **row}, {"step": 2, **row, "reward/mean": 1.5}, status="failed", reason=reason
    )
    text = shown(run)
    lines = text.splitlines()
    titles = [line for line in lines if line and not line.startswith(" ")]
    assert titles == [str(run), "training", "last iteration, and the mean of the last 2"]
    assert len(lines) <= 40
    assert "\\n" not in text
    after = lines.index(next(line for line in lines if "failed: the reward failed:" in line))
    assert [line.strip() for line in lines[after + 1 : after + 3]] == [
        "my_reward.py:3 in f: return {}[1]",
        "KeyError: 1",
    ]
    assert cells(text, "method") == ["quatro(delta=0.01)"]
    assert cells(text, "reward/mean") == ["1.5", "1"]
    assert cells(text, "reward/parts/bonus") == ["2", "2"]
    assert "log_ratio/59" not in text
    assert "and 60 more metrics with --all" in text
    assert cells(shown(run, "--all"), "log_ratio/59") == ["1", "1"]


def test_evaluations_have_a_line_each_with_their_error(tmp_path):
    settings = ("eval.every=1", "eval.benchmark=countdown")
    counts = {"pass@1_se": 0.1, "pass@4": 0.75, "problems": 20.0, "n": 4.0}
    rows = [
        {"step": float(step), "eval/pass@1": value, **{f"eval/{name}": count for name, count in counts.items()}}
        for step, value in enumerate((0.5, 0.4, 0.25), start=1)
    ]
    rows[0] |= {f"base/{name}": value for name, value in {"pass@1": 0.2, **counts}.items()}
    run = make_run(tmp_path / "run", *rows, {"step": 4.0, "reward/mean": 0.5}, settings=settings)
    text = shown(run)
    assert "evaluation on countdown: 20 problems x 4 samples, ± standard error\n" in text
    assert cells(text, "step") == ["pass@1", "pass@4"]
    assert cells(text, "0 (before)") == ["0.2", "±", "0.1", "0.75"]
    assert cells(text, "3") == ["0.25", "±", "0.1", "0.75"]
    assert " ".join(cells(text, "best eval/pass@1")) == "0.5 ± 0.1 in step 1; before training 0.2 ± 0.1"
    assert [row["step"] for row in json.loads(shown(run, "--json"))["evaluations"]] == [0, 1, 2, 3]
    many = make_run(tmp_path / "many", *({**rows[2], "step": float(step)} for step in range(1, 31)), settings=settings)
    assert "\n  22 more with --all\n" in shown(many)
    assert cells(shown(many), "1") == cells(shown(many), "30") == cells(shown(many, "--all"), "9")


def test_evaluations_on_several_benchmarks_are_shown_side_by_side(tmp_path):
    settings = ("eval={every: 1, benchmark: [countdown, math500], n: 4}",)
    each = {"eval/countdown/pass@1": 0.75, "eval/countdown/problems": 20.0, "eval/math500/pass@1": 0.25}
    run = make_run(
        tmp_path / "run", {"step": 1.0, "eval/pass@1": 0.5, "eval/pass@1_se": 0.1, **each}, settings=settings
    )
    text = shown(run)
    assert "evaluation on countdown, math500, ± standard error\n" in text
    assert cells(text, "step") == ["pass@1", "countdown/pass@1", "math500/pass@1"]
    assert cells(text, "1") == ["0.5", "±", "0.1", "0.75", "0.25"]


def test_the_metrics_of_a_run_are_read_once_to_show_it(tmp_path, monkeypatch):
    from quatro.runs.views import summary

    reads: list[Path] = []
    read = summary.read_metrics
    monkeypatch.setattr(summary, "read_metrics", lambda run: reads.append(run) or read(run))
    run = make_run(
        tmp_path / "run", {"step": 1.0, "eval/pass@1": 0.5}, settings=("eval.every=1", "eval.benchmark=countdown")
    )
    shown(run)
    assert reads == [run]


def test_the_best_value_of_a_run_is_that_of_the_metric_by_which_a_checkpoint_is_kept(tmp_path):
    rows = [{"reward/mean": value} for value in (-0.5, None, -0.25, -0.25)]
    run = make_run(tmp_path / "run", *rows, settings=("checkpoint.keep={best: reward/mean}",))
    assert cells(shown(run), "best reward/mean") == ["-0.25", "in", "step", "3"]
    document = json.loads(shown(run, "--json"))
    assert document["best"] == {"metric": "reward/mean", "value": -0.25, "step": 3}
    for key in ("reward_failures", "evaluations"):  # for which all metrics are read
        del document[key]
    assert json.loads(quatro("runs", "list", run, "--json").stdout)["runs"] == [document]


def test_no_runs_is_said_and_no_directory_is_refused(tmp_path):
    none = quatro("runs", "list", tmp_path)
    assert none.stdout == ""
    says(none, "no runs below", tmp_path)
    says(quatro("runs", "list", tmp_path / "missing", code=2), tmp_path / "missing")


# ---- rm and prune


def test_a_run_is_removed_once_somebody_says_yes(runs, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (runs / "a/linked").symlink_to(outside)
    says(quatro("runs", "rm", "runs/a", code=2, input=""), advice="--yes")
    refused = quatro("runs", "rm", "runs/a", input="\n", code=2)
    assert "Remove runs: 1, 5.0 MiB, for good? [y/N]" in refused.stderr
    assert (runs / "a/config.yaml").exists()
    quatro("runs", "rm", "runs/a", input="y\n")
    quatro("runs", "rm", "runs/b", "runs/b", "--yes")
    assert os.listdir(runs) == ["c"]
    assert (outside / "file").exists()


def test_what_is_no_run_or_is_in_use_is_not_removed(runs, tmp_path):
    def assert_refused(path: Path, code: int, said: str) -> None:
        says(quatro("runs", "rm", runs / "c", path, "--yes", code=code), said)

    assert_refused(runs, 2, "is not a run directory")
    project = tmp_path / "project"
    project.mkdir()
    (project / "config.yaml").touch()
    assert_refused(project, 2, "it may be no run")
    (runs / "link").symlink_to(runs / "a")
    assert_refused(runs / "link", 2, "is a symbolic link")
    with RunDir.open(runs / "b"):
        assert_refused(runs / "b", 75, "is in use by process")
    assert (runs / "c/config.yaml").exists()  # all are looked at before any is removed


def add_checkpoints(run: Path, steps: int) -> None:
    for step in range(1, steps + 1):
        folder = run / f"checkpoints/step-{step:06d}"
        folder.mkdir()
        (folder / "weights").write_bytes(bytes(1 << 20))
        write_manifest(folder, step)


def checkpoints(run: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in run.glob("checkpoints/step-*"))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A finished run with five checkpoints, of which the second was the best, beside one that was interrupted."""
    rows = [{"eval/pass@1": value, "reward/mean": 1.0} for value in (0.1, 0.5, 0.5, 0.2, 0.3)]
    evaluated = ("eval.every=1", "eval.benchmark=countdown")
    for name, status in (("saved", "done"), ("stopped", "interrupted")):
        add_checkpoints(make_run(tmp_path / "runs" / name, *rows, settings=evaluated, status=status), 5)
    return tmp_path / "runs/saved"


def test_pruning_keeps_the_newest_and_the_best_checkpoint_of_finished_runs(saved):
    told = quatro("runs", "prune", saved.parent, "--dry-run", "--keep", "2")
    assert told.stdout.splitlines()[1].split() == [str(saved), "2", "4", "5", "1", "3", "2.0", "MiB"]
    assert "left alone: 1 interrupted" in told.stderr
    assert "would remove checkpoints: 2, 2.0 MiB" in told.stderr
    quatro("runs", "prune", saved.parent, input="no\n", code=2)
    assert checkpoints(saved) == [1, 2, 3, 4, 5]
    quatro("runs", "prune", saved.parent, input="y\n")
    assert checkpoints(saved) == [2, 5]
    assert checkpoints(saved.with_name("stopped")) == [1, 2, 3, 4, 5]
    assert "nothing to prune" in quatro("runs", "prune", saved.parent, "--yes").stderr


def test_pruning_leaves_a_run_alone_that_a_process_holds_or_whose_kept_checkpoint_was_changed(saved):
    with RunDir.open(saved):
        assert "1 running" in quatro("runs", "prune", saved, "--yes").stderr
    (saved / "checkpoints/step-000005/weights").write_bytes(b"changed")
    assert "was changed" in quatro("runs", "prune", saved, "--yes", code=4).stderr
    assert checkpoints(saved) == [1, 2, 3, 4, 5]


def test_a_run_that_cannot_be_read_keeps_no_other_from_being_pruned(saved):
    shutil.copytree(saved, saved.with_name("damaged"))
    metrics = saved.with_name("damaged") / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes().replace(b"{", b"[", 1))
    assert "left alone: 1 unreadable, 1 interrupted" in quatro("runs", "prune", saved.parent, "--yes").stderr
    assert (checkpoints(saved), checkpoints(metrics.parent)) == ([2, 5], [1, 2, 3, 4, 5])
