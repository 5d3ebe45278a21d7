"""Samples as counts, which are all that Pass@k, UCC@k and maj@k need."""

import multiprocessing
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from functools import partial
from itertools import islice
from multiprocessing.pool import Pool
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, Self

from evals.benchmarks.catalogue import Kind, kind_of, maker_of
from evals.clustering import check_linkage, cluster_sizes, partitions, resolve_threshold, solutions_in
from evals.errors import DataError, QuatroError, UsageError
from evals.files.own_code import is_own
from evals.files.strict_json import shown
from evals.grading import ExtractionPolicy, OnProgress, extract, same_answer
from evals.grading.decide import Policy
from evals.results.document import GraderInfo
from evals.samples.types import GradedProblem, Problem, Samples
from evals.similarity import BY_MODEL, DEFAULT, OF_CODE, PAPER, Setting
from evals.similarity.measures import Distinct, by_model, check_tokens
from evals.worker_pool import usable_cores

# Of one problem's wrong answers, the most frequent ones that others are compared with.
MOST_COMPARED = 32
_INTEGER = re.compile(r"-?[0-9]{1,18}")
# Characters of different correct answers from which processes save more than their start costs.
LEAST_SHARED = 4_000_000


class Counts(NamedTuple):
    """Of one problem: ``sizes`` are those of its clusters (None before clustering), ``wrong`` of `wrong_votes`."""

    benchmark: str
    id: str
    n: int
    correct: int
    sizes: Sequence[int] | None = None
    found_share: float | None = None
    wrong: Sequence[int] | None = None
    family: str | None = None


class Clustering(NamedTuple):
    """What counts as the same solution, as asked for: every combination of similarities and thresholds.

    ``similarities`` None means rouge-l, for code tfidf at 0.8, and exact where answers are short, as in the embedded
    benchmarks; ``thresholds`` None means each similarity's default; ``tokens`` None means math, but code for programs,
    which are then compared without comments and layout. ``as_published`` makes ``similarities`` None mean tfidf at 0.9
    where answers are not short, as in the paper's tables.
    """

    similarities: Sequence[str] | None = None
    thresholds: Sequence[float] | None = None
    linkage: str = "components"
    tokens: str | None = None
    as_published: bool = False

    def settings(self, benchmark: str, kind: Kind | None = None) -> list[Setting]:
        """Those for ``benchmark``, of its ``kind`` in the registry if that is None.

        Raises UsageError for an unknown similarity, linkage or tokens, and a threshold that its similarity cannot have.
        """
        check_linkage(self.linkage)
        kind = kind or kind_of(benchmark)
        tokens = tokens_for(kind, self.tokens)
        similarities, thresholds = self.similarities, self.thresholds or ()
        if similarities is None:
            is_code = kind.grader == "code" and not kind.has_short_answers
            of_words = PAPER.similarity if self.as_published else OF_CODE[0] if is_code else DEFAULT
            similarities = ["exact" if kind.has_short_answers else of_words]
            thresholds = thresholds or ([OF_CODE[1]] if is_code and not self.as_published else ())
        settings: list[Setting] = []
        for similarity in similarities:
            resolved = [resolve_threshold(similarity, threshold) for threshold in thresholds]
            name = by_model(similarity).name if similarity.startswith(BY_MODEL) else similarity
            for threshold in resolved or [resolve_threshold(similarity, None)]:
                settings.append(Setting(name, threshold, self.linkage, tokens))
        return list(dict.fromkeys(settings))


BY_DEFAULT = Clustering()


def tokens_for(kind: Kind, tokens: str | None) -> str:
    """The tokens asked for, or the default of benchmarks of this ``kind``; raises UsageError for unknown ones."""
    if tokens is not None:
        check_tokens(tokens)
        return tokens
    return "code" if kind.grader == "code" else "math"


def solutions(problem: GradedProblem, tokens: str) -> Distinct:
    """The distinct solutions among the correct completions of a problem; see `solutions_in` on ``tokens``."""
    texts = problem.completions
    if problem.kind.grader == "countdown":  # white space around a chain is not another solution
        texts = [text.strip() for text in texts]
    return solutions_in(texts, tokens=tokens, prompt=problem.prompt, entry_point=problem.entry_point)


def labels_by_setting(unique: Distinct, settings: Sequence[Setting]) -> dict[Setting, list[int]]:
    """The cluster of each text under each setting; the thresholds of one measure share its work."""
    labels: dict[Setting, list[int]] = {}
    for measure in dict.fromkeys(setting._replace(threshold=None) for setting in settings):
        thresholds = [one.threshold for one in settings if one._replace(threshold=None) == measure]
        found = partitions(
            unique, similarity=measure.similarity, thresholds=thresholds, linkage=measure.linkage, tokens=measure.tokens
        )
        labels.update({measure._replace(threshold=threshold): found[threshold] for threshold in thresholds})
    return {setting: labels[setting] for setting in settings}


def _cluster_counts(problem: GradedProblem, *, settings_of: Mapping[str, Sequence[Setting]]) -> dict[Setting, Counts]:
    """Cluster sizes of the correct completions under each setting."""
    counts = {}
    settings = settings_of[problem.benchmark]
    unique = solutions(problem, settings[0].tokens)
    for setting, labels in labels_by_setting(unique, settings).items():
        sizes = cluster_sizes(labels)
        is_share_known = setting.similarity == "exact" and problem.kind.grader == "countdown"
        found_share = maker_of("countdown").found_share(str(problem.answer), len(sizes)) if is_share_known else None
        head = (problem.benchmark, problem.id, problem.n, problem.correct)
        counts[setting] = Counts(*head, sizes, found_share, family=problem.family)
    return counts


def count_clusters(
    problems: Sequence[GradedProblem],
    settings_of: Mapping[str, Sequence[Setting]],
    *,
    jobs: int | None = 1,
    on_progress: OnProgress = None,
) -> dict[Setting, list[Counts]]:
    """Counts of all problems by setting; ``settings_of`` is by benchmark, ``jobs`` a number of processes.

    ``jobs`` None means one a usable core, and one alone where starting more would take longer than they save, or where
    a similarity is the user's own: its function may hold a model, which would be in every process. A model that decides
    is asked by one process. The settings of a benchmark have the same tokens. ``on_progress(done, total)`` counts
    problems.

    Raises:
        UsageError: as `own_matrix`, for a similarity of the user's own; as `Judge.missing`, before it is asked.
        QuatroError: a process ended early, as when memory runs out.
    """
    names = {setting.similarity for settings in settings_of.values() for setting in settings}
    has_own, has_model = any(map(is_own, names)), any(name.startswith(BY_MODEL) for name in names)
    num_characters = sum(len(text) for problem in problems for text in set(problem.completions))
    useful = usable_cores() if num_characters >= LEAST_SHARED and not has_own else 1
    jobs = 1 if has_model else min(jobs or useful, len(problems))
    for name in sorted(name for name in names if name.startswith("judge:")):
        by_model(name).missing(solutions(one, settings_of[one.benchmark][0].tokens).texts for one in problems)
    count = partial(_cluster_counts, settings_of=settings_of)
    counts: dict[Setting, list[Counts]] = {}
    others = set(multiprocessing.active_children())
    with ExitStack() as stack:
        counted: Iterator[dict[Setting, Counts]] = map(count, problems)
        if jobs > 1:
            # A fork would copy the samples into every worker as soon as it counts its references to them.
            # Workers of concurrent.futures would outlive a command that is killed.
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(jobs))
            counted = _counted_by(pool, set(multiprocessing.active_children()) - others, count, problems)
        for done, by_setting in enumerate(counted, start=1):
            for setting, one in by_setting.items():
                counts.setdefault(setting, []).append(one)
            if on_progress is not None:
                on_progress(done, len(problems))
    return counts


def count_each(
    sides: Sequence[Sequence[GradedProblem]], settings_of: Mapping[str, Sequence[Setting]], **how: Any
) -> list[dict[Setting, list[Counts]]]:
    """`count_clusters` of each of ``sides``: processes start once, and a judge is asked for all of them or for none."""
    counts = count_clusters([problem for side in sides for problem in side], settings_of, **how)
    left = {setting: iter(group) for setting, group in counts.items()}
    return [
        {
            setting: list(islice(group, sum(setting in settings_of[problem.benchmark] for problem in side)))
            for setting, group in left.items()
        }
        for side in sides
    ]


def _counted_by(
    pool: Pool,
    workers: Set[BaseProcess],
    count: Callable[[GradedProblem], dict[Setting, Counts]],
    problems: Sequence[GradedProblem],
) -> Iterator[dict[Setting, Counts]]:
    """``count`` of each problem by the ``workers`` of ``pool``.

    Raises QuatroError if one ended, for whose answer the pool would wait for ever.
    """
    answers = pool.imap(count, problems)
    for _ in problems:
        while True:
            try:
                yield answers.next(timeout=1.0)
                break
            except multiprocessing.TimeoutError:
                if not workers <= set(multiprocessing.active_children()):
                    raise QuatroError(
                        f"one of the {len(workers)} processes that compare answers ended early, perhaps because memory "
                        "ran out; choose fewer with --jobs"
                    ) from None


class Counted:
    """Problems as counts, from samples that ``grader`` graded; raises DataError if a sample has no grade.

    ``files`` are those that hold the samples, ``warnings`` are about them, ``kinds`` say of each benchmark how its
    answers are judged, and ``problems``, those of ``texts``, hold no clusters yet. Problems whose rows have one value
    of the key ``cluster`` are of one family; raises DataError for rows of a problem without it, or with several values.
    """

    def __init__(self, samples: Samples, grader: GraderInfo, cluster: str | None = None) -> None:
        self._samples, self.texts = samples, samples.graded()
        for at, problem in enumerate(samples.problems() if cluster else ()):
            found = {str(row.extra.get(str(cluster), "")) for row in problem.samples}
            if len(found) > 1 or found == {""}:
                raise DataError(
                    f"--cluster {cluster}: {shown(problem.id)} of {problem.benchmark} has {shown(sorted(found))} "
                    "there; expected a key with one value in all rows of a problem, which problems of a family share"
                )
            self.texts[at] = self.texts[at]._replace(family=found.pop())
        self.files, self.warnings, self.grader = samples.files, samples.warnings, grader
        self.kinds = {one.benchmark: one.kind for one in self.texts}
        self.problems = [Counts(one.benchmark, one.id, one.n, one.correct, family=one.family) for one in self.texts]

    @classmethod
    def of(cls, samples: Samples | Self, grader: GraderInfo | None = None) -> Self:
        """The counts of ``samples``, which ``grader`` graded; raises DataError if one has no grade."""
        return samples if isinstance(samples, Counted) else cls(samples, grader or GraderInfo())

    def with_votes(self) -> list[Counts]:
        """The problems with the votes for wrong answers; raises as `wrong_votes`.

        Answers are taken from completions and compared as the samples were graded.
        """
        told = self.grader.model_extra or {}
        votes = wrong_votes(
            list(zip(self._samples.problems(), self.texts, strict=True)),
            policy="simko" if self.grader.policy == "simko" else "strict",
            extraction=told.get("extraction") or "boxed",
        )
        return [one._replace(wrong=wrong) for one, wrong in zip(self.problems, votes, strict=True)]


def refuse_other_problems(counted: Sequence[Counted], names: Sequence[str]) -> None:
    """Raises DataError unless all have the same problems with as many samples of each; the first other one is named."""
    first, *others = [{(one.benchmark, one.id): one.n for one in each.problems} for each in counted]
    for name, own in zip(names[1:], others, strict=True):
        every = {**first, **own}
        if differ := [one for one in every if first.get(one) != own.get(one)]:
            benchmark, id = at = differ[0]
            n, other = (f"n = {one[at]} samples" if at in one else "no sample" for one in (first, own))
            fewer = f"--n {min(first[at], own[at])}" if at in first and at in own else "-b"
            raise DataError(
                f"{names[0]} holds {n} of {shown(id)} ({benchmark}), and {name} {other}; {len(differ)} of {len(every)} "
                f"problems differ: draw what is missing, or choose the same problems with equal n by `{fewer}`"
            )


# ---- the votes behind maj@k


def wrong_votes(
    pairs: Sequence[tuple[Problem, GradedProblem]], *, policy: Policy = "strict", extraction: ExtractionPolicy = "boxed"
) -> list[tuple[int, ...]]:
    """How many samples of each problem gave each wrong answer, most frequent first; those without one do not vote.

    Two wrong answers are one candidate if the grader, under ``policy``, calls one of them correct for the other as a
    reference. That need not be transitive: each spelling, in the order of its votes (then of its text), joins the first
    candidate to whose first spelling it is equal, of the `MOST_COMPARED` most frequent ones.

    Raises UsageError if a benchmark's answers are not mathematical, so that no two samples vote for the same one.
    """
    votes = []
    for problem, graded in pairs:
        times: dict[str, int] = {}  # of each candidate, by its first spelling
        for answer, count in _spellings(problem, graded, extraction):
            compared = islice(times, MOST_COMPARED)
            first = next((one for one in compared if _is_equal(answer, one, policy)), answer)
            times[first] = times.get(first, 0) + count
        votes.append(tuple(sorted(times.values(), reverse=True)))
    return votes


def _spellings(problem: Problem, graded: GradedProblem, extraction: ExtractionPolicy) -> list[tuple[str, int]]:
    """The wrong answers as they are written, and how many samples gave each, those with the most votes first."""
    grader = graded.kind.grader
    if grader != "math":
        raise UsageError(
            f"maj@k counts equal final answers, which {problem.benchmark} does not have (grader {shown(grader)}); "
            "leave `maj` out, or name the mathematical benchmarks with -b"
        )
    # What is not among the correct completions is wrong, whoever graded.
    wrong = Counter(sample.completion for sample in problem.samples)
    wrong.subtract(graded.completions)
    times: Counter[str] = Counter()
    for completion, count in (+wrong).items():
        if answer := extract(completion, extraction).text:
            times[answer] += count
    return sorted(times.items(), key=lambda pair: (-pair[1], pair[0]))


def _is_equal(one: str, other: str, policy: Policy) -> bool:
    if policy == "strict" and _INTEGER.fullmatch(one) and _INTEGER.fullmatch(other):
        return int(one) == int(other)  # most wrong answers are integers
    return bool(same_answer(one, other, policy=policy) or same_answer(other, one, policy=policy))
