"""`quatro sample` from the outside: presets, several benchmarks at once, interruption. A tiny untrained model."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quatro_cli.app import app

ROOT = Path(__file__).parents[2]
runner = CliRunner()


@pytest.fixture
def toy(tmp_path) -> Path:
    path = tmp_path / "toy.jsonl"
    rows = [{"id": f"p{i}", "problem": f"{i} 2 7 6 2 8 -> 67", "answer": "67"} for i in range(1, 7)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def command(model: Path, toy: Path, out: Path, *more: str) -> list[str]:
    return ["sample", str(model), "-b", str(toy), "--max-tokens", "20", "-o", str(out), *more]


def test_the_papers_preset_is_drawn_and_recorded(model, toy, tmp_path):
    arguments = ["sample", str(model), "-b", str(toy), "-o", str(tmp_path / "out"), "--preset", "verl-generation"]
    result = runner.invoke(app, [*arguments, "-n", "2", "--max-tokens", "20", "--template", "plain"])
    assert result.exit_code == 0, result.output
    assert "n 2 replaces 256 of the preset verl-generation" in result.stderr
    assert "max_tokens 20 replaces 1024" in result.stderr
    document = json.loads((tmp_path / "out/sampling.json").read_text(encoding="utf-8"))
    assert document["sampling"] == {
        "n": 2,
        "temperature": 1.0,
        "top_p": 0.7,
        "top_k": 50,
        "max_tokens": 20,
        "prompt": "plain",
        "stop": [],
    }
    assert document["devices"][0].startswith(("cpu", "cuda"))
    assert document["dtype"] in ("float32", "bfloat16")


def test_a_template_of_ones_own_and_a_system_prompt_are_used_and_recorded(model, toy, tmp_path):
    out = tmp_path / "out"
    asked = [*command(model, toy, out, "-n", "1"), "--template", r"chat: 3 {problem}\n", "--system", "9"]
    done = runner.invoke(app, asked)
    assert done.exit_code == 0
    assert "chat template" not in done.stderr
    plain = runner.invoke(app, [*command(model, toy, tmp_path / "plain", "-n", "1"), "--template", "{problem}"])
    assert "tokenizer has a chat template, which the prompt template '{problem}' does not use" in plain.stderr
    (entry,) = json.loads((out / "sampling.json").read_text(encoding="utf-8"))["benchmarks"].values()
    assert (entry["prompt"], entry["system"]) == ("chat: 3 {problem}\n", "9")
    (first, *_) = [json.loads(line) for line in (out / "toy.jsonl").read_text(encoding="utf-8").splitlines()]
    assert first["prompt"] == "3 1 2 7 6 2 8 -> 6"  # the model's chat template cuts
    assert runner.invoke(app, asked).exit_code == 0
    other = runner.invoke(app, [*asked[:-1], "8"])
    assert other.exit_code == 2
    assert "system: 9 there, 8 here" in other.stderr


def test_a_thought_is_apart_from_the_completion_and_a_run_hands_on_its_markers(model, toy, tmp_path):
    tiny = ["prompts_per_step=2", "minibatch_prompts=2", "rollouts_per_prompt=2", "steps=1", f"model={model}"]
    settings = [word for setting in [*tiny, "rollout.thinking=="] for word in ("-s", setting)]
    assert runner.invoke(app, ["train", "quickstart", *settings, "-o", str(tmp_path / "run")]).exit_code == 0

    def rows(*more: str):
        done = runner.invoke(app, [*command(tmp_path / "run", toy, tmp_path / str(len(more)), "-n", "4"), *more])
        assert done.exit_code == 0, done.output
        lines = (tmp_path / str(len(more)) / "toy.jsonl").read_text(encoding="utf-8").splitlines()
        return list(map(json.loads, lines))

    apart, whole = rows("--grade"), rows("--thinking", "")
    assert [row.get("thought", "") + row["completion"] for row in apart] == [row["completion"] for row in whole]
    assert all(row["thought"].endswith("=") for row in apart if row["completion"])
    assert any(row["completion"] for row in apart)
    assert not any(row["correct"] for row in apart if not row["completion"])
    (entry,) = json.loads((tmp_path / "1/sampling.json").read_text(encoding="utf-8"))["benchmarks"].values()
    assert entry["thinking"] == "="


def test_a_preset_keeps_the_response_length_that_a_run_was_trained_with(model, toy, tmp_path):
    """A bare model takes the preset's length, and an option wins over both."""
    run = tmp_path / "run"
    tiny = ["prompts_per_step=2", "minibatch_prompts=2", "rollouts_per_prompt=2", "steps=1", f"model={model}"]
    settings = [word for setting in [*tiny, "rollout.max_new_tokens=12"] for word in ("-s", setting)]
    assert runner.invoke(app, ["train", "quickstart", *settings, "-o", str(run)]).exit_code == 0

    def dry(source: Path, *more: str):
        result = runner.invoke(app, ["sample", str(source), "-b", str(toy), "--preset", "paper", "--dry-run", *more])
        assert result.exit_code == 0, result.output
        return result

    own = dry(run)
    assert "temperature 1, top_p 0.7, at most 12 tokens" in own.stdout
    assert "max_tokens 12, as the run was trained, replaces 1024 of the preset paper" in own.stderr
    bare = dry(model)
    assert "at most 1024 tokens" in bare.stdout
    assert "max_tokens" not in bare.stderr
    explicit = dry(run, "--max-tokens", "1024")
    assert "at most 1024 tokens" in explicit.stdout
    assert "max_tokens" not in explicit.stderr


@pytest.fixture(scope="module")
def trained(model, tmp_path_factory) -> Path:
    """A run with the checkpoints 1 and 2."""
    run = tmp_path_factory.mktemp("runs") / "run"
    tiny = ["prompts_per_step=2", "minibatch_prompts=2", "rollouts_per_prompt=2", "steps=2", f"model={model}"]
    settings = [
        word
        for setting in [*tiny, "checkpoint.every=1", "reward={name: format, options: {pattern: '1'}}"]
        for word in ("-s", setting)
    ]
    assert runner.invoke(app, ["train", "quickstart", *settings, "-o", str(run)]).exit_code == 0
    return run


@pytest.mark.slow
def test_samples_of_two_steps_lie_apart_and_say_which_they_are(trained, toy):
    texts = []
    for step, more in ((1, ["--step", "1"]), (2, []), (2, ["--step", "2"])):
        arguments = ["sample", str(trained), "-b", str(toy), "-n", "4", *more]
        result = runner.invoke(app, arguments)
        folder = trained / f"samples/T1-p1-step{step:06d}"
        assert (result.exit_code, result.stdout) == (0, f"{folder / 'toy.jsonl'}\n"), result.output
        document = json.loads((folder / "sampling.json").read_text(encoding="utf-8"))
        assert document["checkpoint"] == f"step-{step:06d}"
        texts.append(
            [json.loads(line)["completion"] for line in (folder / "toy.jsonl").read_text("utf-8").splitlines()]
        )
    assert texts[0] != texts[1] == texts[2]
    for step in (1, 2):
        tagged = runner.invoke(
            app, ["sample", str(trained), "-b", str(toy), "-n", "1", "--tag", "x", "--step", str(step)]
        )
    assert tagged.exit_code == 2
    assert "checkpoint: step-000001 there, step-000002 here" in tagged.stderr


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("3", "has no checkpoint of step 3; it has 1, 2"),
        ("best", "keeps no best checkpoint (checkpoint.keep.best is null); it has 1, 2"),
        ("last", "--step last: expected an iteration such as 20, or best"),
        ("0", "--step 0: expected an iteration"),
    ],
)
def test_a_step_that_is_not_there_is_refused_with_those_that_are(trained, toy, step, said):
    for command in (["sample", str(trained), "-b", str(toy)], ["export", str(trained), "-o", str(trained / "out")]):
        result = runner.invoke(app, [*command, "--step", step])
        assert result.exit_code == 2
        assert said in result.stderr


def test_a_step_of_what_is_no_run_is_refused(model, toy, tmp_path):
    result = runner.invoke(app, command(model, toy, tmp_path / "out", "--step", "1"))
    assert result.exit_code == 2
    assert "--step 1 chooses a checkpoint of a run" in result.stderr


def test_stop_strings_are_typed_with_escapes_and_recorded(model, toy, tmp_path):
    typed = ["--stop", r"\nclass", "--stop", r"a\tb\\n\e", "--stop", "--"]
    dry = runner.invoke(app, command(model, toy, tmp_path / "out", *typed, "--dry-run"))
    assert dry.exit_code == 0, dry.output
    assert r"at most 20 tokens, stop '\nclass', 'a\tb\\n\\e', '--')" in dry.stdout

    arguments = command(model, toy, tmp_path / "out", "-n", "2", "--template", "plain", "--stop")
    assert runner.invoke(app, [*arguments, r"1"]).exit_code == 0
    rows = [json.loads(line) for line in (tmp_path / "out/toy.jsonl").read_text(encoding="utf-8").splitlines()]
    assert "stop" in {row["finish_reason"] for row in rows}
    assert not any("1" in row["completion"] for row in rows)
    document = json.loads((tmp_path / "out/sampling.json").read_text(encoding="utf-8"))
    assert document["sampling"]["stop"] == document["benchmarks"]["toy"]["stop"] == ["1"]

    other = runner.invoke(app, [*arguments, "2"])
    assert other.exit_code == 2
    assert "stop: ['1'] there, ['2'] here" in other.stderr
    empty = runner.invoke(app, [*arguments, ""])
    assert empty.exit_code == 2
    assert "stop strings are texts that are not empty" in empty.stderr


def test_benchmarks_with_different_templates_are_drawn_in_one_call(model, toy, tmp_path):
    out = tmp_path / "out"
    result = runner.invoke(app, command(model, toy, out, "-b", "countdown", "-n", "1", "--template", "chat"))
    assert result.exit_code == 0, result.output
    again = runner.invoke(app, ["sample", str(model), "-b", f"{toy},countdown", "-n", "1", "--dry-run"])
    assert "of toy" in again.stdout
    assert "template qwen-boxed" in again.stdout
    assert "template plain" in again.stdout

    mixed = tmp_path / "mixed"
    result = runner.invoke(app, ["sample", str(model), "-b", f"{toy},countdown", "-n", "1", "-o", str(mixed)])
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{mixed / 'toy.jsonl'}\n{mixed / 'countdown.jsonl'}\n"
    document = json.loads((mixed / "sampling.json").read_text(encoding="utf-8"))
    assert {name: entry["prompt"] for name, entry in document["benchmarks"].items()} == {
        "toy": "qwen-boxed",
        "countdown": "plain",
    }
    first = json.loads((mixed / "countdown.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert first["prompt"] == first["answer"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--preset", "sharp"], "paper, verl-generation"),
        (["--engine", "sglang"], "transformers, vllm"),
        (["--gpus", "first"], "0,1"),
        (["--gpus", "0,0"], "twice"),
        (["--top-p", "1.5"], "top_p"),
        (["-b", "countdown,countdown"], "twice"),
        (["--tag", "x"], "leave out one of the two"),
        (["--template", "qwen"], "qwen-boxed"),
    ],
)
def test_options_that_cannot_be_met_are_refused(model, toy, tmp_path, more, said):
    result = runner.invoke(app, command(model, toy, tmp_path / "out", "-n", "1", *more))
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "out").exists()


def test_an_engine_or_a_device_that_is_not_here_ends_with_3(model, toy, tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr("quatro.config.packages.find_spec", lambda name: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for more, said in ((["--engine", "vllm"], "[vllm]'"), (["--gpus", "0,1"], "CUDA device")):
        result = runner.invoke(app, command(model, toy, tmp_path / "out", "-n", "1", *more))
        assert result.exit_code == 3, result.output
        assert said in result.stderr
        assert not (tmp_path / "out").exists()


def test_samples_of_another_engine_are_kept_apart(model, toy, tmp_path):
    out = tmp_path / "out"
    assert runner.invoke(app, command(model, toy, out, "-n", "1")).exit_code == 0
    path = out / "sampling.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document.pop("engine") == "transformers"
    path.write_text(json.dumps(document), encoding="utf-8")  # as written before engines were recorded
    assert runner.invoke(app, command(model, toy, out, "-n", "2")).exit_code == 0
    path.write_text(json.dumps({**document, "engine": "vllm"}), encoding="utf-8")
    result = runner.invoke(app, command(model, toy, out, "-n", "3"))
    assert result.exit_code == 2
    assert "engine: vllm there, transformers here" in result.stderr


def test_other_settings_into_the_same_folder_are_refused(model, toy, tmp_path):
    out = tmp_path / "out"
    assert runner.invoke(app, command(model, toy, out, "-n", "1")).exit_code == 0
    result = runner.invoke(app, command(model, toy, out, "-n", "1", "--top-p", "0.7"))
    assert result.exit_code == 2
    assert "top_p: 1.0 there, 0.7 here" in result.stderr


def lines(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.slow
def test_fault_17_an_interrupted_command_keeps_what_it_has_and_goes_on(model, toy, fork, tmp_path, number, code):
    n = 1000
    child = fork(["quatro", *command(model, toy, tmp_path / "cut", "-n", str(n))])
    path = tmp_path / "cut/toy.jsonl"
    deadline = time.monotonic() + 600
    while not lines(path):
        assert time.monotonic() < deadline
        assert child.poll() is None, child.stderr.read()
        time.sleep(0.01)
    child.send_signal(number)
    said = child.communicate(timeout=600)[1]
    assert child.returncode == code, said
    assert "are kept" in said
    assert "this is a bug" not in said
    assert "Traceback" not in said
    kept = lines(path)
    assert 0 < kept < 6 * n

    rest = runner.invoke(app, command(model, toy, tmp_path / "cut", "-n", str(n)))
    assert rest.exit_code == 0, rest.output
    assert f"{6 * n - kept} samples drawn, {kept} were there" in rest.stderr
    runner.invoke(app, command(model, toy, tmp_path / "whole", "-n", str(n)))
    assert path.read_bytes() == (tmp_path / "whole/toy.jsonl").read_bytes()


def test_a_sigterm_while_the_engine_is_made_ends_as_ctrl_c_does(model, toy, tmp_path, monkeypatch):
    """What the engine has opened by then, such as the folder of a merged model, is closed."""
    from quatro.sample import engines

    closed = []

    @contextlib.contextmanager
    def opening(recipe, gpus):
        try:
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL  # it would end the tests
            os.kill(os.getpid(), signal.SIGTERM)
            yield
        finally:
            closed.append(recipe)

    monkeypatch.setattr(engines, "open_sampler", opening)
    result = runner.invoke(app, command(model, toy, tmp_path / "out", "-n", "1"))
    assert result.exit_code == 143
    assert len(closed) == 1
    assert "are kept" not in result.stderr  # there are none


def test_a_file_of_countdown_problems_is_drawn_as_it_is_graded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("countdown-own.jsonl").write_text('{"problem": "7 2 -> 9", "answer": "7 2 -> 9"}\n', encoding="utf-8")

    def settings(benchmark):
        drawn = runner.invoke(app, ["sample", "embedded:countdown", "-b", benchmark, "--dry-run"])
        assert drawn.exit_code == 0, drawn.output
        return drawn.stdout.partition(" (")[2]

    assert settings("countdown-own.jsonl") == settings("countdown")


def test_samples_that_are_there_without_a_grade_are_graded_as_if_they_had_been_drawn_with_one(model, toy, tmp_path):
    for words in (["-n", "1"], ["-n", "2", "--grade"]):
        done = runner.invoke(app, command(model, toy, tmp_path / "later", *words))
        assert done.exit_code == 0, done.output
    assert "toy: 6 samples drawn, 6 were there, 6 of them are graded only now" in done.stderr
    runner.invoke(app, command(model, toy, tmp_path / "at-once", "-n", "2", "--grade"))
    later, at_once = ((tmp_path / name / "toy.jsonl").read_bytes() for name in ("later", "at-once"))
    assert later == at_once
    assert later.count(b'"correct":') == 12
    again = runner.invoke(app, command(model, toy, tmp_path / "later", "-n", "2", "--grade"))
    assert "0 samples drawn, 12 were there\n" in again.stderr


@pytest.mark.parametrize("tag", ["../../x", "a/b", ".."])
def test_a_tag_that_leads_elsewhere_is_refused(tag):
    result = runner.invoke(app, ["sample", "embedded:countdown", "-b", "countdown", "--tag", tag, "--dry-run"])
    assert result.exit_code == 2
    assert "cannot be a folder's name" in result.stderr
