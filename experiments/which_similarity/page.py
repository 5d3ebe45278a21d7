"""The measured half of docs/which-similarity.md, from the committed results of the study."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from evals.clustering import LINKAGES
from evals.similarity import SIMILARITIES, Setting
from experiments.real_model.study import read
from experiments.replication.markdown import csv_text, grid
from experiments.which_similarity.study import RESULTS, TASKS, K

MARK = "## What was measured\n"
TITLES = {"word-problems": "Word problems, by a real model", "codegrammar": "Small functions, by an embedded model"}
_HEAD = ["the same if", "threshold", "kappa", "recall", "ARI"]
_MEASURES = ("kappa", "precision", "recall", "ari")


def page(before: str) -> str:
    """The page, of which the part before `MARK` is kept as it is in ``before``."""
    intro = (
        "The tables show each similarity at two thresholds: the one with the highest kappa (*favoured*) and its\n"
        "*default*. Linkage is `components`, and tokens are those of maths or of code. Intervals are 95 %, over\n"
        "problems. [similarity.md](similarity.md#which-one-is-right) explains kappa, recall and ARI, and\n"
        "[data/which-similarity.csv](data/which-similarity.csv) has every setting and the precision. UCC@16\n"
        "counts all right answers, and in brackets only valid ones. A problem that is never solved counts as 0, so\n"
        "a mean may lie below 1."
    )
    lines = [MARK, intro]
    for name in TASKS:
        found = read(RESULTS / f"{name}.json.xz")
        lines.append(f"\n### {TITLES[name]}")
        for rule, rows in found["agreement"].items():
            of = f"{rows[0]['num_pairs']:,} pairs of {rows[0]['num_problems']} problems"
            lines += [f"\nLabels by {rule}: {of}.\n", *grid(_HEAD, agreement(rows))]
        lines += ["", *rankings(found["ucc"], list(found["agreement"]))]
    return before.partition(MARK)[0] + "\n".join(lines) + "\n"


def agreement(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """A line for the best favoured and for each default setting of a similarity, best first."""
    shown = set[str]()
    for row in sorted(rows, key=lambda row: -row["value"]):
        marks = _marks(row)
        has_usual_tokens = row["tokens"] != "sklearn" or not SIMILARITIES[row["similarity"]].has_tokens
        is_usual = row["linkage"] == LINKAGES[0] and has_usual_tokens
        if not marks or not (is_usual or row["similarity"] == "exact"):
            continue
        if marks == ["favoured"] and row["similarity"] in shown:
            continue
        shown.add(row["similarity"])
        means = [f"{row[name][0]:.2f}" for name in _MEASURES[2:]]
        kappa = f"{row['value']:.2f} [{row['ci_low']:.2f}, {row['ci_high']:.2f}]"
        setting = str(Setting(row["similarity"], row.get("threshold"), row["linkage"], row["tokens"])).split(", ")[0]
        yield [setting, ", ".join(marks), kappa, *means]


def _marks(row: Mapping[str, Any]) -> list[str]:
    is_default = row.get("threshold") == SIMILARITIES[row["similarity"]].threshold and row["linkage"] == LINKAGES[0]
    return ["favoured"] * row.get("is_favoured", False) + ["default"] * is_default


def agreement_csv() -> str:
    """The agreement of every setting with each kind of labels."""
    lines = []
    for task in TASKS:
        for rule, rows in read(RESULTS / f"{task}.json.xz")["agreement"].items():
            for row in rows:
                ends = {**row, "kappa": [row["value"], row["ci_low"], row["ci_high"]]}
                numbers = [f"{one:.3f}" for name in _MEASURES for one in ends.get(name, ())]
                numbers[3:3] = [""] * (3 * len(_MEASURES) - len(numbers))  # `exact` may have no precision
                setting = [row["similarity"], row.get("threshold", ""), row["linkage"], row["tokens"]]
                lines.append([task, rule, *setting, ", ".join(_marks(row)), *numbers])
    heads = ["task", "labels", "similarity", "threshold", "linkage", "tokens", "marks"]
    return csv_text([*heads, *(f"{name}{end}" for name in _MEASURES for end in ("", ": low", ": high"))], lines)


def rankings(ucc: Mapping[str, Mapping[str, float]], rules: Sequence[str]) -> list[str]:
    """UCC@16 of each model by rule and under defaults, and how much the order of models hangs on the setting."""
    models = list(ucc[rules[0]])
    valid = {name.removesuffix("; valid"): values for name, values in ucc.items() if name.endswith("; valid")}
    tokens = "code" if any(name.endswith("code tokens") for name in valid) else "math"
    body = [[f"true, by {rule}", *(f"{ucc[rule][model]:.2f}" for model in models)] for rule in rules]
    for name, one in SIMILARITIES.items():
        usual = str(Setting(name, one.threshold, LINKAGES[0], tokens))
        cells = (f"{ucc[f'{usual}; all'][model]:.2f} ({ucc[f'{usual}; valid'][model]:.2f})" for model in models)
        body.append([usual.partition(",")[0], *cells])
    told = np.array([_order(values, models) for values in valid.values()])
    num_changed = int((np.abs(told.mean(axis=0)) < 1).sum())
    tau = np.mean([(one * other).mean() for one, other in combinations(told, 2)])
    return [
        *grid([f"UCC@{K}", *models], body),
        "",
        f"In {num_changed} of {told.shape[1]} pairs of models, the {len(told)} settings disagree on which model has "
        f"the higher UCC. Kendall's tau between two settings' rankings is {tau:.2f} on average.",
    ]


def _order(values: Mapping[str, float], models: Sequence[str]) -> np.ndarray:
    return np.array([np.sign(values[b] - values[a]) for a, b in combinations(models, 2)])
