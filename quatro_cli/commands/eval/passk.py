"""`quatro eval passk`: Pass@k of samples files."""

from quatro_cli.commands.eval import shared
from quatro_cli.options import Benchmarks, spread


@spread
def passk(
    files: shared.Files,
    benchmarks: Benchmarks,
    step: shared.Step = None,
    k: shared.Ks = None,
    also: shared.Also = None,
    tau: shared.Taus = None,
    over_seeds: shared.OverSeeds = False,
    *,
    counted: shared.Counted,
    told: shared.Told,
    written: shared.Written,
) -> None:
    """Pass@k: how likely at least one of k samples is correct.

    The estimate is unbiased, from n samples of each problem. `quatro eval compare A B` compares two models.

    \b
    Examples:
      quatro eval passk samples/math500.jsonl --k 1,16,256 --ci
      quatro eval passk runs/quickstart-quatro-* --over-seeds --ci
      quatro eval passk runs/quickstart-quatro-0 -b countdown --also maj --json
    """
    asked = shared.options(benchmarks, counted, also=also, tau=tau, over_seeds=over_seeds)
    files = shared.of_step(files, step, benchmarks)
    written.check(files, per_problem=told.per_problem)
    written.finish(shared.measured(files, k, "pass@k", **asked, **vars(told)))
