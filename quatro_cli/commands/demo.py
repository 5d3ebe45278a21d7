"""`quatro demo`: the whole way on a small model, by the commands that anyone would type."""

from __future__ import annotations

import shlex
import tomllib
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Option

from quatro_cli.options import usage_error
from quatro_cli.output import output

if TYPE_CHECKING:
    from evals.results.document import Result, Row
    from quatro.sample.folder import Measured
    from quatro.tasks.derivations import Derivation

    # Of each problem the right answers by their derivation.
    Ways = dict[str, dict[Derivation, list[str]]]

LAST = 10  # iterations over which the final entropy is averaged
K = 16  # samples of word problems among which ways are counted


@dataclass(frozen=True)
class Arm:
    """One line of the table: the model that all begin with, or a run and how it is trained."""

    label: str
    run: Path | None = None
    settings: str = ""


@dataclass(frozen=True)
class Tour:
    """What is trained and sampled: ``arms`` of the configuration ``config``, whose runs lie in the demo's folder.

    ``before`` is said before the first command.
    """

    model: str
    config: str
    benchmark: str
    drawing: str  # options of `quatro sample`
    steps: int
    n: int
    top_ps: list[float]
    arms: list[Arm]
    before: str = ""


def demo(
    model: Annotated[
        Literal["countdown", "smollm2"],
        Option(metavar="NAME", help="countdown (nine digits), or smollm2 (SmolLM2-135M, word problems)."),
    ] = "countdown",
    root: Annotated[
        Path | None, Option("-o", "--out", metavar="DIR", help="Default: runs/demo, or runs/demo-smollm2.")
    ] = None,
    steps: Annotated[
        int | None, Option(metavar="N", min=2, help="Iterations of each run. Default: 100, or 18.")
    ] = None,
    n: Annotated[
        int | None, Option("-n", "--n", metavar="N", min=1, help="Samples per problem. Default: 256, or 32.")
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the commands that would run, and do nothing.")] = False,
) -> None:
    """Train, sample and measure a small model, as a tour.

    The embedded model is fine-tuned with QUATRO and with GSPO; a table and two figures compare all three. It takes
    about three minutes on one idle core. With --model smollm2 a pretrained language model is fine-tuned, with two radii
    of QUATRO and with GSPO. After an interruption, repeat the command.

    \b
    Examples:
      quatro demo
      quatro demo --steps 20 -n 64 -o runs/short-demo
      quatro demo --model smollm2
    """
    root = root or Path("runs/demo" if model == "countdown" else f"runs/demo-{model}")
    tour = _tour_of(model, root)
    tour = replace(tour, steps=steps or tour.steps, n=n or tour.n)
    try:
        _tour(tour, root, dry_run=dry_run)
    except (typer.Exit, KeyboardInterrupt) as ended:
        if getattr(ended, "exit_code", 130) in (130, 143):
            again = ["quatro", "demo", *(["--model", model] if model != "countdown" else [])]
            again += ["-o", str(root), "--steps", str(tour.steps), "-n", str(tour.n)]
            output.info(f"the demo was stopped; `{shlex.join(again)}` goes on, and what is done stays")
        raise


def _tour_of(model: str, root: Path) -> Tour:
    table = tomllib.loads(resources.files("quatro_cli").joinpath("demo.toml").read_text(encoding="utf-8"))[model]
    arms = [
        Arm(one["label"], root / one["run"] if "run" in one else None, one.get("settings", "")) for one in table["arms"]
    ]
    return Tour(**{**table, "arms": arms})


def _tour(tour: Tour, root: Path, *, dry_run: bool) -> None:
    n, arms = tour.n, tour.arms
    if tour.before:
        output.info(tour.before)
    for arm in arms:
        if arm.run is not None and (command := _training(tour, arm)):
            _run(command, dry_run=dry_run)
    for arm in arms:
        for top_p in tour.top_ps:
            drawing = f"-b {tour.benchmark} -n {n} --top-p {top_p:g} {tour.drawing} --grade -o".split()
            model = str(arm.run or tour.model)
            _run(["sample", model, *drawing, str(_folder_of(arm, root, top_p))], dry_run=dry_run)
    if tour.benchmark == "word-problems":
        if not dry_run:
            _show_words(tour, arms, root)
        return
    trained, figures = arms[1:], root / "figures"
    plot = ["plot", "training", *(str(arm.run) for arm in trained), "-o", str(figures / "training.png")]
    plot += ["--labels", ",".join(arm.label for arm in trained)]
    if dry_run:
        _run(plot, dry_run=True)
        return
    from quatro.runs.metrics import read_metrics
    from quatro.sample.folder import measure_samples

    results = {
        (arm.label, top_p): measure_samples(_folder_of(arm, root, top_p), n=n, label=arm.label)
        for arm in arms
        for top_p in tour.top_ps
    }
    metrics = {arm.label: list(read_metrics(arm.run)) for arm in arms if arm.run is not None}
    output.table(
        f"countdown, {n} samples for each of 200 held-out problems",
        ["", "top_p", "Pass@1", f"Pass@{n}", f"UCC@{n}", "entropy", "kl/new_old"],
        [_row(arm.label, top_p, n, results[arm.label, top_p], metrics) for top_p in tour.top_ps for arm in arms],
    )
    for line in _reading(arms, metrics):
        output.data(line)
    _run(plot, dry_run=False)
    _draw(tour, [*trained, arms[0]], results, figures / "passk-ucc.png")  # in this order: the same colours in both


def _run(command: list[str], *, dry_run: bool) -> None:
    """Say what one would type, and do it."""
    output.info(f"$ {shlex.join(['quatro', *command])}")
    if dry_run:
        return
    from quatro_cli.app import app

    if code := app(command, standalone_mode=False):
        raise typer.Exit(code)


def _training(tour: Tour, arm: Arm) -> list[str]:
    """The command that trains ``arm``, or goes on; empty where it is done."""
    assert arm.run is not None
    if not (arm.run / "config.yaml").is_file():
        return ["train", tour.config, *arm.settings.split(), "-s", f"steps={tour.steps}", "-o", str(arm.run)]
    from quatro.config import load_config
    from quatro.runs.status import read_status

    if (found := load_config(arm.run).steps) != tour.steps:
        raise usage_error(f"{arm.run} has {found} iterations, not {tour.steps}; choose another place with -o DIR")
    if read_status(arm.run).get("status") == "done":
        output.info(f"{arm.run} is done already")
        return []
    return ["train", str(arm.run), "--resume"]


def _folder_of(arm: Arm, root: Path, top_p: float) -> Path:
    from quatro.sample.folder import Tag

    return Tag(top_p=top_p).folder(arm.run or root / "base")


def _rows(result: Result, metric: str) -> list[Row]:
    return [row for row in result.rows if row.metric == metric and row.benchmark == "countdown"]


def _row(label: str, top_p: float, n: int, results: Measured, metrics: dict[str, list[dict[str, Any]]]) -> list[str]:
    if label in metrics:
        rows = metrics[label]
        entropy, moved = _mean(rows[-LAST:], "entropy/token_mean"), f"{_mean(rows, 'kl/new_old'):.3f}"
    else:  # the base is the policy that every run's first rollouts are drawn from
        entropy, moved = next(iter(metrics.values()))[0]["entropy/token_mean"], "-"
    passk = {row.k: row.value for row in _rows(results.passk, "pass@k")}
    ucc = {row.k: row.value for row in _rows(results.ucc, "ucc@k")}
    return [label, f"{top_p:g}", f"{passk[1]:.3f}", f"{passk[n]:.3f}", f"{ucc[n]:.2f}", f"{entropy:.3f}", moved]


def _mean(rows: list[dict[str, Any]], name: str) -> float:
    values: list[float] = [row[name] for row in rows if row.get(name) is not None]
    return sum(values) / len(values)


def _reading(arms: list[Arm], metrics: dict[str, list[dict[str, Any]]]) -> list[str]:
    """What the last two columns say, in words."""
    from quatro.config import load_config

    quatro, gspo = (_mean(metrics[arm.label], "kl/new_old") for arm in arms[1:])
    delta = load_config(str(arms[1].run)).method.kl_radius
    assert delta is not None
    return [
        f"UCC counts distinct correct solutions. Entropy is in nats per token, the mean of the last {LAST} iterations.",
        "kl/new_old is how far an iteration moves the policy on average: KL(new || old) in nats. "
        "It is to stay below delta.",
        f"QUATRO moves by {quatro / delta:.1f} times its delta of {delta:g}; GSPO, which has no delta, by "
        f"{gspo / delta:.0f} times as much as that delta.",
    ]


def _draw(tour: Tour, arms: list[Arm], results: dict[tuple[str, float], Measured], path: Path) -> None:
    """Pass@k and UCC@k of all three."""
    from evals.figures.curves import CurvePanel, curves_figure
    from evals.figures.sheet import save_figure

    panels = []
    for top_p in tour.top_ps:
        passk = {arm.label: _rows(results[arm.label, top_p].passk, "pass@k") for arm in arms}
        panels.append(CurvePanel(f"Pass@k, top_p {top_p:g}", "problems solved, %", passk, is_share=True))
    for top_p in tour.top_ps:
        ucc = {arm.label: _rows(results[arm.label, top_p].ucc, "ucc@k") for arm in arms}
        panels.append(CurvePanel(f"UCC@k, top_p {top_p:g}", "distinct correct answers", ucc))
    save_figure(curves_figure(panels), path)
    output.data(str(path))


# ---- word problems


def _show_words(tour: Tour, arms: list[Arm], root: Path) -> None:
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

    n, k = tour.n, min(K, tour.n)
    ks = dict.fromkeys((1, k, n))
    rows, points, ways_of = [], [], {}
    for arm in arms:
        folder = _folder_of(arm, root, 1.0)
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
