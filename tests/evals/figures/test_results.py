"""Figures of results: what is drawn where, the same bytes every time, and what cannot be drawn is refused in words."""

import numpy as np
import pytest

from evals.errors import DataError, UsageError
from evals.figures.curves import CurvePanel, Point, curve_panels, curves_figure
from evals.figures.flips import flips_figure
from evals.figures.heatmap import heatmap_figure
from evals.figures.method_looks import METHOD_LOOKS, PALETTE, places
from evals.figures.panels import LINES, bar_look, line_look, shortened
from evals.figures.partition import bias_figure, largest_common_k, threshold_figure
from evals.figures.similarity import similarity_figure
from evals.figures.style import save_figure
from evals.figures.temperature import temperature_figure
from evals.metrics.flips import Pair, flip_rows
from evals.results.document import Row
from evals.results.entries import Entry, Key, Number
from evals.samples.types import Sample, Samples
from evals.studies.heatmap import Heatmap, heatmap_of
from evals.studies.partition_bias import RECLUSTERED
from evals.studies.similarity import similarity_result

pytest.importorskip("matplotlib")

ODD = "_odd $\\frac{1}{0}$ \x1b[31m"


def row(metric, value, *, benchmark="a", k=None, **extra):
    return Row(metric=metric, benchmark=benchmark, k=k, value=value, num_problems=3, n=8, **extra)


def samples(texts):
    return Samples([Sample("a", "p", index, text, "7", correct=True) for index, text in enumerate(texts)], [])


def flips(tuned=3):
    return flip_rows([Pair("a", "1", 8, 0, tuned), Pair("a", "2", 8, 0, 0), Pair("a", "3", 8, 8, 8)], [4], ci_seed=0)


def thresholds(scale=1.0):
    setting = {"similarity": "tfidf", "linkage": "components"}
    return [row("ucc@k", scale * t, k=4, threshold=t, **setting) for t in (0.5, 0.9)]


def bias():
    setting = {"similarity": "tfidf", "linkage": "components", "threshold": 0.9}
    return [row(metric, 1.0 + k / 8, k=k, **setting) for metric in ("ucc@k", RECLUSTERED) for k in (1, 8)]


def sides(ucr=0.2):
    setting = {"similarity": "tfidf", "linkage": "components", "threshold": 0.9}
    return [row("ucr", ucr, ci_low=ucr / 2, ci_high=2 * ucr, **setting), row("pass@k", 0.5, k=1, **setting)]


FIGURES = {
    "curves": lambda: curves_figure([CurvePanel("a", "y", {ODD: [Point(1, 0.1, 0.0, 0.2), Point(2, 0.3, 0.2, 0.4)]})]),
    "flips": lambda: flips_figure({ODD: flips(), "b": flips(0)}, k=4),
    "similarity": lambda: similarity_figure({ODD: similarity_result(samples(["a b", "a c", "a b"])).rows}),
    "heatmap": lambda: heatmap_figure({ODD: heatmap_of(samples(["a b c", "a b d", "x y"]), "p")}),
    "temperature": lambda: temperature_figure({ODD: sides(), "b": sides()}),
    "threshold": lambda: threshold_figure({ODD: thresholds(), "b": thresholds(2)}, k=4),
    "bias": lambda: bias_figure({ODD: bias()}),
}


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
@pytest.mark.parametrize("name", FIGURES)
def test_the_same_numbers_give_the_same_bytes(tmp_path, name, kind):
    for file in ("a", "b"):
        save_figure(FIGURES[name](), tmp_path / f"{file}.{kind}")
    first, second = ((tmp_path / f"{file}.{kind}").read_bytes() for file in ("a", "b"))
    assert first == second
    assert len(first) > 4000


def test_seven_labels_differ_in_colour_and_marker_and_more_in_their_dashes():
    looks = [line_look(position) for position in range(21)]
    assert len({(look["color"], look["marker"], str(look["linestyle"])) for look in looks}) == 21
    assert len({look["color"] for look in looks[:7]}) == len({look["marker"] for look in looks[:7]}) == 7
    assert len({bar_look(position)["hatch"] for position in range(7)}) == 7
    with pytest.raises(UsageError, match="8 labels"):
        temperature_figure({str(position): sides() for position in range(8)})


def test_a_method_keeps_its_colour_and_marker_whatever_stands_beside_it():
    from quatro.methods import METHODS

    assert set(METHOD_LOOKS) == set(METHODS)
    look = line_look(places(["base", "GSPO", "ours"])[1])
    assert (look["color"], look["marker"]) == METHOD_LOOKS["gspo"]
    assert places(["base", "GSPO", "ours", "gspo"]) == [0, 1, 2, 3]
    assert places(["gspo", "quatro", "x"]) == [1, 0, 2]
    assert places("abcdefghi") == list(range(9))


def test_a_long_label_is_cut_in_the_middle():
    cut = shortened("begin" + "x" * 200 + "end\n", 30)
    assert len(cut) == 30
    assert cut.startswith("begin")
    assert cut.endswith("xend\\n")


def test_curves_stand_at_their_k_in_percent_with_their_band():
    entry = Entry(
        "ours",
        None,
        {
            Key("pass@k", "math500", 4): Number(0.5, 0.4, 0.6),
            Key("pass@k", "math500", 1): Number(0.25, 0.2, 0.3),
            Key("ucc@k", "math500", 1): Number(0.25),
        },
    )
    figure = curves_figure(curve_panels([entry], "pass@k"))
    (axis,) = figure.axes
    assert list(axis.lines[0].get_xdata()) == [1, 4]
    assert list(axis.lines[0].get_ydata()) == [25, 50]
    assert axis.collections[0].get_datalim(axis.transData).y0 == pytest.approx(20)
    assert axis.get_title(loc="left") == "math500"


@pytest.mark.parametrize("num_thresholds", [1, 3, 6, 9])
def test_no_title_runs_into_another_text_however_many_thresholds_are_drawn(num_thresholds):
    settings = [f"jaccard >= 0.{95 - t}, components, whitespace tokens" for t in range(num_thresholds)]
    numbers = {Key("ucc@k", "benchmark of a long name", k, one): Number(k / 2) for one in settings for k in (1, 256)}
    figure = curves_figure(curve_panels([Entry("ours", None, numbers)], "ucc@k"))
    figure.draw_without_rendering()
    drawn = [axis for axis in figure.axes if axis.has_data()]
    boxes = [text.get_window_extent() for axis in drawn for text in (axis.title, axis._left_title, *axis.texts)]
    boxes = [box for box in boxes if box.width]
    assert len(boxes) == 2 * num_thresholds
    assert [(a, b) for place, a in enumerate(boxes) for b in boxes[:place] if a.overlaps(b)] == []
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes)


def test_the_average_is_a_panel_only_beside_several_benchmarks():
    def entry(*names):
        return Entry("ours", None, {Key("pass@k", name, 1): Number(0.5) for name in (*names, "average")})

    assert [panel.title for panel in curve_panels([entry("x")], "pass@k")] == ["x"]
    assert [panel.title for panel in curve_panels([entry("x", "y")], "pass@k")] == ["x", "y", "average"]
    assert [panel.title for panel in curve_panels([entry("x", "y")], "pass@k", benchmarks=["y"])] == ["y"]
    with pytest.raises(UsageError, match="no file holds pass@k of 'z'"):
        curve_panels([entry("x")], "pass@k", benchmarks=["z"])


def test_bars_of_flips_are_as_high_as_their_rows_and_count_problems():
    figure = flips_figure({"ours": flips(), "other": flips(0)}, k=4)
    left, right = figure.axes
    # Of two problems never solved one is solved; at k = 4 it is found with 1 - C(5, 4) / C(8, 4).
    assert [bar.get_height() for bar in left.patches] == pytest.approx([50, 0])
    assert [bar.get_height() for bar in right.patches] == pytest.approx([50 * (1 - 5 / 70), 0, 0, 0])
    below = [text.get_text() for text in right.texts]
    assert below == ["very hard", "0", "2", "hard", "1", "0", "medium", "2-4", "0", "easy", "5-8", "1"]


def test_flips_of_different_bases_are_refused():
    other = flip_rows([Pair("a", "1", 8, 0, 1)], [4])
    with pytest.raises(DataError, match="different bases"):
        flips_figure({"ours": flips(), "other": other}, k=4)
    with pytest.raises(UsageError, match=r"no flip@2 in these files, only k = 4;"):
        flips_figure({"ours": flips()}, k=2)


def test_histograms_are_shares_that_add_up_and_medians_are_dashed():
    rows = similarity_result(samples(["a b c", "a b d", "a b c", "x"]), similarities=["jaccard"]).rows
    (axis,) = similarity_figure({"ours": rows}).axes
    values = axis.patches[0].get_data().values
    assert sum(values) == pytest.approx(100)
    dashed = [line.get_xdata()[0] for line in axis.lines if line.get_linestyle() == "--"]
    assert rows[0].value in dashed
    with pytest.raises(DataError, match="has no histogram"):
        similarity_figure({"ours": [row("similarity", 0.5, similarity="edit", histogram="much")]})


def test_the_heatmap_shows_the_matrix_on_one_scale_and_frames_clusters():
    wide = heatmap_of(samples(["a b c", "a b d", "x y", "x y z"]), "p", similarity="jaccard", threshold=0.5)
    narrow = heatmap_of(samples(["a b c", "a b c"]), "p", similarity="jaccard", threshold=0.5)
    figure = heatmap_figure({"wide": wide, "narrow": narrow})
    first, second = figure.axes[:2]
    np.testing.assert_array_equal(first.images[0].get_array(), wide.similarity_CC)
    assert first.images[0].get_clim() == second.images[0].get_clim()
    assert [(frame.get_x(), frame.get_width()) for frame in first.patches] == [(-0.5, 2), (1.5, 2)]
    assert not second.patches
    assert isinstance(wide, Heatmap)


def test_temperature_has_a_bar_for_each_label_and_refuses_two_settings():
    figure = temperature_figure({"cold": sides(0.1), "hot": sides(0.3)})
    ucr, passed = figure.axes
    assert [bar.get_height() for bar in ucr.patches] == [0.1, 0.3]
    assert [bar.get_height() for bar in passed.patches] == [50, 50]
    with pytest.raises(DataError, match="several UCR"):
        temperature_figure({"cold": sides() + sides()})
    with pytest.raises(DataError, match="no UCR"):
        temperature_figure({"cold": [row("pass@k", 0.5, k=1)]})


def test_thresholds_ascend_on_the_x_axis_and_the_default_is_marked():
    (axis,) = threshold_figure({"ours": thresholds()[::-1]}, k=4).axes
    assert list(axis.lines[0].get_xdata()) == [0.5, 0.9]
    assert list(axis.lines[0].get_ydata()) == [0.5, 0.9]
    assert axis.lines[1].get_xdata()[0] == 0.9
    with pytest.raises(DataError, match="several thresholds"):
        threshold_figure({"ours": thresholds()[:1]}, k=4)
    assert largest_common_k({"a": [row("ucc@k", 1.0, k=k) for k in (1, 2, 8)], "b": [row("ucc@k", 1.0, k=2)]}) == 2
    with pytest.raises(UsageError, match="no k in common"):
        largest_common_k({"a": [row("ucc@k", 1.0, k=1)], "b": [row("ucc@k", 1.0, k=2)]})


def test_the_estimator_is_solid_and_clustering_afresh_is_dashed_in_one_colour():
    (axis,) = bias_figure({"ours": bias()}).axes
    solid, dashed = axis.lines
    assert (solid.get_linestyle(), dashed.get_linestyle()) == ("-", "--")
    assert solid.get_color() == dashed.get_color() == PALETTE[0]
    assert LINES[1] != "solid"
    with pytest.raises(DataError, match="needs UCC@k"):
        bias_figure({"ours": [one for one in bias() if one.metric == "ucc@k"]})
