"""`draw_samples`: from a model to files of samples, without the command line."""

import pytest

from evals.benchmarks.prompts import TEMPLATES, Template
from evals.errors import DataError, MissingError, UsageError
from evals.samples.reading import read_samples
from quatro.config.blocks import DataConfig
from quatro.sample.benchmark import SampleFile
from quatro.sample.drawing import draw_samples, plan_samples
from quatro.sample.request import SampledModel, SampleRequest
from quatro.sample.settings import Source
from tests.kit import says, write_rows


def test_samples_are_drawn_judged_and_continued(tiny_folder, toy, tmp_path):
    out, told = tmp_path / "out", []

    def draw(n):
        return draw_samples(tiny_folder, toy, n=n, template="plain", max_tokens=8, out=out, grade=True, progress=tell)

    def tell(*state):
        told.append(state)

    path = out / "toy.jsonl"
    assert draw(2) == [SampleFile("toy", path, num_problems=4, num_new=8, num_present=0)]
    assert draw(3) == [SampleFile("toy", path, num_problems=4, num_new=4, num_present=8)]
    assert {state[:3] for state in told} >= {("toy", 0, 8), ("toy", 8, 8), ("toy", 8, 12), ("toy", 12, 12)}
    rows = read_samples([path]).rows
    assert [(row.id, row.sample_index) for row in rows] == [(f"p{i}", j) for i in (1, 2, 3, 4) for j in range(3)]
    assert all(row.correct is not None for row in rows)


def test_the_folder_says_which_model_it_was_and_how_it_was_sampled(tiny_folder, toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [drawn] = draw_samples(tiny_folder, [toy], n=1, template="plain", max_tokens=4, top_p=0.7, top_k=5)
    assert drawn.path.parts[0] == "samples"
    assert drawn.path.parts[1].endswith("-tiny")
    assert drawn.path.parts[2:] == ("T1-p0.7-k5", "toy.jsonl")


def test_the_stop_is_the_options_else_the_runs_else_the_templates(toy, monkeypatch):
    monkeypatch.setitem(TEMPLATES, "code", Template("code", is_chat=False, stop=("\ndef", "\nclass")))
    found = SampledModel("embedded:countdown", Source("m"))
    monkeypatch.setattr("quatro.sample.drawing.find_model", lambda name, step: found)

    def stop_of(**options):
        (plan,) = plan_samples(SampleRequest("m", toy, **options)).benchmarks
        return plan.settings.sampling.stop

    assert stop_of(template="code") == ("\ndef", "\nclass")
    assert stop_of(template="plain") == ()
    assert stop_of(template="code", stop="\n#") == ("\n#",)
    assert stop_of(template="code", stop=[]) == ()
    found = SampledModel("embedded:countdown", Source("m"), data=DataConfig(template="plain"), stop=("=",))
    assert stop_of() == ("=",)
    assert stop_of(template="code") == ("\ndef", "\nclass")
    found = SampledModel("embedded:countdown", Source("m"), data=DataConfig(template="code"))
    assert stop_of() == ("\ndef", "\nclass")


@pytest.mark.parametrize(
    ("model", "benchmarks", "options", "error", "said"),
    [
        ("embedded:countdown", [], {}, UsageError, "name a benchmark"),
        ("embedded:countdown", "countdown", {"n": 0}, UsageError, "at least 1"),
        ("embedded:countdown", "countdown", {"engine": "sglang"}, UsageError, "transformers, vllm"),
        ("embedded:countdown", "countdown", {"stop": ["a", "a"]}, UsageError, r"\['a', 'a'\]"),
        ("embedded:countdown", "countdown", {"stop": ""}, UsageError, "not empty"),
        ("embedded:countdown", "countdown", {"tag": "a/b"}, UsageError, "cannot be a folder's name"),
        ("embedded:countdown", ["countdown"] * 2, {}, UsageError, "twice"),
        ("embedded:countdown", "no.jsonl", {}, DataError, r"no\.jsonl"),
        ("no/such/folder", "countdown", {}, MissingError, "no folder no/such/folder"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_anything_is_written(
    model, benchmarks, options, error, said, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=said):
        draw_samples(model, benchmarks, **options)
    assert list(tmp_path.iterdir()) == []


def test_the_plan_says_how_odd_references_are_read(tmp_path):
    file = write_rows(
        tmp_path / "toy.jsonl", [{"problem": "When?", "answer": "10:30"}, {"problem": "2?", "answer": "2"}]
    )
    (note,) = plan_samples(SampleRequest("embedded:countdown", [str(file)])).notes
    says(note, "1 of the 2 references of toy", "'10:30' as a time")
