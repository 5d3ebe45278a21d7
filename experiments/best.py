"""The page that compares each method at its own best setting, and shows every arm whose runs are archived."""

# Axes: S seeds.
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from evals.estimators import ucc_at_k
from experiments.real_model.page import OUTCOMES, TITLES
from experiments.real_model.page import arms as real_arms
from experiments.real_model.study import best_rate, calibrations
from experiments.replication.cells import PASS1, REALISED, K, measured, pass_at
from experiments.replication.markdown import filled, grid, number, settings_head, settings_row
from experiments.replication.results import ALL, Group, Results, Run, difference
from experiments.replication.rules import Estimate, Unit, estimate_of
from quatro.config.yaml_text import load_yaml

DISTINCT = 8
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
                    if key != "method.name" and text not in KINDS.get(key, {})
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
    found, lines, heads = list(tasks(sweeps)), list[str](), ["method", "settings tried", "best", "Pass@1, top_p 0.7, %"]
    heads += ["realised KL, nats", "− QUATRO: Pass@1, points", f"Pass@{K}, points", f"distinct@{DISTINCT}"]
    for task, methods in found:
        ours = {seed: one.group[seed] for seed, one in best(methods["QUATRO"]).items()} if "QUATRO" in methods else {}
        rows = []
        for method, settings in sorted(methods.items(), key=lambda item: item[0] != "QUATRO"):
            by_seed = best(settings)
            chosen = {seed: one.group[seed] for seed, one in by_seed.items()}
            where = dict.fromkeys(f"{one.cell}: {one.words}" if one.words else one.cell for one in by_seed.values())
            shown = [
                number(measured(chosen, of), unit) for of, unit in ((PASS1.measure, _PERCENT), (REALISED.measure, _KL))
            ]
            if method != "QUATRO":
                gaps = (difference(chosen, ours, of) for of in (PASS1.measure, pass_at(K, ALL).measure))
                shown += [number(estimate_of(gap), _POINTS) for gap in gaps]
                shown.append(number(distinct(chosen, ours), _ANSWERS))
            else:
                shown += [""] * 3
            rows.append([method, str(len(settings)), "; ".join(where), *shown])
        lines += [f"## {task}", "", *grid(heads, rows), ""]
    arms = settings_head(["task", "cell", "method", "setting"])
    for task, methods in found:
        for method, settings in methods.items():
            arms += [settings_row([task, one.cell, method, one.words], one.group) for one in settings]
    return filled(Path(__file__).with_suffix(".md"), real_model=_real_model(), tasks=lines, arms=arms)


def _real_model() -> list[str]:
    """The table of the study on a pretrained model."""
    outcomes, rows = ("pass@1", "pass@64", "ways@16"), []
    for arm, one in real_arms().items():
        tried = sum(job.arm == arm for job in calibrations())
        shown = (one.estimate(name) for name in outcomes)
        moved = [row["kl/new_old"] for run in one.runs for row in run.get("metrics", [])]
        cells = [TITLES[arm], str(tried or "–"), best_rate(arm) or "–"]
        cells += [f"{each.mean:.2f} [{each.low:.2f}, {each.high:.2f}]" for each in shown]
        rows.append([*cells, f"{np.mean(moved):.3f}" if moved else "–"])
    titles = (OUTCOMES[name].title for name in outcomes)
    return grid(["method", "learning rates tried", "best", *titles, "KL an iteration"], rows)
