"""`quatro eval flips`: which problems training turned, by difficulty."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from quatro_cli.commands.eval import shared
from quatro_cli.options import Benchmarks, Json, numbers
from quatro_cli.output import output


def flips(
    base: Annotated[Path, Argument(metavar="BASE", help="Samples of the model before training.")],
    tuned: Annotated[
        Path, Argument(metavar="TUNED", help="Samples after training, of the same problems, with the same n.")
    ],
    benchmarks: Benchmarks,
    k: Annotated[
        str | None, Option(metavar="K[,K]", help="Values of k for flip@k. Default: 16, or n if smaller.")
    ] = None,
    ci: shared.Interval = False,
    seed: shared.BootstrapSeed = 0,
    first: shared.First = None,
    per_problem: shared.PerProblem = False,
    label: shared.Label = None,
    json: Json = False,
    out: shared.Out = None,
) -> None:
    """Count problems that training turned from failed to solved.

    Problems are sorted into buckets by the number of correct base samples among 256: very hard 0-8, hard 9-32, medium
    33-128, easy 129-256. For another n the bounds are the same shares. "Newly solved": of the problems that the base
    model never solved, the share that the tuned model solves at least once. flip@k is the chance that k base samples
    all fail and at least one of k tuned samples succeeds.

    \b
    Examples:
      quatro eval flips base/math500.jsonl tuned/math500.jsonl --ci
      quatro eval flips base.jsonl tuned.jsonl --k 1,16,256 -o flips.json
    """
    from evals.metrics.flips import flips_result
    from evals.metrics.measuring import Options, several_counted

    ks = numbers(k, "--k", int)
    shared.check_shown(out, [base, tuned], per_problem=per_problem, json=json)
    asked = Options(["pass@k"], n=first, jobs=None, **shared.options(benchmarks))
    found = several_counted([[base], [tuned]], asked, label=label, progress=shared.progress)
    ((before,), _), ((after,), about) = found
    names = (str(base), str(tuned))
    result = flips_result(before, after, names=names, ks=ks, ci=ci, seed=seed, per_problem=per_problem, **about)
    output.warn(*result.warnings)
    shared.finish(result, json=json, out=out)
