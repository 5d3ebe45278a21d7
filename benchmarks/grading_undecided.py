r"""How many right answers computer algebra leaves undecided: references of benchmarks against rewritings of themselves.

Each reference is read as a formula and written anew: expanded, factored, over one denominator, in partial fractions,
with rational denominators, with its terms in another order, its roots as powers, its fractions as \dfrac, as quotients
with a slash or as decimals, its equations multiplied or turned around. Only pairs that need computer algebra count:
what the earlier stages decide is not asked for.

    python benchmarks/grading_undecided.py $QUATRO_DATA/*.jsonl
    python benchmarks/grading_undecided.py --show 20 math500.jsonl      # and some that were not accepted
"""

from __future__ import annotations

import argparse
import json
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sympy
from sympy.core.relational import Relational

from evals.grading import close_workers, grade_many
from evals.grading.compare import compare
from evals.grading.guard import refusal
from evals.grading.identifiers import Names, is_words, rewrite
from evals.grading.normal_form import Group, Item, parse_answer
from evals.grading.symbolic import _parse
from evals.grading.typography import clean

LIMIT_S = 5.0
# A derivative is one identifier to the grader, and cannot be written anew from what it is read as.
DERIVATIVE = re.compile(r"\\frac\s*\{\s*d")
FORMS: dict[str, Callable[[Any], Any]] = {
    "as read": lambda formula: formula,
    "expanded": sympy.expand,
    "factored": sympy.factor,
    "over one denominator": sympy.together,
    "partial fractions": lambda formula: sympy.apart(formula) if len(formula.free_symbols) == 1 else formula,
    "rational denominator": sympy.radsimp,
    "cancelled": sympy.cancel,
    "double angles": lambda formula: sympy.expand_trig(formula) if formula.has(sympy.cos, sympy.sin) else formula,
    "simplified": sympy.simplify,
    "logarithms apart": sympy.expand_log,
    "doubled fraction": lambda formula: formula,
}
SPELLINGS: dict[str, dict[str, Any]] = {
    "latex": {"ln_notation": True, "inv_trig_style": "full"},
    "reversed": {"order": "rev-lex"},
    "powers": {"root_notation": False, "mul_symbol": "dot"},
    "slashes": {"fold_short_frac": True, "fold_frac_powers": True},
}


class _TooLongError(Exception):
    pass


def _interrupt(*_: Any) -> None:
    raise _TooLongError


def rewritings(gold: str) -> Iterator[tuple[str, str]]:
    """``(kind, text)`` of every other way to write ``gold`` that comes out different."""
    item = parse_answer(gold)[0]
    seen = {gold}
    for form in FORMS:
        for spelling in SPELLINGS:
            try:
                signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
                text = _rewritten(item, form, spelling)
            except RecursionError:
                continue
            except (Exception, _TooLongError):  # what sympy cannot read or rewrite is no test case
                continue
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            for kind, other in ((spelling, text), ("dfrac", text.replace("\\frac", "\\dfrac"))):
                if other not in seen:
                    seen.add(other)
                    yield f"{form}, {kind}", other


def _rewritten(item: Item, form: str, spelling: str) -> str:
    value = item.value
    name = f"{item.name}=" if item.name else ""
    if isinstance(value, Group):
        parts = [_rewritten(part, form, spelling) for part in value.items]
        if value.kind == "matrix":
            widths = [int(width) for width in value.brackets.split(",")]
            rows = [" & ".join(parts[sum(widths[:at]) : sum(widths[: at + 1])]) for at in range(len(widths))]
            return name + "\\begin{pmatrix} " + " \\\\ ".join(rows) + " \\end{pmatrix}"
        if value.kind == "union":
            return name + " \\cup ".join(parts)
        opening, closing = value.brackets or ("", "")
        return name + f"{opening}{', '.join(parts)}{closing}"
    if not isinstance(value, str) or is_words(value) or item.is_prose:
        return name + item.text
    names = Names()
    formula = _parse(rewrite(item.text, names)).doit()
    spelled = {sympy.Symbol(_plain(symbol), real=True): text for text, symbol in names._symbols.items()}
    return name + _written(formula, form, {"symbol_names": spelled, **SPELLINGS["latex"], **SPELLINGS[spelling]})


def _plain(symbol: str) -> str:
    return symbol.replace("{", "").replace("}", "")


def _written(formula: Any, form: str, options: dict[str, Any]) -> str:
    if isinstance(formula, Relational):
        left, right = (FORMS[form](2 * side) for side in formula.args)
        return str(sympy.latex(formula.reversed.func(right, left, evaluate=False), **options))
    if form == "doubled fraction" and isinstance(formula, sympy.Expr) and not formula.is_infinite:
        both = (sympy.expand(2 * part) for part in sympy.fraction(sympy.together(formula)))
        return "\\frac{{{}}}{{{}}}".format(*(sympy.latex(part, **options) for part in both))
    return str(sympy.latex(FORMS[form](formula), **options))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="benchmarks, a row {answer, ...} a line")
    parser.add_argument("--show", type=int, default=0, help="print so many pairs that were not accepted")
    options = parser.parse_args()
    signal.signal(signal.SIGPROF, _interrupt)
    lines = [line for file in options.files for line in file.read_text(encoding="utf-8").split("\n") if line]
    golds = sorted({str(row["answer"]) for row in map(json.loads, lines) if row.get("answer")})
    pairs = [
        (kind, text, gold)
        for gold in golds
        if not refusal(clean(gold)) and not DERIVATIVE.search(gold)
        for kind, text in rewritings(gold)
        if compare(text, gold).is_equal is None and not refusal(clean(text))
    ]
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    grades = grade_many((f"\\boxed{{{text}}}", gold) for _, text, gold in pairs)
    close_workers()
    graded = [(found, pair) for found, pair in zip(grades, pairs, strict=True)]
    undecided = [pair for found, pair in graded if found.detail.startswith("undecided") or found.outcome == "timeout"]
    refused = [(found, pair) for found, pair in graded if not found.correct]
    print(f"{len(golds):,} references, {len({gold for _, _, gold in pairs}):,} of them need computer algebra")
    print(
        f"{len(pairs):,} rewritings: " + ", ".join(f"{k} {n:,}" for k, n in Counter(g.outcome for g in grades).items())
    )
    print(f"undecided {len(undecided)} ({len(undecided) / max(1, len(pairs)):.2%})")
    print(f"not accepted {len(refused)} ({len(refused) / max(1, len(pairs)):.2%})")
    for found, (kind, text, gold) in refused[:: max(1, len(refused) // max(1, options.show))][: options.show]:
        print(f"  {found.outcome} {found.stage} {found.detail[:9]} | {kind} | {text} | {gold}")


if __name__ == "__main__":
    main()
