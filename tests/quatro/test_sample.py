"""Drawing benchmark samples: resumable, independent of interruptions, and never mixed with other settings."""

import json
from types import SimpleNamespace

import pytest

from evals.errors import DataError, UsageError
from evals.records import read_samples
from quatro import sample
from quatro.rollout.streams import sample_seed
from quatro.sample import Source, default_tag, file_stem, fingerprint, sample_benchmark
from quatro.types import Prompt, Rollout, Sampling


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


def draw(folder, *, engine=None, n=3, prompts=PROMPTS, seed=7, sampling=None, template="plain", model="m", **more):
    return sample_benchmark(
        engine or FakeEngine(),
        prompts,
        n=n,
        sampling=sampling or Sampling(),
        seed=seed,
        template=template,
        source=Source(model=model),
        folder=folder,
        **more,
    )


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


def test_an_interrupted_drawing_goes_on_and_ends_as_if_it_had_not_been(tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "ROWS_PER_CALL", 3)
    draw(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        draw(tmp_path / "cut", engine=FakeEngine(dies_after=2))
    assert len(rows(tmp_path / "cut")) == 6
    rest = FakeEngine()
    assert draw(tmp_path / "cut", engine=rest).num_present == 6
    assert rest.num_drawn == 6
    assert (tmp_path / "cut/toy.jsonl").read_bytes() == (tmp_path / "whole/toy.jsonl").read_bytes()


def test_a_line_torn_by_a_crash_is_drawn_again(tmp_path, caplog):
    draw(tmp_path)
    whole = (tmp_path / "toy.jsonl").read_bytes()
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
    assert json.loads((tmp_path / "sampling.json").read_text(encoding="utf-8"))["sampling"]["n"] == 5


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"sampling": Sampling(top_p=0.7)}, "top_p: there 1.0, asked 0.7"),
        ({"sampling": Sampling(temperature=0.5)}, "temperature"),
        ({"sampling": Sampling(top_k=50)}, "top_k"),
        ({"sampling": Sampling(max_new_tokens=9)}, "max_tokens"),
        ({"seed": 8}, "seed: there 7, asked 8"),
        ({"template": "qwen-boxed"}, "prompt"),
        ({"model": "other"}, "model: there m, asked other"),
    ],
)
def test_other_settings_into_the_same_folder_are_refused(tmp_path, change, named):
    draw(tmp_path)
    before = (tmp_path / "toy.jsonl").read_bytes()
    with pytest.raises(UsageError, match=named):
        draw(tmp_path, n=9, **change)
    assert (tmp_path / "toy.jsonl").read_bytes() == before


def test_samples_of_unknown_origin_are_not_added_to(tmp_path):
    draw(tmp_path)
    (tmp_path / "sampling.json").unlink()
    with pytest.raises(UsageError, match=r"no sampling\.json"):
        draw(tmp_path)
    (tmp_path / "sampling.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(DataError, match=r"sampling\.json"):
        draw(tmp_path)


def test_a_reward_says_which_samples_are_correct(tmp_path):
    def score(prompts, groups):
        return SimpleNamespace(
            correct=[[prompt.id == "p1" for _ in group] for prompt, group in zip(prompts, groups, strict=True)]
        )

    draw(tmp_path, reward=SimpleNamespace(score=score))
    assert {row.id for row in read_samples([tmp_path / "toy.jsonl"]).rows if row.correct} == {"p1"}


def test_progress_counts_what_is_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "ROWS_PER_CALL", 6)
    draw(tmp_path, n=1)
    told = []
    draw(tmp_path, n=3, progress=lambda done, total: told.append((done, total)))
    assert told[0] == (10, 12)
    assert told[-1] == (12, 12)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_nothing_to_draw_from_and_no_samples_are_errors(tmp_path):
    with pytest.raises(DataError, match="no prompts"):
        draw(tmp_path, prompts=[])
    with pytest.raises(UsageError, match="at least 1"):
        draw(tmp_path, n=0)


def test_tags_are_made_of_the_settings():
    assert default_tag(Sampling(), step=100) == "T1-p1-step000100"
    assert default_tag(Sampling(temperature=0.6, top_p=0.7, top_k=50)) == "T0.6-p0.7-k50"


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "..", "", "x" * 500, "\x1b[2J", "a b"])
def test_a_benchmark_name_cannot_leave_the_folder(name, tmp_path):
    stem = file_stem(name)
    assert (tmp_path / f"{stem}.jsonl").resolve().parent == tmp_path.resolve()
    assert 0 < len(stem) < 100
    assert stem != name


def test_safe_names_stay_and_unsafe_ones_stay_apart():
    assert file_stem("math500") == "math500"
    assert file_stem("a/b") != file_stem("a:b")


def test_a_fingerprint_sees_a_changed_weight(tmp_path):
    weights = tmp_path / "model.safetensors"
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    weights.write_bytes(bytes(100))
    before = fingerprint(tmp_path)
    assert fingerprint(tmp_path) == before
    weights.write_bytes(bytes(99) + b"\x01")
    assert fingerprint(tmp_path) != before
