"""`quatro sample` from the outside: presets, several benchmarks at once, interruption. A tiny untrained model."""

import contextlib
import json
import os
import signal
import time
from dataclasses import fields
from pathlib import Path

import pytest

from evals.errors import UsageError
from evals.samples.about import problems_file
from quatro.sample.request import SampleRequest
from tests.kit import quatro, read_json, read_rows, says, settings, write_rows

TINY = ("prompts_per_step=2", "minibatch_prompts=2", "rollouts_per_prompt=2", "steps=1")


@pytest.fixture
def toy(tmp_path) -> Path:
    rows = ({"id": f"p{i}", "problem": f"{i} 2 7 6 2 8 -> 67", "answer": "67"} for i in range(1, 7))
    return write_rows(tmp_path / "toy.jsonl", rows)


def command(model: Path, toy: Path, out: Path, *more: object) -> list[object]:
    return ["sample", model, "-b", toy, "--max-tokens", 20, "-o", out, *more]


def test_the_papers_preset_is_drawn_and_recorded(model, toy, tmp_path):
    arguments = ["sample", model, "-b", toy, "-o", tmp_path / "out", "--preset", "verl-generation"]
    quatro(*arguments, "-n", 2, "--max-tokens", 20, "--template", "plain")
    document = read_json(tmp_path / "out/sampling.json")
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
    asked = [*command(model, toy, out, "-n", 1), "--template", r"chat: 3 {problem}\n", "--system", 9]
    assert "chat template" not in quatro(*asked).stderr
    plain = quatro(*command(model, toy, tmp_path / "plain", "-n", 1, "--template", "{problem}"))
    says(plain, "chat template", key="'{problem}'")
    (entry,) = read_json(out / "sampling.json")["benchmarks"].values()
    assert (entry["prompt"], entry["system"]) == ("chat: 3 {problem}\n", "9")
    assert read_rows(out / "toy.jsonl")[0]["prompt"] == "3 1 2 7 6 2 8 -> 6"  # the model's chat template cuts
    quatro(*asked)
    says(quatro(*asked[:-1], 8, code=2), 9, 8, key="system")


def test_a_thought_is_apart_from_the_completion_and_a_run_hands_on_its_markers(model, toy, tmp_path):
    run = tmp_path / "run"
    quatro("train", "quickstart", *settings(*TINY, f"model={model}", "rollout.thinking=="), "-o", run)

    def rows(name: str, *more: str):
        quatro(*command(run, toy, tmp_path / name, "-n", 4, *more))
        return read_rows(tmp_path / name / "toy.jsonl")

    apart, whole = rows("apart", "--grade"), rows("whole", "--thinking", "")
    assert [row.get("thought", "") + row["completion"] for row in apart] == [row["completion"] for row in whole]
    assert all(row["thought"].endswith("=") for row in apart if row["completion"])
    assert any(row["completion"] for row in apart)
    assert not any(row["correct"] for row in apart if not row["completion"])
    (entry,) = read_json(tmp_path / "apart/sampling.json")["benchmarks"].values()
    assert entry["thinking"] == "="


def test_a_preset_keeps_the_response_length_that_a_run_was_trained_with(model, toy, tmp_path):
    """A bare model takes the preset's length, and an option wins over both."""
    run = tmp_path / "run"
    quatro("train", "quickstart", *settings(*TINY, f"model={model}", "rollout.max_new_tokens=12"), "-o", run)

    def dry(source: Path, *more: object):
        return quatro("sample", source, "-b", toy, "--preset", "paper", "--dry-run", *more)

    own = dry(run)
    assert "temperature 1, top_p 0.7, at most 12 tokens" in own.stdout
    says(own, "max_tokens 12", 1024, "paper")
    for other in (dry(model), dry(run, "--max-tokens", 1024)):
        assert "at most 1024 tokens" in other.stdout
        assert "max_tokens" not in other.stderr


@pytest.fixture(scope="module")
def trained(model, tmp_path_factory) -> Path:
    """A run with the checkpoints 1 and 2."""
    run = tmp_path_factory.mktemp("runs") / "run"
    (run.parent / "ones.py").write_text("def some(completion): return '1' in completion\n", encoding="utf-8")
    told = settings(*TINY, "steps=2", f"model={model}", "checkpoint.every=1", "reward=ones:some")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(run.parent)
        quatro("train", "quickstart", "-o", run, *told)
    return run


@pytest.mark.slow
def test_samples_of_two_steps_lie_apart_and_say_which_they_are(trained, toy):
    texts = []
    for step, more in ((1, ["--step", 1]), (2, []), (2, ["--step", 2])):
        folder = trained / f"samples/T1-p1-step{step:06d}"
        assert quatro("sample", trained, "-b", toy, "-n", 4, *more).stdout == f"{folder / 'toy.jsonl'}\n"
        assert read_json(folder / "sampling.json")["checkpoint"] == f"step-{step:06d}"
        texts.append([row["completion"] for row in read_rows(folder / "toy.jsonl")])
    assert texts[0] != texts[1] == texts[2]
    tagged = ["sample", trained, "-b", toy, "-n", 1, "--tag", "x", "--step"]
    quatro(*tagged, 1)
    says(quatro(*tagged, 2, code=2), "step-000001", "step-000002", key="checkpoint")


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("3", ["step 3", "1, 2"]),
        ("best", ["checkpoint.keep.best", "1, 2"]),
        ("last", ["--step last", 20, "best"]),
        ("0", ["--step 0"]),
    ],
)
def test_a_step_that_is_not_there_is_refused_with_those_that_are(trained, toy, step, said):
    for words in (["sample", trained, "-b", toy], ["export", trained, "-o", trained / "out"]):
        says(quatro(*words, "--step", step, code=2), *said)


def test_stop_strings_are_typed_with_escapes_and_recorded(model, toy, tmp_path):
    typed = ["--stop", r"\nclass", "--stop", r"a\tb\\n\e", "--stop", "--"]
    dry = quatro(*command(model, toy, tmp_path / "out", *typed, "--dry-run"))
    assert r"at most 20 tokens, stop '\nclass', 'a\tb\\n\\e', '--')" in dry.stdout

    arguments = command(model, toy, tmp_path / "out", "-n", 2, "--template", "plain", "--stop")
    quatro(*arguments, 1)
    rows = read_rows(tmp_path / "out/toy.jsonl")
    assert "stop" in {row["finish_reason"] for row in rows}
    assert not any("1" in row["completion"] for row in rows)
    document = read_json(tmp_path / "out/sampling.json")
    assert document["sampling"]["stop"] == document["benchmarks"]["toy"]["stop"] == ["1"]

    says(quatro(*arguments, 2, code=2), ["1"], ["2"], key="stop")
    says(quatro(*arguments, "", code=2), key="stop")


def test_benchmarks_with_different_templates_are_drawn_in_one_call(model, toy, tmp_path):
    quatro(*command(model, toy, tmp_path / "out", "-b", "countdown", "-n", 1, "--template", "chat"))
    several = ["sample", model, "-b", f"{toy},countdown", "-n", 1]
    dry = quatro(*several, "--dry-run").stdout
    assert all(part in dry for part in ("of toy", "template qwen-boxed", "template plain"))

    mixed = tmp_path / "mixed"
    assert quatro(*several, "-o", mixed).stdout == f"{mixed / 'toy.jsonl'}\n{mixed / 'countdown.jsonl'}\n"
    entries = read_json(mixed / "sampling.json")["benchmarks"]
    assert {name: entry["prompt"] for name, entry in entries.items()} == {"toy": "qwen-boxed", "countdown": "plain"}
    first = read_rows(mixed / "countdown.jsonl")[0]
    assert first["prompt"] == first["answer"]


REFUSED = {
    "a preset": (["--preset", "sharp"], 2, ["paper, verl-generation"]),
    "an engine": (["--engine", "sglang"], 2, ["transformers, vllm"]),
    "a name of a GPU": (["--gpus", "first"], 2, ["0,1"]),
    "a GPU twice": (["--gpus", "0,0"], 2, ["--gpus", "0,0"]),
    "a share above 1": (["--top-p", 1.5], 2, ["top_p", 1.5]),
    "a benchmark twice": (["-b", "countdown,countdown"], 2, ["countdown"]),
    "two places": (["--tag", "x"], 2, ["--tag x", "-o"]),
    "a template": (["--template", "qwen"], 2, ["qwen-boxed"]),
    "a step of a model": (["--step", 1], 2, ["--step 1"]),
    "no problem": (["--limit", 0], 2, ["--limit"]),
    "an engine that is not installed": (["--engine", "vllm"], 3, ["[vllm]'"]),
    "GPUs that are not there": (["--gpus", "0,1"], 3, ["CUDA"]),
}


@pytest.mark.parametrize(("more", "code", "said"), REFUSED.values(), ids=REFUSED)
def test_options_that_cannot_be_met_are_refused(model, toy, tmp_path, monkeypatch, more, code, said):
    import torch

    monkeypatch.setattr("evals.errors.find_spec", lambda name: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    says(quatro(*command(model, toy, tmp_path / "out", "-n", 1, *more), code=code), *said)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("tag", ["../../x", "a/b", ".."])
def test_a_tag_that_leads_elsewhere_is_refused(tag):
    says(quatro("sample", "embedded:countdown", "-b", "countdown", "--tag", tag, "--dry-run", code=2), tag)


def test_samples_of_another_engine_or_other_settings_are_kept_apart(model, toy, tmp_path):
    drawn = command(model, toy, tmp_path / "out", "-n")
    quatro(*drawn, 1)
    says(quatro(*drawn, 1, "--top-p", 0.7, code=2), "1.0", 0.7, key="top_p")
    path = tmp_path / "out/sampling.json"
    path.write_text(json.dumps({**read_json(path), "engine": "vllm"}), encoding="utf-8")
    says(quatro(*drawn, 3, code=2), "vllm", "transformers", key="engine")


def test_what_a_limited_call_drew_is_the_beginning_of_the_whole(model, tmp_path):
    rows = ({"id": f"p{i}", "problem": f"{i} 2 7 -> 67", "answer": "67", "story": 300 * str(i)} for i in range(1, 5))
    toy = write_rows(tmp_path / "toy.jsonl", rows)

    def draw(folder, *options):
        return quatro(*command(model, toy, tmp_path / folder, "-n", 2, *options))

    file, whole = tmp_path / "parts/toy.jsonl", tmp_path / "whole/toy.jsonl"
    draw("parts", "--limit", 2)
    assert [row["id"] for row in read_rows(file)] == ["p1", "p1", "p2", "p2"]
    says(draw("parts"), "4 samples drawn, 4 were there")
    draw("whole")
    assert file.read_bytes() == whole.read_bytes()
    draw("parts", "--limit", 1)
    assert problems_file(file).read_bytes() == problems_file(whole).read_bytes()
    assert "1 problems x 2 samples" in draw("parts", "--limit", 1, "--dry-run").stdout


def lines(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.slow
def test_fault_17_an_interrupted_command_keeps_what_it_has_and_goes_on(model, toy, fork, tmp_path, number, code):
    n = 1000
    child = fork(["quatro", *command(model, toy, tmp_path / "cut", "-n", n)])
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

    says(quatro(*command(model, toy, tmp_path / "cut", "-n", n)), f"{6 * n - kept} samples drawn, {kept} were there")
    quatro(*command(model, toy, tmp_path / "whole", "-n", n))
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
    stopped = quatro(*command(model, toy, tmp_path / "out", "-n", 1), code=143)
    assert len(closed) == 1
    assert "are kept" not in stopped.stderr  # there are none


def test_a_file_of_countdown_problems_is_drawn_as_it_is_graded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_rows(Path("countdown-own.jsonl"), [{"problem": "7 2 -> 9", "answer": "7 2 -> 9"}])

    def drawn_with(benchmark):
        return quatro("sample", "embedded:countdown", "-b", benchmark, "--dry-run").stdout.partition(" (")[2]

    assert drawn_with("countdown-own.jsonl") == drawn_with("countdown")


def test_a_row_is_graded_as_it_is_drawn(model, toy, tmp_path):
    quatro(*command(model, toy, tmp_path / "later", "-n", 1))
    quatro(*command(model, toy, tmp_path / "later", "-n", 2, "--grade"))
    quatro(*command(model, toy, tmp_path / "at-once", "-n", 2, "--grade"))
    later, at_once = (read_rows(tmp_path / name / "toy.jsonl") for name in ("later", "at-once"))
    assert [row["correct"] for row in at_once] == [False] * 12
    assert [row.get("correct") for row in later] == [None, False] * 6
    assert [row["completion"] for row in later] == [row["completion"] for row in at_once]


def test_the_engine_is_asked_for_what_the_options_say(model, toy, tmp_path, monkeypatch):
    """Every option is away from its default."""
    from quatro.rollout.transformers import TransformersEngine
    from quatro.types import Sampling

    asked, generate = [], TransformersEngine.generate

    def noted(self, prompts, seeds, sampling, **options):
        asked.append(({prompt.text for prompt in prompts}, [seed for group in seeds for seed in group], sampling))
        return generate(self, prompts, seeds, sampling, **options)

    monkeypatch.setattr(TransformersEngine, "generate", noted)
    how = ["--temperature", 0.9, "--top-p", 0.8, "--top-k", 40, "--max-tokens", 7, "--stop", 5, "--template", "plain"]
    for seed in (3, 3, 4):
        out = tmp_path / f"out-{len(asked)}"
        quatro("sample", model, "-b", toy, "-o", out, "-n", 2, "--limit", 3, "--seed", seed, *how)
        assert read_json(out / "sampling.json")["seed"] == seed
    texts, seeds, samplings = zip(*asked, strict=True)
    assert set(samplings) == {Sampling(0.9, 0.8, 40, 7, ("5",))}
    assert texts[0] == {f"{i} 2 7 6 2 8 -> 67" for i in range(1, 4)}
    assert len(set(seeds[0])) == 6
    assert seeds[0] == seeds[1]
    assert not set(seeds[0]) & set(seeds[2])


def test_every_option_is_a_field_of_the_request(monkeypatch):
    """No field is left at its default, and none is another's."""
    asked = []

    def planned(request: SampleRequest) -> None:
        asked.append(request)
        raise UsageError("enough")

    monkeypatch.setattr("quatro.sample.drawing.plan_samples", planned)
    texts = {"--preset": "paper", "--template": "{problem}", "--system": "s", "--thinking": "t", "--tag": "g"}
    texts |= {"--engine": "e", "--gpus": "0", "--base-url": "u", "--served-model": "v", "-o": "o", "--stop": "x"}
    numbers = {"--step": 9, "-n": 8, "--temperature": 0.5, "--top-p": 0.25, "--top-k": 7, "--max-tokens": 6}
    numbers |= {"--seed": 5, "--concurrency": 4, "--limit": 3}
    texts["--chat-template-kwargs"] = "{a: [true]}"
    words = [word for pair in (texts | numbers).items() for word in pair]
    quatro("sample", "m", "-b", "a,b", *words, "--chat", "--text", "--grade", code=2)
    whole = SampleRequest(
        "m",
        ["a", "b"],
        preset="paper",
        template="{problem}",
        system="s",
        chat_template_kwargs={"a": [True]},
        thinking="t",
        tag="g",
        engine="e",
        gpus="0",
        base_url="u",
        served_model="v",
        out=Path("o"),
        stop=["x"],
        step=9,
        n=8,
        temperature=0.5,
        top_p=0.25,
        top_k=7,
        max_tokens=6,
        seed=5,
        concurrency=4,
        limit=3,
        chat=True,
        text=True,
        grade=True,
    )
    assert asked == [whole]
    assert [field.name for field in fields(whole) if getattr(whole, field.name) == field.default] == []
