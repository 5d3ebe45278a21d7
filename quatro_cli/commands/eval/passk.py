"""`quatro eval passk`: Pass@k of samples files."""

from quatro_cli.commands.eval import shared
from quatro_cli.options import Benchmarks, Json


def passk(
    files: shared.Files,
    benchmarks: Benchmarks,
    step: shared.Step = None,
    k: shared.Ks = None,
    also: shared.Also = None,
    tau: shared.Taus = None,
    ci: shared.Interval = False,
    cluster: shared.Cluster = None,
    over_seeds: shared.OverSeeds = False,
    seed: shared.BootstrapSeed = 0,
    first: shared.First = None,
    per_problem: shared.PerProblem = False,
    label: shared.Label = None,
    grader: shared.Grader = None,
    jobs: shared.Jobs = None,
    json: Json = False,
    out: shared.Out = None,
) -> None:
    """Pass@k: how likely at least one of k samples is correct.

    The estimate is unbiased, from n samples of each problem. `quatro eval compare A B` compares two models.

    \b
    Examples:
      quatro eval passk samples/math500.jsonl --k 1,16,256 --ci
      quatro eval passk runs/quickstart-quatro-* --over-seeds --ci
      quatro eval passk runs/quickstart-quatro-0 -b countdown --also maj --json
    """
    asked = shared.options(
        benchmarks,
        n=first,
        grader=grader,
        also=also,
        tau=tau,
        cluster=cluster,
        seed=seed,
        jobs=jobs,
        over_seeds=over_seeds,
    )
    files = shared.of_step(files, step, benchmarks)
    shared.check_shown(out, files, per_problem=per_problem, json=json)
    result = shared.measured(files, k, "pass@k", ci=ci, per_problem=per_problem, label=label, **asked)
    shared.finish(result, json=json, out=out)
