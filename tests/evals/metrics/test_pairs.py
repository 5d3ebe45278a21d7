"""Pairs to label: their chances are those with which they are drawn, and weights by them make means of all pairs."""

import re
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from evals.errors import UsageError
from evals.metrics.counting import Clustering
from evals.metrics.studies import pairs
from evals.metrics.studies.labels import Label, agreement_result, over_all_draws, read_labels
from evals.metrics.studies.pairs import Pairs, pair_chances
from evals.samples.index import SamplesIndex
from evals.samples.reading import read_samples
from evals.samples.types import Sample

TEXTS = ["we add 2 and 3", "we add 3 and 2", "add two numbers, then stop", "5 because five", "we add 2 and 3 again"]


def make_index(tmp_path, texts=TEXTS, num_problems=2):
    file = tmp_path / "a.jsonl"
    rows = [
        Sample("mine", f"p{problem}", index, f"{text} ({problem})", "5", correct=True)
        for problem in range(num_problems)
        for index, text in enumerate(texts)
    ]
    file.write_bytes(b"".join(row.to_json_line() for row in rows))
    index = SamplesIndex(file)
    index.update()
    return index


def test_half_of_the_chance_is_the_same_for_all_and_half_goes_where_measures_disagree():
    chance_M = pair_chances(TEXTS)
    num = len(TEXTS) * (len(TEXTS) - 1) // 2
    assert chance_M.shape == (num,)
    assert chance_M.sum() == pytest.approx(1)
    assert chance_M.min() == pytest.approx(0.5 / num)  # some pair is agreed on
    assert chance_M.max() > 1 / num
    assert pair_chances(["a b", "a b c d e f g h"]).tolist() == [1]


def test_pairs_come_as_often_as_their_chance_says(tmp_path, monkeypatch):
    monkeypatch.setattr(pairs, "MOST_TEXTS", 3)  # fewer than there are: the choice of texts has its chance, too
    index, drawer, labels = make_index(tmp_path), Pairs(0), tmp_path / "a.labels"
    found, weight = Counter(), Counter()
    num_draws = 1000
    for _ in range(num_draws):
        pair = drawer.draw(index, "mine", labels)
        key = pair.problem.id, frozenset(pair.texts)
        found[key] += 1
        weight[key] += 1 / pair.chance / num_draws
    num = 2 * len(list(combinations(TEXTS, 2)))
    assert len(found) == num
    # Weighed by its chance, every pair counts once: so a weighted mean is that of all pairs.
    assert np.mean(list(weight.values())) == pytest.approx(1, abs=0.06)
    assert max(weight.values()) < 1.9
    assert min(weight.values()) > 0.4


def test_a_label_is_kept_beside_the_samples_and_read_by_the_study(tmp_path):
    index, drawer, labels = make_index(tmp_path), Pairs(1), tmp_path / "a.labels"
    seen = set()
    for number in range(1, 9):
        pair = drawer.draw(index, "mine", labels)
        seen.add((pair.problem.id, frozenset(pair.texts)))
        assert len(seen) == number  # no pair comes twice
        assert drawer.keep(labels, pair.key, "same" if number % 2 else "different", "ann") == number
    kept = read_labels(labels)
    assert {one.who for one in kept} == {"ann"}
    assert all(0 < one.chance < 1 for one in kept)
    result = agreement_result(read_samples([index.file]), kept, [Clustering(["rouge-l"])])
    assert result.rows[0].num_pairs == 8


def test_a_pair_that_was_not_drawn_or_another_word_is_refused(tmp_path):
    index, drawer, labels = make_index(tmp_path), Pairs(0), tmp_path / "a.labels"
    pair = drawer.draw(index, "mine", labels)
    with pytest.raises(UsageError, match="not drawn"):
        drawer.keep(labels, "another", "same", "ann")
    with pytest.raises(UsageError, match="expected same or different"):
        drawer.keep(labels, pair.key, "alike", "ann")
    assert not labels.exists()
    assert drawer.keep(labels, pair.key, "same", "ann") == 1
    with pytest.raises(UsageError, match="has its label"):
        drawer.keep(labels, pair.key, "same", "ann")


@pytest.mark.parametrize("num", [12, 17])
def test_where_most_pairs_are_labelled_the_weights_are_still_right(tmp_path, num):
    index = make_index(tmp_path)
    texts = sorted(f"{text} (0)" for text in TEXTS)
    is_same = dict(zip(combinations(texts, 2), pair_chances(texts) > 0.08, strict=True))  # those in dispute
    truth, shares = np.mean(list(is_same.values())), []
    for seed in range(20):
        drawer, labels = Pairs(seed), tmp_path / f"{seed}.labels"
        for _ in range(num):
            pair = drawer.draw(index, "mine", labels)
            texts = tuple(sorted(text.replace("(1)", "(0)") for text in pair.texts))
            drawer.keep(labels, pair.key, "same" if is_same[texts] else "different", "ann")
        kept = over_all_draws(read_labels(labels))
        weights = [1 / one.chance for one in kept]
        shares.append(np.average([one.label == "same" for one in kept], weights=weights))
    assert 0 < truth < 1
    assert np.mean(shares) == pytest.approx(truth, abs=0.03)


def test_who_goes_on_with_a_file_of_labels_draws_no_pair_again(tmp_path):
    index, labels, draws = make_index(tmp_path, num_problems=30), tmp_path / "a.labels", []
    for _ in range(3):
        drawer = Pairs(0)
        for _ in range(10):
            drawer.keep(labels, drawer.draw(index, "mine", labels).key, "same", "ann")
        draws.append(max(one.draw for one in read_labels(labels)))
    assert draws[0] < draws[1] < draws[2] < 40  # of 300 pairs few come again


def test_each_benchmark_has_its_own_draws():
    line = {"id": "p", "a": "a" * 64, "b": "b" * 64, "label": "same", "who": "ann", "chance": 0.1}
    labels = [Label.model_validate({**line, "benchmark": name, "draw": draw}) for name, draw in (("m", 2), ("n", 50))]
    assert [one.chance for one in over_all_draws(labels)] == pytest.approx([1 - 0.9**2, 1 - 0.9**50])


def test_a_label_that_cannot_be_written_can_be_given_again(tmp_path):
    index, drawer, labels = make_index(tmp_path), Pairs(0), tmp_path / "a.labels"
    pair = drawer.draw(index, "mine", labels)
    labels.mkdir()
    with pytest.raises(OSError, match="directory"):
        drawer.keep(labels, pair.key, "same", "ann")
    labels.rmdir()
    assert drawer.keep(labels, pair.key, "same", "ann") == 1


def test_equal_texts_of_two_problems_are_two_pairs(tmp_path):
    index, drawer, labels = make_index(tmp_path, ["a b", "b a"], num_problems=3), Pairs(0), tmp_path / "a.labels"
    file = index.file.read_text(encoding="utf-8")
    index.file.write_text(re.sub(r" \([0-9]\)", "", file), encoding="utf-8")
    index = SamplesIndex(index.file)
    index.update()
    for _ in range(3):
        drawer.keep(labels, drawer.draw(index, "mine", labels).key, "same", "ann")
    assert {one.id for one in read_labels(labels)} == {"p0", "p1", "p2"}


def test_a_last_line_without_its_end_stays_a_line_of_its_own(tmp_path):
    index, drawer, labels = make_index(tmp_path), Pairs(0), tmp_path / "a.labels"
    labels.write_bytes(b"")
    drawer.keep(labels, drawer.draw(index, "mine", labels).key, "same", "ann")
    labels.write_bytes(labels.read_bytes().rstrip())
    assert drawer.keep(labels, drawer.draw(index, "mine", labels).key, "different", "ann") == 2


def test_no_link_is_followed(tmp_path):
    index, drawer = make_index(tmp_path), Pairs(0)
    pair = drawer.draw(index, "mine", tmp_path / "a.labels")
    target = tmp_path / "target"
    (tmp_path / "a.labels").symlink_to(target)
    with pytest.raises(OSError, match="symbolic"):
        drawer.keep(tmp_path / "a.labels", pair.key, "same", "ann")
    assert not target.exists()


def test_where_there_are_no_pairs_it_says_so(tmp_path):
    with pytest.raises(UsageError, match="two different ones"):
        Pairs(0).draw(make_index(tmp_path, TEXTS[:1]), "mine", tmp_path / "a.labels")
