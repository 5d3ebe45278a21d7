"""Drawing benchmark samples: resumable, independent of interruptions, and never mixed with other settings."""

import contextlib
import json
import random
from types import SimpleNamespace

import pytest

from evals.errors import DataError, UsageError
from evals.sample_reading import read_samples
from evals.whole_file import file_stem
from quatro import sample
from quatro.policy.digest import model_digest
from quatro.rollout.streams import sample_seed
from quatro.sample import Pace, refuse_long_prompts, sample_benchmark
from quatro.sample_settings import Plan, Source, claim_folder, plan_of
from quatro.state import refuse_other_inputs
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


def draw(
    folder,
    *,
    engine=None,
    n=3,
    prompts=PROMPTS,
    seed=7,
    sampling=None,
    template="plain",
    source=None,
    **more,
):
    return sample_benchmark(
        engine or FakeEngine(),
        prompts,
        n=n,
        sampling=sampling or Sampling(),
        seed=seed,
        template=template,
        source=source or Source(model="m"),
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
            monkeypatch.setattr(sample, "ROWS_PER_CALL", rng.choice([1, 2, 5, 12, 13, 100]))
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
    from quatro.policy.loading import load_model, load_tokenizer, stop_ids
    from quatro.rollout.transformers import TransformersEngine

    torch = pytest.importorskip("torch")
    model, tokenizer = load_model(str(tiny_folder), torch.float32, "cpu"), load_tokenizer(str(tiny_folder))
    engine = TransformersEngine(model, tokenizer, eos_ids=stop_ids(tokenizer, model), collect_entropy=False)
    texts = ["7 2 7 6 2 8 -> 67", "9 3 8 2 8 5 -> 78", "1 1 2 3 5 8 -> 13"]
    prompts = [Prompt("toy", t[:3], t, t, t, tuple(tokenizer(t)["input_ids"])) for t in texts]
    for rows_per_call in (1000, 7, 1):
        monkeypatch.setattr(sample, "ROWS_PER_CALL", rows_per_call)
        draw(tmp_path / str(rows_per_call), engine=engine, prompts=prompts, n=20, sampling=Sampling(1.0, 0.9, 0, 10))
    files = [(tmp_path / name / "toy.jsonl").read_bytes() for name in ("1000", "7", "1")]
    assert files[0] == files[1] == files[2]
    assert len(set(files[0].splitlines())) == 60


def test_a_complete_file_that_is_out_of_order_is_put_in_order(tmp_path):
    whole = draw(tmp_path).path.read_bytes()
    (tmp_path / "toy.jsonl").write_bytes(b"".join(reversed(whole.splitlines(keepends=True))))
    assert draw(tmp_path).num_new == 0
    assert (tmp_path / "toy.jsonl").read_bytes() == whole


def test_long_responses_are_written_more_often():
    assert sample.rows_per_call(Sampling(max_new_tokens=10)) == 1024
    assert sample.rows_per_call(Sampling(max_new_tokens=1024)) == 256
    assert sample.rows_per_call(Sampling(max_new_tokens=1 << 30)) == 1


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
        ({"source": Source(model="other")}, "model: there m, asked other"),
        ({"source": Source(model="m", fingerprint="x")}, "fingerprint: there None, asked x"),
        ({"source": Source(model="m", dtype="bfloat16")}, "dtype: there None, asked bfloat16"),
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


def settings(folder) -> dict:
    return json.loads((folder / "sampling.json").read_text(encoding="utf-8"))


def test_benchmarks_of_one_folder_may_differ_in_template_and_length(tmp_path):
    other = [Prompt("other", "o", "p", "1", "t", (1,))]
    draw(tmp_path, n=2, sampling=Sampling(max_new_tokens=10))
    draw(tmp_path, n=2, prompts=other, template="qwen-boxed", sampling=Sampling(max_new_tokens=99))
    document = settings(tmp_path)
    assert document["sampling"] == {
        "n": 2,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "max_tokens": None,
        "prompt": None,
    }
    assert document["benchmarks"] == {
        "toy": {"n": 2, "max_tokens": 10, "prompt": "plain"},
        "other": {"n": 2, "max_tokens": 99, "prompt": "qwen-boxed"},
    }
    with pytest.raises(UsageError, match="prompt: there qwen-boxed, asked plain"):
        draw(tmp_path, prompts=other, sampling=Sampling(max_new_tokens=99))
    with pytest.raises(UsageError, match="temperature: there"):
        draw(tmp_path, prompts=[Prompt("third", "o", "p", "1", "t", (1,))], sampling=Sampling(temperature=0.5))
    assert "third" not in settings(tmp_path)["benchmarks"]


def test_dtype_and_device_are_recorded_and_a_second_device_is_warned_about(tmp_path, caplog):
    draw(tmp_path, n=1, source=Source("m", dtype="float32", device="cpu"))
    assert (settings(tmp_path)["dtype"], settings(tmp_path)["devices"]) == ("float32", ["cpu"])
    assert caplog.text == ""
    draw(tmp_path, n=2, source=Source("m", dtype="float32", device="cuda (X)"))
    assert settings(tmp_path)["devices"] == ["cpu", "cuda (X)"]
    assert "drawn on cpu, the rest is drawn on cuda (X)" in caplog.text


def test_what_results_say_about_their_samples_comes_from_this_file(tmp_path):
    from evals.about_samples import about_samples

    path = draw(tmp_path, n=2, source=Source("m", method="quatro delta=0.01")).path
    about = about_samples([path])
    assert (about["model"], about["method"], about["sample_seed"]) == ("m", "quatro delta=0.01", 7)
    assert (about["sampling"].n, about["sampling"].max_tokens, about["sampling"].prompt) == (2, 1024, "plain")


def test_presets_are_the_papers_and_verls():
    paper, _ = plan_of("paper")
    assert paper == Plan(n=256, temperature=1.0, top_p=0.7, top_k=0, preset_max_tokens=1024)
    assert plan_of("verl-generation")[0] == Plan(n=256, temperature=1.0, top_p=0.7, top_k=50, preset_max_tokens=1024)
    assert plan_of(None)[0] == Plan(n=256, temperature=1.0, top_p=1.0, top_k=0, max_tokens=None)


def test_an_explicit_option_wins_over_the_preset_and_says_so():
    plan, replaced = plan_of("paper", top_p=0.9, temperature=1.0, top_k=None)
    assert plan == Plan(n=256, temperature=1.0, top_p=0.9, top_k=0, preset_max_tokens=1024)
    assert replaced == ["top_p 0.9 replaces 0.7 of the preset paper"]
    assert plan_of(None, top_p=0.9)[1] == []


@pytest.mark.parametrize(
    ("preset", "given", "said"),
    [
        ("sharp", {}, "paper, verl-generation"),
        (None, {"top_p": 0.0}, "top_p"),
        (None, {"top_p": float("nan")}, "top_p"),
        (None, {"temperature": 0.0}, "temperature"),
        (None, {"temperature": float("inf")}, "temperature"),
    ],
)
def test_settings_out_of_range_are_refused(preset, given, said):
    with pytest.raises(UsageError, match=said):
        plan_of(preset, **given)


def test_the_pace_counts_only_what_this_call_drew():
    clock = iter([100.0, 110.0, 120.0, 130.0]).__next__
    pace = Pace(clock)
    assert pace.note(1000, 2000, 500) == "50 tokens/s"  # nothing finished yet: no guess at what is left
    assert pace.note(1100, 2000, 2000) == "100 tokens/s, 3 min left"  # 900 samples at 5 a second
    assert pace.note(2000, 2000, 6000) == "200 tokens/s"


def test_a_prompt_that_fills_the_context_is_refused_before_anything_is_drawn():
    refuse_long_prompts(PROMPTS, 3)
    refuse_long_prompts(PROMPTS, None)
    with pytest.raises(DataError, match=r"'p0' of toy has 2 tokens.*context of 2"):
        refuse_long_prompts(PROMPTS, 2)


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
    draw(tmp_path, n=3, progress=lambda done, total, tokens: told.append((done, total)))
    assert told[0] == (10, 12)
    assert told[-1] == (12, 12)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_nothing_to_draw_from_and_no_samples_are_errors(tmp_path):
    with pytest.raises(DataError, match="no prompts"):
        draw(tmp_path, prompts=[])
    with pytest.raises(UsageError, match="at least 1"):
        draw(tmp_path, n=0)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "..", "", "x" * 500, "\x1b[2J", "a b"])
def test_a_benchmark_name_cannot_leave_the_folder(name, tmp_path):
    stem = file_stem(name)
    assert (tmp_path / f"{stem}.jsonl").resolve().parent == tmp_path.resolve()
    assert 0 < len(stem) < 100
    assert stem != name


def test_safe_names_stay_and_unsafe_ones_stay_apart():
    assert file_stem("math500") == "math500"
    assert file_stem("a/b") != file_stem("a:b")


def test_a_digest_sees_a_changed_weight(tmp_path):
    weights = tmp_path / "model.safetensors"
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    weights.write_bytes(bytes(100))
    before = model_digest(str(tmp_path))
    assert model_digest(str(tmp_path)) == before
    weights.write_bytes(bytes(99) + b"\x01")
    assert model_digest(str(tmp_path)) != before


def make_adapter(folder, changed):
    folder.mkdir(exist_ok=True)
    document = json.dumps({"base_model_name_or_path": str(changed)})
    (folder / "adapter_config.json").write_text(document, encoding="utf-8")
    (folder / "adapter_model.safetensors").write_bytes(bytes(50))
    return folder


def test_the_digest_of_an_adapter_sees_a_change_anywhere_below_it(tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    (base / "model.safetensors").write_bytes(bytes(100))
    first = make_adapter(tmp_path / "first", base)
    second = make_adapter(tmp_path / "second", first)
    seen = {model_digest(str(folder)) for folder in (base, first, second)}
    assert len(seen) == 3
    for changed in (base / "model.safetensors", first / "adapter_model.safetensors"):
        changed.write_bytes(b"\x01" + changed.read_bytes()[1:])
        now = model_digest(str(second))
        assert now not in seen
        assert model_digest(str(second)) == now
        seen.add(now)


@pytest.fixture
def cached_model(tmp_path, monkeypatch):
    """``cached_model(commit)``: the Hub id of a model of which the cache has that commit."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def cache(commit):
        folder = tmp_path / "hub" / "models--some--model"
        (folder / "snapshots" / commit).mkdir(parents=True)
        (folder / "snapshots" / commit / "config.json").write_text("{}", encoding="utf-8")
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(commit, encoding="utf-8")
        return "some/model"

    return cache


def test_the_digest_of_a_hub_id_is_its_commit(cached_model, tmp_path):
    assert model_digest("some/model") == "some/model"
    assert model_digest(cached_model("aa1")) == "some/model@aa1"
    adapter = make_adapter(tmp_path / "adapter", "some/model")
    before = model_digest(str(adapter))
    cached_model("bb2")
    assert model_digest(str(adapter)) != before


@pytest.mark.parametrize(("then", "is_same"), [("some/model@aa1", True), ("some/model@bb2", False)])
def test_a_run_goes_on_with_the_commit_it_began_with(cached_model, then, is_same):
    parts = SimpleNamespace(fingerprints={"reference model": model_digest(cached_model("aa1"))})
    state = {"inputs": {"reference model": then}}
    with contextlib.nullcontext() if is_same else pytest.raises(DataError, match="the reference model changed"):
        refuse_other_inputs(parts, state, "step-000001")


def test_samples_go_on_with_the_commit_they_began_with(cached_model, tmp_path):
    def claim(fingerprint):
        source = Source(model="some/model", fingerprint=fingerprint)
        claim_folder(tmp_path / "s", "toy", n=1, sampling=Sampling(), seed=0, template="plain", source=source)

    claim(model_digest(cached_model("aa1")))
    assert json.loads((tmp_path / "s" / "sampling.json").read_text(encoding="utf-8"))["fingerprint"] == "some/model@aa1"
    with pytest.raises(UsageError, match="fingerprint: there some/model@aa1, asked some/model@bb2"):
        claim(model_digest(cached_model("bb2")))
