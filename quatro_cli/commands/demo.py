"""`quatro demo`: the whole way on a small model, by the commands that anyone would type."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from quatro_cli.options import usage_error
from quatro_cli.output import output

if TYPE_CHECKING:
    from evals.results.document import Result
    from evals.results.entries import Number
    from quatro.sample.folder import Measured

CONFIG, MODEL, BENCHMARK = "quickstart", "embedded:countdown", "countdown"
TOP_PS = (1.0, 0.7)
LAST = 10  # iterations over which the final entropy is averaged


@dataclass(frozen=True)
class Arm:
    """One line of the table: the model that both runs begin with, or a run and how it is trained."""

    label: str
    run: Path | None = None
    settings: tuple[str, ...] = ()


def demo(
    root: Annotated[Path, Option("-o", "--out", metavar="DIR", help="Where the runs go.")] = Path("runs/demo"),
    steps: Annotated[int, Option(metavar="N", min=2, help="Iterations of each run.")] = 100,
    n: Annotated[int, Option("-n", "--n", metavar="N", min=1, help="Samples per problem.")] = 256,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the commands that would run, and do nothing.")] = False,
) -> None:
    """Train, sample and measure a small model, as a tour.

    The embedded model is fine-tuned with QUATRO and with GSPO; a table and two figures compare all three. It takes
    about three minutes on one idle core. After an interruption, repeat the command.

    \b
    Examples:
      quatro demo
      quatro demo --steps 20 -n 64 -o runs/short-demo
    """
    arms = [Arm("base"), Arm("QUATRO delta=0.01", root / "quatro"), Arm("GSPO", root / "gspo", ("-m", "gspo"))]
    try:
        _tour(arms, root, steps, n, dry_run=dry_run)
    except (typer.Exit, KeyboardInterrupt) as ended:
        if getattr(ended, "exit_code", 130) in (130, 143):
            again = shlex.join(["quatro", "demo", "-o", str(root), "--steps", str(steps), "-n", str(n)])
            output.info(f"the demo was stopped; `{again}` goes on, and what is done stays")
        raise


def _tour(arms: list[Arm], root: Path, steps: int, n: int, *, dry_run: bool) -> None:
    for arm in arms:
        if arm.run is not None and (command := _training(arm, steps)):
            _run(command, dry_run=dry_run)
    for arm in arms:
        for top_p in TOP_PS:
            drawing = f"-b {BENCHMARK} -n {n} --top-p {top_p:g} --max-tokens 10 --grade -o".split()
            _run(["sample", str(arm.run or MODEL), *drawing, str(_folder_of(arm, root, top_p))], dry_run=dry_run)
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
        for top_p in TOP_PS
    }
    metrics = {arm.label: list(read_metrics(arm.run)) for arm in arms if arm.run is not None}
    output.table(
        f"{BENCHMARK}, {n} samples for each of 200 held-out problems",
        ["", "top_p", "Pass@1", f"Pass@{n}", f"UCC@{n}", "entropy", "kl/new_old"],
        [_row(arm.label, top_p, n, results[arm.label, top_p], metrics) for top_p in TOP_PS for arm in arms],
    )
    for line in _reading(arms, metrics):
        output.data(line)
    _run(plot, dry_run=False)
    _draw([*trained, arms[0]], results, figures / "passk-ucc.png")  # in this order: the same colours in both


def _run(command: list[str], *, dry_run: bool) -> None:
    """Say what one would type, and do it."""
    output.info(f"$ {shlex.join(['quatro', *command])}")
    if dry_run:
        return
    from quatro_cli.app import app

    if code := app(command, standalone_mode=False):
        raise typer.Exit(code)


def _training(arm: Arm, steps: int) -> list[str]:
    """The command that trains ``arm``, or goes on; empty where it is done."""
    assert arm.run is not None
    if not (arm.run / "config.yaml").is_file():
        return ["train", CONFIG, *arm.settings, "-s", f"steps={steps}", "-o", str(arm.run)]
    from quatro.config import load_config
    from quatro.runs.status import read_status

    if (found := load_config(arm.run).steps) != steps:
        raise usage_error(f"{arm.run} has {found} iterations, not {steps}; choose another place with -o DIR")
    if read_status(arm.run).get("status") == "done":
        output.info(f"{arm.run} is done already")
        return []
    return ["train", str(arm.run), "--resume"]


def _folder_of(arm: Arm, root: Path, top_p: float) -> Path:
    from quatro.sample.folder import Tag

    return Tag(top_p=top_p).folder(arm.run or root / "base")


def _curve(result: Result) -> dict[int, Number]:
    """The metric of a result at each k."""
    from evals.results.entries import Number

    rows = [row for row in result.rows if row.metric == result.metric and row.benchmark == BENCHMARK]
    return {row.k: Number(row.value, row.ci_low, row.ci_high) for row in rows if row.k is not None}


def _row(label: str, top_p: float, n: int, results: Measured, metrics: dict[str, list[dict[str, Any]]]) -> list[str]:
    if label in metrics:
        rows = metrics[label]
        entropy, moved = _mean(rows[-LAST:], "entropy/token_mean"), f"{_mean(rows, 'kl/new_old'):.3f}"
    else:  # the base is the policy that every run's first rollouts are drawn from
        entropy, moved = next(iter(metrics.values()))[0]["entropy/token_mean"], "-"
    passk, ucc = _curve(results.passk), _curve(results.ucc)
    solved = [f"{passk[k].value:.3f}" for k in (1, n)]
    return [label, f"{top_p:g}", *solved, f"{ucc[n].value:.2f}", f"{entropy:.3f}", moved]


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


def _draw(arms: list[Arm], results: dict[tuple[str, float], Measured], path: Path) -> None:
    """Pass@k and UCC@k of all three."""
    from evals.figures.curves import CurvePanel, curves_figure
    from evals.figures.sheet import save_figure

    panels = []
    for top_p in TOP_PS:
        passk = {arm.label: _curve(results[arm.label, top_p].passk) for arm in arms}
        panels.append(CurvePanel(f"Pass@k, top_p {top_p:g}", "problems solved, %", passk, is_share=True))
    for top_p in TOP_PS:
        ucc = {arm.label: _curve(results[arm.label, top_p].ucc) for arm in arms}
        panels.append(CurvePanel(f"UCC@k, top_p {top_p:g}", "distinct correct answers", ucc))
    save_figure(curves_figure(panels), path)
    output.data(str(path))
