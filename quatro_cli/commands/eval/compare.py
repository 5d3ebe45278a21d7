"""`quatro eval compare`: is B better than A, or is it chance? `quatro eval flips`: which problems training turned."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from quatro_cli.commands.eval import shared
from quatro_cli.options import Benchmarks, numbers, spread, usage_error
from quatro_cli.output import output


@spread
def compare(
    files: Annotated[
        list[Path],
        Argument(metavar="A B...", help="Samples of the same problems with the same n; runs or folders too."),
    ],
    benchmarks: Benchmarks,
    metric: Annotated[str, Option(metavar="NAME", help="pass@k (with --also) or ucc@k (with its parts).")] = "pass@k",
    k: shared.Ks = None,
    also: shared.Also = None,
    tau: shared.Taus = None,
    over_seeds: Annotated[bool, Option("--over-seeds", help="All seeds of A first, then those of B.")] = False,
    *,
    same: shared.SameOrJudged,
    counted: shared.Counted,
    written: shared.Written,
) -> None:
    """Compare sets of samples, each B minus A, problem by problem.

    Intervals and p are for other problems; with --over-seeds, other seeds.

    \b
    Examples:
      quatro eval compare base.jsonl tuned.jsonl --k 1,256
      quatro eval compare runs/gspo-seed=* runs/quatro-seed=* --over-seeds
      quatro eval compare base.jsonl gspo.jsonl quatro.jsonl --metric ucc@k -o differences.json
    """
    from evals.metrics.measuring import compare
    from evals.results.reading import sides_of
    from evals.results.shown import grids_of_comparison

    asked = shared.options(benchmarks, same, counted, also=also, tau=tau)
    ks = numbers(k, "--k", int)
    written.check(files, partition=same.partition)
    half = len(files) // 2 if over_seeds else 1
    if len(files) < 2 or (over_seeds and len(files) % 2):
        raise usage_error(f"{len(files)} samples: expected A and B..., or with --over-seeds every seed of A, then of B")
    if len(files) > 2 and not over_seeds and len({file.resolve() for file in files}) < len(files):
        raise usage_error("a set of samples is named twice; name each once")
    a, b, *others = [files[:half], files[half:]] if over_seeds else [[file] for file in files]
    found = compare(a, b, ks, others=others, metric=metric, progress=shared.progress, over_seeds=over_seeds, **asked)
    for one in found.each() if not written.json else ():
        labels = sides_of(one)
        output.info(f"A: {labels[0]} ({one.a})\nB: {labels[1]} ({one.b})\nchange: B minus A")
        shared.show(*grids_of_comparison(one, found.num_adjusted))
    output.warn(*found.warnings)  # below the table, where a warning is not passed over
    written.write(shared.judged(found, same.partition, written.out))


@spread
def power(
    files: Annotated[list[Path], Argument(metavar="BASE [OTHER]", help="Samples of a model, or of two.")],
    benchmarks: Benchmarks,
    metric: Annotated[str, Option(metavar="NAME@K", help="pass@K, ucc@K or distinct@K.")] = "pass@1",
    effect: Annotated[float | None, Option(metavar="X", help="Difference to show, in points or solutions.")] = None,
    correlation: Annotated[float, Option(metavar="R", help="Of problems' true values, if there is no OTHER.")] = 0.9,
    seed_spread: Annotated[float, Option(metavar="D", help="Standard deviation of a mean over seeds.")] = 0,
    *,
    written: shared.Written,
) -> None:
    """Say which difference such problems and samples can show.

    That is with p below 0.05, in a comparison of two models, with a chance of 0.8.

    \b
    Examples:
      quatro eval power base.jsonl
      quatro eval power base.jsonl --effect 2 --metric pass@1
    """
    from evals.metrics.power import power_rows
    from evals.results.shown import scaled, title_of, unit_of

    written.check(files)
    name, _, k = metric.partition("@")
    if name not in ("pass", "ucc", "distinct") or not k.isdecimal() or k == "0" or len(files) > 2 or effect == 0:
        raise usage_error(f"--metric {metric}: expected pass@K, ucc@K or distinct@K, one or two files, and no effect 0")
    how = shared.options(benchmarks, per_problem=True, jobs=None)
    found = [shared.measured([file], "1", "pass@k" if name == "pass" else "ucc@k", **how) for file in files]
    sides, scale = [one.problems or [] for one in found], unit_of(f"{name}@k")[0]
    how = {"correlation": correlation, "seed_spread": seed_spread / scale, "effect": effect and abs(effect) / scale}
    result = found[0].model_copy(update={"rows": power_rows(f"{name}@k", int(k), *sides, **how), "problems": None})
    written.write(result)
    needed, body = ["problems_needed", "samples_needed", "seeds_needed"] if effect else [], []
    for row in result.rows if not written.json else ():
        numbers = {"smallest": row.value, **(row.model_extra or {})}
        shown = [scaled(numbers[key], row.metric) for key in ("spread", "sampling", "smallest")]
        body.append(
            [title_of(row.benchmark), row.num_problems, row.n, *shown, *(numbers[key] or "-" for key in needed)]
        )
    heads = ["benchmark", "problems", "n", "spread", "sampling", "smallest", *(one.replace("_", " ") for one in needed)]
    if body:
        output.table(f"Difference in {metric} that is shown with a power of 0.8", heads, body)


@spread
def flips(
    base: Annotated[Path, Argument(metavar="BASE", help="Samples of the model before training.")],
    tuned: Annotated[
        Path, Argument(metavar="TUNED", help="Samples after training, of the same problems, with the same n.")
    ],
    benchmarks: Benchmarks,
    k: Annotated[
        str | None, Option(metavar="K[,K]", help="Values of k for flip@k. Default: 16, or n if smaller.")
    ] = None,
    n: shared.First = None,
    *,
    told: shared.Told,
    written: shared.Written,
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
    written.check([base, tuned], per_problem=told.per_problem)
    asked = Options(["pass@k"], n=n, jobs=None, **shared.options(benchmarks))
    found = several_counted([[base], [tuned]], asked, label=told.label, progress=shared.progress)
    ((before,), _), ((after,), about) = found
    names = (str(base), str(tuned))
    result = flips_result(before, after, names=names, ks=ks, ci=told.ci, per_problem=told.per_problem, about=about)
    output.warn(*result.warnings)
    written.finish(result)
