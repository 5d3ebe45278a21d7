"""How well clusterings find the pairs of right answers that people, or a rule, have labelled: same solution or not.

A pair that was drawn with the chance p stands for 1/p pairs; labels that several people gave one pair share its weight.
Where p is that of one of D draws, any of which may give a pair again, the pair was drawn with the chance 1 - (1 - p)^D.
"""

# Axes: M pairs, P problems, B resamples, 6 sums over pairs: different and apart, same and apart, different and
# together, same and together; then the adjusted Rand index, and whether there is one.

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from evals.estimators import Floats
from evals.files.frames import grouped
from evals.files.strict_json import parse_row, read_lines, refuse, shown
from evals.metrics.counting import Clustering, labels_by_setting, solutions
from evals.results.document import UNKNOWN, About, Document, Result, Row
from evals.samples.about import head_of
from evals.samples.types import GradedProblem, Samples
from evals.similarity import Setting

MEASURES = ("kappa", "precision", "recall", "ari")
THRESHOLDS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98)
_Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Label(Document):
    """A line: ``who`` says whether the right answers that hash to ``a`` and ``b`` are the same solution.

    ``chance`` is that of the pair; where it came at the ``draw``-th draw, the chance in each draw.
    """

    benchmark: str
    id: str
    a: _Hash
    b: _Hash
    label: Literal["same", "different"]
    who: str
    chance: float = Field(1.0, gt=0, le=1)
    draw: int | None = Field(None, ge=1)


def text_hash(text: str) -> str:
    """The SHA-256 of a completion as UTF-8."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_labels(file: Path) -> list[Label]:
    """The labels in ``file``; raises DataError, which names the line, for one that is not of this form, or no line."""
    found = [(parse_row(line, f"{file}:{at}"), Path(f"{file}:{at}")) for at, line, _ in read_lines(file)]
    return [Label.read_from(row or {}, where) for row, where in found] or refuse(str(file), "it holds no label")


def over_all_draws(labels: Sequence[Label]) -> list[Label]:
    """``labels`` with the chances that their pairs came in any of the draws."""
    most = {name: max(one.draw or 0 for one in own) for name, own in grouped(labels, lambda x: x.benchmark).items()}
    chances = [1 - (1 - one.chance) ** most[one.benchmark] if one.draw else one.chance for one in labels]
    return [one.model_copy(update={"chance": chance}) for one, chance in zip(labels, chances, strict=True)]


def agreement_result(
    samples: Samples,
    labels: Sequence[Label],
    clusterings: Sequence[Clustering],
    *,
    seed: int = 0,
    about: About = UNKNOWN,
) -> Result:
    """A row for each setting: Cohen's kappa of "together" and "same"; the other `MEASURES` are keys of it, with ends.

    The adjusted Rand index is a mean over the problems whose pairs are all labelled, without contradiction. Intervals
    are by a bootstrap over problems with ``seed``. ``is_favoured`` marks the threshold with the highest kappa.

    Raises DataError if a label names a text that is no right answer to its problem, and as `Clustering.settings`.
    """
    labels_of = grouped(over_all_draws(labels), lambda one: (one.benchmark, one.id))
    problems = [one for one in samples.graded() if (one.benchmark, one.id) in labels_of]
    known = {(one.benchmark, one.id, text_hash(text)) for one in problems for text in one.completions}
    for one in labels:
        if one.a == one.b or not {(one.benchmark, one.id, one.a), (one.benchmark, one.id, one.b)} <= known:
            refuse(shown(one.id), f"{one.a} and {one.b} are labelled, but are not two of its right answers here")
    names = list(dict.fromkeys(one.benchmark for one in problems))
    settings = [each for one in clusterings for each in one.settings(names[0], problems[0].kind)]
    sums: dict[Setting, list[Floats]] = {one: [] for one in {str(one): one for one in settings}.values()}
    for problem in problems:
        for setting, numbers in _sums(problem, labels_of[problem.benchmark, problem.id], list(sums)):
            sums[setting].append(numbers)
    head: dict[str, Any] = {"metric": MEASURES[0], "benchmark": ", ".join(names), "k": None, "n": problems[0].n}
    head |= {"num_problems": len(problems), "num_pairs": len(labels)}
    times_BP = np.random.default_rng(seed).multinomial(len(problems), np.full(len(problems), 1 / len(problems)), 2000)
    rows: dict[Setting, Row] = {}
    for setting, some in sums.items():
        values = _measures(np.array(some).sum(axis=0))
        # Resamples without the pairs that a measure is of have no value of it.
        drawn = np.where(np.isnan(values), 0.0, _measures((times_BP @ np.array(some)).astype(np.float64)))
        with_ends = np.transpose([values, *np.nanpercentile(drawn, (2.5, 97.5), axis=0)]).tolist()
        kappa, *others = [None if np.isnan(ends[0]) else ends for ends in with_ends]
        of_kappa: dict[str, Any] = dict(zip(("value", "ci_low", "ci_high"), kappa or [0.0], strict=False))
        rows[setting] = Row(**head, **of_kappa, **setting._asdict())
        rows[setting] = rows[setting].model_copy(update=dict(zip(MEASURES[1:], others, strict=True)))
    for group in grouped(rows, lambda one: one._replace(threshold=None)).values():
        best = max(group, key=lambda one: rows[one].value)
        rows[best] = rows[best].model_copy(update={"is_favoured": True})
    return Result(metric=MEASURES[0], rows=list(rows.values()), **head_of(about, problems))


def _sums(problem: GradedProblem, labels: Sequence[Label], settings: Sequence[Setting]) -> Iterator[Any]:
    """Each setting with the 6 sums of the problem."""
    from sklearn.metrics import adjusted_rand_score

    hashes = [text_hash(text) for text in problem.completions]
    pairs = [tuple(sorted((one.a, one.b))) for one in labels]
    times = Counter(pairs)
    i_M, j_M = np.array([[hashes.index(one) for one in pair] for pair in pairs]).T
    weight_M = [1 / one.chance / times[pair] for one, pair in zip(labels, pairs, strict=True)]
    is_same_M = np.array([one.label == "same" for one in labels])
    group = {one: one for one in hashes}  # the smallest hash that is the same
    for (a, b), is_same in sorted(zip(pairs, is_same_M, strict=True)):
        group[b] = min(group[b], group[a]) if is_same else group[b]
    is_whole = len(times) == len(group) * (len(group) - 1) // 2
    is_whole &= all((group[a] == group[b]) == is_same for (a, b), is_same in zip(pairs, is_same_M, strict=True))
    for tokens, some in grouped(settings, lambda one: one.tokens).items():
        for setting, found in labels_by_setting(solutions(problem, tokens), some).items():
            is_together_M = np.array(found)[i_M] == np.array(found)[j_M]
            rand = adjusted_rand_score([group[one] for one in hashes], found) if is_whole else 0.0
            yield setting, np.append(np.bincount(2 * is_together_M + is_same_M, weight_M, 4), [rand, is_whole])


def _measures(sums: Floats) -> Floats:
    """`MEASURES` from sums over problems, shape (..., 6); NaN for 0 / 0."""
    neither, apart, together, both, rand, num_whole = np.moveaxis(sums, -1, 0)
    total = neither + apart + together + both
    chance = ((together + both) * (apart + both) + (neither + apart) * (neither + together)) / total**2
    with np.errstate(invalid="ignore", divide="ignore"):
        kappa = ((neither + both) / total - chance) / (1 - chance)
        return np.stack([kappa, both / (together + both), both / (apart + both), rand / num_whole], -1)
