"""Recorded completions dealt out as rollouts."""

import json

import pytest

from evals.errors import DataError
from quatro.rollout.replay import ReplayEngine
from quatro.types import Prompt, Sampling
from tests.kit import write_rows


class Characters:
    eos_token_id = 0

    def encode(self, text, add_special_tokens=True):
        assert not add_special_tokens
        return [ord(character) for character in text]

    def decode(self, token_ids, skip_special_tokens=False):
        assert skip_special_tokens
        return "".join(chr(i) for i in token_ids if i)


def row(id, index, completion, *, benchmark="toy", **extra):
    return {"benchmark": benchmark, "id": id, "sample_index": index, "completion": completion, "answer": "1", **extra}


@pytest.fixture
def make_engine(tmp_path):
    def make(rows):
        file = tmp_path / "recorded.jsonl"
        write_rows(file, rows)
        return ReplayEngine(file, Characters())

    return make


def prompt(id, benchmark="toy"):
    return Prompt(benchmark, id, "", None, "", (1, 2))


def texts(groups):
    return [[rollout.text for rollout in group] for group in groups]


def test_completions_come_in_order_and_each_once(make_engine):
    rows = [row("a", 1, "a1"), row("b", 0, "b0"), row("a", 0, "a0"), row("b", 1, "b1"), row("a", 2, "a2")]
    engine = make_engine(rows)
    assert texts(engine.generate([prompt("b"), prompt("a")], [[9], [9, 9]], Sampling())) == [["b0"], ["a0", "a1"]]
    assert texts(engine.generate([prompt("a"), prompt("b")], [[9], [9]], Sampling())) == [["a2"], ["b1"]]
    assert engine.sync(lambda: iter(())) == {}


def test_a_prompt_twice_in_one_call_gets_different_completions(make_engine):
    engine = make_engine([row("a", j, f"a{j}") for j in range(4)])
    assert texts(engine.generate([prompt("a"), prompt("a")], [[1, 2], [3, 4]], Sampling())) == [
        ["a0", "a1"],
        ["a2", "a3"],
    ]


def test_tokens_end_in_eos_exactly_if_the_response_stopped_by_itself(make_engine):
    engine = make_engine(
        [row("a", 0, "xy"), row("a", 1, "xy", finish_reason="stop"), row("a", 2, "xy", finish_reason="length")]
    )
    (group,) = engine.generate([prompt("a")], [[1, 2, 3]], Sampling())
    assert [rollout.token_ids for rollout in group] == [(120, 121, 0), (120, 121, 0), (120, 121)]
    assert [rollout.finish_reason for rollout in group] == ["stop", "stop", "length"]
    assert all(rollout.logp is None and rollout.entropy is None for rollout in group)


@pytest.mark.parametrize(
    ("limit", "ids", "text", "reason"),
    [(4, (97, 98, 99, 0), "abc", "stop"), (3, (97, 98, 99), "abc", "length"), (1, (97,), "a", "length")],
)
def test_long_completions_are_cut_at_max_new_tokens(make_engine, limit, ids, text, reason):
    ((rollout,),) = make_engine([row("a", 0, "abc")]).generate([prompt("a")], [[1]], Sampling(max_new_tokens=limit))
    assert (rollout.token_ids, rollout.text, rollout.finish_reason) == (ids, text, reason)


def test_too_few_completions_name_the_prompt_and_deal_nothing(make_engine):
    engine = make_engine([row("a", 0, "a0"), row("b", 0, "b0")])
    with pytest.raises(DataError, match=r"recorded.jsonl has 1 completions of 'b'.*0 of them.*2 more"):
        engine.generate([prompt("a"), prompt("b")], [[1], [1, 2]], Sampling())
    assert texts(engine.generate([prompt("a")], [[1]], Sampling())) == [["a0"]]
    with pytest.raises(DataError, match="0 completions of 'c'"):
        engine.generate([prompt("c")], [[1]], Sampling())


def test_benchmarks_are_kept_apart(make_engine):
    engine = make_engine([row("a", 0, "one"), row("a", 0, "two", benchmark="other"), row("b", 0, "b0")])
    assert texts(engine.generate([prompt("a", "other"), prompt("a")], [[1], [1]], Sampling())) == [["two"], ["one"]]


def test_a_resumed_engine_goes_on_where_it_was(make_engine):
    rows = [row("a", j, f"a{j}") for j in range(5)]
    first = make_engine(rows)
    first.generate([prompt("a")], [[1, 2]], Sampling())
    state = json.loads(json.dumps(first.state()[1]))
    resumed = make_engine(rows)
    resumed.load_state({}, state)
    assert texts(resumed.generate([prompt("a")], [[1, 2]], Sampling())) == [["a2", "a3"]]


def test_progress_counts_rollouts_and_tokens(make_engine):
    seen = []
    engine = make_engine([row("a", 0, "ab"), row("b", 0, "abcd")])
    engine.generate([prompt("a"), prompt("b")], [[1], [1]], Sampling(), progress=lambda *counts: seen.append(counts))
    assert seen == [(2, 8)]


def test_a_broken_file_is_named_with_its_line(make_engine):
    with pytest.raises(DataError, match=r"recorded.jsonl:2"):
        make_engine([row("a", 0, "x"), {"benchmark": "toy"}])
