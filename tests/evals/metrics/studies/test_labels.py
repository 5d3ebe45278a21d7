"""Clusterings against labelled pairs: the measures are those of scikit-learn, and wrong labels are refused."""

import json
import random
from itertools import combinations

import pytest
from sklearn.metrics import cohen_kappa_score, precision_score, recall_score

from evals.clustering import cluster
from evals.metrics.counting import Clustering
from evals.metrics.studies.labels import agreement_result, read_labels, text_hash
from evals.samples.graded import read_graded
from tests.kit import quatro, write_rows

WORDS = ["a", "b", "c", "d"]


@pytest.fixture
def files(tmp_path):
    """Samples of six problems, and labels by the first word, of which some are wrong, drawn and doubled."""
    rng, rows, labels = random.Random(4), [], []
    for id in "pqrstu":
        texts = sorted({" ".join(rng.choices(WORDS, k=4)) for _ in range(6)})
        rows += [
            {"benchmark": "toy", "id": id, "sample_index": i, "completion": text, "answer": "1", "correct": True}
            for i, text in enumerate(texts)
        ]
        for a, b in combinations(texts, 2):
            is_same = (a[0] == b[0]) ^ (rng.random() < 0.1)
            labels.append((id, a, b, is_same, rng.choice([0.5, 1.0]) if id != "p" else 1.0))
    (id, a, b, is_same, chance), *_ = [one for one in labels if one[0] == "q"]
    labels.append((id, b, a, not is_same, chance))  # another person, the other way round
    lines = [
        {"benchmark": "toy", "id": id, "a": text_hash(a), "b": text_hash(b), "who": "me", "chance": chance,
         "label": "same" if is_same else "different"}
        for id, a, b, is_same, chance in labels
    ]  # fmt: skip
    return write_rows(tmp_path / "samples.jsonl", rows), write_rows(tmp_path / "labels.jsonl", lines), labels


def test_the_measures_are_those_of_scikit_learn(files):
    samples, file, labels = files
    found = agreement_result(
        read_graded([samples])[0], read_labels(file), [Clustering(["jaccard"], [0.4, 0.7], "complete", "whitespace")]
    )
    texts = {}
    for id, a, b, *_ in labels:
        texts.setdefault(id, set()).update((a, b))
    for row in found.rows:
        label_of = {}
        for id, own in texts.items():
            how = {"similarity": "jaccard", "threshold": row.threshold, "linkage": "complete", "tokens": "whitespace"}
            label_of[id] = dict(zip(sorted(own), cluster(sorted(own), **how), strict=True))
        truth = [is_same for *_, is_same, _ in labels]
        together = [label_of[id][a] == label_of[id][b] for id, a, b, *_ in labels]
        pairs = [(id, *sorted((a, b))) for id, a, b, *_ in labels]
        weight = [1 / chance / pairs.count(pair) for pair, (*_, chance) in zip(pairs, labels, strict=True)]
        assert row.value == pytest.approx(cohen_kappa_score(truth, together, sample_weight=weight))
        assert row.precision[0] == pytest.approx(precision_score(truth, together, sample_weight=weight))
        assert row.recall[0] == pytest.approx(recall_score(truth, together, sample_weight=weight))
        assert row.ci_low < row.value < row.ci_high
    assert [row.threshold for row in found.rows if getattr(row, "is_favoured", False)] == [
        max(found.rows, key=lambda row: row.value).threshold
    ]


def test_a_clustering_that_is_the_labels_agrees_wholly(tmp_path):
    texts = ["a a", "a b", "b a", "b b", "b c"]
    rows = [
        {"benchmark": "toy", "id": "p", "sample_index": i, "completion": text, "answer": "1", "correct": True}
        for i, text in enumerate([*texts, "a a"])
    ]
    lines = [
        {"benchmark": "toy", "id": "p", "a": text_hash(a), "b": text_hash(b), "who": "rule",
         "label": ("different", "same")[a[0] == b[0]]}
        for a, b in combinations(texts, 2)
    ]  # fmt: skip
    samples, labels = write_rows(tmp_path / "s.jsonl", rows), write_rows(tmp_path / "l.jsonl", lines)
    (tmp_path / "by_first.py").write_text(
        "def first(texts):\n    return [[float(a[0] == b[0]) for b in texts] for a in texts]\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        shown = quatro("eval", "similarity", samples, "--labels", labels, "--similarity", "by_first:first,exact",
                       "--threshold", "0.5", "-o", tmp_path / "found.json").stdout  # fmt: skip
    best, other = json.loads((tmp_path / "found.json").read_text())["rows"]
    assert (best["value"], best["precision"][0], best["recall"][0], best["ari"][0]) == (1, 1, 1, 1)
    assert (other["value"], other["precision"], other["similarity"]) == (0, None, "exact")
    assert other["ari"][0] == pytest.approx((1 - 6 / 15) / ((6 + 1) / 2 - 6 / 15))  # Hubert and Arabie, by hand
    assert shown.splitlines()[2].split()[:3] == ["by_first:first", ">=", "0.5,"]


def test_resamples_without_a_pair_of_a_kind_leave_the_interval_alone(tmp_path):
    rows, lines = [], []
    for problem in range(20):
        texts = ["one two three", "three two one" if problem < 3 else "quite another way"]
        head = {"benchmark": "toy", "id": f"p{problem}"}
        rows += [
            {**head, "sample_index": i, "completion": text, "answer": "1", "correct": True}
            for i, text in enumerate(texts)
        ]
        label = {"label": "same" if problem < 3 else "different", "who": "ann"}
        lines.append({**head, "a": text_hash(texts[0]), "b": text_hash(texts[1]), **label})
    samples, file = write_rows(tmp_path / "s.jsonl", rows), write_rows(tmp_path / "l.jsonl", lines)
    (row,) = agreement_result(read_graded([samples])[0], read_labels(file), [Clustering(["jaccard"], [0.9])]).rows
    assert (row.value, row.ci_low, row.ci_high) == (1, 1, 1)  # 4 % of the resamples hold no pair that is the same
    assert row.precision == row.recall == [1, 1, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": "0" * 64}, "labelled, but are not two of its right answers here"),
        ({"a": "XY"}, "labels.jsonl:1: a: "),
        ({"label": "perhaps"}, "labels.jsonl:1: label: "),
        ({"chance": 0}, "labels.jsonl:1: chance: "),
        ({"id": "nowhere"}, "'nowhere': "),
        (None, "it holds no label"),
    ],
)
def test_a_label_that_means_nothing_is_refused(files, change, words):
    samples, file, _ = files
    lines = file.read_text().splitlines()
    lines = [] if change is None else [json.dumps(json.loads(lines[0]) | change), *lines[1:]]
    file.write_text("".join(f"{line}\n" for line in lines))
    assert words in quatro("eval", "similarity", samples, "--labels", file, code=4).stderr


def test_what_is_for_labels_has_no_effect_without_them(files):
    samples, labels, _ = files
    assert "no effect" in quatro("eval", "similarity", samples, "--labels", labels, "--max-pairs", 3, code=2).stderr
    for option in (["--threshold", "0.5"], ["--linkage", "complete"]):
        assert "no effect" in quatro("eval", "similarity", samples, *option, code=2).stderr
