"""The rules that label programs, and the page that is made of what they found."""

from experiments.pages import DOCS
from experiments.which_similarity import page
from experiments.which_similarity.study import CODE, trace, tree

HEAD = 'def f(xs):\n    """sort, add 3 to each, drop the first"""\n'
ONE = f"{HEAD}    return [x + 3 for x in sorted(xs)][1:]"


def test_a_syntax_tree_knows_no_layout_and_no_order_of_operands():
    assert tree(ONE) == tree(f"{HEAD}    return ([3 + x for x in (sorted(xs))])[1:]")
    assert tree("def f(n):\n    n += 3\n    return n") == tree("def f(n):\n    n = 3 + n\n    return n")
    assert tree("def f(n):\n    return n - 3") != tree("def f(n):\n    return 3 - n")
    assert tree(ONE) != tree(f"{HEAD}    xs.sort()\n    return [x + 3 for x in xs][1:]")


def test_a_trace_is_what_is_computed_whatever_the_statements():
    assert trace(ONE) == trace(f"{HEAD}    xs.sort()\n    xs = [3 + x for x in xs]\n    del xs[:1]\n    return xs")
    assert trace(ONE) != trace(f"{HEAD}    return sorted([x + 3 for x in xs])[1:]")
    assert trace(ONE)[1] == ("[2, 9]", "[5, 12]", "[12]")
    assert trace("def f(n):\n    return max(n, 9)") == trace("def f(n):\n    return n if n > 9 else 9")


def test_the_page_is_made_of_the_committed_results():
    text = (DOCS / "which-similarity.md").read_text(encoding="utf-8")
    assert page.page(text) == text
    assert CODE.stat().st_size < 20_000
