"""`quatro eval passk`: Pass@k of samples files."""

from __future__ import annotations

from quatro_cli.commands.eval.options import (
    Also,
    BootstrapSeed,
    Files,
    First,
    Grader,
    Interval,
    Jobs,
    Ks,
    Label,
    Out,
    PerProblem,
    Taus,
    asked_for,
    beside_pass,
    check_out,
    check_per_problem,
    counted_samples,
    say_and_write,
    say_whose_grades,
)
from quatro_cli.options import Benchmarks, Json, numbers


def passk(
    files: Files,
    benchmarks: Benchmarks,
    k: Ks = None,
    also: Also = None,
    tau: Taus = None,
    ci: Interval = False,
    seed: BootstrapSeed = 0,
    first: First = None,
    per_problem: PerProblem = False,
    label: Label = None,
    grader: Grader = None,
    jobs: Jobs = None,
    json: Json = False,
    out: Out = None,
) -> None:
    """Pass@k: how likely at least one of k samples is correct.

    The estimate is unbiased, from n samples of each problem. `quatro eval compare A B` compares two models.

    \b
    Examples:
      quatro eval passk samples/math500.jsonl --k 1,16,256 --ci
      quatro eval passk runs/quickstart-quatro-0 -b countdown --also maj --json
    """
    from evals.metrics.passk_ucc import passk_result
    from quatro_cli.commands.eval.tables import show_rows

    metrics, taus = beside_pass(also, tau)
    ks = numbers(k, "--k", int)
    asked = asked_for(grader, first=first)
    check_out(out, files)
    check_per_problem(per_problem, json=json, out=out)
    counted, about = counted_samples(files, benchmarks, asked=asked, label=label, jobs=jobs)
    say_whose_grades(about)
    result = passk_result(counted, ks=ks, also=metrics, taus=taus, ci=ci, seed=seed, per_problem=per_problem, **about)
    say_and_write(result, json=json, out=out)
    if not json:
        show_rows(result.rows)
