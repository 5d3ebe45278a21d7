"""`quatro eval similarity`: how alike correct answers are; and `quatro eval clusters`: those of one problem."""

from typing import Annotated

from typer import Option

from quatro_cli.commands.eval import shared
from quatro_cli.options import Benchmarks, Json, names
from quatro_cli.output import output


def similarity(
    files: shared.Files,
    benchmarks: Benchmarks,
    similarity: Annotated[
        str | None,
        Option(metavar="NAME[,NAME]", help="As in `quatro eval ucc`. Default: all built-in ones except exact."),
    ] = None,
    tokens: shared.Tokens = None,
    max_pairs: Annotated[
        int, Option(metavar="N", min=1, help="Pairs compared per problem. If there are more, a random subset is used.")
    ] = 1000,
    seed: Annotated[int, Option(metavar="N", min=0, help="Seed of the random subset of pairs.")] = 0,
    label: shared.Label = None,
    json: Json = False,
    out: shared.Out = None,
) -> None:
    """Show how similar two correct samples of a problem are.

    For each similarity it prints quantiles over pairs, and which share of the pairs has similarity 1.

    \b
    Examples:
      quatro eval similarity samples/math500.jsonl
      quatro eval similarity runs/math -b math500 --label Ours -o ours-similarity.json
    """
    from evals.studies.similarity import check_study, similarity_result

    measures = check_study(names(similarity, "--similarity"), tokens)  # before any file is read
    shared.check_out(out, files)
    samples, about = shared.graded_samples(files, benchmarks, label=label)
    with shared.progress("comparing answers") as tell:
        result = similarity_result(
            samples, similarities=measures, tokens=tokens, max_pairs=max_pairs, seed=seed, on_progress=tell, **about
        )
    output.warn(*result.warnings)
    shared.write(result, json=json, out=out)
    if json:
        return
    from evals.results.shown import rows_in_order, title_of

    leads = ["benchmark", "similarity", "problems", "n", "pairs"]
    heads = {"0.05": "5 %", "0.25": "25 %", "0.5": "median", "0.75": "75 %", "0.95": "95 %"}
    body = []
    for row in rows_in_order(result.rows):
        extra = row.model_extra or {}
        lead = [title_of(row.benchmark), row.similarity, row.num_problems, row.n]
        quantiles = [f"{extra['quantiles'][p]:.3f}" for p in heads]
        pairs, equal = f"{extra['num_pairs']} of {extra['num_pairs_total']}", f"{100 * extra['equal_share']:.1f}"
        body.append([*lead, pairs, *quantiles, equal, f"{extra['rao']:.3f}"])
    columns = [*leads, *heads.values(), "pairs at 1, %", "Rao"]
    output.table("Similarity of two correct answers to a problem", columns, body)


def clusters(
    files: shared.Files,
    benchmarks: Benchmarks,
    id: shared.Id,
    similarity: shared.Similarities = None,
    threshold: shared.Thresholds = None,
    linkage: shared.Linkage = "components",
    tokens: shared.Tokens = None,
    grader: shared.Grader = None,
    json: Json = False,
) -> None:
    """Show the largest clusters of a problem, with a text each.

    The text shown is the one that occurs most often in its cluster. Only the samples of this problem are graded. The
    texts of models are escaped.

    \b
    Examples:
      quatro eval clusters samples/math500.jsonl --id test/algebra/12
      quatro eval clusters ours.jsonl --id test/algebra/12 --json
    """
    from evals.studies.clusters import clusters

    how = shared.options(
        benchmarks, grader=grader, similarity=similarity, threshold=threshold, linkage=linkage, tokens=tokens
    )
    found = clusters(files, id, progress=shared.progress, **how)
    if json:
        output.json(found.document())
    else:
        output.data(f"{found}\n")
