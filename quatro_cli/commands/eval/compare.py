"""`quatro eval compare`: is B better than A, or is it chance?"""

from __future__ import annotations

from typing import Annotated

from typer import Option

from quatro_cli.commands.eval import shared
from quatro_cli.options import Benchmarks, Json, numbers, refuse_idle, usage_error
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
    from evals.metrics.comparing import compare_passk, compare_ucc
    from evals.results.reading import labels_of

    if metric not in ("pass@k", "ucc@k"):
        raise usage_error(f"--metric {metric}: expected pass@k or ucc@k")
    if metric == "pass@k":
        chosen = {"--linkage": linkage != "components", "--tokens": tokens}
        refuse_idle({"--similarity": similarity, "--threshold": threshold, **chosen}, "--metric pass@k")
    elif also:
        raise usage_error("--also has no effect beside --metric ucc@k, which brings UCR, clusters and effective number")
    else:
        refuse_idle({"--tau": tau}, "--metric ucc@k")
    metrics, taus = shared.beside_pass(also, tau)
    how = shared.clustering(similarity, threshold, linkage, tokens)
    ks = numbers(k, "--k", int)
    asked = shared.asked_for(grader, first=first)
    shared.check_out(out, [a, b])
    (counted_a, _), (counted_b, _) = shared.several_counted([a, b], benchmarks, asked=asked, jobs=jobs)
    sides = (str(a), str(b))
    if metric == "pass@k":
        found = compare_passk(counted_a, counted_b, names=sides, ks=ks, also=metrics, taus=taus, seed=seed)
    else:
        with shared.progress("clustering problems") as tell:
            found = compare_ucc(
                counted_a, counted_b, names=sides, clustering=how, ks=ks, seed=seed, jobs=jobs, on_progress=tell
            )
    if not json:
        labels = labels_of([a, b]) if a.resolve() != b.resolve() else [a.name, b.name]
        output.info(f"A: {labels[0]} ({a})\nB: {labels[1]} ({b})\nchange: B minus A")
        shared.show(*found.grids())
    shared.say_and_write(found, json=json, out=out)  # below the table, where a warning is not passed over
