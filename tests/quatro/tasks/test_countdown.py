import itertools
import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.benchmarks.loading import load_problems
from quatro.tasks.countdown import (
    MAX_ANSWER_TOKENS,
    PROMPT_TOKENS,
    VOCABULARY,
    CountdownProblem,
    CountdownWarmStart,
    count_solutions,
    fault,
    problems,
    solves,
)
from quatro.tasks.warm_start import EOS_ID, PAD_ID

PROMPT = "7 2 7 6 2 8 -> 67"
ANSWER = "8 *7 =56 +7 =63 +6 =69 -2 =67"


def verify(prompt: str, answer: str) -> bool:
    """Whether a finished response is right."""
    return solves(prompt, answer, None)


def brute_force(digits: tuple[int, ...], target: int) -> set[str]:
    """Every solution, by trying all orders of all subsets of positions and all operations."""
    found = set()
    for num_used in range(2, 6):
        for order in set(itertools.permutations(digits, num_used)):
            for operations in itertools.product("+-*", repeat=num_used - 1):
                total, words = order[0], [str(order[0])]
                for operation, digit in zip(operations, order[1:], strict=True):
                    total = eval(f"{total}{operation}{digit}")
                    words += [f"{operation}{digit}", f"={total}"]
                    if not 0 <= total <= 99:
                        break
                else:
                    if total == target:
                        found.add(" ".join(words))
    return found


def test_vocabulary_has_232_distinct_whole_tokens():
    assert len(VOCABULARY.tokens) == len(set(VOCABULARY.tokens)) == 232
    assert VOCABULARY.tokens[:6] == ("<pad>", "<eos>", "_", "->", ":", "0")
    assert all(" " not in token for token in VOCABULARY.tokens)
    assert len(VOCABULARY.encode(PROMPT)) == PROMPT_TOKENS == 8
    assert len(VOCABULARY.encode(ANSWER)) == MAX_ANSWER_TOKENS == 9
    assert " ".join(VOCABULARY.tokens[i] for i in VOCABULARY.encode(ANSWER)) == ANSWER


@pytest.mark.parametrize("answer", [ANSWER, f" {ANSWER}\n", "8 *8 =64 +7 =71"])
def test_a_correct_chain_is_correct(answer):
    prompt = PROMPT if answer.strip() == ANSWER else "8 8 7 1 1 1 -> 71"
    assert verify(prompt, answer) is True


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "67",
        "8 *7 =56 +7 =63 +6 =69 -2 =66",  # a wrong total
        "8 *7 =56 +7 =63 +6 =69",  # does not end at the target
        "8 *7 =56 +7 =63 +6 =69 -2",  # an operation without its total
        "8 *8 =64 +7 =71 -2 =69 -2 =67",  # the prompt has one 8
        "9 *7 =63 +6 =69 -2 =67",  # the prompt has no 9
        "8 *7 =56 +7 =63 +6 =69 -2 =67 _",
        "8 *7 =56 +7 =63 +6 =69 -2 =67 <eos>",
        "8  *7 =56 +7 =63 +6 =69 -2 =67",  # two spaces
        "8\t*7 =56 +7 =63 +6 =69 -2 =67",
        "8 * 7 = 56 + 7 = 63 + 6 = 69 - 2 = 67",
        "8 *7 =056 +7 =63 +6 =69 -2 =67",
        "08 *7 =56 +7 =63 +6 =69 -2 =67",
        "+8 *7 =56 +7 =63 +6 =69 -2 =67",
        "８ *7 =56 +7 =63 +6 =69 -2 =67",  # a full-width digit
        "8 *٧ =56 +7 =63 +6 =69 -2 =67",  # an Arabic one
        "8 ×7 =56 +7 =63 +6 =69 -2 =67",
        "-> *7 =56 +7 =63 +6 =69 -2 =67",
        f"{ANSWER} {ANSWER}",
        "9" * 5000,
    ],
)
def test_anything_else_is_wrong(answer):
    assert verify(PROMPT, answer) is False


def test_600_problems_are_the_held_out_ones_and_400_more_that_nothing_is_taught_with():
    found = load_problems("countdown-600")
    assert [one.problem for one in found[:200]] == [one.problem for one in load_problems("countdown")]
    keys = {(tuple(sorted(one.digits)), one.target) for split in ("test", "more", "train") for one in problems(split)}
    assert len(keys) == 3600
    assert load_problems("countdown-600", split="train") == [
        replace(one, benchmark="countdown-600") for one in load_problems("countdown", split="train")
    ]
    rows = CountdownWarmStart(seed=1).draw(20_000).token_ids[:, :PROMPT_TOKENS]
    taught = {
        (tuple(sorted(int(VOCABULARY.tokens[i]) for i in row[:6])), int(VOCABULARY.tokens[row[7]])) for row in rows
    }
    assert not taught & {(tuple(sorted(one.digits)), one.target) for one in problems("more")}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("67", "no chain of 2 to 5 digits"),
        ("8 *7 =57 +7 =64", "step 1 gives 56, not 57"),
        ("8 *7 =56 +7 =63 +6 =69", "ends at 69, the target is 67"),
        ("8 *8 =64 +7 =71 -2 =69 -2 =67", "uses 8 2 times, and has it 1 times"),
        ("8 ×7 =56", "step 1 is not an operation"),
        ("-> *7 =56", "begins with no digit"),
        (ANSWER, ""),
    ],
)
def test_what_is_wrong_is_said(answer, why):
    assert fault(PROMPT, answer, "stop").startswith(why)
    assert fault(PROMPT, answer, "length") == "cut off by the length limit"


def test_totals_must_stay_between_0_and_99():
    assert not verify("9 9 9 7 1 1 -> 74", "9 *9 =81 *1 =81 -7 =74 -1 =73")
    assert not verify("9 9 2 7 1 1 -> 90", "9 *9 =81 +9 =90 +2 =92")
    assert not verify("9 9 9 9 1 1 -> 90", "9 *9 =81 +9 =90 +9 =99 +1 =100")
    assert not verify("2 5 7 9 9 9 -> 4", "2 -5 =-3 +7 =4")
    assert verify("2 5 7 9 9 9 -> 4", "7 -5 =2 +2 =4")


def test_six_digits_are_one_too_many():
    assert not verify("1 1 1 1 1 1 -> 6", "1 +1 =2 +1 =3 +1 =4 +1 =5 +1 =6")
    assert verify("1 1 1 1 1 1 -> 5", "1 +1 =2 +1 =3 +1 =4 +1 =5")


tokens_and_noise = st.lists(st.sampled_from(VOCABULARY.tokens) | st.text(max_size=4), max_size=14).map(" ".join)


@given(st.text() | tokens_and_noise | st.none() | st.integers() | st.binary())
def test_verify_never_raises_and_accepts_only_true_solutions(completion: object) -> None:
    accepted = verify("2 1 3 1 9 9 -> 5", completion)  # type: ignore[arg-type]
    assert accepted is (isinstance(completion, str) and completion.strip() in SOLUTIONS_OF_5)


SOLUTIONS_OF_5 = brute_force((2, 1, 3, 1, 9, 9), 5)


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "7 2 7 6 2 -> 67",
        "7 2 7 6 2 0 -> 67",
        "7 2 7 6 2 8 67",
        "7 2 7 6 2 8 -> 100",
        "7 2 7 6 2 8 -> x",
        "７ 2 7 6 2 8 -> 1",
    ]
    + ["7 2 7 6 2 8  -> 67", None, "9" * 10**5],
)
def test_a_malformed_prompt_is_an_error(prompt):
    with pytest.raises(ValueError, match="not a countdown prompt") as caught:
        verify(prompt, ANSWER)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("seed", range(6))
def test_the_number_of_solutions_equals_brute_force(seed):
    rng = random.Random(seed)
    digits = tuple(rng.choices(range(1, 10 if seed % 2 else 5), k=6))
    target = rng.randint(0, 99)
    expected = brute_force(digits, target)
    assert count_solutions(digits, target) == len(expected)
    prompt = f"{' '.join(map(str, digits))} -> {target}"
    assert all(verify(prompt, solution) for solution in expected)


def test_the_order_of_the_digits_does_not_matter():
    assert count_solutions((7, 2, 7, 6, 2, 8), 67) == count_solutions((8, 7, 7, 6, 2, 2), 67) > 0


def test_problem_splits_are_disjoint_solvable_and_as_large_as_said():
    train, test = problems("train"), problems("test")
    assert (len(train), len(test)) == (3000, 200)
    keys = [(tuple(sorted(problem.digits)), problem.target) for problem in (*train, *test)]
    assert len(set(keys)) == 3200
    assert len({problem.id for problem in (*train, *test)}) == 3200
    for problem in (*train, *test):
        assert len(problem.digits) == 6
        assert 1 <= problem.target <= 99
        assert count_solutions(problem.digits, problem.target) >= 1
        assert problem.prompt == f"{' '.join(map(str, problem.digits))} -> {problem.target}"


def test_targets_are_uniform_over_what_the_digits_reach():
    # The rank of a target among its reachable totals is uniform on [0, 1): mean 1/2, standard deviation sqrt(1/12).
    ranks = []
    for problem in problems("train"):
        reachable = [total for total in range(1, 100) if count_solutions(problem.digits, total)]
        ranks.append((reachable.index(problem.target) + 0.5) / len(reachable))
    assert abs(np.mean(ranks) - 0.5) < 4 * (1 / 12 / len(ranks)) ** 0.5
    assert abs(np.std(ranks) - (1 / 12) ** 0.5) < 0.01


def test_the_number_of_solutions_has_the_published_percentiles():
    counts = [count_solutions(problem.digits, problem.target) for problem in problems("test")]
    np.testing.assert_allclose(np.percentile(counts, [5, 25, 50, 75, 95]), [8, 40, 91, 191, 431], rtol=0.3)


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_problems_do_not_depend_on_the_hash_seed(hash_seed):
    code = "from quatro.tasks.countdown import problems; import hashlib; p = problems('train') + problems('test');"
    code += "import sys; sys.stdout.write(hashlib.sha256(repr([tuple(x) for x in p]).encode()).hexdigest())"
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    digest = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    # The benchmark itself: if this changes, published numbers on it are no longer comparable.
    assert digest == "a86e54b4ec572fa03263bd4ad28ff7d958bea9646e6d9b4bf4382fff6ea6a175"


def split_row(row: np.ndarray) -> tuple[str, str]:
    words = [VOCABULARY.tokens[i] for i in row if i not in (EOS_ID, PAD_ID)]
    return " ".join(words[:PROMPT_TOKENS]), " ".join(words[PROMPT_TOKENS:])


def test_warmstart_rows_are_correct_chains_outside_the_held_out_split():
    rows = CountdownWarmStart(seed=0).draw(20_000)
    assert rows.token_ids.shape == rows.answer_mask.shape == (20_000, 18)
    held_out = {(tuple(sorted(problem.digits)), problem.target) for problem in problems("test")}
    num_used = Counter()
    for row, mask in zip(rows.token_ids, rows.answer_mask, strict=True):
        prompt, answer = split_row(row)
        assert verify(prompt, answer), (prompt, answer)
        *digits, _, target = prompt.split()
        assert (tuple(sorted(map(int, digits))), int(target)) not in held_out
        num_tokens = len(answer.split())
        num_used[(num_tokens + 1) // 2] += 1
        assert np.flatnonzero(mask).tolist() == list(range(8, 8 + num_tokens + 1))
        assert row[8 + num_tokens] == EOS_ID
        assert (row[9 + num_tokens :] == PAD_ID).all()
    # The lengths are drawn uniformly; a chain that ends at 0 is redrawn, which thins out the short ones a little.
    assert sorted(num_used) == [2, 3, 4, 5]
    assert min(num_used.values()) > 4500


def test_every_operation_that_keeps_the_total_in_range_is_equally_likely():
    rows = CountdownWarmStart(seed=1).draw(60_000)
    first, step = rows.token_ids[:, 8], rows.token_ids[:, 9]
    is_4_and_3 = (first == VOCABULARY.ids["4"]) & np.isin(
        step, [VOCABULARY.ids["+3"], VOCABULARY.ids["-3"], VOCABULARY.ids["*3"]]
    )
    counts = np.unique(step[is_4_and_3], return_counts=True)[1]
    assert counts.sum() > 500
    assert np.abs(counts / counts.sum() - 1 / 3).max() < 4 * (2 / 9 / counts.sum()) ** 0.5


def test_a_held_out_prompt_is_never_a_warmstart_row(monkeypatch):
    drawn = {split_row(row)[0] for row in CountdownWarmStart(seed=2).draw(100).token_ids[:50]}
    held_out = []
    for prompt in sorted(drawn):
        *digits, _, target = prompt.split()
        held_out.append(CountdownProblem("x", prompt, tuple(int(digit) for digit in reversed(digits)), int(target)))
    monkeypatch.setattr("quatro.tasks.countdown.problems", lambda split: held_out)
    again = CountdownWarmStart(seed=2).draw(100)  # the same draws, of which these 50 are now forbidden
    assert drawn.isdisjoint(split_row(row)[0] for row in again.token_ids)


def test_the_harder_base_sees_the_asked_share_of_wrong_targets():
    rows = CountdownWarmStart(seed=3, random_target_share=0.4).draw(5000)
    share_wrong = np.mean([not verify(*split_row(row)) for row in rows.token_ids])
    assert abs(share_wrong - 0.4) < 4 * (0.24 / 5000) ** 0.5 + 0.005  # redrawn chains that end at 0 shift it a little


def test_warmstart_rows_follow_the_generator():
    first, again = (CountdownWarmStart(seed=4).draw(100).token_ids for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (first != CountdownWarmStart(seed=5).draw(100).token_ids).any()


def test_a_solution_that_was_cut_off_is_neither_rewarded_nor_counted():
    assert solves(PROMPT, ANSWER, "stop")
    assert solves(PROMPT, ANSWER, None)
    assert not solves(PROMPT, ANSWER, "length")
