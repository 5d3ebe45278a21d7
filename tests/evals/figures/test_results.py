"""Figures of results: what is drawn where, the same bytes every time, and what cannot be drawn is refused in words."""

import numpy as np
import pytest

from evals.errors import DataError, UsageError
from evals.figures.bars import flips_figure, temperature_figure
from evals.figures.curves import CurvePanel, curve_panels, curves_figure
from evals.figures.method_looks import METHOD_LOOKS, looks_of
from evals.figures.sheet import Sheet, fitted, inches_of, save_figure
from evals.figures.similarity import heatmap_figure, similarity_figure
from evals.metrics.counting import Clustering
from evals.metrics.flips import Pair, flip_rows
from evals.metrics.studies.similarity import Heatmap, heatmap_of, similarity_result
from evals.results.document import Row
from evals.results.entries import Entry, Key, Number
from evals.samples.types import Sample, Samples

pytest.importorskip("matplotlib")

ODD = "_odd $\\frac{1}{0}$ \x1b[31m"


def row(metric, value, *, benchmark="a", k=None, **extra):
    return Row(metric=metric, benchmark=benchmark, k=k, value=value, num_problems=3, n=8, **extra)


def samples(texts):
    return Samples([Sample("a", "p", index, text, "7", correct=True) for index, text in enumerate(texts)], [])


def flips(tuned=3):
    return flip_rows([Pair("a", "1", 8, 0, tuned), Pair("a", "2", 8, 0, 0), Pair("a", "3", 8, 8, 8)], ks=[4], ci=True)


def sides(ucr=0.2):
    setting = {"similarity": "tfidf", "linkage": "components", "threshold": 0.9}
    return [row("ucr", ucr, ci_low=ucr / 2, ci_high=2 * ucr, **setting), row("pass@k", 0.5, k=1, **setting)]


FIGURES = {
    "curves": lambda: curves_figure(
        [CurvePanel("a", "y", {ODD: {1: Number(0.1, 0.0, 0.2), 2: Number(0.3, 0.2, 0.4)}})]
    ),
    "flips": lambda: flips_figure({ODD: flips(), "b": flips(0)}, k=4),
    "similarity": lambda: similarity_figure({ODD: similarity_result(samples(["a b", "a c", "a b"])).rows}),
    "heatmap": lambda: heatmap_figure({ODD: heatmap_of(samples(["a b c", "a b d", "x y"]), "p")}),
    "temperature": lambda: temperature_figure({ODD: sides(), "b": sides()}),
}


@pytest.mark.parametrize("kind", ["svg", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("png", "pdf"))])
@pytest.mark.parametrize("name", FIGURES)
def test_the_same_numbers_give_the_same_bytes(tmp_path, name, kind):
    for file in ("a", "b"):
        save_figure(FIGURES[name](), tmp_path / f"{file}.{kind}")
    first, second = ((tmp_path / f"{file}.{kind}").read_bytes() for file in ("a", "b"))
    assert first == second
    assert len(first) > 4000


def test_labels_of_one_method_share_hue_and_marker_and_differ_in_dash_or_shade():
    looks = looks_of([f"GSPO, K {k}" for k in range(8)])
    assert {(look.color, look.marker) for look in looks} == {METHOD_LOOKS["gspo"][:2]}
    assert len({(str(look.dash), look.is_hollow) for look in looks}) == 8
    assert len({look.hatch for look in looks_of("abcdefghijkl")}) == 12
    with pytest.raises(UsageError, match="13 labels"):
        temperature_figure({str(position): sides() for position in range(13)})


def test_a_method_keeps_its_colour_and_marker_whatever_stands_beside_it_and_however_it_is_written():
    from quatro.registry import METHODS

    assert set(METHODS) < set(METHOD_LOOKS)  # which also has those of docs/methods.md
    for labels in (["GSPO"], ["x", "y", "gspo"], ["Ours delta=0.1", "DAPO", "quickstart-gspo-0", "Base"]):
        at = next(place for place, label in enumerate(labels) if "gspo" in label.lower())
        assert looks_of(labels)[at][:2] == METHOD_LOOKS["gspo"][:2]
    # A label without a method takes none of those that are there.
    first, second, third = looks_of(["mine", "QUATRO", "gspo"])
    assert first.color not in (second.color, third.color)
    assert looks_of(["ours"]) == looks_of(["quatro"])


def test_deltas_are_shades_from_light_to_dark_and_the_same_in_every_figure():
    def lightness(look):
        return sum(int(look.color[at : at + 2], 16) for at in (1, 3, 5))

    deltas = ["QUATRO δ 0.0001", "Ours delta=0.001", "QUATRO δ 0.003", "ours delta=1e-2", "QUATRO δ 0.1", "QUATRO δ 7"]
    looks = looks_of(deltas)
    shades = [lightness(look) for look in looks]
    assert shades == sorted(shades, reverse=True)
    assert {look.marker for look in looks} == {"o"}
    assert [looks_of([label])[0].color for label in deltas] == [look.color for look in looks]


def test_the_width_of_a_text_is_what_a_figure_gives_it():
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 1), dpi=200)
    drawn = figure.text(0, 0.5, "QUATRO, delta 0.01", size=20)
    width = drawn.get_window_extent(FigureCanvasAgg(figure).get_renderer()).width / figure.dpi
    assert inches_of("QUATRO, delta 0.01", size=20) == pytest.approx(width, rel=0.05)


def test_a_long_label_is_cut_in_the_middle_to_its_inches():
    cut = fitted("begin" + "W" * 5000 + "end\n", 2.0, size=8)
    assert 1.8 < inches_of(cut, size=8) <= 2.0
    assert cut.startswith("beginW")
    assert cut.endswith("Wend\\n")
    assert fitted("short", 2.0, size=8) == "short"


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
    assert axis.get_title(loc="left") == "MATH500"


def test_the_average_is_a_panel_only_beside_several_benchmarks():
    def entry(*names):
        return Entry("ours", None, {Key("pass@k", name, 1): Number(0.5) for name in (*names, "average")})

    assert [panel.title for panel in curve_panels([entry("x")], "pass@k")] == ["x"]
    assert [panel.title for panel in curve_panels([entry("x", "y")], "pass@k")] == ["x", "y", "Average"]
    assert [panel.title for panel in curve_panels([entry("x", "y")], "pass@k", benchmarks=["y"])] == ["y"]
    with pytest.raises(UsageError, match="'z' is not in pass@k in the files"):
        curve_panels([entry("x")], "pass@k", benchmarks=["z"])


def test_bars_of_flips_are_as_high_as_their_rows_and_count_problems():
    figure = flips_figure({"ours": flips(), "other": flips(0)}, k=4)
    left, right = figure.axes
    # Of two problems never solved one is solved; at k = 4 it is found with 1 - C(5, 4) / C(8, 4).
    assert [bar.get_height() for bar in left.patches] == pytest.approx([50, 0])
    assert [bar.get_height() for bar in right.patches] == pytest.approx([50 * (1 - 5 / 70), 0, 0, 0])
    below = [text.get_text() for text in right.texts]
    assert below == ["very hard", "0", "2", "hard", "1", "0", "medium", "2-4", "0", "easy", "5-8", "1"]


def test_whiskers_end_where_the_intervals_of_the_rows_do():
    """In percent as the bars are, at both ends of an interval that is not even."""

    def whiskers(axis):
        return [sorted(y for _, y in segment) for lines in axis.collections for segment in lines.get_segments()]

    first, *others = flips()
    rows = [first.model_copy(update={"ci_low": 0.2, "ci_high": 0.6}), *others]
    (one, *_) = whiskers(flips_figure({"ours": rows}, k=4).axes[0])
    assert one == pytest.approx([20, 60])
    ucr, passed = temperature_figure({"cold": [*sides(0.2)[:1], row("pass@k", 0.5, k=1, ci_low=0.1, ci_high=0.7)]}).axes
    assert whiskers(ucr)[0] == pytest.approx([0.1, 0.4])
    assert whiskers(passed)[0] == pytest.approx([10, 70])


def test_flips_of_different_bases_are_refused():
    other = flip_rows([Pair("a", "1", 8, 0, 1)], ks=[4])
    with pytest.raises(DataError, match="different bases"):
        flips_figure({"ours": flips(), "other": other}, k=4)
    with pytest.raises(UsageError, match=r"no flip@k at k = 2 in the files, only at 4"):
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
    wide = heatmap_of(samples(["a b c", "a b d", "x y", "x y z"]), "p", Clustering(["jaccard"], [0.5]))
    narrow = heatmap_of(samples(["a b c", "a b c"]), "p", Clustering(["jaccard"], [0.5]))
    figure = heatmap_figure({"wide": wide, "narrow": narrow})
    first, second = figure.axes[:2]
    np.testing.assert_array_equal(first.images[0].get_array(), wide.similarity_AA)
    assert first.images[0].get_clim() == second.images[0].get_clim()
    assert [(frame.get_x(), frame.get_width()) for frame in first.patches] == [(-0.5, 2), (1.5, 2)]
    assert not second.patches
    assert isinstance(wide, Heatmap)


def test_temperature_has_a_bar_for_each_label():
    figure = temperature_figure({"cold": sides(0.1), "hot": sides(0.3)})
    ucr, passed = figure.axes
    assert [bar.get_height() for bar in ucr.patches] == [0.1, 0.3]
    assert [bar.get_height() for bar in passed.patches] == [50, 50]


def test_names_stand_for_labels_in_order_and_keep_their_looks():
    entries = [Entry(label, None, {Key("pass@k", "a", 1): Number(0.5)}) for label in ("gspo", "b")]
    figure = curves_figure(curve_panels(entries, "pass@k"), sheet=Sheet(names=("First", "")))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["First", "b"]
    assert figure.axes[0].lines[0].get_color() == METHOD_LOOKS["gspo"].color
    spelled = curves_figure(curve_panels(entries, "pass@k"), sheet=Sheet(names=("First", ""), spell=str.upper))
    assert [text.get_text() for text in spelled.legends[0].get_texts()] == ["First", "B"]
    with pytest.raises(UsageError, match=r"1 names, and the figure has 2 labels.*gspo,b"):
        curves_figure(curve_panels(entries, "pass@k"), sheet=Sheet(names=("one",)))


def test_a_lone_square_stands_in_the_middle_of_the_page():
    heatmap = heatmap_of(samples(["a b", "a b c", "x y"]), "p")
    figure = heatmap_figure({"a": heatmap})
    figure.draw_without_rendering()
    box = figure.axes[0].get_position()
    assert 0.2 < box.x0 < 0.3 < 1 - box.x1 < 0.4  # with its scale


def test_a_heatmap_of_all_answers_has_the_wrong_ones_behind_a_line_and_says_its_scale():
    rows = [
        Sample("a", "p", at, text, "7", correct=is_correct)
        for at, (text, is_correct) in enumerate([("x y", False), ("a b c", True), ("q", False), ("a b d", True)])
    ]
    shown = heatmap_of(Samples(rows, []), "p", Clustering(["jaccard"], [0.5]), with_wrong=True)
    figure = heatmap_figure({"ours": shown})
    axis, bar = figure.axes
    assert axis.images[0].get_clim() == (0.0, 1.0)
    assert [line.get_xdata()[0] for line in axis.lines] == [0, 1.5]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["correct", "wrong"]
    assert axis.get_xlabel().startswith("4 answers, 2 wrong")
    assert "scale 0 to 1" in bar.get_ylabel()
