"""The measured half of docs/real-model.md, its JSON and its picture, from the committed runs of the study."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr

from evals.clustering import cluster, cluster_sizes
from evals.estimators import Floats, pass_at_k, ucc_at_k
from evals.figures.sheet import save_figure
from evals.files.frames import grouped
from evals.intervals import Estimate, PairedDifference, mean_intervals, mean_over_seeds_and_problems
from evals.metrics.valid import shares_of_right
from experiments.real_model.study import ARMS, SEEDS, best_rate, calibrations, jobs, pass_at_1, read
from experiments.real_model.trade_off import Point, trade_off_figure
from experiments.replication.markdown import csv_text, filled, grid
from experiments.replication.results import json_text
from quatro.tasks.derivations import Derivation, derivation_of

MARK = "## What was measured\n"
K = 16
_SHOWN = ("pass@1", "pass@64", "ways@16", "ucc@16 tfidf", "ucc@16 rouge-l", "false")
TITLES = {
    "base": "base",
    "quatro-0.1": "QUATRO delta=0.1",
    "quatro-0.01": "QUATRO delta=0.01",
    "grpo": "GRPO",
    "gspo": "GSPO",
}


class Answers(dict[str, dict[Derivation, list[str]]]):
    """The right ones of ``n`` samples of each problem, by their derivation."""

    n: int

    @classmethod
    def of(cls, n: int, right: Mapping[str, Iterable[str]]) -> Answers:
        """From the ``right`` ones of ``n`` samples of each problem."""
        found = cls({id: grouped(texts, derivation_of) for id, texts in right.items()})
        found.n = n
        return found

    def pass_at(self, k: int) -> Floats:
        """Pass@k of each problem, as an array (1, P, 1)."""
        return np.array([[[pass_at_k(self.n, sum(map(len, found.values())), k)] for found in self.values()]])

    def ways_at(self, k: int) -> Floats:
        """Distinct valid strategies among k samples (UCC@k over them) of each problem, as an array (1, P, 1)."""
        ways = [[len(texts) for one, texts in found.items() if one.verdict == "valid"] for found in self.values()]
        return np.array([[[ucc_at_k(self.n, sizes, k)] for sizes in ways]])

    @property
    def false_shares(self) -> Floats:
        """The share of right answers with a false derivation as the mean of an array (1, P, 1); `shares_of_right`."""
        sizes = [[(one.verdict == "false", len(texts)) for one, texts in found.items()] for found in self.values()]
        false = [sum(size for is_false, size in some if is_false) for some in sizes]
        shares: Floats = shares_of_right(false, [sum(size for _, size in some) for some in sizes])[None, :, None]
        return shares


class Outcome(NamedTuple):
    """A number of each problem, at most ``largest``, as an array (1, P, 1); differences below ``margin`` are small."""

    title: str
    largest: float
    margin: float
    of: Callable[[Answers], Floats]


def _percent_solved(k: int, answers: Answers) -> Floats:
    solved: Floats = 100 * answers.pass_at(k)
    return solved


def _ucc(similarity: str, answers: Answers) -> Floats:
    right = [[text for texts in found.values() for text in texts] for found in answers.values()]
    sizes = [cluster_sizes(cluster(texts, similarity=similarity)) if texts else () for texts in right]
    return np.array([[[ucc_at_k(answers.n, some, K)] for some in sizes]])


OUTCOMES = {
    **{f"pass@{k}": Outcome(f"Pass@{k}, %", 100, 3, partial(_percent_solved, k)) for k in (1, 16, 64)},
    "ways@16": Outcome("valid strategies among 16", K, 0.1, lambda answers: answers.ways_at(K)),
    **{
        f"ucc@16 {one}": Outcome(f"UCC@16, {one}", K, 0.1, partial(_ucc, one))
        for one in ("tfidf", "rouge-l", "jaccard", "edit")
    },
    "false": Outcome("false derivations, %", 100, 3, lambda answers: 100 * answers.false_shares),
}


class Claim(NamedTuple):
    """``second`` has more (``sign`` -1: less) of ``outcome`` than ``first``; or not less by more than the margin."""

    text: str
    outcome: str
    first: str
    second: str
    sign: int = 1
    is_not_less: bool = False

    def verdict(self, found: PairedDifference) -> str:
        """As DESIGN.md has it."""
        low, high = sorted((self.sign * found.low, self.sign * found.high))
        margin = OUTCOMES[self.outcome].margin
        if self.is_not_less:
            return HOLDS if low > -margin else FAILS if high < -margin else OPEN
        is_one_sided = low > 0 or high < 0
        if max(-low, high) <= margin or (is_one_sided and abs(found.mean) < margin):
            return SMALL
        return OPEN if not is_one_sided else HOLDS if low > 0 else FAILS


HOLDS, FAILS = "Holds", "Does not hold"
SMALL, OPEN = "Negligible: within the margin of the design", "Undecided"
_OURS, _CLIPPED = "quatro-0.01", ("grpo", "gspo")
CLAIMS = [
    *(Claim(f"{TITLES[one]} raises Pass@1 above the base", "pass@1", "base", one) for one in ARMS),
    *(
        claim
        for one in ("quatro-0.1", *_CLIPPED)
        for claim in (
            Claim(f"{TITLES[_OURS]} keeps more valid strategies than {TITLES[one]}", "ways@16", one, _OURS),
            Claim(f"{TITLES[_OURS]}'s Pass@1 is at most 3 points below {TITLES[one]}'s", "pass@1", one, _OURS, 1, True),
        )
    ),
    *(Claim(f"{TITLES[one]} lowers Pass@64 below the base", "pass@64", "base", one, -1) for one in _CLIPPED),
    *(Claim(f"{TITLES[_OURS]} has a higher Pass@64 than {TITLES[one]}", "pass@64", one, _OURS) for one in _CLIPPED),
    *(Claim(f"{TITLES[one]} lowers the share of false derivations", "false", "base", one, -1) for one in ARMS),
]


class Arm(NamedTuple):
    """What was found of an arm: its runs, and of each outcome a table (seeds, problems, 1)."""

    runs: Sequence[Mapping[str, Any]]
    tables: Mapping[str, Floats]

    def estimate(self, name: str) -> Estimate:
        """The mean of an outcome with its interval."""
        return mean_intervals([self.tables[name]], [OUTCOMES[name].largest])[0]

    def by_seed(self, name: str) -> str:
        """The mean of an outcome for each seed."""
        return "; ".join(f"{one:.2f}" for one in self.tables[name].mean(axis=(1, 2)))


@cache
def arms() -> dict[str, Arm]:
    """All arms with results, the base first; clustered once for page, table and picture."""
    found = {}
    for arm in TITLES:
        wanted = [job for job in jobs() if job.arm == arm and (arm == "base" or job.seed in SEEDS)]
        runs = [read(job.path) for job in wanted if job.path.exists()]
        if runs:
            answers = [_answers(run["samples"]) for run in runs]
            tables = {name: np.concatenate([one.of(each) for each in answers]) for name, one in OUTCOMES.items()}
            found[arm] = Arm(runs, tables)
    return found


def _answers(samples: Mapping[str, Sequence[tuple[str, bool]]]) -> Answers:
    right = {id: [text for text, is_right in rows if is_right] for id, rows in samples.items()}
    return Answers.of(len(next(iter(samples.values()))), right)


def difference(measured: Mapping[str, Arm], first: str, second: str, name: str) -> PairedDifference:
    """second - first, seed by seed on the same problems (the base beside each), by Student's t as in the design."""
    a, b = measured[first].tables[name], measured[second].tables[name]
    a = np.repeat(a, len(b), axis=0) if first == "base" else a
    found = mean_over_seeds_and_problems((b - a)[:, :, 0])
    p = 2 * float(stdtr(found.freedom, -abs(found.mean) / found.error)) if found.error else float(found.mean == 0)
    return PairedDifference(found.mean, found.low or 0.0, found.high or 0.0, p, found.over)


def by_length(arm: Arm, parts: int = 4) -> list[tuple[str, float, float]]:
    """Of each quarter of the last responses by length: tokens, root mean square of log s, effective share of them."""
    rows = np.array([row for run in arm.runs for row in run["log_ratios"]])
    found = []
    for part in np.array_split(rows[np.argsort(rows[:, 0], kind="stable")], parts):
        ratio = np.exp(part[:, 1])
        effective = ratio.sum() ** 2 / (ratio**2).sum() / len(ratio)
        found.append(
            (f"{part[0, 0]:.0f}-{part[-1, 0]:.0f}", float(np.sqrt((part[:, 1] ** 2).mean())), float(effective))
        )
    return found


def page(before: str) -> str:
    """``before``, the page as it is, with what was measured in place of all that follows `MARK`."""
    measured = arms()
    by_arm = grouped(calibrations(), lambda job: job.arm).items()
    rates = "; ".join(
        f"{TITLES[arm]} {' and '.join(f'{100 * pass_at_1(read(job.path)):.1f} ({job.rate})' for job in some)}"
        for arm, some in by_arm
    )
    rows = []
    for arm, one in measured.items():
        moved = [row["kl/new_old"] for run in one.runs for row in run.get("metrics", [])]
        kl = f"{np.mean(moved):.3f}" if moved else ""
        of_delta = f"{np.mean(moved) / float(arm.removeprefix('quatro-')):.1f}" if arm.startswith("quatro") else ""
        shown = (_interval(one.estimate(name)) for name in _SHOWN)
        rows.append([TITLES[arm], best_rate(arm) or "", *shown, kl, of_delta])
    titles = (OUTCOMES[name].title for name in _SHOWN)
    verdicts = [(claim, difference(measured, claim.first, claim.second, claim.outcome)) for claim in CLAIMS]
    lines = []
    for heading in (HOLDS, FAILS, SMALL, OPEN):
        own = [f"- {claim.text}: {_signed(found)}." for claim, found in verdicts if claim.verdict(found) == heading]
        lines += ["", f"**{heading}**", "", *own] if own else []
    return before.partition(MARK)[0] + filled(
        Path(__file__).with_suffix(".md"),
        rates=rates,
        arms=grid(["model", "lr", *titles, "KL", "KL / δ"], rows),
        verdicts=lines,
    )


def differences_csv() -> str:
    """Every outcome of every arm, and of every pair the second minus the first, with the value of each seed."""
    measured, rows = arms(), list[list[object]]()
    for name, outcome in OUTCOMES.items():
        for arm, one in measured.items():
            found = one.estimate(name)
            rows.append([outcome.title, "", TITLES[arm], found.mean, found.low, found.high, one.by_seed(name)])
        for a, b in combinations(measured, 2):
            gap = difference(measured, a, b, name)
            values = Arm((), {name: measured[b].tables[name] - measured[a].tables[name]}).by_seed(name)
            rows.append([outcome.title, TITLES[a], TITLES[b], gap.mean, gap.low, gap.high, values])
    shown = ([f"{one:.2f}" if isinstance(one, float) else one for one in row] for row in rows)
    return csv_text(["outcome", "minus", "model", "mean", "low", "high", "by seed"], shown)


def _interval(one: Estimate) -> str:
    return f"{one.mean:.2f} [{one.low:.2f}, {one.high:.2f}]"


def _signed(one: PairedDifference) -> str:
    return f"{one.mean:+.2f} [{one.low:+.2f}, {one.high:+.2f}]"


def document() -> str:
    """The numbers of the page for a program."""
    measured = arms()
    means = {name: {arm: one.estimate(name)._asdict() for arm, one in measured.items()} for name in OUTCOMES}
    pairs = {
        name: {f"{b} - {a}": difference(measured, a, b, name)._asdict() for a, b in combinations(measured, 2)}
        for name in OUTCOMES
    }
    lengths = {arm: by_length(measured[arm]) for arm in ARMS}
    return json_text({"schema": 1, "means": means, "differences": pairs, "by_length": lengths})


def draw(path: Path) -> None:
    """Pass@1 against distinct valid strategies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    points = []
    for arm, one in arms().items():
        x, y = one.estimate("pass@1"), one.estimate("ways@16")
        points.append(Point(TITLES[arm], x.mean, y.mean, (x.low, x.high), (y.low, y.high)))
    note = "95 %, over 3 seeds and 100 problems (base: over problems); SmolLM2-135M, 64 samples of each problem"
    ways = "distinct valid strategies among 16 samples"
    save_figure(trade_off_figure(points, accuracy="Pass@1, %", diversity=ways, note=note), path)
