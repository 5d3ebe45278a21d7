"""Equality by computer algebra: latex2sympy parses, and what it reads is equal only with a proof (see `structures`).

Only worker processes import this file (see `worker`): what happens here can take any time and memory.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy

from evals.grading.identifiers import TRIGONOMETRY, Names, is_words, rewrite
from evals.grading.normal_form import Item
from evals.grading.points import Points
from evals.grading.solution_sets import describes_set, same_set
from evals.grading.structures import same

_CONVERSION = ConversionConfig(lowercase_symbols=False)


class Oracle:
    """Decides pairs of items that neither text nor exact numbers decide.

    What is not proved to be equal is taken for different. Pairs that are not proved to be different either, and those
    that could not be read, are counted.
    """

    def __init__(self) -> None:
        self.num_unparsed = 0
        self.num_undecided = 0

    def __call__(self, item: Item, gold: Item) -> bool:
        if item.is_prose or gold.is_prose or is_words(item.text) or is_words(gold.text):
            return item.text.casefold() == gold.text.casefold()
        if _is_in_degrees(item) != _is_in_degrees(gold) and self._is_same(_in_radians(item), _in_radians(gold)):
            return True
        if "rad" in (item.unit, gold.unit) and item.unit != gold.unit:
            return False  # 2 radians are not 2 degrees
        readings = [(item.text, gold.text)]
        if item.equation or gold.equation:
            readings.append((item.equation or item.text, gold.equation or gold.text))
        if any(self._is_same(*reading) for reading in readings):
            return True
        return (describes_set(item) or describes_set(gold)) and self._is_same_set(item, gold)

    def _is_same_set(self, item: Item, gold: Item) -> bool:
        names = Names()
        try:
            is_equal = same_set(item, gold, lambda text: _parse(rewrite(text, names)), Points(item.text, gold.text))
            self.num_undecided += is_equal is None
            return is_equal is True
        except RecursionError:
            raise
        except Exception:  # as below; sympy solves no inequality but those in one variable
            return False

    def _is_same(self, text: str, gold: str) -> bool:
        if not text or not gold:
            return False
        names = Names()
        try:
            expected = _parse(rewrite(gold, names))
            found = _parse(rewrite(text, names))
        except RecursionError:
            raise
        except Exception:  # latex2sympy raises Exception itself; a text that is no formula equals none
            self.num_unparsed += 1
            return False
        try:
            is_equal = same(found, expected, Points(text, gold))
        except (RecursionError, MemoryError):
            raise
        except Exception:  # sympy fails in many ways, and none of them is a proof
            is_equal = None
        self.num_undecided += is_equal is None
        return is_equal is True


def _is_in_degrees(item: Item) -> bool:
    return (item.is_degrees or "\\circ" in item.text) and not TRIGONOMETRY.search(item.text)


def _in_radians(item: Item) -> str:
    if not _is_in_degrees(item):
        # A number alone says neither: 30 is not compared with 30 degrees here but as it stands.
        return item.text if "\\pi" in item.text or item.unit == "rad" else ""
    degrees = item.text.replace("^\\circ", "").replace("^{\\circ}", "")
    return f"\\frac{{\\pi}}{{180}}({degrees})"


@lru_cache(maxsize=256)
def _parse(text: str) -> Any:
    # Symbols of ours are real; the imaginary unit is sympy's own.
    return latex2sympy(text, is_real=True, normalization_config=None, conversion_config=_CONVERSION)


def warm_up() -> None:
    """Loads what the first pairs would load: sympy's lazy parts, and the parser's tables, which it learns by use."""
    oracle = Oracle()
    for text, gold in _EXAMPLES:
        oracle(Item(text, text), Item(gold, gold))


_EXAMPLES = (
    (r"\frac{1}{2}x^2+\sin x-3", r"-3+x^{2}/2+\sin(x)"),
    (r"2\sqrt{5}", r"\sqrt{20}"),
    (r"\frac{-b+\sqrt{3}}{2a}", r"(\sqrt{3}-b)/(2a)"),
    (r"e^{-x}\ln 2", r"\frac{\ln(2)}{e^{x}}"),
    (r"2^{n+1}(n-1)!", r"\binom{5}{2}"),
    (r"(1,x]", "x>1"),
    (r"(-\infty,1]\cup[2,5)", r"[3,\infty)"),
    (r"|x|\le 2", r"-2\le x\le 2"),
    (r"y=2x+1", r"x^2+y^2=4"),
    (r"(1,\sqrt{2},\pi)", r"\{1,2\}"),
    (r"\frac{3\pi}{4}+2i", r"1.5\pi-i"),
)
