"""The answers to one problem as JSON values: clustered, and why two of them are one solution or two.

Completions are model output: they are cut to a length, and control and direction characters are spelled out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from threading import Lock, Thread
from typing import Any, NamedTuple

from evals.clustering import cluster_distinct
from evals.metrics.counting import labels_by_setting, solutions
from evals.metrics.studies.clusters import times_in
from evals.metrics.studies.labels import text_hash
from evals.metrics.valid import CHECKERS, checker_of
from evals.samples.graded import graded_problem
from evals.samples.types import GradedProblem, Problem
from evals.similarity import SIMILARITIES, Setting
from evals.similarity.measures import Floats, similarity_of_distinct
from evals.text import visible
from evals.worker_pool import usable_cores

LONGEST_NAME = 200
LONGEST_PROMPT = 2_000
MOST_CHARACTERS = 500_000  # of different right answers: some seconds of one core
SEARCHED = 0.5  # a threshold from which a search for neighbours is faster than all edit distances
_BEFORE, _AFTER = 60, 90  # characters around a first difference

Json = dict[str, Any]


class Text(NamedTuple):
    """Legible text; ``num_cut`` characters of the original are missing at its end."""

    text: str
    num_cut: int = 0


def capped(text: str, longest: int) -> Text:
    """``text`` with at most ``longest`` of its characters, those that cannot be seen spelled out."""
    return Text(visible(text[:longest]), max(0, len(text) - longest))


class Opened:
    """A problem that a reader has opened. Edit distances, the slowest measure, are found once and kept."""

    def __init__(self, problem: Problem, tokens: str) -> None:
        self.problem, self.graded = problem, graded_problem(problem)
        self._unique = replace(solutions(self.graded, tokens), num_threads=usable_cores())
        self._edit_UU: Floats | None = None
        self._lock = Lock()

    def clusters(self, setting: Setting) -> list[Counter[str]]:
        """How often each right answer occurs in each cluster, the largest first."""
        name, threshold, linkage, _ = setting
        is_searched = linkage == "components" and (threshold or 1) >= SEARCHED and self._edit_UU is None
        if name != "edit" or is_searched:
            return times_in(self._unique, labels_by_setting(self._unique, [setting])[setting])
        how: dict[str, Any] = {"threshold": threshold, "linkage": linkage}
        return times_in(self._unique, cluster_distinct(self._unique, self._edits(), **how))

    def why(self, a: str, b: str, setting: Setting) -> Json:
        """The similarity of the right answers with the keys ``a`` and ``b`` by every measure, and where they part.

        ``together`` says whether they are in one cluster under ``setting``, and ``is_chained`` whether only through
        others. Raises ValueError for a key that no right answer has.
        """
        texts = self._unique.texts
        i, j = ([key_of(text) for text in texts].index(key) for key in (a, b))
        pair = [texts[i], texts[j]]
        # TF-IDF weighs words by all answers; the others look at two alone.
        tfidf_UU = similarity_of_distinct("tfidf", self._unique, tokens=setting.tokens)
        found = {
            name: float(tfidf_UU[i, j] if name == "tfidf" else measure(pair, tokens=setting.tokens)[0, 1])
            for name, measure in SIMILARITIES.items()
        }
        cuts = {name: one.threshold for name, one in SIMILARITIES.items()} | {setting.similarity: setting.threshold}
        together = any(set(pair) <= set(times) for times in self.clusters(setting))
        shared = sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(*pair, strict=False)))
        return {
            "together": together,
            "is_chained": together and found[setting.similarity] < (setting.threshold or 0),
            "setting": setting.words("≥"),
            "measures": [[name, value, cuts[name]] for name, value in found.items()],
            "shared": visible(pair[0][max(0, shared - _BEFORE) : shared]),
            "parts": [capped(text[shared:], _AFTER).text for text in pair],
        }

    def expect_more(self) -> None:
        """Finds the edit distances before the reader asks for them, unless that takes more than some seconds."""
        if sum(map(len, self._unique.texts)) <= MOST_CHARACTERS:
            Thread(target=self._edits, daemon=True).start()

    def _edits(self) -> Floats:
        with self._lock:
            if self._edit_UU is None:
                self._edit_UU = similarity_of_distinct("edit", self._unique)
            return self._edit_UU


def question_of(problem: GradedProblem) -> Json:
    """The prompt, if it is known, and the reference answer."""
    return {
        "prompt": None if problem.prompt is None else capped(problem.prompt, LONGEST_PROMPT),
        "answer": capped("" if problem.answer is None else str(problem.answer), LONGEST_NAME),
    }


def answers_of(
    problem: Problem,
    graded: GradedProblem,
    found: Sequence[Counter[str]],
    *,
    clusters: int,
    texts: int,
    wrong: int,
    longest: int,
) -> Json:
    """Sizes and texts of the clusters ``found`` of right answers, and wrong answers, the commonest first.

    A right text is [times, text, key, is_valid], a wrong one [times, text]. The key is for `why`; ``is_valid`` says
    whether the derivation is true: None if it is unknown, or no checker that runs no programs is built in. Shown are
    at most so many ``clusters``, ``texts`` of each, ``wrong`` answers, and characters of a text.
    """
    shown = [times.most_common(texts) for times in found[:clusters]]
    valid: dict[str, bool | None] = {}
    if graded.benchmark in CHECKERS and graded.kind.grader != "code":
        asked = [text for some in shown for text, _ in some]
        valid = dict(zip(asked, checker_of(graded.benchmark)([graded._replace(completions=asked)])[0], strict=True))
    others = Counter(row.completion for row in problem.samples) - Counter(graded.completions)
    return {
        **question_of(graded),
        "sizes": [times.total() for times in found],
        "clusters": [
            {
                "size": times.total(),
                "distinct": len(times),
                "texts": [[n, capped(text, longest), key_of(text), valid.get(text)] for text, n in some],
            }
            for times, some in zip(found, shown, strict=False)
        ],
        "wrong": [[n, capped(text, longest)] for text, n in others.most_common(wrong)],
        "distinct_wrong": len(others),
        "truncated": sum(row.finish_reason == "length" for row in problem.samples),
    }


def key_of(text: object) -> str:
    """A short name for the page, which says nothing of this machine."""
    return text_hash(str(text))[:16]
