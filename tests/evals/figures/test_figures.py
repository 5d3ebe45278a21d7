"""Figures: what is drawn where, and that a file is whole and the same every time."""

import math

import pytest

from evals.errors import DataError, UsageError
from evals.figures.method_looks import PALETTE
from evals.figures.sheet import save_figure
from evals.figures.training import TrainingCurve, training_figure
from evals.results.training_metrics import running_mean, series

pytest.importorskip("matplotlib")


def rows(steps: int, **metrics) -> list[dict]:
    return [
        {"step": step, **{name.replace("__", "/"): value(step) for name, value in metrics.items()}}
        for step in range(1, steps + 1)
    ]


def curve(label, *runs, delta=None) -> TrainingCurve:
    return TrainingCurve(label, runs, delta)


def quatro(label="quatro", delta=0.01, steps=30) -> TrainingCurve:
    return curve(
        label,
        rows(
            steps,
            reward__mean=lambda t: t / 100,
            entropy__token_mean=lambda t: 1 - t / 100,
            dual__lam_mean=lambda t: 3.0,
            kl__new_old=lambda t: delta * (1 + 0.1 * math.sin(t)),
            kl__old_new=lambda t: delta * 7,
        ),
        delta=delta,
    )


def axes_by_title(figure) -> dict:
    return {axis.get_title(loc="left"): axis for axis in figure.axes if axis.get_title(loc="left")}


def test_an_evaluation_before_training_is_the_first_point_of_its_curve():
    rows = [{"step": 1, "reward/mean": 0.5, "base/pass@1": 0.1}, {"step": 2, "eval/pass@1": 0.2}]
    assert series(rows, "eval/pass@1") == ([0.0, 2.0], [0.1, 0.2])
    assert series(rows, "reward/mean") == ([1.0], [0.5])
    assert series([{**rows[0], "base/pass@1": None}], "eval/pass@1") == ([], [])


def test_series_leaves_out_unknown_and_non_finite_values():
    found = series(
        [
            {"step": 1, "x": 2.0},
            {"step": 2, "x": None},
            {"step": 3, "x": float("nan")},
            {"step": 4},
            {"step": 5, "x": True},
            {"step": 6, "x": 3},
        ],
        "x",
    )
    assert found == ([1.0, 6.0], [2.0, 3.0])


def test_running_mean_averages_what_exists_around_each_value():
    assert running_mean([1, 2, 6, 7], 3) == [1.5, 3.0, 5.0, 6.5]
    assert running_mean([1, 2, 6], 1) == [1, 2, 6]


def test_a_panel_without_numbers_is_left_out():
    with_clip = curve("gspo", rows(5, reward__mean=lambda t: 0.2, clip_fraction=lambda t: 0.1))
    assert "Clipped" not in axes_by_title(training_figure([quatro()]))
    assert set(axes_by_title(training_figure([with_clip]))) == {"Reward", "Clipped"}


def test_the_radius_is_a_line_at_delta_on_a_logarithmic_axis():
    figure = training_figure([quatro(delta=0.01), quatro("wide", delta=0.1)])
    axis = axes_by_title(figure)["Realised KL(new ‖ old)"]
    assert axis.get_yscale() == "log"
    # The curves are of the KL that delta bounds, and of no other.
    assert max(max(line.get_ydata()) for line in axis.lines) == pytest.approx(0.11, rel=0.01)
    flat = {line.get_ydata()[0]: line.get_color() for line in axis.lines if len(line.get_ydata()) == 2}
    assert flat == {0.01: PALETTE[0], 0.1: PALETTE[1]}  # "wide" names no method
    low, high = axis.get_ylim()
    assert low < 0.01
    assert high > 0.1


@pytest.mark.parametrize("pairs", [[(1e-4, 0.1)], [(1.0, 0.01)], [(0.01, 0.01), (0.1, 0.1)]])
def test_the_panel_takes_in_delta_and_its_label_lies_inside(pairs):
    runs = [curve(str(delta), rows(9, kl__new_old=lambda t, kl=kl: kl), delta=delta) for kl, delta in pairs]
    figure = training_figure(runs)
    figure.draw_without_rendering()
    (axis,) = (one for one in figure.axes if one.get_title(loc="left").startswith("Realised KL"))
    low, high = axis.get_ylim()
    box = axis.get_window_extent()
    assert {text.get_text() for text in axis.texts} == {f"δ {delta:g}" for _, delta in pairs}
    for text, (_, delta) in zip(axis.texts, pairs, strict=True):
        assert low < delta < high
        extent = text.get_window_extent()
        assert box.x0 <= extent.x0 < extent.x1 <= box.x1
        assert box.y0 <= extent.y0 < extent.y1 <= box.y1


def test_a_negative_kl_estimate_is_not_drawn_on_the_logarithmic_axis():
    run = curve("r", rows(4, kl__new_old=lambda t: -1e-9 if t == 2 else 0.01))
    axis = axes_by_title(training_figure([run]))["Realised KL(new ‖ old)"]
    assert list(axis.lines[0].get_xdata()) == [1, 3, 4]


def test_an_axis_from_zero_leaves_room_above_flat_values():
    run = curve("flat", [{"step": step, "eval/pass@1": value} for step, value in ((1, 0.19), (2, 0.2))])
    (axis,) = axes_by_title(training_figure([run])).values()
    assert axis.get_ylim() == pytest.approx((0, 0.21))


def test_every_run_has_its_own_colour_and_stands_in_the_legend():
    figure = training_figure([quatro("_first $x_1$"), quatro("second\x1b", delta=0.1)])
    legend = figure.legends[0] if figure.legends else next(a.get_legend() for a in figure.axes if a.get_legend())
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels[:2] == [" _first $x_1$", "second\\x1b"]


@pytest.mark.parametrize("kind", ["svg", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("png", "pdf"))])
def test_the_same_numbers_give_the_same_bytes(tmp_path, kind):
    for name in ("a", "b"):
        save_figure(training_figure([quatro("$\\frac{1}{0}$ run")]), tmp_path / f"{name}.{kind}")
    first, second = (tmp_path / f"{name}.{kind}" for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    assert len(first.read_bytes()) > 5000
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"a.{kind}", f"b.{kind}"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    figure = training_figure([quatro()])
    monkeypatch.setattr(figure, "savefig", lambda *args, **kwargs: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save_figure(figure, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_drawn_is_refused_in_words(tmp_path):
    with pytest.raises(DataError, match="'empty' has no metrics yet"):
        training_figure([curve("empty", [])])
    with pytest.raises(DataError, match="none of the metrics reward/mean"):
        training_figure([curve("odd", [{"step": 1, "reward/mean": None}])])
    with pytest.raises(UsageError, match=r"\.png, \.svg or \.pdf"):
        save_figure(training_figure([quatro()]), tmp_path / "a.gif")


def test_the_seeds_of_a_setting_are_thin_lines_around_their_mean():
    seeds = [rows(5, reward__mean=lambda t, shift=shift: t + shift) for shift in (0.0, 1.0, 5.0)]
    (axis,) = training_figure([curve("GSPO", *seeds)]).axes
    *thin, mean = axis.lines
    assert [line.get_ydata()[0] for line in thin] == [1.0, 2.0, 6.0]
    assert mean.get_ydata()[0] == pytest.approx(3.0)
    assert max(line.get_linewidth() for line in thin) < mean.get_linewidth()


@pytest.mark.parametrize(
    ("steps", "seeds", "said"),
    [
        (23, 1, "every step is shown as it is"),
        (24, 1, "bold: running mean; thin: every step"),
        (23, 2, "bold: mean of the seeds; thin: each seed"),
    ],
)
def test_the_caption_tells_of_thin_lines_and_running_means_where_they_are_drawn(steps, seeds, said):
    runs = [rows(steps, reward__mean=lambda t, seed=seed: t + seed) for seed in range(seeds)]
    figure = training_figure([curve("GSPO", *runs)])
    assert said in {text.get_text() for text in figure.findobj(lambda one: hasattr(one, "get_text"))}
    assert len(figure.axes[0].lines) == 1 + said.count("thin") * seeds


def test_more_than_four_curves_have_a_panel_for_each_method_on_shared_axes():
    labels = ["GSPO", "DAPO", "QUATRO δ 0.1", "QUATRO δ 0.01", "QUATRO δ 0.001"]
    curves = [curve(label, rows(5, reward__mean=lambda t, at=at: t + at)) for at, label in enumerate(labels)]
    assert len(training_figure(curves[:4]).axes) == 1
    figure = training_figure(curves)
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["GSPO", "DAPO", "QUATRO"]
    assert len({axis.get_ylim() for axis in figure.axes}) == 1
    own = [[line for line in axis.lines if line.get_marker() != "None"] for axis in figure.axes]
    assert [len(lines) for lines in own] == [1, 1, 3]
    assert [len(axis.lines) for axis in figure.axes] == [5, 5, 5]  # the others are pale behind


def test_evaluations_have_bars_of_one_standard_error_which_are_named():
    def run(value):
        first = {"step": 1, "base/pass@1": 0.1, "base/pass@1_se": 0.01, "reward/mean": 0.5}
        return [first, {"step": 2, "eval/pass@1": value, "eval/pass@1_se": 0.03, "reward/mean": 0.5}]

    figure = training_figure([curve("x", run(0.2), run(0.4))])
    panels = axes_by_title(figure)
    (bars,) = [one for one in panels["Evaluation"].collections if len(one.get_segments()) == 2]
    ends = [sorted(y for _, y in segment) for segment in bars.get_segments()]
    assert ends == [pytest.approx([0.09, 0.11]), pytest.approx([0.27, 0.33])]
    assert not panels["Reward"].collections
    words = " ".join(text.get_text() for text in figure.findobj(lambda one: hasattr(one, "get_text")))
    assert "± 1 standard error, over problems only" in " ".join(words.split())
