"""`quatro eval compare`: is B better than A, or is it chance?"""

from __future__ import annotations

from typing import Annotated

from typer import Option

from quatro_cli.commands.eval import shared
from quatro_cli.options import Benchmarks, Json, numbers
from quatro_cli.output import output


def compare(
    a: shared.A,
    b: shared.B,
    benchmarks: Benchmarks,
    metric: Annotated[str, Option(metavar="NAME", help="pass@k (with --also) or ucc@k.")] = "pass@k",
    k: shared.Ks = None,
    also: shared.Also = None,
    tau: shared.Taus = None,
    similarity: shared.Similarities = None,
    threshold: shared.Thresholds = None,
    linkage: shared.Linkage = "components",
    tokens: shared.Tokens = None,
    jobs: shared.Jobs = None,
    seed: shared.BootstrapSeed = 0,
    first: shared.First = None,
    grader: shared.Grader = None,
    json: Json = False,
    out: shared.Out = None,
) -> None:
    """Compare two sets of samples, B minus A, problem by problem.

    The interval and p are from a paired bootstrap, which needs ten problems.

    \b
    Examples:
      quatro eval compare base.jsonl tuned.jsonl --k 1,256
      quatro eval compare base.jsonl tuned.jsonl --metric ucc@k --k 256 -o difference.json
    """
    from evals.metrics.measuring import compare
    from evals.results.reading import labels_of

    how = {"similarity": similarity, "threshold": threshold, "linkage": linkage, "tokens": tokens}
    asked = shared.options(benchmarks, n=first, grader=grader, also=also, tau=tau, seed=seed, jobs=jobs, **how)
    ks = numbers(k, "--k", int)
    shared.check_out(out, [a, b])
    found = compare(a, b, ks, metric=metric, progress=shared.progress, **asked)
    if not json:
        labels = labels_of([a, b]) if a.resolve() != b.resolve() else [a.name, b.name]
        output.info(f"A: {labels[0]} ({a})\nB: {labels[1]} ({b})\nchange: B minus A")
        shared.show(*found.grids())
    output.warn(*found.warnings)  # below the table, where a warning is not passed over
    shared.write(found, json=json, out=out)
