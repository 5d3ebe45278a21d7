"""Similarities against the libraries they must equal, plain Python, and the public vectors."""

import random
from collections import Counter

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer
from sklearn.feature_extraction.text import TfidfVectorizer

from evals.similarity import SIMILARITIES
from evals.similarity.measures import TOKENISERS

WORDS = [
    "\\frac",
    "x",
    "=",
    "2",
    "3.5",
    "so",
    "So",
    "THE",
    "answer",
    "is",
    "_",
    "é",
    "解",
    "$",
    "{",
    "}",
    "\n",
    "42",
    "!",
]


def similarity_of(name, texts, tokens="math"):
    """The matrix over all ``texts``, where equal ones have a row each."""
    return SIMILARITIES[name](texts, tokens=tokens)


def random_texts(seed, num=14):
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, 25))) for _ in range(num)]
    return [*texts, "", " ", "...", texts[0], texts[3], texts[0].upper()]


def pairwise(texts, value):
    return np.array([[1.0 if a == b else value(a, b) for b in texts] for a in texts])


def levenshtein(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


@pytest.mark.parametrize("seed", range(3))
def test_rouge_l_equals_rouge_score(seed):
    texts = random_texts(seed)
    scorer = RougeScorer(["rougeL"], use_stemmer=False)
    expected = pairwise(texts, lambda a, b: scorer.score(a, b)["rougeL"].fmeasure)
    np.testing.assert_allclose(similarity_of("rouge-l", texts), expected, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tokens", ["sklearn", "math", "whitespace"])
def test_tfidf_equals_sklearn(seed, tokens):
    texts = random_texts(seed)
    options = {} if tokens == "sklearn" else {"tokenizer": TOKENISERS[tokens], "token_pattern": None}
    vectors = TfidfVectorizer(**options).fit_transform(texts)
    cosine = (vectors @ vectors.T).toarray()
    equal = np.array([[a == b for b in texts] for a in texts])
    np.testing.assert_allclose(similarity_of("tfidf", texts, tokens=tokens), np.where(equal, 1.0, cosine), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tokens", ["sklearn", "math", "whitespace"])
def test_jaccard_equals_sets(seed, tokens):
    texts = random_texts(seed)

    def of_sets(a, b):
        left, right = set(TOKENISERS[tokens](a)), set(TOKENISERS[tokens](b))
        return len(left & right) / len(left | right) if left | right else 0.0

    assert (similarity_of("jaccard", texts, tokens=tokens) == pairwise(texts, of_sets)).all()


@pytest.mark.parametrize("seed", range(3))
def test_edit_equals_the_textbook_recurrence(seed):
    texts = random_texts(seed)

    def of_distance(a, b):
        longer = max(len(a), len(b))
        return (longer - levenshtein(a, b)) / longer

    assert (similarity_of("edit", texts) == pairwise(texts, of_distance)).all()


def test_exact_compares_strings():
    assert similarity_of("exact", ["a", "b", "a", "A"]).tolist() == [
        [1, 0, 1, 0],
        [0, 1, 0, 0],
        [1, 0, 1, 0],
        [0, 0, 0, 1],
    ]


def test_a_tie_with_the_threshold_is_exact():
    # 8 of 10 words, twice: 2 * 8 / (10 + 10), where 2pr / (p + r) gives a little more or less than 0.8 for some.
    for common in range(1, 60):
        for length in range(common, 60):
            texts = [" ".join(["w"] * common + ["a"] * (length - common)), " ".join(["w"] * common)]
            assert similarity_of("rouge-l", texts)[0, 1] == 2 * common / (common + length)
    assert similarity_of("jaccard", ["a b c d", "a b c d e"])[0, 1] == 0.8
    assert similarity_of("edit", ["abcd", "abcde"])[0, 1] == 0.8


@pytest.mark.parametrize("name", SIMILARITIES)
@pytest.mark.parametrize("tokens", TOKENISERS)
def test_what_holds_for_every_similarity(name, tokens):
    texts = [*random_texts(5), "\ud800", "\x00", "x" * 3000]
    similarity = similarity_of(name, texts, tokens=tokens)
    assert similarity.dtype == np.float64
    assert similarity.shape == (len(texts), len(texts))
    assert ((similarity >= 0) & (similarity <= 1)).all()
    assert (similarity == similarity.T).all()
    assert (similarity[np.array([[a == b for b in texts] for a in texts])] == 1.0).all()
    order = random.Random(1).sample(range(len(texts)), len(texts))
    shuffled = similarity_of(name, [texts[i] for i in order], tokens=tokens)
    assert (shuffled == similarity[np.ix_(order, order)]).all()


@pytest.mark.parametrize("name", SIMILARITIES)
def test_texts_without_tokens(name):
    similarity = similarity_of(name, ["", "", "words here"])
    assert similarity.tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert similarity_of(name, []).shape == (0, 0)
    assert similarity_of(name, ["only"]).tolist() == [[1.0]]


def test_math_tokens_keep_what_mathematics_is_written_with():
    assert TOKENISERS["math"](r"So \Frac{x_1}{2.50} = 解é!") == [
        *["so", r"\frac", "{", "x", "_", "1", "}", "{", "2.50", "}", "=", "解é", "!"]
    ]
    assert TOKENISERS["sklearn"](r"x = 2 \frac ab") == ["frac", "ab"]


@pytest.mark.parametrize("name", SIMILARITIES)
def test_unknown_tokens_are_refused(name):
    with pytest.raises(ValueError, match=r"'nltk'.*whitespace"):
        similarity_of(name, ["a"], tokens="nltk")


def test_public_vectors(text_vectors, vector_metrics, vector_metric):
    name, tokens = vector_metrics[vector_metric]
    compared = Counter()
    for vector in text_vectors:
        expected = vector["metrics"].get(vector_metric)
        if expected is None:
            continue
        similarity = similarity_of(name, vector["texts"], tokens=tokens)
        upper = similarity[np.triu_indices(len(vector["texts"]), 1)]
        if "sim_upper" in expected:
            np.testing.assert_allclose(upper, np.array(expected["sim_upper"], float), atol=1e-9, err_msg=vector["name"])
        else:
            for i, j, value in expected["sim_pairs"]:
                assert similarity[i, j] == pytest.approx(value, abs=1e-9)
            assert upper.sum() == pytest.approx(expected["sim_sum_upper"], abs=1e-9 * len(upper))
        compared[vector_metric] += 1
    assert compared[vector_metric] > 0
