"""`quatro train` from the outside: begin, watch, interrupt, continue. A tiny untrained model, a few steps."""

import errno
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from quatro.runs.directory import folder_bytes
from quatro.sweep.children import launched
from tests.kit import quatro, read_json, read_rows, says, settings, write_rows

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tiny(model) -> list[str]:
    small = ["prompts_per_step=4", "minibatch_prompts=4", "rollouts_per_prompt=4", "inner_updates=2", "steps=2"]
    return settings(f"model={model}", *small)


def metrics(run: Path) -> list[dict]:
    return read_rows(run / "metrics.jsonl")


def status(run: Path) -> str:
    return read_json(run / "status.json")["status"]


def wait_for_a_step(run: Path, child: Any) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (run / "metrics.jsonl").exists() and metrics(run):
            return
        assert child.poll() is None, child.stderr.read()
        time.sleep(0.02)
    raise AssertionError("no step within a minute")


def test_a_run_leaves_its_directory_and_names_it(tiny, tmp_path):
    run = tmp_path / "run"
    result = quatro("train", "quickstart", *tiny, "-o", run)
    assert result.stdout == f"{run}\n"
    assert "step 2/2" in result.stderr
    assert status(run) == "done"
    assert [row["step"] for row in metrics(run)] == [1, 2]
    assert "done" in quatro("runs", "show", run).stdout

    again = quatro("train", "quickstart", *tiny, "-o", run, code=2)
    assert "--resume" in again.stderr
    assert "-o" in again.stderr


def test_a_dry_run_says_the_disk_that_the_run_takes(tiny, tmp_path, monkeypatch):
    (tmp_path / "brief.py").write_text("def short(num_tokens): return max(0.0, 1 - num_tokens / 10)", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    longer = [*tiny, *settings("reward=brief:short", "rollout.max_new_tokens=10", "checkpoint.every=1")]

    said = json.loads(quatro("train", "quickstart", *longer, "-o", tmp_path / "a", "--dry-run", "--json").stdout)
    quatro("train", "quickstart", *longer, "-o", tmp_path / "a")
    assert abs(folder_bytes(tmp_path / "a") / said["disk_bytes"] - 1) < 0.2


def test_a_file_system_without_locks_is_named_with_what_to_do(tiny, tmp_path, monkeypatch):
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    run = tmp_path / "run"
    result = quatro("train", "quickstart", *tiny, "-o", run, code=3)
    assert f"{run / 'lock'} cannot be locked ({os.strerror(errno.ENOLCK)})" in result.stderr
    assert "local disk with -o DIR" in result.stderr


def test_what_there_is_to_warn_of_at_the_start_is_said_once(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    problems = tmp_path / "problems.jsonl"
    sentences = ["1 2 3 = 6"] * 3 + ["1 2 3 " * 40 + "= 6"]
    rows = [{"id": str(number), "problem": text, "answer": "6"} for number, text in enumerate(sentences)]
    write_rows(problems, rows)
    (tmp_path / "flat.py").write_text("def zero(prompt, completion, answer):\n    return 0.0\n", encoding="utf-8")
    extra = [f"data.prompts={problems}", "data.too_long=skip", "data.max_prompt_tokens=30", "rollout.top_p=0.9"]
    extra += ["prompts_per_step=3", "minibatch_prompts=3", "reward=flat:zero", "steps=1"]
    extra += ["eval.every=5", f"eval.benchmark={problems}"]
    sets = settings(*extra)
    result = quatro("train", "quickstart", *tiny, *sets, "-o", "run")
    log = (tmp_path / "run/log.txt").read_text(encoding="utf-8")
    for text in ("training rollouts are truncated", " 1 of 4 prompts are longer", "problems.jsonl: 1 of 4"):
        expected = 2 if text.startswith(" ") else 1  # of the training prompts, and of those of the evaluation
        assert (result.stderr.count(text), log.count(text)) == (expected, expected), result.stderr


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('System role not supported') }}", "TemplateError: System role not supported"),
        ("{% for message in messages %}{{ message }}", "TemplateSyntaxError: "),
        ("{{ messages[7].content }}", "UndefinedError: "),
        ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
        (5, "TypeError: "),
        ("{{ range(10 ** 9) | list }}", "OverflowError: Range too big"),
    ],
)
def test_a_chat_template_that_makes_no_prompt_is_named_with_its_error(tiny, model, tmp_path, template, reason):
    folder = tmp_path / "model"
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("chat_template.jinja"))  # it would go first
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**read_json(file), "chat_template": template}), encoding="utf-8")
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"id": "1", "problem": "1 + 2", "answer": "3"}\n', encoding="utf-8")
    chat = [f"model={folder}", "data.template=chat", f"data.prompts={problems}", "reward=math"]
    sets = settings(*chat)
    result = quatro("train", "quickstart", *tiny, *sets, "--dry-run", code=4)
    assert f"{file}: the chat template makes no prompt: " in result.stderr
    assert reason in result.stderr


def test_a_template_of_ones_own_makes_the_prompts_of_a_spreadsheets_problems(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.csv").write_bytes("\ufeffproblem;answer\r\n1 2 3;6\r\n".encode())
    (tmp_path / "prompt.txt").write_bytes(b"4 {problem} 5\r\n")
    sets = [f"model={model}", "data.prompts=own.csv", "reward=math", "prompts_per_step=1", "minibatch_prompts=1"]

    def dry(*more, code=0):
        done = quatro("train", "quickstart", *settings(*sets, *more), "--dry-run", "--json", code=code)
        return done if code else json.loads(done.stdout)

    plain = dry("data.template=prompt.txt")
    assert plain["first_prompt"]["text"] == "4 1 2 3 5"
    assert 'template: "4 {problem} 5"' in plain["config"]
    assert any("tokenizer has a chat template, which the prompt template" in note for note in plain["notes"])
    chat = dry("data.template=chat: {problem}: 7\\n")  # YAML would read a mapping
    assert chat["first_prompt"]["text"] == "1 2 3: 7\n"
    assert not any("chat template" in note for note in chat["notes"])
    assert "system: 1: 2" not in dry("data.template=chat")["config"]
    assert 'system: "1: 2"' in dry("data.template=chat", "data.system=1: 2")["config"]
    says(dry("data.template=plain", "data.system=2", code=2), "'2'", "null", key="data.system")


def test_prompts_that_are_too_long_are_left_out_and_counted(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f'"1 {length} 3",6' if length else '"1 2 3 4 5 6 7 8 9 1 2",6' for length in (0, 1, 2, 0)]
    (tmp_path / "own.csv").write_text("problem,answer\n" + "\n".join(rows) + "\n", encoding="utf-8")
    sizes = [
        "steps=1",
        "prompts_per_step=1",
        "minibatch_prompts=1",
        "rollouts_per_prompt=2",
        "data.max_prompt_tokens=5",
    ]
    sets = [
        f"model={model}",
        "data.prompts=own.csv",
        "data.template=plain",
        "reward=math",
        "data.too_long=skip",
        *sizes,
    ]
    result = quatro("train", "quickstart", *settings(*sets), "-o", "run")
    assert "2 of 4 prompts are longer than 5 tokens and were left out" in result.stderr
    shown = quatro("runs", "show", "run").stdout
    assert "2 (2 left out as too long)" in shown
    assert json.loads(quatro("runs", "show", "run", "--json").stdout)["prompts"] == {
        "count": 2,
        "skipped": 2,
    }


@pytest.mark.slow
def test_rewards_judge_what_follows_a_thought(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.jsonl").write_text('{"id": "p", "problem": "1 2", "answer": "3"}\n', encoding="utf-8")
    texts = [r"\boxed{4}</think>\boxed{3}", r"\boxed{3}</think>\boxed{4}", r"\boxed{3}", r"</think>\boxed{3}"]
    recorded = [{"id": "p", "benchmark": "p", "sample_index": i, "completion": text} for i, text in enumerate(texts)]
    lines = "".join(json.dumps({**row, "answer": "3"}) + "\n" for row in recorded)
    (tmp_path / "said.jsonl").write_text(lines, encoding="utf-8")
    (tmp_path / "own.py").write_text(
        "def judged(completion, thought):\n    return {'reward': 0, 'all': len(thought + completion)}\n",
        encoding="utf-8",
    )
    sizes = ["steps=1", "prompts_per_step=1", "minibatch_prompts=1", "rollouts_per_prompt=4", "save_rollouts=true"]
    sets = [f"model={model}", "data.prompts=p.jsonl", "reward=[math, own:judged]", "rollout.engine=replay", *sizes]
    sets += ["rollout.max_new_tokens=99", "data.template=plain", "rollout.thinking=</think>"]

    def rollouts(name, file):
        words = settings(*sets, f"rollout.replay_file={file}")
        quatro("train", "quickstart", *words, "-o", name)
        path = Path(name, "rollouts/step-000001.jsonl")
        return path, read_rows(path)

    path, rows = rollouts("run", "said.jsonl")
    assert [row["correct"] for row in rows] == [True, False, False, True]
    assert [row["thought"] + row["completion"] for row in rows] == texts
    (metrics_of_1,) = metrics(Path("run"))
    assert metrics_of_1["length/unfinished_thoughts"] == 0.25
    assert metrics_of_1["reward/parts/judged/all"] == sum(map(len, texts)) / 4
    _, again = rollouts("again", path)  # a run's rollouts can be replayed
    assert [row["completion"] for row in again] == [row["completion"] for row in rows]


def test_the_config_of_a_run_begins_another(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert quatro("train", "quickstart", *tiny, "-s", "seed=3").stdout == "runs/quickstart-quatro-3\n"
    second = quatro("train", "runs/quickstart-quatro-3/config.yaml", "-o", "other", "--json")
    document = json.loads(second.stdout)
    assert document["run"] == "other"
    assert document["metrics"]["step"] == 2
    rewards = [[row["reward/mean"] for row in metrics(Path(run))] for run in ("runs/quickstart-quatro-3", "other")]
    assert rewards[0] == rewards[1]


def test_a_dry_run_says_what_would_happen_and_writes_nothing(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "4 prompts x 4 rollouts" in quatro("train", "quickstart", *tiny, "--dry-run").stdout
    document = json.loads(quatro("train", "quickstart", *tiny, "--dry-run", "--json").stdout)
    assert document["parameters"] > 0
    assert list(tmp_path.iterdir()) == []


def test_fewer_processes_than_the_configuration_is_made_for_are_refused(tiny, tmp_path):
    arguments = ["train", "quickstart", *tiny, "-s", "processes=2", "-o", str(tmp_path / "run")]
    result = quatro(*arguments, code=2)
    assert "torchrun --nproc-per-node 2 --shutdown-timeout 600 -m quatro_cli train quickstart" in result.stderr
    assert not (tmp_path / "run").exists()
    quatro(*arguments, "--dry-run")


@pytest.mark.slow
def test_names_of_ours_mean_the_same_beside_folders_and_modules_of_these_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("quickstart", "countdown", "embedded:countdown", "gspo", "transformers", "exact"):
        Path(name).mkdir()
    for name in ("math.py", "random.py", "countdown.py", "quatro.py", "evals.py"):
        Path(name).write_text("raise RuntimeError('not ours')", encoding="utf-8")
    tiny = ["eval.every=1", "eval.benchmark=countdown", "kl.reference=embedded:countdown", "reward=[countdown]"]
    commands = [
        ["train", "quickstart", *settings(*tiny), "-m", "gspo", "--dry-run"],
        ["sample", "embedded:countdown", "-b", "countdown", "-n", "1", "--limit", "2", "-o", "out"],
        ["eval", "ucc", "out", "-b", "countdown", "--similarity", "exact"],
        ["benchmarks", "show", "countdown"],
        ["config", "show", "quickstart"],
    ]
    for command in commands:
        assert str(tmp_path) not in quatro(*command).stdout
    version = launched([sys.executable, "-m", "quatro_cli", "--version"], 1)  # as a sweep starts its points
    assert subprocess.run(version, check=True, capture_output=True, text=True).stdout.startswith("quatro ")


def test_a_run_that_fails_says_so_in_its_status(tiny, tmp_path, monkeypatch):
    from evals.errors import DivergedError

    def diverge(position, parts, evaluation, run):
        raise DivergedError("iteration 1: loss is not finite")

    monkeypatch.setattr("quatro.train.iteration", diverge)
    run = tmp_path / "run"
    result = quatro("train", "quickstart", *tiny, "-o", run, code=5)
    assert result.stderr.count("iteration 1: loss is not finite") >= 1
    assert status(run) == "failed"
    assert "DivergedError" in (run / "log.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.slow
def test_a_signal_saves_and_the_run_goes_on_as_if_nothing_had_been(tiny, fork, tmp_path, number, code):
    run, whole = tmp_path / "cut", tmp_path / "whole"
    # Enough steps that the signal comes before the last one.
    several = [*tiny, "-s", "steps=60", "-s", "save_rollouts=false", "-s", "checkpoint.every=0"]
    child = fork(["quatro", "train", "quickstart", *several, "-o", run])
    wait_for_a_step(run, child)
    child.send_signal(number)
    _, said = child.communicate(timeout=60)
    assert child.returncode == code, said
    assert "this is a bug" not in said
    assert "Traceback" not in said
    assert "--resume" in said
    assert status(run) == "interrupted"
    done = len(metrics(run))
    assert 0 < done < 60
    (saved,) = (run / "checkpoints").glob("step-*")
    assert saved.name in (f"step-{done:06d}", f"step-{done:06d}-inside")  # wherever the signal came

    quatro("train", run, "--resume")
    quatro("train", "quickstart", *several, "-o", whole)
    assert status(run) == "done"

    def timeless(rows: list[dict]) -> list[dict]:
        return [{key: value for key, value in row.items() if not key.startswith("perf/")} for row in rows]

    pairs = zip(timeless(metrics(run)), timeless(metrics(whole)), strict=True)
    assert [(key, a[key], b.get(key)) for a, b in pairs for key in a if a[key] != b.get(key)] == []


def test_a_signal_among_the_responses_discards_them_and_says_so(tiny, tmp_path, monkeypatch):
    from quatro.rollout.transformers import TransformersEngine

    draw, calls = TransformersEngine.generate, []

    def interrupted(self, *arguments, **options):
        calls.append(arguments)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return draw(self, *arguments, **options)

    run, whole = tmp_path / "cut", tmp_path / "whole"
    with monkeypatch.context() as patch:
        patch.setattr(TransformersEngine, "generate", interrupted)
        result = quatro("train", "quickstart", *tiny, "-o", run, code=130)
    assert "Responses that are still being drawn are discarded; --resume draws them again" in result.stderr
    assert "finishing" not in result.stderr
    assert [
        line for line in result.stderr.splitlines() if "warning" in line and ("SIG" in line or "stop" in line)
    ] == []
    assert not re.search("WARNING.*(SIG|stop)", (run / "log.txt").read_text(encoding="utf-8"))
    assert [path.name for path in (run / "checkpoints").glob("step-*")] == ["step-000001"]
    assert [path.name for path in (run / "rollouts").iterdir()] == ["step-000001.jsonl"]
    assert "discarded" in quatro("train", "--help").stdout

    quatro("train", run, "--resume")
    quatro("train", "quickstart", *tiny, "-o", whole)
    drawn = "rollouts/step-000002.jsonl"
    assert (run / drawn).read_bytes() == (whole / drawn).read_bytes()


@pytest.mark.slow
def test_fault_16_a_second_interrupt_stops_at_once(tiny, fork, tmp_path):
    run = tmp_path / "run"
    child = fork(["quatro", "train", "quickstart", *tiny, "-s", "steps=500", "-o", run])
    wait_for_a_step(run, child)
    child.send_signal(signal.SIGINT)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130, said
    assert "this is a bug" not in said
    assert "Traceback" not in said
    assert status(run) == "interrupted"


@pytest.mark.slow
def test_a_terminal_shows_a_panel_of_any_width(tiny, tmp_path):
    controller, terminal = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "quatro_cli.app", "train", "quickstart", *tiny, "-o", str(tmp_path / "run")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "40", "NO_COLOR": "1"},
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            chunk = os.read(controller, 65536)
        except OSError:
            break
        if not chunk:
            break
        shown += chunk
    assert child.wait(timeout=60) == 0
    text = shown.decode("utf-8", "replace")
    assert "entropy" in text
    assert "this is a bug" not in text
    assert "Traceback" not in text


def test_a_run_is_sampled_and_measured(tiny, tmp_path):
    run = tmp_path / "run"
    quatro("train", "quickstart", *tiny, "-o", run)
    problems = tmp_path / "toy.jsonl"
    problems.write_text(
        '{"id": "a", "problem": "7 2 7 6 2 8 -> 67", "answer": "7 2 7 6 2 8 -> 67"}\n', encoding="utf-8"
    )
    drawn = quatro("sample", run, "-b", problems, "-n", "3")
    path = run / "samples/T1-p1-step000002/toy.jsonl"
    assert drawn.stdout == f"{path}\n"
    document = json.loads(quatro("eval", "passk", run, "--json", "--k", "1,3").stdout)
    assert document["method"] == "quatro delta=0.01"
    assert document["sampling"]["n"] == 3
    assert document["rows"][0]["num_problems"] == 1
