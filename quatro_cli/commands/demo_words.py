"""What `quatro demo --model smollm2` shows: a table, a picture, and one problem with the ways to its answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from quatro_cli.output import output

if TYPE_CHECKING:
    from quatro.tasks.derivations import Derivation
    from quatro_cli.commands.demo import Arm, Tour

    # Of each problem the right answers by their derivation.
    Ways = dict[str, dict[Derivation, list[str]]]

K = 16  # samples among which ways are counted


def show(tour: Tour, arms: list[Arm], root: Path) -> None:
    """The table on the screen, root/figures/trade-off.png, and the ways to one answer."""
    from evals.estimators import ucc_at_ks
    from evals.figures.sheet import save_figure
    from evals.figures.trade_off import Point, trade_off_figure
    from evals.files.frames import grouped
    from evals.intervals import mean_intervals
    from evals.samples.graded import read_graded
    from quatro.runs.metrics import read_metrics
    from quatro.sample.folder import measure_samples
    from quatro.tasks.derivations import derivation_of
    from quatro_cli.commands.demo import folder_of

    n, k = tour.n, min(K, tour.n)
    ks = dict.fromkeys((1, k, n))
    rows, points, ways_of = [], [], {}
    for arm in arms:
        folder = folder_of(arm, root, 1.0)
        measured = measure_samples(folder, n=n, label=arm.label)
        passed = [next(row for row in measured.passk.rows if row.k == at) for at in ks]
        ucc = next(row for row in measured.ucc.rows if row.k == k)
        problems = read_graded([folder / f"{tour.benchmark}.jsonl"])[0].graded()
        found = ways_of[arm.label] = {one.id: grouped(one.completions, derivation_of) for one in problems}
        sizes = [[len(texts) for how, texts in some.items() if how.verdict == "valid"] for some in found.values()]
        (distinct,) = mean_intervals([ucc_at_ks([n] * len(sizes), sizes, [k])[None]], [k])
        moved = [row["kl/new_old"] for row in read_metrics(arm.run)] if arm.run else []
        false = [len(texts) for some in found.values() for how, texts in some.items() if how.verdict == "false"]
        num_right = sum(one.correct for one in problems)
        numbers = [*(100 * row.value for row in passed), 100 * sum(false) / max(num_right, 1)]
        shown = [*(f"{number:.1f}" for number in numbers), f"{distinct.mean:.2f}", f"{ucc.value:.2f}"]
        rows.append([arm.label, *shown, f"{sum(moved) / len(moved):.3f}" if moved else "-"])
        low, high = (None if end is None else 100 * end for end in (passed[0].ci_low, passed[0].ci_high))
        points.append(Point(arm.label, 100 * passed[0].value, distinct.mean, (low, high), distinct[1:3]))
    columns = ["", *(f"Pass@{at}" for at in ks), "false, %", f"ways@{k}", f"UCC@{k}", "kl/new_old"]
    output.table(f"word problems, {n} samples for each of {len(found)} held-out problems", columns, rows)
    output.data(f"ways@{k} counts distinct valid strategies among {k} samples, UCC@{k} distinct wordings (TF-IDF).")
    output.data("false is the share of right answers with a false derivation; the reward does not see it.")
    note = f"95 %, over problems only; {n} samples of {len(found)} problems, one seed"
    ways = f"distinct valid strategies among {k} samples"
    figure = trade_off_figure(points, accuracy="Pass@1, %", diversity=ways, note=note)
    save_figure(figure, path := root / "figures" / "trade-off.png")
    output.data(str(path))
    _show_problem(tour, ways_of)


def _show_problem(tour: Tour, ways_of: dict[str, Ways]) -> None:
    """The problem to which the first model has most valid ways: each model's ways, commonest first, and false ones."""
    from evals.benchmarks.loading import load_problems
    from evals.text import visible

    first = next(iter(ways_of.values()))
    id = max(first, key=lambda one: sum(how.verdict == "valid" for how in first[one]))
    problem = next(one.problem for one in load_problems(tour.benchmark) if one.id == id)
    output.data(f"\n{problem}")
    for label, found in ways_of.items():
        output.data(f"\n{label}: {sum(map(len, found[id].values()))} of {tour.n} right")
        for derivation, texts in sorted(found[id].items(), key=lambda one: -len(one[1])):
            text = max(texts, key=texts.count).strip()
            output.data(f"  {len(texts):3} x {derivation.verdict:5}  {visible(text)}")
