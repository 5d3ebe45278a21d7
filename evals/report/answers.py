"""The answers to one problem as JSON values: clustered, and why two of them are one solution or two.

Completions are model output: they are cut to a length, and control and direction characters are spelled out.
"""

from collections import Counter
from itertools import takewhile
from typing import Any, NamedTuple

from evals.metrics.counting import labels_by_setting, solutions
from evals.metrics.studies.labels import text_hash
from evals.metrics.valid import CHECKERS, checker_of
from evals.samples.types import GradedProblem, Problem
from evals.similarity import SIMILARITIES, Setting, default_threshold
from evals.text import visible

LONGEST_NAME = 200
LONGEST_PROMPT = 2_000
_BEFORE, _AFTER = 60, 90  # characters around a first difference

Json = dict[str, Any]


class Text(NamedTuple):
    """Legible text; ``num_cut`` characters of the original are missing at its end."""

    text: str
    num_cut: int = 0


class Depth(NamedTuple):
    """How many of the largest clusters, texts of each of them, wrong answers, and characters of a text are shown."""

    clusters: int
    texts: int
    wrong: int
    longest: int


def capped(text: str, longest: int) -> Text:
    """``text`` with at most ``longest`` of its characters, those that cannot be seen spelled out."""
    return Text(visible(text[:longest]), max(0, len(text) - longest))


def answers_of(problem: Problem, graded: GradedProblem, setting: Setting, depth: Depth) -> Json:
    """Sizes and texts of the clusters of right answers, largest first, and wrong answers, the commonest first.

    A right text is [times, text, key, is_valid], a wrong one [times, text]. The key is for `why`; ``is_valid`` says
    whether the derivation is true: None if it is unknown, or no checker that runs no programs is built in.
    """
    unique = solutions(graded, setting.tokens)
    (labels,) = labels_by_setting(unique, [setting]).values()
    times_of: dict[int, Counter[str]] = {}
    for label, place in zip(labels, unique.which_N.tolist(), strict=True):
        times_of.setdefault(label, Counter())[unique.texts[place]] += 1
    clusters = sorted(times_of.values(), key=lambda times: -times.total())
    shown = [times.most_common(depth.texts) for times in clusters[: depth.clusters]]
    valid: dict[str, bool | None] = {}
    if graded.benchmark in CHECKERS and graded.kind.grader != "code":
        texts = [text for some in shown for text, _ in some]
        valid = dict(zip(texts, checker_of(graded.benchmark)([graded._replace(completions=texts)])[0], strict=True))
    wrong = Counter(row.completion for row in problem.samples) - Counter(graded.completions)
    return {
        "prompt": None if graded.prompt is None else capped(graded.prompt, LONGEST_PROMPT),
        "answer": capped("" if graded.answer is None else str(graded.answer), LONGEST_NAME),
        "sizes": [times.total() for times in clusters],
        "clusters": [
            {
                "size": times.total(),
                "distinct": len(times),
                "texts": [[n, capped(text, depth.longest), _key(text), valid.get(text)] for text, n in some],
            }
            for times, some in zip(clusters, shown, strict=False)
        ],
        "wrong": [[n, capped(text, depth.longest)] for text, n in wrong.most_common(depth.wrong)],
        "distinct_wrong": len(wrong),
        "truncated": sum(row.finish_reason == "length" for row in problem.samples),
    }


def why(graded: GradedProblem, a: str, b: str, setting: Setting) -> Json:
    """The similarity of the right answers with the keys ``a`` and ``b`` by every measure, and where they part.

    `together` says whether they are in one cluster under ``setting``, perhaps through others. Raises KeyError for a key
    that no right answer has.
    """
    unique = solutions(graded, setting.tokens)
    place_of = {_key(text): place for place, text in enumerate(unique.texts)}
    (labels,) = labels_by_setting(unique, [setting]).values()
    label_of = dict(zip(unique.which_N.tolist(), labels, strict=True))
    places = [place_of[a], place_of[b]]
    pair = [unique.texts[place] for place in places]
    measures = []
    for name, measure in SIMILARITIES.items():
        # TF-IDF weighs words by all texts; the others look at two alone.
        among, at = (unique.texts, tuple(places)) if name == "tfidf" else (pair, (0, 1))
        measures.append([name, float(measure(among, tokens=setting.tokens)[at]), default_threshold(name)])
    shared = sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(*pair, strict=False)))
    return {
        "together": label_of[places[0]] == label_of[places[1]],
        "setting": setting.words("≥"),
        "measures": measures,
        "shared": visible(pair[0][max(0, shared - _BEFORE) : shared]),
        "parts": [capped(text[shared:], _AFTER).text for text in pair],
    }


def _key(text: str) -> str:
    return text_hash(text)[:16]
