"""The data of a report: runs with their metrics and configurations, and what their samples hold.

Of a samples file that is each problem's counts, largest clusters and commonest wrong answers. Completions are model
output, so they are cut to a length, and control and direction characters are spelled out. `evals.report.document` turns
a report into plain JSON values, and those into a page.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from evals.metrics.counting import BY_DEFAULT, Counts, count_clusters
from evals.metrics.passk_ucc import least_correct, passk_estimates, rows_of, ucc_estimates
from evals.metrics.studies.clusters import clusters_of
from evals.metrics.valid import CHECKERS, checked
from evals.results.document import VALID, Row
from evals.results.training_metrics import Rows
from evals.samples.types import GradedProblem, Problem, Samples
from evals.similarity import Setting
from evals.text import visible

BASE_CELL = "base"
LONGEST_ANSWER = 600
LONGEST_PROMPT = 2_000
LONGEST_NAME = 200
MOST_SIZES = 24


@dataclass(frozen=True)
class ReportSamples:
    """The samples of one run under one setting of the sampler, which ``sampling`` says in words.

    ``rows`` are Pass@k and UCC@k. ``step`` is that of the checkpoint that was sampled, as text; empty: unknown or none.
    """

    sampling: str
    tag: str
    rows: Sequence[Row]
    views: "Sequence[BenchmarkView]" = ()
    step: str = ""


@dataclass(frozen=True)
class ReportRun:
    """One run, or a base model with samples only (``config`` and ``metrics`` empty).

    Runs with the same ``group`` differ in their seed alone. ``settings`` are what its sweep varies, ``config`` its
    dotted keys, both as text; ``delta`` is its KL radius in nats, if its method has one.
    """

    name: str
    group: str
    cell: str = ""
    seed: int | None = None
    method: str = ""
    delta: float | None = None
    status: str = "unknown"
    reason: str = ""
    step: int = 0
    steps: int | None = None
    updated: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    metrics: Rows = ()
    samples: Sequence[ReportSamples] = ()


@dataclass(frozen=True)
class Report:
    """``notes`` stand on the page: what could not be read, and why."""

    title: str
    sources: Sequence[str]
    runs: Sequence[ReportRun]
    notes: Sequence[str] = ()


class Text(NamedTuple):
    """Legible text; ``num_cut`` characters of the original are missing at its end."""

    text: str
    num_cut: int = 0


class Shown(NamedTuple):
    """A cluster of ``size`` correct answers, of which ``times`` are this text, or a wrong answer with its number."""

    size: int
    num_distinct: int
    times: int
    text: Text


class ProblemView(NamedTuple):
    """One problem in one samples file. ``num_truncated`` responses ended at the token limit.

    ``valid`` are the counts without false derivations, where a checker that runs no programs is built in.
    """

    counts: Counts
    answer: Text
    prompt: Text | None
    clusters: tuple[Shown, ...]
    wrong: tuple[Shown, ...]
    num_distinct_wrong: int
    num_truncated: int
    valid: Counts | None = None


@dataclass(frozen=True)
class BenchmarkView:
    """All problems of one benchmark that one run was sampled on; ``setting`` says what counts as the same answer."""

    benchmark: str
    setting: Setting
    problems: Sequence[ProblemView]

    @property
    def false_text(self) -> str:
        """How many right answers have a false derivation, in words; empty where no checker was asked."""
        pairs = [(one.counts.correct, one.valid.correct) for one in self.problems if one.valid]
        right, valid = map(sum, zip(*pairs, strict=True)) if pairs else (0, 0)
        return f"{self.benchmark}: {right - valid} of {right} right answers have a false derivation" * bool(pairs)


def capped(text: str, longest: int) -> Text:
    """``text`` with at most ``longest`` of its characters, those that cannot be seen spelled out."""
    return Text(visible(text[:longest]), max(0, len(text) - longest))


def view_samples(samples: Samples, *, num_answers: int = 3) -> list[BenchmarkView]:
    """Every benchmark in ``samples`` under its default clustering, ``num_answers`` clusters and wrong answers each.

    Raises DataError if a sample has no grade.
    """
    views: dict[str, list[ProblemView]] = {}
    settings: dict[str, Setting] = {}
    for problem, graded in zip(samples.problems(), samples.graded(), strict=True):
        if problem.benchmark not in settings:
            settings[problem.benchmark] = BY_DEFAULT.settings(problem.benchmark, graded.kind)[0]
        seen = _problem_view(problem, graded, settings[problem.benchmark], num_answers)
        views.setdefault(problem.benchmark, []).append(seen)
    return [BenchmarkView(name, settings[name], problems) for name, problems in views.items()]


def _problem_view(problem: Problem, graded: GradedProblem, setting: Setting, num_answers: int) -> ProblemView:
    (found,) = clusters_of(graded, [setting])
    clusters = [
        Shown(one.size, one.num_distinct, one.times, capped(one.text, LONGEST_ANSWER))
        for one in found.clusters[:num_answers]
    ]
    wrong = Counter(row.completion for row in problem.samples) - Counter(graded.completions)
    prompt = next((row.prompt for row in problem.samples if row.prompt is not None), None)
    sizes = tuple(cluster.size for cluster in found.clusters)
    valid = None
    if graded.benchmark in CHECKERS and graded.kind.grader != "code":
        kept = [one.problem for one in checked([graded], graded.benchmark)]
        (valid,) = count_clusters(kept, {graded.benchmark: [setting]})[setting]
    return ProblemView(
        counts=Counts(graded.benchmark, graded.id, graded.n, graded.correct, sizes),
        valid=valid,
        answer=capped("" if graded.answer is None else str(graded.answer), LONGEST_NAME),
        prompt=None if prompt is None else capped(prompt, LONGEST_PROMPT),
        clusters=tuple(clusters),
        wrong=tuple(Shown(n, 1, n, capped(text, LONGEST_ANSWER)) for text, n in wrong.most_common(num_answers)),
        num_distinct_wrong=len(wrong),
        num_truncated=sum(row.finish_reason == "length" for row in problem.samples),
    )


def result_rows(views: Sequence[BenchmarkView]) -> list[Row]:
    """Pass@k and UCC@k of every benchmark and their averages, with 95 % intervals over problems.

    k is 1, 2, 4, ... and n itself, up to the smallest n. Raises DataError if a benchmark is named like the average.
    """
    counts = [problem.counts for view in views for problem in view.problems]
    by_setting: dict[Setting, list[Counts]] = {}
    for view in views:
        by_setting.setdefault(view.setting, []).extend(problem.counts for problem in view.problems)
    n = min(problem.n for problem in counts)
    ks = sorted({n, *(2**i for i in range(n.bit_length()) if 2**i <= n)})
    of_clusters = ucc_estimates(by_setting, ks, least_correct([counts]))
    ucc = [estimate for estimate in of_clusters if estimate.metric == "ucc@k"]
    for view in views:
        valid = [problem.valid for problem in view.problems if problem.valid]
        found = ucc_estimates({view.setting: valid}, ks, least_correct([valid]))[:1]
        ucc += [one._replace(metric=VALID + one.metric, is_averaged=False) for one in found]
    return [row for estimate in [*passk_estimates(counts, ks), *ucc] for row in rows_of(estimate, ci=True)]


def setting_text(setting: Setting | None) -> str:
    """`tfidf ≥ 0.9, components, math tokens`; empty if nothing was clustered."""
    return "" if setting is None else visible(setting.words("≥"))
