"""The data of a report: runs with their metrics and configurations, and what their samples hold.

Of a samples file that is each problem's counts, largest clusters and commonest wrong answers. Completions are model
output, so they are cut to a length, and control and direction characters are spelled out. `evals.report.document` turns
a report into plain JSON values, and those into a page.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from evals.files.frames import grouped
from evals.metrics.counting import BY_DEFAULT, Counts, count_clusters
from evals.metrics.passk_ucc import least_correct, passk_estimates, rows_of, ucc_estimates
from evals.metrics.studies.clusters import texts_by_cluster
from evals.metrics.valid import CHECKERS, checked
from evals.report.answers import Json, answers_of
from evals.results.document import VALID, Row
from evals.results.training_metrics import Rows
from evals.samples.types import GradedProblem, Problem, Samples
from evals.similarity import Setting
from evals.text import visible

BASE_CELL = "base"
LONGEST_ANSWER = 600


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
    dotted keys, both as text; ``delta`` is its KL radius in nats, if its method has one. ``folder`` is where it lies.
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
    folder: str = ""


@dataclass(frozen=True)
class Report:
    """``notes`` stand on the page: what could not be read, and why."""

    title: str
    sources: Sequence[str]
    runs: Sequence[ReportRun]
    notes: Sequence[str] = ()


class ProblemView(NamedTuple):
    """One problem in one samples file; ``answers`` are those of `answers_of`, None where only counts are known.

    ``valid`` are the counts without false derivations, where a checker that runs no programs is built in.
    """

    counts: Counts
    answers: Json | None = None
    valid: Counts | None = None


@dataclass(frozen=True)
class BenchmarkView:
    """All problems of one benchmark that one run was sampled on; ``setting`` says what counts as the same answer.

    ``source`` names the samples to the server of `quatro view`; a page that is a file has nobody to ask.
    """

    benchmark: str
    setting: Setting
    problems: Sequence[ProblemView]
    source: str = ""

    @property
    def false_text(self) -> str:
        """How many right answers have a false derivation, in words; empty where no checker was asked."""
        pairs = [(one.counts.correct, one.valid.correct) for one in self.problems if one.valid]
        right, valid = map(sum, zip(*pairs, strict=True)) if pairs else (0, 0)
        return f"{self.benchmark}: {right - valid} of {right} right answers have a false derivation" * bool(pairs)


def view_samples(samples: Samples, *, num_answers: int = 3) -> list[BenchmarkView]:
    """Every benchmark in ``samples`` under its default clustering, ``num_answers`` clusters and wrong answers each.

    Raises DataError if a sample has no grade.
    """
    views, pairs = list[BenchmarkView](), zip(samples.problems(), samples.graded(), strict=True)
    for benchmark, some in grouped(pairs, lambda pair: pair[0].benchmark).items():
        setting = BY_DEFAULT.settings(benchmark, some[0][1].kind)[0]
        views.append(BenchmarkView(benchmark, setting, [view_problem(*one, setting, num_answers) for one in some]))
    return views


def view_problem(problem: Problem, graded: GradedProblem, setting: Setting, num_answers: int) -> ProblemView:
    """One problem, with ``num_answers`` clusters and wrong answers."""
    shown = {"clusters": num_answers, "texts": 1, "wrong": num_answers, "longest": LONGEST_ANSWER}
    answers = answers_of(problem, graded, texts_by_cluster(graded, [setting])[setting], **shown)
    valid = None
    if graded.benchmark in CHECKERS and graded.kind.grader != "code":
        kept = [one.problem for one in checked([graded], graded.benchmark)]
        (valid,) = count_clusters(kept, {graded.benchmark: [setting]})[setting]
    counts = Counts(graded.benchmark, graded.id, graded.n, graded.correct, tuple(answers["sizes"]))
    return ProblemView(counts, answers, valid)


def result_rows(views: Sequence[BenchmarkView]) -> list[Row]:
    """Pass@k and UCC@k of every benchmark and their averages, with 95 % intervals over problems.

    k is 1, 2, 4, ... and n itself, up to the smallest n. Of problems that are not clustered there is no UCC@k. Raises
    DataError if a benchmark is named like the average.
    """
    counts = [problem.counts for view in views for problem in view.problems]
    by_setting: dict[Setting, list[Counts]] = {}
    for view in views:
        if clustered := [problem.counts for problem in view.problems if problem.counts.sizes is not None]:
            by_setting.setdefault(view.setting, []).extend(clustered)
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
