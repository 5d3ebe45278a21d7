"""Figures of the replication page, from the same results as its verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evals.figures.bars import flips_figure, temperature_figure
from evals.figures.grid import GREY, Part, new_figure
from evals.figures.panels import draw_curve, line_keys, line_look, make_logarithmic, panel_title, small_title
from evals.figures.paper import delta_lambda_figure, entropy_figure, limitation_figure, stability_figure
from evals.figures.run_settings import Drawn, RunSetting
from evals.figures.sheet import PAGE, save_figure, styled
from experiments.replication.cells import (
    CELLS,
    DELTAS,
    MIDDLE,
    REALISED,
    UCC,
    at_lr,
    baseline,
    measured,
    ours,
    quatro,
    theirs,
)
from experiments.replication.results import ALL, NUCLEUS, Group, Measure, Results, passed, unique
from experiments.replication.rules import Estimate, known
from experiments.replication.sample_claims import FLIP_K, HOT, hot_runs
from experiments.replication.small_n import SIZES, DualError
from quatro.runs.points import base_name
from quatro.runs.views.series import read_settings
from quatro.sample.folder import Tag
from quatro.sweep.results import flip_rows, temperature_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KS = tuple(2**i for i in range(9))


def write_figures(results: Results, errors: Sequence[DualError], folder: Path) -> list[str]:
    """Every figure whose runs are there, as PNG in ``folder``; their names without the ending."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, draw in _figures(results, errors).items():
        figure = draw()
        if figure is not None:
            save_figure(figure, folder / f"{name}.png")
            drawn.append(name)
    return drawn


def _figures(results: Results, errors: Sequence[DualError]) -> Mapping[str, Callable[[], Figure | None]]:
    trained = [ours(results, "S1", delta) for delta in DELTAS]
    gspo = [theirs(results, cell) for cell in ("S1", "S7")] + [
        results.group("S4", at_lr(baseline("gspo"), lr)) for lr in ("0.0001", "0.001")
    ]
    middle = [ours(results, cell, MIDDLE) for cell in ("S1", "S7")]
    middle += [results.group("S4", at_lr(quatro(MIDDLE), lr)) for lr in ("0.0001", "0.001")]
    ablated = [results.group("S5", quatro("0.1", log_ratio=kind)) for kind in ("detached", "none")]
    return {
        "curves": lambda: curves_figure(results),
        "delta-lambda": lambda: _of_runs(delta_lambda_figure, trained),
        "entropy": lambda: _of_runs(entropy_figure, [*trained, theirs(results, "S1")]),
        "stability": lambda: _of_runs(stability_figure, [*gspo, *middle, *ablated]),
        "limitation": lambda: _of_runs(limitation_figure, gspo),
        "regimes": lambda: regimes_figure(results),
        "flips": lambda: _flips(results),
        "temperature": lambda: _temperature(results),
        "rollouts": lambda: rollouts_figure(errors) if errors else None,
    }


def _of_runs(draw: Callable[[Sequence[RunSetting]], Drawn], groups: Iterable[Group]) -> Figure | None:
    """None unless every setting has a run: half of a figure would look like the whole."""
    groups = list(groups)
    if not all(groups):
        return None
    folders = [group[seed].folder for group in groups for seed in sorted(group)]
    return draw(read_settings(folders).settings).figure


def curves_figure(results: Results) -> Figure | None:
    """Pass@k and UCC@k over k after training in S1, and of the base; bands: seeds and problems."""
    groups = {f"QUATRO δ {delta}": ours(results, "S1", delta) for delta in DELTAS} | {"GSPO": theirs(results, "S1")}
    bases = results.distinct_bases(groups["GSPO"])
    if not bases or not all(groups.values()):
        return None
    everyone: dict[str, Group] = {"base": bases, **groups}
    kinds: tuple[tuple[str, Callable[[int, Tag], Measure], float], ...] = (
        ("Pass@k, %", passed, 100.0),
        ("UCC@k, distinct solutions", unique, 1.0),
    )
    labels = PAGE.labels(list(everyone))
    with styled():
        figure, (grid,) = new_figure(PAGE, Part(PAGE.width, 4, 1.9, most=2, keys=line_keys(labels, is_whole=True)))
        for row, tag in enumerate((NUCLEUS, ALL)):
            for column, (title, measure, scale) in enumerate(kinds):
                axis = grid.axes[2 * row + column]
                for look, group in zip(labels.looks, everyone.values(), strict=True):
                    found = [known(measured(group, measure(k, tag))) for k in _KS]
                    values, ends = [scale * one.mean for one in found], [_ends(one, scale) for one in found]
                    draw_curve(axis, line_look(look), _KS, values, ends)
                axis.set_xscale("log", base=2)
                axis.set_xticks(_KS[::2], [str(k) for k in _KS[::2]])
                panel_title(axis, title, grid.inches - 0.9)
                axis.set_ylim(bottom=0)
                small_title(axis, "top_p 0.7" if tag == NUCLEUS else "top_p 1")
                if row:
                    axis.set_xlabel("k")
    return figure


def regimes_figure(results: Results) -> Figure | None:
    """Realised KL and UCC@256 against delta, a curve a regime: where delta acts."""
    cells = ("S7", "S2", "S1")
    groups = {cell: [ours(results, cell, delta) for delta in DELTAS] for cell in cells}
    if not all(group for found in groups.values() for group in found):
        return None
    labels = PAGE.labels([f"{cell}: {CELLS[cell]}" for cell in cells])
    deltas = [float(delta) for delta in DELTAS]
    with styled():
        figure, (grid,) = new_figure(PAGE, Part(PAGE.width, 2, 2.1, most=2, keys=line_keys(labels)))
        left, right = grid.axes
        for look, cell in zip(labels.looks, cells, strict=True):
            realised = [known(measured(group, REALISED.measure)) for group in groups[cell]]
            unique_found = [known(measured(group, UCC.measure)) for group in groups[cell]]
            draw_curve(left, line_look(look), deltas, [float(np.exp(one.mean)) for one in realised])
            draw_curve(right, line_look(look), deltas, [one.mean for one in unique_found])
        left.plot(deltas, deltas, color=GREY, linewidth=0.9, linestyle="dashed")
        place: dict[str, Any] = {"textcoords": "offset points", "xytext": (14, 1), "fontsize": 7.5, "color": GREY}
        left.annotate("KL = δ", (deltas[-1], deltas[-1]), **place)
        make_logarithmic(left)
        for axis, title in ((left, "Realised KL of an iteration, nats"), (right, "UCC@256, distinct solutions")):
            axis.set_xscale("log")
            axis.set_xticks(deltas, DELTAS)
            axis.minorticks_off()
            axis.set_xlabel("δ")
            axis.set_title(title)
        right.set_ylim(bottom=0)
        small_title(right, "top_p 1")
    return figure


def rollouts_figure(errors: Sequence[DualError]) -> Figure:
    """Bias and spread of lambda* and bias of A from N rollouts in relation to 256, a curve a delta."""
    labels = PAGE.labels([f"QUATRO δ {delta}" for delta in DELTAS])
    panels = (("λ*: bias, %", "bias"), ("λ*: spread, %", "spread"), ("A⁺: bias, %", "advantage"))
    with styled():
        figure, (grid,) = new_figure(PAGE, Part(PAGE.width, len(panels), 1.9, keys=line_keys(labels)))
        for axis, (title, name) in zip(grid.axes, panels, strict=True):
            for look, delta in zip(labels.looks, DELTAS, strict=True):
                found = [getattr(error, name) for error in errors if error.delta == delta]
                ends = [_ends(one, 100.0) for one in found]
                draw_curve(axis, line_look(look), SIZES, [100 * one.mean for one in found], ends)
            axis.axhline(0, color="#888888", linewidth=0.8)
            axis.set_xscale("log", base=2)
            axis.set_xticks(SIZES, [str(size) for size in SIZES])
            axis.set_title(title)
            axis.set_xlabel("rollouts N")
    return figure


def _flips(results: Results) -> Figure | None:
    """Of the runs of one base: the problems that it solves seldom are its own."""
    groups = {"GSPO": theirs(results, "S6"), **{f"QUATRO δ {delta}": ours(results, "S6", delta) for delta in DELTAS}}
    base = results.distinct_bases(groups["GSPO"]).get(0)
    if base is None or not all(groups.values()):
        return None
    of_base = {
        label: {seed: run for seed, run in group.items() if base_name(run.model) == base.name}
        for label, group in groups.items()
    }
    rows = {label: flip_rows(_folders(group), base.folder, NUCLEUS) for label, group in of_base.items()}
    return flips_figure(rows, k=FLIP_K)


def _temperature(results: Results) -> Figure | None:
    gspo = theirs(results, "S1")
    groups = {"GSPO, T 1": (gspo, NUCLEUS), "GSPO, T 1.5": (hot_runs(gspo, NUCLEUS), HOT[NUCLEUS])}
    groups |= {f"QUATRO δ {delta}, T 1": (ours(results, "S1", delta), NUCLEUS) for delta in DELTAS}
    if not all(group for group, _ in groups.values()):
        return None
    return temperature_figure({label: temperature_rows(_folders(group), tag) for label, (group, tag) in groups.items()})


def _folders(group: Group) -> dict[int, Path]:
    return {seed: run.folder for seed, run in group.items()}


def _ends(found: Estimate, scale: float) -> tuple[float | None, float | None]:
    if found.low is None or found.high is None:
        return None, None
    return scale * found.low, scale * found.high
