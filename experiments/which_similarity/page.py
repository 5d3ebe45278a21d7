"""The measured half of docs/which-similarity.md, from the committed results of the study."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from evals.clustering import LINKAGES
from evals.files.frames import grouped
from evals.similarity import SIMILARITIES, Setting
from experiments.real_model.study import read
from experiments.which_similarity.study import RESULTS, TASKS, K

MARK = "## What was measured\n"
TITLES = {"word-problems": "Word problems, by a real model", "codegrammar": "Small functions, by an embedded model"}
_HEAD = ["the same if", "threshold", "kappa", "precision", "recall", "ARI"]
_MEASURES = ("kappa", "precision", "recall", "ari")


def page(before: str) -> str:
    """The page, of which the part before `MARK` is kept as it is in ``before``."""
    intro = (
        "`make pages` writes this part anew from experiments/which_similarity/results. Tables have for each\n"
        "similarity, linkage and kind of tokens the threshold that the labels favour, and the default one. Intervals\n"
        "are of 95 %, over problems."
    )
    lines = [MARK, intro]
    for name in TASKS:
        found = read(RESULTS / f"{name}.json.xz")
        lines.append(f"\n### {TITLES[name]}")
        for rule, rows in found["agreement"].items():
            of = f"{rows[0]['num_pairs']:,} pairs of {rows[0]['num_problems']} problems"
            lines += [f"\nLabels by {rule}: {of}.\n", *_table(_HEAD, agreement(rows))]
        lines += ["", *rankings(found["ucc"], list(found["agreement"]))]
    return before.partition(MARK)[0] + "\n".join(lines) + "\n"


def agreement(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """A line for each favoured and each default setting, best first."""
    for row in sorted(rows, key=lambda row: -row["value"]):
        is_default = row.get("threshold") == SIMILARITIES[row["similarity"]].threshold and row["linkage"] == LINKAGES[0]
        marks = ["favoured"] * row.get("is_favoured", False) + ["default"] * is_default
        ends = {**row, "kappa": [row["value"], row["ci_low"], row["ci_high"]]}
        cells = ["" if ends.get(name) is None else "{:.2f} [{:.2f}, {:.2f}]".format(*ends[name]) for name in _MEASURES]
        if marks:
            setting = Setting(row["similarity"], row.get("threshold"), row["linkage"], row["tokens"])
            yield [str(setting), ", ".join(marks), *cells]


def rankings(ucc: Mapping[str, Mapping[str, float]], rules: Sequence[str]) -> list[str]:
    """UCC@16 of each model by rule and under defaults, and how much the order of models hangs on the setting."""
    models = list(ucc[rules[0]])
    valid = {name.removesuffix("; valid"): values for name, values in ucc.items() if name.endswith("; valid")}
    tokens = "code" if any(name.endswith("code tokens") for name in valid) else "math"
    body = [[f"true, by {rule}", *(f"{ucc[rule][model]:.2f}" for model in models)] for rule in rules]
    for name, one in SIMILARITIES.items():
        usual = str(Setting(name, one.threshold, LINKAGES[0], tokens))
        for kind, words in (("all", ""), ("valid", "; valid answers alone")):
            body.append([usual + words, *(f"{ucc[f'{usual}; {kind}'][model]:.2f}" for model in models)])
    order = {name: _order(values, models) for name, values in {**valid, **{rule: ucc[rule] for rule in rules}}.items()}
    told = np.array([order[name] for name in valid])
    num_changed = int((np.abs(told.mean(axis=0)) < 1).sum())
    tau = np.mean([(one * other).mean() for one, other in combinations(told, 2)])
    lines = [
        *_table([f"UCC@{K}", *models], body),
        "",
        f"{num_changed} of {told.shape[1]} pairs of models change places between {len(told)} settings. Kendall's tau",
        f"of the order of the models under two settings is {tau:.2f} on average.",
    ]
    for rule in rules:
        parts = []
        for name, some in grouped(valid, lambda setting: setting.split()[0].rstrip(",")).items():
            parts.append(f"{name} {np.mean([order[one] @ order[rule] / len(order[rule]) for one in some]):.2f}")
        lines.append(f"With the true order by {rule} it is, by similarity: {', '.join(parts)}.")
    return lines


def _order(values: Mapping[str, float], models: Sequence[str]) -> np.ndarray:
    return np.array([np.sign(values[b] - values[a]) for a, b in combinations(models, 2)])


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (names, ["---"] * len(names), *rows)]
