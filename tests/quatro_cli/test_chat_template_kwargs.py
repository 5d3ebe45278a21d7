"""What the model's chat template is told, from the outside: a run, its samples, a server, and what is recorded."""

import shutil
from pathlib import Path

import pytest

from tests.kit import quatro, read_json, read_rows, says, settings, write_rows
from tests.quatro_cli.test_refusals import refusals

SWITCH = "{% for m in messages %}{{ m.content[:18] }}{% endfor %}{% if long is defined and long %} 5{% endif %}"
TINY = ("prompts_per_step=2", "minibatch_prompts=2", "rollouts_per_prompt=2", "steps=1", "data.template=chat")


@pytest.fixture(scope="module")
def switched(model, tmp_path_factory) -> Path:
    """A model whose chat template has a switch, and problems beside it."""
    folder = tmp_path_factory.mktemp("switched") / "model"
    shutil.copytree(model, folder)
    (folder / "chat_template.jinja").write_text(SWITCH, encoding="utf-8")
    rows = ({"id": f"p{i}", "problem": f"{i} 2 7 6 2 8 -> 67", "answer": f"{i} 2 7 6 2 8 -> 67"} for i in range(1, 7))
    write_rows(folder.parent / "toy.jsonl", rows)
    return folder


def prompts(folder: Path) -> set[str]:
    return {row["prompt"][17:] for row in read_rows(folder / "toy.jsonl")}


def test_a_run_trains_on_it_its_samples_take_it_over_and_both_record_it(switched, tmp_path):
    toy, run = switched.parent / "toy.jsonl", tmp_path / "run"
    of_run = settings(*TINY, f"model={switched}", f"data.prompts={toy}", "data.chat_template_kwargs={long: true}")
    dry = quatro("train", "quickstart", *of_run, "-o", run, "--dry-run")
    assert "long: true" in dry.stdout
    assert "1 2 7 6 2 8 -> 67 5" in dry.stdout
    quatro("train", "quickstart", *of_run, "-o", run)
    drawn = ["sample", run, "-b", toy, "-n", 1, "--max-tokens", 4, "-o"]
    quatro(*drawn, tmp_path / "own")
    assert prompts(tmp_path / "own") == {" 5"}
    (entry,) = read_json(tmp_path / "own/sampling.json")["benchmarks"].values()
    assert entry["chat_template_kwargs"] == {"long": True}
    says(quatro(*drawn, tmp_path / "own", "--chat-template-kwargs", "{}", code=2), key="chat_template_kwargs")
    quatro(*drawn, tmp_path / "none", "--chat-template-kwargs", "{}")
    assert prompts(tmp_path / "none") == {""}
    assert "chat_template_kwargs" not in (tmp_path / "none/sampling.json").read_text(encoding="utf-8")
    other = quatro(*drawn, tmp_path / "other", "--template", "chat: {problem}", "--dry-run")
    assert "long" not in other.stdout  # another template than the run's


def test_a_server_is_told_what_its_chat_template_is_to_be_told(serve, switched, tmp_path):
    stub, toy = serve(), switched.parent / "toy.jsonl"
    words = ["sample", "small", "-b", toy, "-n", 1, "--base-url", stub.url, "--chat", "--template", "chat", "-o"]
    told = ["--chat-template-kwargs", "{enable_thinking: false}"]
    quatro(*words, tmp_path / "out", *told)
    assert {str(body["chat_template_kwargs"]) for _, body in stub.posts} == {"{'enable_thinking': False}"}
    assert all(body["messages"][0]["role"] == "user" for _, body in stub.posts)
    says(quatro(*words, tmp_path / "out", code=2), key="chat_template_kwargs")
    says(quatro(*words, tmp_path / "dry", *told, "--dry-run").stdout, "enable_thinking: false")


def test_what_is_ignored_is_warned_of_by_name_before_torch_is_loaded(switched):
    toy = str(switched.parent / "toy.jsonl")
    unread = "data.chat_template_kwargs={long: true, lang: de}"
    train = ["train", "quickstart", *settings(f"model={switched}", f"data.prompts={toy}", "data.template=chat", unread)]
    sample = ["sample", str(switched), "-b", toy, "--template", "chat", "--dry-run", "--chat-template-kwargs"]
    found = refusals(
        Path(),
        [*train, "-s", "reward=no_such_module:f"],
        [*sample, "{lang: de}"],
        [*sample, "{long: true}"],
        [*sample, "long"],
    )
    assert [code for code, _ in found] == [2, 0, 0, 2]
    says(found[0][1], "no_such_module", "lang", switched, key="data.chat_template_kwargs")
    says(found[1][1], "lang", switched, key="chat_template_kwargs")
    assert found[2][1] == ""
    says(found[3][1], "enable_thinking: false", key="chat_template_kwargs")
