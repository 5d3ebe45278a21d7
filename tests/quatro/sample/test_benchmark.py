"""Drawing benchmark samples: resumable, independent of interruptions, and never mixed with other settings."""

import json
import random
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import pytest

from evals.errors import DataError
from evals.samples.reading import read_samples
from quatro.rewards import Grade
from quatro.rollout.engine import sample_seed
from quatro.sample.benchmark import default_rows_per_call, put_in_order, sample_benchmark
from quatro.sample.settings import SampleSettings, Source
from quatro.types import Prompt, Rollout, Sampling
from tests.kit import read_json, read_rows, write_rows


class FakeEngine:
    """The text of a rollout is its prompt and seed, so a test sees who drew what; may die after some calls."""

    def __init__(self, *, dies_after: int | None = None) -> None:
        self.num_drawn = 0
        self.num_calls = 0
        self.dies_after = dies_after

    def generate(self, prompts, seeds, sampling, *, progress=None):
        if self.dies_after is not None and self.num_calls >= self.dies_after:
            raise KeyboardInterrupt
        self.num_calls += 1
        self.num_drawn += sum(map(len, seeds))
        if progress is not None:
            progress(sum(map(len, seeds)), 100)
        return [
            [Rollout(token_ids=(1,), text=f"{prompt.id}:{seed}", finish_reason="stop") for seed in group]
            for prompt, group in zip(prompts, seeds, strict=True)
        ]

    def sync(self, named_weights):
        return {}


PROMPTS = [Prompt("toy", f"p{i}", f"problem {i}", str(i), f"text {i}", (1, 2)) for i in range(4)]


def draw(folder, *, engine=None, n=3, prompts=PROMPTS, sampling=Sampling(), **more):  # noqa: B008
    settings = SampleSettings(n, sampling, seed=7, template="plain", source=Source(model="m"))
    return sample_benchmark(engine or FakeEngine(), prompts, settings, folder, **more)


def rows(folder) -> dict[tuple[str, int], str]:
    return {(row.id, row.sample_index): row.completion for row in read_samples([folder / "toy.jsonl"]).rows}


def test_every_sample_is_drawn_from_its_own_seed(tmp_path):
    drawn = draw(tmp_path)
    assert (drawn.num_problems, drawn.num_new, drawn.num_present) == (4, 12, 0)
    assert rows(tmp_path) == {
        (f"p{i}", j): f"p{i}:{sample_seed(7, 'toy', f'p{i}', j)}" for i in range(4) for j in range(3)
    }
    first = read_samples([tmp_path / "toy.jsonl"]).rows[0]
    assert (first.answer, first.prompt, first.finish_reason, first.correct) == ("0", "text 0", "stop", None)


@pytest.mark.parametrize("n", [3, 5])
@pytest.mark.parametrize("edited", [{"answer": "9"}, {"text": "another"}])
def test_samples_of_an_edited_problem_are_not_mixed_with_those_of_the_old_one(tmp_path, edited, n):
    draw(tmp_path)
    before = (tmp_path / "toy.jsonl").read_bytes()
    with pytest.raises(DataError, match=r"the samples of 'p2' have the .* the benchmark was edited"):
        draw(tmp_path, prompts=[*PROMPTS[:2], replace(PROMPTS[2], **edited), PROMPTS[3]], n=n)
    assert (tmp_path / "toy.jsonl").read_bytes() == before
    assert draw(tmp_path, prompts=PROMPTS[:2], n=5).num_new == 4  # other problems may be gone


def test_an_interrupted_drawing_goes_on_and_ends_as_if_it_had_not_been(tmp_path, monkeypatch):
    monkeypatch.setattr("quatro.sample.benchmark.ROWS_PER_CALL", 3)
    draw(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        draw(tmp_path / "cut", engine=FakeEngine(dies_after=2))
    assert len(rows(tmp_path / "cut")) == 6
    rest = FakeEngine()
    assert draw(tmp_path / "cut", engine=rest).num_present == 6
    assert rest.num_drawn == 6
    assert (tmp_path / "cut/toy.jsonl").read_bytes() == (tmp_path / "whole/toy.jsonl").read_bytes()


class RaggedEngine(FakeEngine):
    """Dies in the middle of a call, at a moment that only the generator of random numbers knows."""

    def __init__(self, rng):
        super().__init__()
        self.rng = rng

    def generate(self, prompts, seeds, sampling, *, progress=None):
        if self.rng.random() < 0.3:
            raise KeyboardInterrupt
        return super().generate(prompts, seeds, sampling, progress=progress)


@pytest.mark.parametrize("trial", range(8))
def test_the_file_is_the_same_bytes_wherever_it_was_interrupted_and_however_it_was_cut(tmp_path, monkeypatch, trial):
    draw(tmp_path / "whole", n=11)
    rng = random.Random(trial)
    engine = RaggedEngine(rng)
    for wanted in (rng.randint(1, 11), 11):  # a larger n is a continuation too
        while True:
            monkeypatch.setattr("quatro.sample.benchmark.ROWS_PER_CALL", rng.choice([1, 2, 5, 12, 13, 100]))
            try:
                draw(tmp_path / "cut", n=wanted, engine=engine)
            except KeyboardInterrupt:
                path = tmp_path / "cut/toy.jsonl"
                lines = path.read_bytes().splitlines(keepends=True)
                lost = rng.randint(0, min(3, len(lines)))  # rows of another shard that never arrived
                path.write_bytes(b"".join(rng.sample(lines[: len(lines) - lost], len(lines) - lost)))
            else:
                break
    assert (tmp_path / "cut/toy.jsonl").read_bytes() == (tmp_path / "whole/toy.jsonl").read_bytes()


def test_a_real_model_draws_the_same_bytes_in_one_call_and_in_many(tmp_path, tiny_folder, monkeypatch):
    from quatro.policy.facts import stop_ids
    from quatro.policy.loading import load_model, load_tokenizer
    from quatro.rollout.transformers import TransformersEngine

    torch = pytest.importorskip("torch")
    model, tokenizer = load_model(str(tiny_folder), torch.float32, "cpu"), load_tokenizer(str(tiny_folder))
    engine = TransformersEngine(model, tokenizer, eos_ids=stop_ids(tokenizer, model), collect_entropy=False)
    texts = ["7 2 7 6 2 8 -> 67", "9 3 8 2 8 5 -> 78", "1 1 2 3 5 8 -> 13"]
    prompts = [Prompt("toy", t[:3], t, t, t, tuple(tokenizer(t)["input_ids"])) for t in texts]
    for num_rows in (1000, 7, 1):
        monkeypatch.setattr("quatro.sample.benchmark.ROWS_PER_CALL", num_rows)
        draw(tmp_path / str(num_rows), engine=engine, prompts=prompts, n=20, sampling=Sampling(1.0, 0.9, 0, 10))
    files = [(tmp_path / name / "toy.jsonl").read_bytes() for name in ("1000", "7", "1")]
    assert files[0] == files[1] == files[2]
    assert len(set(files[0].splitlines())) == 60


def forget_the_end(folder):
    """As if the call had been killed before its end, when it notes what the complete file holds."""
    path = folder / "sampling.json"
    document = read_json(path)
    del document["benchmarks"]["toy"]["sha256"]
    path.write_text(json.dumps(document), encoding="utf-8")


def test_a_complete_file_that_is_out_of_order_is_put_in_order(tmp_path):
    whole = draw(tmp_path).path.read_bytes()
    forget_the_end(tmp_path)
    (tmp_path / "toy.jsonl").write_bytes(b"".join(reversed(whole.splitlines(keepends=True))))
    assert draw(tmp_path).num_new == 0
    assert (tmp_path / "toy.jsonl").read_bytes() == whole


def test_a_large_file_is_put_in_order_without_being_held_in_memory(tmp_path):
    path = tmp_path / "toy.jsonl"
    rows = [{"id": "p", "sample_index": index, "completion": "x" * 100_000} for index in reversed(range(100))]
    write_rows(path, rows)
    tracemalloc.start()
    put_in_order(path, ["p"])
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < path.stat().st_size / 4
    assert read_rows(path) == rows[::-1]


def test_long_responses_are_written_more_often():
    assert default_rows_per_call(Sampling(max_new_tokens=10)) == 1024
    assert default_rows_per_call(Sampling(max_new_tokens=1024)) == 256
    assert default_rows_per_call(Sampling(max_new_tokens=1 << 30)) == 1


def test_a_line_torn_by_a_crash_is_drawn_again(tmp_path, caplog):
    draw(tmp_path)
    whole = (tmp_path / "toy.jsonl").read_bytes()
    forget_the_end(tmp_path)
    (tmp_path / "toy.jsonl").write_bytes(whole[:-20])
    engine = FakeEngine()
    draw(tmp_path, engine=engine)
    assert engine.num_drawn == 1
    assert "toy.jsonl" in caplog.text
    assert (tmp_path / "toy.jsonl").read_bytes() == whole


def test_a_larger_n_draws_the_difference_and_a_smaller_one_nothing(tmp_path):
    draw(tmp_path, n=2)
    more, fewer = FakeEngine(), FakeEngine()
    draw(tmp_path, n=5, engine=more)
    draw(tmp_path, n=1, engine=fewer)
    assert (more.num_drawn, fewer.num_drawn) == (12, 0)
    assert read_json(tmp_path / "sampling.json")["sampling"]["n"] == 5


@pytest.mark.parametrize(
    "damage", [{"benchmarks": {"toy": 3}}, {"benchmarks": {"toy": {"n": "3"}}}, {"server": 3}, {"sampling": None}]
)
def test_a_sampling_json_that_is_none_is_refused_by_name(tmp_path, damage):
    whole = draw(tmp_path).path.read_bytes()
    path = tmp_path / "sampling.json"
    path.write_text(json.dumps({**read_json(path), **damage}), encoding="utf-8")
    with pytest.raises(DataError, match=r"sampling\.json.* form"):
        draw(tmp_path)
    assert (tmp_path / "toy.jsonl").read_bytes() == whole


def test_a_reward_says_which_samples_are_correct(tmp_path):
    def score(prompts, groups):
        return [[Grade(0.0, prompt.id == "p1") for _ in group] for prompt, group in zip(prompts, groups, strict=True)]

    draw(tmp_path, reward=SimpleNamespace(score=score, environment=lambda: {"sandbox": "full, version 1"}))
    rows = read_samples([tmp_path / "toy.jsonl"]).rows
    assert {row.id for row in rows if row.correct} == {"p1"}
    assert {row.extra["sandbox"] for row in rows} == {"full, version 1"}


def test_samples_of_ones_own_benchmark_say_how_they_are_judged(tmp_path, monkeypatch):
    name = PROMPTS[0].benchmark
    own = f'[{name}]\nfile = "p.jsonl"\ngrader = "countdown"\n'
    (tmp_path / "quatro-benchmarks.toml").write_text(own, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    draw(tmp_path / "own")
    (row, *_) = read_samples([tmp_path / "own"]).rows
    assert row.extra["judged_as"] == {"grader": "countdown", "has_short_answers": True}


def test_progress_counts_what_is_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("quatro.sample.benchmark.ROWS_PER_CALL", 6)
    draw(tmp_path, n=1)
    told = []
    draw(tmp_path, n=3, progress=lambda benchmark, done, total, tokens: told.append((done, total)))
    assert told[:2] == [(4, 12), (10, 12)]
    assert told[-1] == (12, 12)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_nothing_to_draw_from_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no prompts"):
        draw(tmp_path, prompts=[])
