"""The page that compares each method at its own best setting, and shows every arm whose runs are archived."""

# Axes: S seeds.
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from evals.estimators import ucc_at_k
from experiments.replication.cells import PASS1, REALISED, K, measured, pass_at
from experiments.replication.markdown import arms_csv, filled, grid, number
from experiments.replication.markdown import by_seed as seeds_of
from experiments.replication.results import ALL, Group, Results, Run, difference
from experiments.replication.rules import Estimate, Unit, estimate_of
from quatro.config.yaml_text import load_yaml

DISTINCT = 8
EQUAL = 0.005  # both ends of an interval below it: what is compared is the same to the last digit shown
_KL, _PERCENT = Unit(4, "", is_ratio=True), Unit(1, "", 100.0, is_signed=False)
_POINTS, _ANSWERS = Unit(1, "", 100.0), Unit(2, "")
# What makes another method of one; all other keys are settings of it.
KINDS = {
    "method.temperature": {"fixed": "fixed temperature", "zscore": "z-score", "batch": "one λ for the batch"},
    "method.log_ratio": {"none": "no stabiliser"},
    "method.centred": {"true": "centred"},
}
REWARDS = {"countdown-distance": "graded rewards", "outlier": "one prompt in eight pays ten times as much"}
NAMES = {"quatro": "QUATRO", "budgeted": "budgeted QUATRO"}
_OTHER_LAMBDA = tuple(f"QUATRO, {words}" for words in KINDS["method.temperature"].values())
_OWN_LAMBDA = (
    "- **A λ of its own for each prompt** is not shown to help: a z-score, a fixed temperature or one λ for the batch "
    "is below QUATRO only where fewer of its settings were tried."
)


@dataclass(frozen=True)
class Setting:
    """A setting of a method in one cell of a sweep, with its runs."""

    cell: str
    words: str
    group: Group


Settings = Mapping[str, list[Setting]]  # method -> its settings


def tasks(sweeps: Mapping[str, Results]) -> Iterator[tuple[str, Settings]]:
    """Every sweep and task of it (base models and rewards), with all archived arms by method."""
    for sweep, results in sorted(sweeps.items()):
        found: dict[str, dict[str, list[Setting]]] = {}
        for cell in dict.fromkeys(run.cell for run in results.runs):
            for settings, group in results.groups(cell):
                task = _task(next(iter(group.values())))
                rest = ", ".join(
                    f"{key.rpartition('.')[2]} {text}"
                    for key, text in settings.items()
                    if key != "method.name" and text not in (*KINDS.get(key, {}), "dual", "paper")
                )
                setting = Setting(cell, rest, group)
                found.setdefault(f"{task} ({sweep})", {}).setdefault(_method(settings), []).append(setting)
        yield from found.items()


def _task(run: Run) -> str:
    """The base model's, and the rewards of training where they are not the task's own."""
    reward = load_yaml(run.folder / "config.yaml").data["reward"]
    kind = reward if isinstance(reward, dict) else {"name": reward}
    name = str(kind["name"]).rpartition(":")[2]
    words = "rewards 0 and 1" if kind.get("options", {}).get("partial") is False else REWARDS.get(name, "")
    return run.model.partition("@")[0].removeprefix("embedded:") + (f", {words}" if words else "")


def _method(settings: Mapping[str, str]) -> str:
    name = settings.get("method.name", "quatro")
    kinds = [words[settings[key]] for key, words in KINDS.items() if settings.get(key) in words]
    return ", ".join([NAMES.get(name, name.upper()), *kinds])


def best(settings: list[Setting]) -> dict[int, Setting]:
    """For each seed that all settings have, the one with the highest Pass@1 (top_p 0.7) on the other seeds."""

    def passed(setting: Setting, seed: int) -> float:
        others = [setting.group[other] for other in seeds if other != seed] or [setting.group[seed]]
        return float(np.mean([PASS1.measure(run).mean() for run in others]))

    seeds = sorted(set[int].intersection(*(set(one.group) for one in settings)))
    return {seed: max(settings, key=partial(passed, seed=seed)) for seed in seeds}


def distinct(group: Group, other: Group) -> Estimate | None:
    """The difference in distinct@8 at top_p 1, each seed's over the problems that both solve eight times or more."""
    rows = []
    for seed in sorted(set(group) & set(other)):
        sizes = zip(group[seed].counts(ALL).clusters, other[seed].counts(ALL).clusters, strict=True)
        common = [pair for pair in sizes if min(map(sum, pair)) >= DISTINCT]
        if gaps := [ucc_at_k(sum(a), a, DISTINCT) - ucc_at_k(sum(b), b, DISTINCT) for a, b in common]:
            rows.append([np.mean(gaps)])
    return estimate_of(np.array(rows))


def page(sweeps: Mapping[str, Results]) -> str:
    """The whole page as Markdown."""
    lines, gaps_of, tried = list[str](), {}, {}
    heads = ["method", "setting", "tried", "Pass@1", "KL", "ΔPass@1", f"ΔPass@{K}", f"Δdistinct@{DISTINCT}"]
    for task, methods in tasks(sweeps):
        if "QUATRO" not in methods or len(methods) < 2:
            continue  # nothing to compare; `every_arm` has it
        ours = {seed: one.group[seed] for seed, one in best(methods["QUATRO"]).items()}
        rows = []
        for method, settings in sorted(methods.items(), key=lambda item: item[0] != "QUATRO"):
            by_seed, tried[method, task] = best(settings), len(settings)
            chosen = {seed: one.group[seed] for seed, one in by_seed.items()}
            where = dict.fromkeys(f"{one.cell}: {one.words}" if one.words else one.cell for one in by_seed.values())
            kl, passed = measured(chosen, REALISED.measure), measured(chosen, PASS1.measure)
            seeds = f" ({values})" if (values := seeds_of(passed, _PERCENT)) else ""
            shown = [f"{number(passed, _PERCENT)}{seeds}", _KL.text(kl.mean) if kl else "–"]
            if method != "QUATRO":
                gaps = [estimate_of(difference(chosen, ours, of)) for of in (PASS1.measure, pass_at(K, ALL).measure)]
                shown += [number(gap, _POINTS) for gap in gaps]
                shown.append(number(apart := distinct(chosen, ours), _ANSWERS))
                gaps_of[method, task] = (gaps[0], apart)
            else:
                shown += [""] * 3
            rows.append([method, "; ".join(where), str(len(settings)), *shown])
        lines += [f"## {task}", "", *grid(heads, rows), ""]
    accuracy, better = _sides({name: gaps[0] for name, gaps in gaps_of.items()})
    diversity, _ = _sides({name: gaps[1] for name, gaps in gaps_of.items()}, better)
    worse = {
        name for name, gaps in gaps_of.items() if name[0] in _OTHER_LAMBDA and any(_ends(one)[1] < 0 for one in gaps)
    }
    is_fair = all(tried[one] < tried["QUATRO", one[1]] for one in worse)
    own_lambda = _OWN_LAMBDA if worse and is_fair else ""
    return filled(
        Path(__file__).with_suffix(".md"),
        count=len(gaps_of),
        accuracy=accuracy,
        diversity=diversity,
        own_lambda=own_lambda,
        tasks=lines,
    )


def _ends(gap: Estimate | None) -> tuple[float, float]:
    """The interval's; infinite where there is none."""
    return (-np.inf, np.inf) if gap is None or gap.low is None or gap.high is None else (gap.low, gap.high)


def _sides(gap_of: Mapping[tuple[str, str], Estimate | None], before: str = "") -> tuple[str, str]:
    """In how many comparisons QUATRO is higher and lower; and than which methods, which may be those of ``before``."""
    above = sorted({names for names, gap in gap_of.items() if _ends(gap)[0] > 0})
    below = sorted({names for names, gap in gap_of.items() if _ends(gap)[1] < 0})
    higher = "; ".join(dict.fromkeys(method for method, _ in below))
    lower = f"{len(above)} (with {'; '.join(f'{method} on {task}' for method, task in above)})" if above else "none"
    open_ones = [_ends(gap) for names, gap in gap_of.items() if names not in (*above, *below)]
    alone = sum(np.isinf(low) for low, _ in open_ones)
    equal = sum(max(-low, high) < EQUAL for low, high in open_ones)
    who = "the same methods" if higher == before else higher
    rest = len(open_ones) - alone - equal
    are = "is" if rest == 1 else "are"
    text = f"higher in {len(below)} comparisons (with {who}). It is lower in {lower}. {rest} {are} undecided."
    text += f" {alone} have no interval, because fewer than two seeds can be compared." if alone else ""
    return text + (f" In {equal} both methods are equal." if equal else ""), higher


def every_arm(sweeps: Mapping[str, Results]) -> str:
    """All archived arms as a CSV file."""
    arms = [
        ((task, one.cell, method, one.words), one.group)
        for task, methods in tasks(sweeps)
        for method, settings in methods.items()
        for one in settings
    ]
    return arms_csv(["task (sweep)", "cell", "method", "setting"], arms)
