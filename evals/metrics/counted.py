"""Samples as counts, which are all that Pass@k and UCC@k need: counted now, or kept from an earlier time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from evals.benchmarks.catalogue import Kind, kind_of
from evals.files.own_code import is_own
from evals.metrics.beside import wrong_votes
from evals.metrics.counting import FAST, Backend, Counts, by_benchmark, count_clusters, hash_of
from evals.metrics.kept import Kept, KeptClusters, KeptProblems, Shelf, runs_of, shelf_of, sizes_of
from evals.results.document import GraderInfo
from evals.samples.graded import Asked, Graded, grade_planned, plan_reading
from evals.samples.types import GradedProblem, Samples
from evals.similarity.catalogue import has_vendi_score
from evals.similarity.setting import Setting


class Counted:
    """Problems as counts. The samples are read only when something is asked for that is not known yet.

    ``files`` are those that hold the samples, ``warnings`` are about them, ``grader`` is who graded them, and ``kinds``
    say of each benchmark how its answers are judged.
    """

    files: Sequence[Path]
    warnings: Sequence[str]
    grader: GraderInfo
    problems: list[Counts]
    kinds: dict[str, Kind]

    def __init__(self, read: Callable[[], Graded], shelf: Shelf | None = None) -> None:
        self._read = read
        self._shelf = shelf
        self._clusters: dict[tuple[str, Setting], list[Counts]] = {}
        self._has_news = False
        kept = shelf.read() if shelf is not None else None
        # Kept counts of a benchmark that is graded in another way by now are those of other solutions.
        if kept is None or any(one.kind != (one.recorded or kind_of(one.benchmark)) for one in kept.problems):
            self.files, self.warnings, self.grader = self._samples.files, self._samples.warnings, self._graded.grader
            self.problems = [
                Counts(
                    one.benchmark, one.id, one.n, one.correct, reference=hash_of(one.answer), prompt=hash_of(one.prompt)
                )
                for one in self._problems
            ]
            self.kinds = {one.benchmark: one.kind for one in self._problems}
            self._recorded = {one.benchmark: one.recorded for one in self._problems}
            self._has_news = True
        else:
            assert shelf is not None  # where it was kept
            self.files = [shelf.reading.files[place] for place in kept.files]
            self.warnings = kept.warnings
            self.grader = kept.grader
            self.problems = [problem for one in kept.problems for problem in _problems_of(one)]
            self.kinds = {one.benchmark: one.kind for one in kept.problems}
            self._recorded = {one.benchmark: one.recorded for one in kept.problems}
            self._clusters.update(found for one in kept.problems for found in _clusters_of(one))

    @classmethod
    def of(cls, samples: Samples | Counted) -> Counted:
        """The counts of ``samples``; raises DataError if one has no grade."""
        if isinstance(samples, Counted):
            return samples
        graded = Graded(samples, GraderInfo())
        return cls(lambda: graded)

    @cached_property
    def _graded(self) -> Graded:
        return self._read()

    @property
    def _samples(self) -> Samples:
        return self._graded.samples

    @cached_property
    def _problems(self) -> list[GradedProblem]:
        return self._samples.graded()

    def with_texts(self) -> dict[tuple[str, str], GradedProblem]:
        """By benchmark and id the problems with their texts, for which the samples are read."""
        return {(problem.benchmark, problem.id): problem for problem in self._problems}

    def with_votes(self) -> list[Counts]:
        """The problems with the votes for wrong answers; raises UsageError as `wrong_votes`."""
        if any(problem.wrong is None for problem in self.problems):
            pairs = zip(self._samples.problems(), self._problems, strict=True)
            votes = [wrong_votes(*pair) for pair in pairs]
            self.problems = [one._replace(wrong=wrong) for one, wrong in zip(self.problems, votes, strict=True)]
            self._has_news = True
        return self.problems

    def with_clusters(
        self,
        settings_of: Mapping[str, Sequence[Setting]],
        *,
        jobs: int | None = 1,
        on_progress: Callable[[int, int], None] | None = None,
        with_vendi: bool = False,
        backend: Backend = FAST,
    ) -> dict[Setting, list[Counts]]:
        """The problems with their clusters by setting, as `count_clusters` counts them.

        `FAST` counts are kept, but for those by a similarity of the user's own.
        """
        known = self._clusters if backend is FAST else {}

        def is_missing(name: str, setting: Setting) -> bool:
            needs_vendi = with_vendi and has_vendi_score(setting.similarity)
            return (name, setting) not in known or (needs_vendi and known[name, setting][0].vendi is None)

        missing_of = {
            name: [one for one in settings if is_missing(name, one)] for name, settings in settings_of.items()
        }
        if any(missing_of.values()):
            problems = [problem for problem in self._problems if missing_of[problem.benchmark]]
            counts = count_clusters(
                problems, missing_of, jobs=jobs, on_progress=on_progress, with_vendi=with_vendi, backend=backend
            )
            for setting, found in counts.items():
                known.update(((name, setting), group) for name, group in by_benchmark(found).items())
            self._has_news |= backend is FAST and any(not is_own(setting.similarity) for setting in counts)
        clusters: dict[Setting, list[Counts]] = {}
        for name, settings in settings_of.items():
            for setting in settings:
                clusters.setdefault(setting, []).extend(known[name, setting])
        return clusters

    def keep(self) -> None:
        """Keeps beside the files what was counted, if that is worth a file and would come out the same again."""
        if self._shelf is None or not self._has_news:
            return
        if "_graded" in self.__dict__ and not self._graded.is_lasting:
            return
        places = [place for place, file in enumerate(self._shelf.reading.files) if file in self.files]
        names = list(map(str, self._shelf.reading.files))
        problems = [
            _kept_problems(group, self._clusters, self.kinds[name], self._recorded[name])
            for name, group in by_benchmark(self.problems).items()
        ]
        self._shelf.write(
            Kept(
                key=dict(self._shelf.key),
                names=names,
                files=places,
                grader=self.grader,
                warnings=list(self.warnings),
                problems=problems,
            )
        )


def count_samples(
    paths: Sequence[Path],
    *,
    benchmarks: Sequence[str] | None = None,
    asked: Asked | None = None,
    jobs: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Counted:
    """`read_graded` as counts. Those of large files are looked up where `Counted.keep` left them, unless graded again.

    Raises:
        UsageError, DataError: as `read_graded`.
    """
    asked = asked or Asked()
    plan = plan_reading(paths, asked)
    shelf = None if asked.regrade else shelf_of(plan, benchmarks, {**asked.given(), "first": str(asked.first)})
    return Counted(
        lambda: grade_planned(plan, benchmarks=benchmarks, asked=asked, jobs=jobs, on_progress=on_progress), shelf
    )


def _problems_of(kept: KeptProblems) -> list[Counts]:
    votes = kept.wrong if kept.wrong is not None else [None] * len(kept.id)
    columns = zip(kept.id, kept.n, kept.correct, votes, kept.reference, kept.prompt, strict=True)
    return [
        Counts(
            *(kept.benchmark, id, n, correct),
            wrong=None if wrong is None else tuple(wrong),
            reference=reference,
            prompt=prompt,
        )
        for id, n, correct, wrong, reference, prompt in columns
    ]


def _clusters_of(kept: KeptProblems) -> list[tuple[tuple[str, Setting], list[Counts]]]:
    nothing = [None] * len(kept.id)
    found = []
    for one in kept.clusters:
        shares, vendis = one.found_share or nothing, one.vendi or nothing
        counts = [
            Counts(kept.benchmark, id, n, correct, sizes_of(runs), share, vendi=vendi)
            for id, n, correct, runs, share, vendi in zip(
                kept.id, kept.n, kept.correct, one.sizes, shares, vendis, strict=True
            )
        ]
        found.append(((kept.benchmark, Setting(*one.setting)), counts))
    return found


def _kept_problems(
    problems: Sequence[Counts],
    clusters: Mapping[tuple[str, Setting], Sequence[Counts]],
    kind: Kind,
    recorded: Kind | None,
) -> KeptProblems:
    name = problems[0].benchmark
    wrong = [list(problem.wrong) for problem in problems if problem.wrong is not None]
    return KeptProblems(
        benchmark=name,
        kind=kind,
        recorded=recorded,
        id=[problem.id for problem in problems],
        n=[problem.n for problem in problems],
        correct=[problem.correct for problem in problems],
        reference=[problem.reference for problem in problems],
        prompt=[problem.prompt for problem in problems],
        wrong=wrong if len(wrong) == len(problems) else None,
        clusters=[
            _kept_clusters(setting, found)
            for (place, setting), found in clusters.items()
            # A similarity of the user's own may change with whatever its function reads.
            if place == name and not is_own(setting.similarity)
        ],
    )


def _kept_clusters(setting: Setting, counts: Sequence[Counts]) -> KeptClusters:
    vendi = [one.vendi for one in counts if one.vendi is not None]
    shares = [one.found_share for one in counts if one.found_share is not None]
    return KeptClusters(
        setting=setting,
        sizes=[runs_of(one.sizes or ()) for one in counts],
        vendi=vendi if len(vendi) == len(counts) else None,
        found_share=shares if len(shares) == len(counts) else None,
    )
