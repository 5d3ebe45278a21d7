"""`quatro eval passk` and `quatro eval ucc`: how often correct, and in how many ways."""

from typing import Annotated

from typer import Option

from quatro_cli.commands.eval import shared
from quatro_cli.options import Benchmarks, refuse_idle, spread, usage_error
from quatro_cli.output import output


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


@spread
def ucc(
    files: shared.Files,
    benchmarks: Benchmarks,
    step: shared.Step = None,
    k: shared.Ks = None,
    also: Annotated[
        str | None, Option(metavar="NAME[,NAME]", help="distinct: distinct@k, among correct samples.")
    ] = None,
    valid: Annotated[str | None, Option(metavar="NAME", help="Leave false derivations out, by this checker.")] = None,
    preset: Annotated[str | None, Option(metavar="NAME", help="paper: the paper's clustering, as we read it.")] = None,
    over_seeds: shared.OverSeeds = False,
    *,
    same: shared.SameOrJudged,
    counted: shared.Counted,
    told: shared.Told,
    written: shared.Written,
) -> None:
    """UCC@k: how many different solutions k samples hold.

    \b
    Examples:
      quatro eval ucc samples/math500.jsonl --preset paper --k 16,256 --ci
      quatro eval ucc base.jsonl --similarity tfidf,rouge-l --threshold 0.8,0.9 --json
      quatro eval ucc samples/word-problems.jsonl --valid word-problems
    """
    from evals.results.paper import sampling_warnings

    if preset is not None:
        from evals.similarity import PAPER

        if preset != "paper":
            raise usage_error(f"--preset {preset!r}: expected paper")
        chosen = {**vars(same), "linkage": same.linkage != "components"}
        refuse_idle({f"--{name}": value for name, value in chosen.items()}, "--preset")
        same = shared.SameOrJudged(**{**PAPER._asdict(), "threshold": f"{PAPER.threshold:g}"})
    asked = shared.options(benchmarks, same, counted, also=also, valid=valid, over_seeds=over_seeds)
    files = shared.of_step(files, step, benchmarks)
    written.check(files, partition=same.partition, per_problem=told.per_problem)
    result = shared.measured(files, k, "ucc@k", **asked, **vars(told))
    if preset is not None:
        result = result.model_copy(update={"preset": preset})
        output.warn(*sampling_warnings(result))
    written.finish(shared.judged(result, same.partition, written.out))
