"""Figures of runs: which runs are compared, what a curve and its band are, and what is missing is named."""

import math
from dataclasses import replace

import pytest

from evals.errors import DataError
from evals.figures.paper import (
    comparison,
    delta_lambda_figure,
    entropy_figure,
    limitation_figure,
    stability_figure,
    widest_by_delta,
)
from evals.figures.run_settings import KL, REWARD, RunSetting, mean_curve
from evals.figures.sheet import save_figure

ODD = "_odd $\\frac{1}{0}$ \x1b[31m"


def rows(reward=0.5, *, kl=0.01, lam=None, steps=5, clip=None):
    row = {"reward/mean": reward, "entropy/token_mean": 1.0, "kl/new_old": kl}
    row |= {} if lam is None else {"dual/lam_mean": lam}
    row |= {} if clip is None else {"clip_fraction": clip}
    return [{"step": step, **row} for step in range(1, steps + 1)]


def gspo(k=1, lr=1e-4, *, seeds=1, **other):
    return RunSetting("gspo", lr, k, tuple(rows(0.1 * k, clip=0.1) for _ in range(seeds)), **other)


def quatro(k=1, lr=1e-4, *, delta=0.1, log_ratio="detached", **other):
    look = {"advantages": (0.8, 0.4, 0.1), "capped": (3,)} | other
    return RunSetting(
        "quatro", lr, k, (rows(0.2, lam=1.0), rows(0.4, lam=4.0)), delta=delta, log_ratio=log_ratio, **look
    )


def everything():
    return [
        *(gspo(k) for k in (1, 2, 5)),
        *(quatro(k) for k in (5, 1, 2)),
        gspo(5, 1e-3),
        quatro(5, 1e-3),
        quatro(2, log_ratio="none"),
        quatro(5, delta=0.001),
    ]


def identities(settings):
    return [(one.method, one.inner_updates, one.lr, one.delta, one.own, one.shared) for one in settings]


def drawn_titles(figure):
    return [axis.get_title(loc="left") for axis in figure.axes]


def legend_texts(legend):
    return [text.get_text() for text in legend.get_texts()]


def test_a_curve_is_the_mean_of_the_seeds_and_its_band_their_extremes():
    curve = mean_curve([rows(0.2), rows(0.4), rows(0.9)], REWARD)
    assert curve.steps == [1, 2, 3, 4, 5]
    assert curve.mean == pytest.approx([0.5] * 5)
    assert curve.low == pytest.approx([0.2] * 5)
    assert curve.high == pytest.approx([0.9] * 5)


def test_a_mean_over_seeds_on_a_logarithmic_axis_is_geometric_and_leaves_out_what_has_no_logarithm():
    first = [*rows(kl=0.01), {"step": 6, "kl/new_old": 0.0}, {"step": 7, "kl/new_old": None}]
    second = [*rows(kl=0.04), {"step": 6, "kl/new_old": 0.5}, {"step": 7, "kl/new_old": 0.5}]
    curve = mean_curve([first, second], KL)
    assert curve.steps == [1, 2, 3, 4, 5]
    assert curve.mean == pytest.approx([0.02] * 5)  # sqrt(.01 * .04)


def test_seeds_of_different_length_are_averaged_only_where_all_are():
    assert mean_curve([rows(steps=3), rows(steps=5)], REWARD).steps == [1, 2, 3]


def test_a_seed_without_the_metric_does_not_count():
    silent = [{"step": step, "reward/mean": None} for step in range(1, 6)]
    assert mean_curve([rows(0.2), silent], REWARD).mean == pytest.approx([0.2] * 5)
    assert mean_curve([silent], REWARD).steps == []


def test_a_comparison_holds_everything_else_equal():
    # Two values of K at lr 1e-4 and minibatch 8; K 5 has another minibatch, K 2 another clip, K 1 another lr.
    settings = [
        gspo(2, shared="minibatch 8"),
        gspo(1, shared="minibatch 8"),
        gspo(5, shared="minibatch 32"),
        gspo(5, shared="minibatch 8", own="clip_low 0.0004"),
        gspo(4, 1e-3, shared="minibatch 8"),
    ]
    found = comparison(settings, "inner_updates")
    assert [(one.inner_updates, one.shared, one.own) for one in found] == [
        (1, "minibatch 8", ""),
        (2, "minibatch 8", ""),
    ]
    assert comparison(settings, "lr") == []


def test_a_comparison_in_which_both_methods_vary_comes_before_one_with_more_values():
    wide = [gspo(k, 1e-3) for k in (1, 2, 3, 4, 5)]
    both = [gspo(1), gspo(2), quatro(1), quatro(2), quatro(2, delta=0.001)]
    found = comparison([*wide, *both], "inner_updates")
    assert [(one.method, one.inner_updates, one.delta) for one in found] == [
        ("quatro", 1, 0.1),
        ("quatro", 2, 0.1),
        ("gspo", 1, None),
        ("gspo", 2, None),
    ]


def legends_of(figure):
    return [legend for part in figure.subfigs or [figure] for legend in part.legends]


def means(axis):
    return [line for line in axis.lines if line.get_marker() != "None"]


def test_limitation_has_a_part_for_each_axis_and_a_panel_for_each_metric():
    pytest.importorskip("matplotlib")
    drawn = limitation_figure([one for one in everything() if one.method == "gspo"])
    assert drawn.notes == []
    assert [part.get_suptitle() for part in drawn.figure.subfigs] == ["(a) learning rate", "(b) inner updates K"]
    assert drawn_titles(drawn.figure) == ["Reward", "Clipped", "Entropy"] * 2
    upper, lower = legends_of(drawn.figure)
    assert legend_texts(upper) == ["GSPO, lr 0.0001", "GSPO, lr 0.001"]
    assert upper.get_title().get_text() == "K 5"
    assert legend_texts(lower) == ["GSPO, K 1", "GSPO, K 2", "GSPO, K 5"]
    assert [line.get_ydata()[0] for line in means(drawn.figure.axes[3])] == pytest.approx([0.1, 0.2, 0.5])


def test_every_baseline_that_varies_stands_in_limitation_and_the_others_are_named():
    pytest.importorskip("matplotlib")
    dapo = [replace(one, method="dapo") for one in (gspo(1), gspo(2), gspo(5))]
    grpo = replace(gspo(2), method="grpo", names=("lonely-0", "lonely-1"))
    drawn = limitation_figure([gspo(1), gspo(2), gspo(5), *dapo, grpo, quatro(names=("q-0",))])
    assert drawn_titles(drawn.figure) == ["GSPO", "DAPO"] * 2 + [""] * 4
    notes = "\n".join(drawn.notes)
    assert "lonely-0, lonely-1" in notes
    assert "QUATRO δ 0.1, lr 0.0001, K 1 (q-0)" in notes


def test_limitation_draws_the_share_of_clipped_samples_where_all_runs_have_it():
    pytest.importorskip("matplotlib")
    counted = [
        replace(one, runs=tuple([{**row, "clip_fraction_samples": 0.4} for row in run] for run in one.runs))
        for one in (gspo(1), gspo(2))
    ]
    for settings, value, unit in ((counted, 0.4, "share of samples"), ([counted[0], gspo(2)], 0.1, "share of rows")):
        axis = limitation_figure(settings).figure.axes[1]
        assert axis.lines[0].get_ydata()[0] == pytest.approx(value)
        assert axis.get_ylabel().startswith(unit)


def test_limitation_without_learning_rates_leaves_the_column_out_and_says_so():
    pytest.importorskip("matplotlib")
    drawn = limitation_figure([gspo(1), gspo(2)])
    assert len(drawn.figure.axes) == 3
    assert [note for note in drawn.notes if "learning rate" in note]


def test_what_limitation_lacks_is_named():
    with pytest.raises(DataError, match=r"no run of a baseline such as gspo.*quatro"):
        limitation_figure([quatro()])
    with pytest.raises(DataError, match=r"learning rate.*inner updates K.*quatro sweep"):
        limitation_figure([gspo(5)])


def test_deltas_are_compared_at_the_learning_rate_and_k_that_have_most_of_them():
    alone = quatro(1, 1e-3, delta=0.5)
    trio = [quatro(5, delta=delta) for delta in (0.001, 0.1, 0.01)]
    found = widest_by_delta([alone, *trio, quatro(5, delta=0.7, log_ratio="none")])
    assert [one.delta for one in found] == [0.1, 0.01, 0.001]
    with pytest.raises(DataError, match="log_ratio=detached"):
        widest_by_delta([quatro(log_ratio="none")])


def test_advantages_stand_over_the_count_and_lambda_over_steps():
    pytest.importorskip("matplotlib")
    drawn = delta_lambda_figure([quatro(), quatro(delta=0.01)])
    left, right = drawn.figure.axes
    assert list(left.lines[0].get_xdata()) == [1, 2, 3]
    assert list(left.lines[0].get_ydata()) == [0.8, 0.4, 0.1]
    assert list(left.lines[1].get_xdata()) == [3]  # a ring: there delta was lowered
    assert list(right.lines[0].get_ydata()) == pytest.approx([2.0] * 5)  # sqrt(1 * 4)
    assert legend_texts(drawn.figure.legends[0]) == ["QUATRO δ 0.1", "QUATRO δ 0.01"]
    assert drawn.notes == []


def test_one_delta_and_no_lambda_are_noted():
    pytest.importorskip("matplotlib")
    drawn = delta_lambda_figure([RunSetting("quatro", 1e-4, 1, (rows(),), delta=0.1, advantages=(0.8, 0.1))])
    assert len(drawn.figure.axes) == 1
    assert len(drawn.notes) == 2


def test_entropy_prefers_deltas_that_have_baselines_beside_them():
    pytest.importorskip("matplotlib")
    drawn = entropy_figure([quatro(1, names=("far-0",)), quatro(1, delta=0.01), quatro(5), gspo(5)])
    assert legend_texts(drawn.figure.legends[0]) == ["QUATRO δ 0.1", "GSPO"]
    assert drawn.notes == ["left out: QUATRO δ 0.1, lr 0.0001, K 1 (far-0); QUATRO δ 0.01, lr 0.0001, K 1"]
    assert entropy_figure([quatro()]).notes == ["no run of a baseline to compare with"]
    assert entropy_figure([gspo()]).notes == ["no run of quatro to compare with"]
    blind = replace(gspo(), runs=([{"step": 1, "reward/mean": 0.1}],), names=("blind-0",))
    assert "no finite entropy/token_mean" in entropy_figure([quatro(), blind]).notes[0]


def test_every_baseline_stands_in_entropy_in_a_panel_of_its_own_where_they_are_many():
    pytest.importorskip("matplotlib")
    baselines = [replace(gspo(), method=name) for name in ("gspo", "grpo", "gpg", "gmpo", "dapo", "cispo")]
    drawn = entropy_figure([*baselines, quatro(), quatro(delta=0.01)])
    assert drawn.notes == []
    assert drawn_titles(drawn.figure) == ["QUATRO", "GSPO", "GRPO", "GMPO", "GPG", "DAPO", "CISPO"]
    assert [len(means(axis)) for axis in drawn.figure.axes] == [2, 1, 1, 1, 1, 1, 1]
    assert legend_texts(drawn.figure.legends[0]) == ["QUATRO δ 0.1", "QUATRO δ 0.01"]


def test_stability_has_three_parts_and_a_panel_for_each_method_where_lines_are_many():
    pytest.importorskip("matplotlib")
    drawn = stability_figure(everything())
    assert [note for note in drawn.notes if "left out" not in note] == []
    assert [part.get_suptitle() for part in drawn.figure.subfigs] == [
        "(a) inner updates K",
        "(b) learning rate",
        "(c) log-ratio term",
    ]
    # Six curves over K are too many for one panel; so all parts have panels by method.
    assert drawn_titles(drawn.figure)[:2] == ["QUATRO δ\u00a00.1", "GSPO"]
    assert all(len(means(axis)) <= 3 for axis in drawn.figure.axes)
    upper, _, last = legends_of(drawn.figure)
    assert legend_texts(upper) == ["K 1", "K 2", "K 5"]
    assert upper.get_title().get_text() == "lr 0.0001"
    names = [f"QUATRO δ 0.1, {term}" for term in ("with log-ratio (detached)", "without log-ratio")]
    assert legend_texts(last) == names
    assert last.get_title().get_text().startswith("lr 0.0001, K 2, ")
    dashes = {str(line.get_linestyle()) + str(line._dash_pattern) for line in means(drawn.figure.axes[0])}
    assert len(dashes) == 3


def test_few_curves_of_stability_share_a_panel():
    pytest.importorskip("matplotlib")
    drawn = stability_figure([gspo(1), gspo(5), quatro(1), quatro(5)])
    assert drawn_titles(drawn.figure) == ["Reward", "Entropy"]
    names = [f"{name}, K {k}" for name in ("QUATRO δ 0.1", "GSPO") for k in (1, 5)]
    assert legend_texts(legends_of(drawn.figure)[0]) == names


def test_stability_leaves_out_what_is_missing_and_names_it():
    pytest.importorskip("matplotlib")
    drawn = stability_figure([quatro(2), quatro(2, log_ratio="none"), gspo(2)])
    assert len(drawn.figure.axes) == 2
    assert [note[:3] for note in drawn.notes] == ["(a)", "(b)", "lef"]
    assert "GSPO" in drawn.notes[-1]
    with pytest.raises(DataError, match=r"\(a\).*\(b\).*\(c\).*log_ratio"):
        stability_figure([quatro(2), gspo(2)])


def test_of_equal_ablations_the_papers_own_is_drawn():
    pytest.importorskip("matplotlib")
    settings = [quatro(k, log_ratio=term) for k in (5, 2, 1) for term in ("none", "detached")]
    part_c = legends_of(stability_figure(settings).figure)[-1]
    assert part_c.get_title().get_text().startswith("lr 0.0001, K 2, ")


def test_log_ratios_at_different_deltas_are_no_ablation():
    with pytest.raises(DataError, match=r"\(c\)"):
        stability_figure([quatro(2), quatro(2, log_ratio="none", delta=0.01)])


FIGURES = (limitation_figure, delta_lambda_figure, entropy_figure, stability_figure)


@pytest.mark.parametrize("kind", ["svg", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("png", "pdf"))])
@pytest.mark.parametrize("figure_of", FIGURES, ids=lambda figure_of: figure_of.__name__)
def test_the_same_runs_give_the_same_bytes(tmp_path, figure_of, kind):
    pytest.importorskip("matplotlib")
    settings = [quatro(1, own=ODD), quatro(2, own=ODD), gspo(1, own=ODD), gspo(2, own=ODD)]
    for file in ("a", "b"):
        save_figure(figure_of(settings).figure, tmp_path / f"{file}.{kind}")
    first, second = ((tmp_path / f"{file}.{kind}").read_bytes() for file in ("a", "b"))
    assert first == second
    assert len(first) > 4000


def test_numbers_that_are_not_finite_leave_gaps():
    pytest.importorskip("matplotlib")
    broken = [{"step": 1, "reward/mean": math.nan, "entropy/token_mean": None, "kl/new_old": math.inf}]
    settings = [RunSetting("gspo", 1e-4, k, (broken,)) for k in (1, 2)]
    with pytest.raises(DataError, match="reward/mean"):
        limitation_figure(settings)
    for axis in stability_figure(settings).figure.axes:
        assert [text.get_text() for text in axis.texts] == ["none"]
