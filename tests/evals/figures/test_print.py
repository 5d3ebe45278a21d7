"""Figures at the size of print: letters, edges, overlaps, colours for every eye, and axes without a range."""

import itertools
import math

import numpy as np
import pytest

from evals.figures.bars import flips_figure, temperature_figure
from evals.figures.curves import CurvePanel, curves_figure
from evals.figures.method_looks import BASE, DELTA_SHADES, METHOD_LOOKS, looks_of, variants
from evals.figures.panels import log_ticks
from evals.figures.paper import delta_lambda_figure, entropy_figure, limitation_figure, stability_figure
from evals.figures.run_settings import RunSetting
from evals.figures.sheet import SMALL, WIDTHS, Sheet, styled
from evals.figures.similarity import heatmap_figure, similarity_figure
from evals.figures.training import TrainingCurve, training_figure
from evals.metrics.flips import Pair, flip_rows
from evals.metrics.studies.similarity import heatmap_of, similarity_result
from evals.results.document import Row
from evals.results.entries import Number
from evals.samples.types import Sample, Samples

pytest.importorskip("matplotlib")

HOSTILE = (
    "_{x}$ \\frac{1}{0}$ GSPO \x1b[31m\n",
    "W" * 300,
    "$\\mathrm{x",
    "Ours delta=0.1",
    "\u202eDAPO " + "l i " * 90,
    "b",
)
BENCHMARKS = ("math500", "$a_{b}$ " + "w" * 90)


def metrics(level, *, is_clipped=True):
    row = {"reward/mean": level, "entropy/token_mean": 1 - level, "kl/new_old": 0.01 * (1 + level)}
    row |= {"clip_fraction": 0.02} if is_clipped else {"dual/lam_mean": 3.0 + level}
    return [{"step": step, **row} for step in range(1, 101)]


def settings(own=""):
    found = []
    for k, lr in ((1, 3e-4), (2, 3e-4), (5, 3e-4), (1, 1e-4)):
        found += [RunSetting(name, lr, k, (metrics(0.1 * k),), own=own) for name in ("gspo", "grpo", "dapo", "cispo")]
        for delta in (0.1, 0.001):
            look = {"delta": delta, "log_ratio": "detached", "advantages": (0.8, 0.4, 0.1), "capped": (3,), "own": own}
            found.append(RunSetting("quatro", lr, k, (metrics(0.2, is_clipped=False),) * 2, **look))
    return [*found, RunSetting("quatro", 3e-4, 2, (metrics(0.3),), delta=0.1, log_ratio="none", own=own)]


def row(metric, value, *, benchmark="math500", k=None, **extra):
    return Row(metric=metric, benchmark=benchmark, k=k, value=value, num_problems=3, n=256, **extra)


def of_benchmarks(make):
    return [one for name in BENCHMARKS for one in make(name)]


TFIDF = {"similarity": "tfidf", "linkage": "components"}


def samples(*texts):
    return Samples([Sample("math500", "p" * 90, at, text, "7", correct=at < 3) for at, text in enumerate(texts)], [])


def flips(name):
    pairs = [Pair(name, str(at), 256, at * 3 % 256, at) for at in range(12)]
    return flip_rows(pairs, ks=[16], ci=True)


def curve_rows(name):
    return {label: {k: Number(min(1.0, 0.1 + k / 300), 0.0, 1.0) for k in KS} for label in HOSTILE}


KS = tuple(2**at for at in range(9))
CURVES = [
    CurvePanel(name, "Pass@k, %", curve_rows(name), is_share=True, note="tfidf >= 0.9, " + "c" * 80)
    for name in BENCHMARKS
]
FIGURES = {
    "training": lambda sheet: training_figure(
        [TrainingCurve(label, (metrics(0.1 * at),), 0.1**at) for at, label in enumerate(HOSTILE)], sheet=sheet
    ),
    "training of few": lambda sheet: training_figure(
        [TrainingCurve(label, (metrics(0.1), metrics(0.2)), 0.01) for label in HOSTILE[:3]], sheet=sheet
    ),
    "limitation": lambda sheet: limitation_figure(settings(HOSTILE[0]), sheet=sheet).figure,
    "delta-lambda": lambda sheet: delta_lambda_figure(settings(HOSTILE[1]), sheet=sheet).figure,
    "entropy": lambda sheet: entropy_figure(settings(HOSTILE[4]), sheet=sheet).figure,
    "stability": lambda sheet: stability_figure(settings(HOSTILE[0]), sheet=sheet).figure,
    "curves": lambda sheet: curves_figure(CURVES, sheet=sheet),
    "curves of few": lambda sheet: curves_figure(
        [CurvePanel("AIME24", "UCC@k", dict(list(CURVES[0].curves.items())[:3]), note=note) for note in ("a, b", "c")],
        sheet=sheet,
    ),
    "flips": lambda sheet: flips_figure({label: of_benchmarks(flips) for label in HOSTILE}, k=16, sheet=sheet),
    "similarity": lambda sheet: similarity_figure(
        dict.fromkeys(HOSTILE, similarity_result(samples("a b", "a c", "a b")).rows), sheet=sheet
    ),
    "heatmap": lambda sheet: heatmap_figure(
        dict.fromkeys(HOSTILE[:3], heatmap_of(samples("a b", "a c", "x", "y z"), "p" * 90, with_wrong=True)),
        sheet=sheet,
    ),
    "side-by-side": lambda sheet: temperature_figure(
        {
            label: of_benchmarks(
                lambda name: [
                    row("ucr", 0.2, ci_low=0.1, ci_high=0.3, benchmark=name, threshold=0.9, **TFIDF),
                    row("pass@k", 0.5, benchmark=name, k=1),
                ]
            )
            for label in HOSTILE
        },
        sheet=sheet,
    ),
}


def drawn_texts(figure):
    """Text, box and size of all that is really drawn: tick labels outside the axes are not."""
    from matplotlib.text import Text

    found = []

    draw = Text.draw

    def recorded(self, renderer, *arguments, **options):
        if self.get_visible() and self.get_text().strip():
            found.append((self, self.get_window_extent(renderer)))
        draw(self, renderer, *arguments, **options)

    with styled(), pytest.MonkeyPatch.context() as patch:
        figure.draw_without_rendering()  # the layout is made
        patch.setattr(Text, "draw", recorded)
        figure.draw_without_rendering()
    return found


def common(first, second):
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    return width > 1 and min(first.y1, second.y1) - max(first.y0, second.y0) > 1


def check_print(figure):
    texts = drawn_texts(figure)
    whole = figure.bbox
    assert [text.get_text() for text, _ in texts if text.get_fontsize() < SMALL] == []
    inside = (whole.x0 - 1, whole.y0 - 1, whole.x1 + 1, whole.y1 + 1)
    assert [
        text.get_text()
        for text, box in texts
        if box.x0 < inside[0] or box.y0 < inside[1] or box.x1 > inside[2] or box.y1 > inside[3]
    ] == []
    level = [(text, box) for text, box in texts if text.get_rotation() in (0, 90)]
    pairs = itertools.combinations(level, 2)
    assert [(a.get_text(), b.get_text()) for (a, one), (b, other) in pairs if common(one, other)] == []
    legends = [legend for part in (figure, *figure.subfigs) for legend in part.legends]
    axes = [axis.get_window_extent() for axis in figure.axes if axis.axison]
    assert not any(common(legend.get_window_extent(), box) for legend in legends for box in axes)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", FIGURES)
def test_hostile_labels_fit_the_sheet_and_nothing_covers_anything(name, width):
    check_print(FIGURES[name](Sheet(WIDTHS[width])))


def test_curves_with_hostile_labels_fit_a_column():
    check_print(FIGURES["curves of few"](Sheet(WIDTHS["column"])))


@pytest.mark.parametrize("num_notes", [1, 6])
def test_panels_with_long_notes_fit_a_page(num_notes):
    notes = [f"jaccard >= 0.{95 - at}, components, whitespace tokens" for at in range(num_notes)]
    panels = [
        CurvePanel("benchmark of a long name", "UCC@k", {"ours": {1: Number(1), 256: Number(9)}}, note=note)
        for note in notes
    ]
    check_print(curves_figure(panels))


# Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color vision deficiency" (2009),
# severity 1, on linear RGB.
EYES = {
    "all colours": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
)


def linear(color):
    parts = np.array([int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def cielab(rgb):
    x, y, z = TO_XYZ @ np.clip(rgb, 0, 1) / (0.95047, 1.0, 1.08883)
    f = [np.cbrt(part) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z)]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


COLORS = {name: look.color for name, look in METHOD_LOOKS.items() if name != "quatro"}
COLORS |= {f"δ {delta:g}": color for delta, color in DELTA_SHADES.items()} | {BASE: looks_of([BASE])[0].color}


@pytest.mark.parametrize("eye", EYES)
def test_methods_and_deltas_are_told_apart_by_every_eye(eye):
    seen = {name: cielab(np.array(EYES[eye]) @ linear(color)) for name, color in COLORS.items()}
    distances = {(a, b): np.linalg.norm(seen[a] - seen[b]) for a, b in itertools.combinations(seen, 2)}
    assert min(distances.values()) > 17, min(distances, key=distances.get)


def test_in_grey_markers_or_lightness_tell_apart_and_everything_is_darker_than_paper():
    lightness = {name: cielab(linear(color))[0] for name, color in COLORS.items()}
    assert max(lightness.values()) < 80
    shades = [lightness[f"δ {delta:g}"] for delta in (0.1, 0.01, 0.001)]
    assert min(b - a for a, b in itertools.pairwise(shades)) > 20
    labels = [*METHOD_LOOKS, BASE]
    assert len({look.marker for look in looks_of(labels)}) == len(labels)
    deltas = [f"QUATRO δ {delta:g}" for delta in DELTA_SHADES]
    assert len({str(look.dash) for look in looks_of(deltas)}) == len(deltas)


def test_every_value_of_a_comparison_is_seen_on_paper_and_lighter_than_the_one_before():
    for name, look in METHOD_LOOKS.items():
        shades = [cielab(linear(one.color))[0] for one in variants(looks_of([name])[0], 3)]
        assert shades[-1] < 80, look
        assert min(b - a for a, b in itertools.pairwise(shades)) > 8, look


def test_the_title_of_a_benchmark_stands_whole_beside_many_small_panels():
    labels = [*METHOD_LOOKS, BASE]
    entry = {label: {k: Number(0.5) for k in (1, 2)} for label in labels}
    figure = curves_figure([CurvePanel("OlympiadBench", "Pass@k, %", entry)])
    assert figure.axes[0].get_ylabel().startswith("OlympiadBench\n")


@pytest.mark.parametrize(
    ("low", "high"), [(0.9, 9.1), (0.0103, 0.11), (0.011, 0.35), (0.002, 0.9), (1e-9, 1e3), (3, 30)]
)
def test_a_logarithmic_axis_has_three_to_six_round_ticks(low, high):
    ticks = log_ticks(low, high)
    assert 3 <= len(ticks) <= 6
    assert all(low <= tick <= high for tick in ticks)
    assert {f"{tick:e}"[0] for tick in ticks} <= {"1", "2", "3", "5"}


def test_less_than_a_decade_is_shown_as_a_decade_with_readable_ticks():
    rows = [{"step": step, "kl/new_old": 0.011 + 0.0001 * step} for step in range(1, 9)]
    (axis,) = training_figure([TrainingCurve("GSPO", (rows,))]).axes
    low, high = axis.get_ylim()
    assert math.isclose(high / low, 10, rel_tol=0.01)
    figure = axis.figure
    figure.draw_without_rendering()
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["0.005", "0.01", "0.02"]


def test_a_panel_of_zeros_has_an_axis_from_0_to_1_and_says_so():
    rows = [{"step": step, "reward/mean": 0.0, "clip_fraction": 0.0, "kl/new_old": 0.1} for step in range(1, 9)]
    reward, _, clipped = training_figure([TrainingCurve("GSPO", (rows,))]).axes
    for axis in (reward, clipped):
        assert axis.get_ylim() == (0, 1)
        assert [text.get_text() for text in axis.texts] == ["all 0"]
    zero = {"a": [row("ucr", 0.0, threshold=0.9, **TFIDF), row("pass@k", 0.0, k=1)]}
    assert [[text.get_text() for text in axis.texts] for axis in temperature_figure(zero).axes] == [["all 0"]] * 2
    (axis,) = curves_figure([CurvePanel("a", "UCC@k", {"ours": {1: Number(0.0), 2: Number(0.0)}})]).axes
    assert axis.get_ylim() == (0, 1)
