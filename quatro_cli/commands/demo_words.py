"""What `quatro demo --model smollm2` shows: a table, a picture, and one problem with the ways to its answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from quatro_cli.output import output

if TYPE_CHECKING:
    from quatro.tasks.derivations import Answers
    from quatro_cli.commands.demo import Arm, Tour

K = 16  # samples among which ways are counted


def show(tour: Tour, arms: list[Arm], root: Path) -> None:
    """The table on the screen, root/figures/trade-off.png, and the ways to one answer."""
    from evals.figures.sheet import save_figure
    from evals.figures.trade_off import Point, trade_off_figure
    from evals.intervals import mean_intervals
    from quatro.runs.metrics import read_metrics
    from quatro.sample.folder import measure_samples
    from quatro.tasks.derivations import read_answers
    from quatro_cli.commands.demo import folder_of

    n, k = tour.n, min(K, tour.n)
    ks = dict.fromkeys((1, k, n))
    rows, points, answers = [], [], {}
    for arm in arms:
        folder = folder_of(arm, root, 1.0)
        ucc = next(row for row in measure_samples(folder, n=n, label=arm.label).ucc.rows if row.k == k)
        found = answers[arm.label] = read_answers(folder / f"{tour.benchmark}.jsonl")
        passed = [mean_intervals([100 * found.pass_at(at)], [100])[0] for at in ks]
        (distinct,) = mean_intervals([found.ways_at(k)], [k])
        moved = [row["kl/new_old"] for row in read_metrics(arm.run)] if arm.run else []
        numbers = [*(one.mean for one in passed), 100 * found.false_shares.mean()]
        shown = [*(f"{number:.1f}" for number in numbers), f"{distinct.mean:.2f}", f"{ucc.value:.2f}"]
        rows.append([arm.label, *shown, f"{sum(moved) / len(moved):.3f}" if moved else "-"])
        points.append(Point(arm.label, passed[0].mean, distinct.mean, passed[0][1:3], distinct[1:3]))
    columns = ["", *(f"Pass@{at}" for at in ks), "false, %", f"ways@{k}", f"UCC@{k}", "kl/new_old"]
    output.table(f"word problems, {n} samples for each of {len(found)} held-out problems", columns, rows)
    output.data(f"ways@{k} counts distinct valid strategies among {k} samples, UCC@{k} distinct wordings (TF-IDF).")
    output.data("false is the share of right answers with a false derivation; the reward does not see it.")
    note = f"95 %, over problems only; {n} samples of {len(found)} problems, one seed"
    ways = f"distinct valid strategies among {k} samples"
    figure = trade_off_figure(points, accuracy="Pass@1, %", diversity=ways, note=note)
    save_figure(figure, path := root / "figures" / "trade-off.png")
    output.data(str(path))
    _show_problem(tour, answers)


def _show_problem(tour: Tour, answers: dict[str, Answers]) -> None:
    """The problem to which the first model has most valid ways: each model's ways, commonest first, and false ones."""
    from evals.benchmarks.loading import load_problems
    from evals.text import visible

    first = next(iter(answers.values()))
    id = max(first, key=lambda one: len(first.ways_of(one)))
    problem = next(one.problem for one in load_problems(tour.benchmark) if one.id == id)
    output.data(f"\n{problem}")
    for label, found in answers.items():
        output.data(f"\n{label}: {sum(map(len, found[id].values()))} of {found.n} right")
        for derivation, texts in sorted(found[id].items(), key=lambda one: -len(one[1])):
            text = max(texts, key=texts.count).strip()
            output.data(f"  {len(texts):3} x {derivation.verdict:5}  {visible(text)}")
