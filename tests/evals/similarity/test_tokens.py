"""Tokens by words against the regular expressions over whole texts."""

import random
import sys
import tokenize
from collections import Counter
from io import StringIO
from pathlib import Path

import pytest

from evals.code.programs import normal_program
from evals.similarity.measures import TOKENISERS, distinct, rouge_strings, rouge_tokens, split_words, token_counts

SPACES = [chr(code) for code in range(0x3001) if chr(code).isspace()]  # beyond it there are none


def texts_of_everything(seed, num=30):
    """Texts over letters, digits, LaTeX, every kind of white space and characters whose lower case is special."""
    rng = random.Random(seed)
    pieces = [*"aB1_.\\${}=+-3Σςİß解é\u0301\ud800\x00", "\\frac", "3.14", "x2", "THE", *SPACES, " ", " ", "\n"]
    return ["".join(rng.choices(pieces, k=rng.randint(0, 60))) for _ in range(num)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("tokens", TOKENISERS)
def test_counts_are_those_of_the_whole_texts(seed, tokens):
    unique = distinct(texts_of_everything(seed))
    texts, counts = unique.texts, unique.token_counts(tokens).toarray()
    names = list(dict.fromkeys(token for text in texts for token in TOKENISERS[tokens](text)))
    assert counts.shape == (len(texts), len(names))
    for row, text in zip(counts, texts, strict=True):
        expected = Counter(TOKENISERS[tokens](text))
        assert {name: value for name, value in zip(names, row, strict=True) if value} == expected


@pytest.mark.parametrize("seed", range(5))
def test_rouge_strings_are_equal_where_tokens_of_two_texts_are(seed):
    texts = texts_of_everything(seed)
    words = [rouge_tokens(text) for text in texts]
    coded = rouge_strings(split_words(texts))
    assert [len(string) for string in coded] == [len(tokens) for tokens in words]
    for i in range(len(texts)):
        for j in range(i):
            for a, token_a in zip(coded[i], words[i], strict=True):
                for b, token_b in zip(coded[j], words[j], strict=True):
                    assert (a == b) == (token_a == token_b)


def test_words_of_one_text_do_not_use_up_the_characters():
    # There are 1.1 million characters; the words that no other text holds share one.
    texts = [" ".join(f"{letter}{number:x}" for number in range(1000)) + " shared" for letter in "xyz"]
    coded = rouge_strings(split_words(texts))
    assert [len(string) for string in coded] == [1001] * 3
    assert {string[-1] for string in coded} == {"\x00"}
    assert sorted(set("".join(coded))) == ["\x00", "\x01", "\x02", "\x03"]


def test_no_texts_and_no_tokens():
    assert rouge_strings(split_words([])) == []
    assert rouge_strings(split_words(["", " ", "!"])) == ["", "", ""]
    assert token_counts(split_words(["", " "]), "math").toarray().tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("x1 = n.m(1.5e-07, -2)", ["x1", "=", "n", ".", "m", "(", "1.5e-07", ",", "-", "2", ")"]),
        ("a **= b // c >> 0x1e - 3", ["a", "**=", "b", "//", "c", ">>", "0x1e", "-", "3"]),
        ("if a != b <= c: ...", ["if", "a", "!=", "b", "<=", "c", ":", "..."]),
        ("f'{a} b' + b\"c'd\" + 'it\\'s'", ["f'{a} b'", "+", 'b"c\'d"', "+", "'it\\'s'"]),
        ("lambda N, n: (N := n)", ["lambda", "N", ",", "n", ":", "(", "N", ":=", "n", ")"]),
        ("it's\n\\' é解", ["it", "'", "s", "\\'", "é解"]),
    ],
)
def test_tokens_of_code_are_those_of_python(text, tokens):
    assert TOKENISERS["code"](text) == tokens


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="tokenize splits f-strings; ours are one token in every Python")
def test_tokens_of_code_are_those_of_the_tokenize_module():
    source = normal_program(Path(__file__).read_text(encoding="utf-8"))
    layout = (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    expected = [one.string for one in tokenize.generate_tokens(StringIO(source).readline) if one.type not in layout]
    assert TOKENISERS["code"](source) == expected
