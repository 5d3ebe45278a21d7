"""`quatro eval ucc`: `read_graded` reads and grades the samples of a file, `ucc_result` clusters and counts them."""

from typing import Annotated, Any

from typer import Option

from quatro_cli.commands.eval import shared
from quatro_cli.options import Benchmarks, Json, refuse_idle, usage_error
from quatro_cli.output import output

AlsoClustered = Annotated[
    str | None, Option(metavar="NAME[,NAME]", help="distinct: distinct@k, among correct samples.")
]
_VALID = "Leave false derivations out, by this checker."
Valid = Annotated[str | None, Option(metavar="NAME", help=_VALID)]
Preset = Annotated[str | None, Option(metavar="NAME", help="paper: the paper's clustering, as we read it.")]


def ucc(
    files: shared.Files,
    benchmarks: Benchmarks,
    step: shared.Step = None,
    k: shared.Ks = None,
    similarity: shared.Similarities = None,
    threshold: shared.Thresholds = None,
    linkage: shared.Linkage = "components",
    tokens: shared.Tokens = None,
    partition: shared.Partition = None,
    max_calls: shared.MaxCalls = None,
    also: AlsoClustered = None,
    valid: Valid = None,
    preset: Preset = None,
    jobs: shared.Jobs = None,
    ci: shared.Interval = False,
    cluster: shared.Cluster = None,
    over_seeds: shared.OverSeeds = False,
    seed: shared.BootstrapSeed = 0,
    first: shared.First = None,
    per_problem: shared.PerProblem = False,
    label: shared.Label = None,
    grader: shared.Grader = None,
    json: Json = False,
    out: shared.Out = None,
) -> None:
    """UCC@k: how many different solutions k samples hold.

    \b
    Examples:
      quatro eval ucc samples/math500.jsonl --preset paper --k 16,256 --ci
      quatro eval ucc base.jsonl --similarity tfidf,rouge-l --threshold 0.8,0.9 --json
      quatro eval ucc samples/word-problems.jsonl --valid word-problems
    """
    from evals.results.paper import sampling_warnings

    same: dict[str, Any] = {"similarity": similarity, "threshold": threshold, "linkage": linkage, "tokens": tokens}
    same |= {"partition": partition, "max_calls": max_calls}
    if preset is not None:
        from evals.similarity import PAPER

        if preset != "paper":
            raise usage_error(f"--preset {preset!r}: expected paper")
        chosen = {**same, "linkage": linkage != "components"}
        refuse_idle({f"--{name}": value for name, value in chosen.items()}, "--preset")
        same = {**PAPER._asdict(), "threshold": f"{PAPER.threshold:g}"}
    same["over_seeds"] = over_seeds
    asked = shared.options(
        benchmarks, n=first, grader=grader, also=also, valid=valid, cluster=cluster, seed=seed, jobs=jobs, **same
    )
    files = shared.of_step(files, step, benchmarks)
    shared.check_shown(out, files, per_problem=per_problem, json=json, partition=partition)
    result = shared.measured(files, k, "ucc@k", ci=ci, per_problem=per_problem, label=label, **asked)
    if preset is not None:
        result = result.model_copy(update={"preset": preset})
        output.warn(*sampling_warnings(result))
    shared.finish(shared.judged(result, partition, out), json=json, out=out)
