"""`quatro eval similarity`: how alike correct answers are; and `quatro eval clusters`: those of one problem."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from quatro_cli.commands.eval import shared
from quatro_cli.options import Benchmarks, Json, names, numbers, refuse_idle, spread
from quatro_cli.output import output

if TYPE_CHECKING:
    from evals.results.document import Result


@spread
def similarity(
    files: shared.Files,
    benchmarks: Benchmarks,
    similarity: Annotated[
        str | None,
        Option(metavar="NAME[,NAME]", help="As in `quatro eval ucc`. Default: all built-in ones except exact."),
    ] = None,
    tokens: shared.Tokens = None,
    labels: Annotated[Path | None, Option(metavar="FILE", help="Pairs that were labelled same or different.")] = None,
    threshold: Annotated[str | None, Option(metavar="T[,T]", help="For --labels. Default: 0.5 to 0.98.")] = None,
    linkage: Annotated[str | None, Option(metavar="NAME[,NAME]", help="For --labels. Default: components.")] = None,
    max_pairs: Annotated[
        int, Option(metavar="N", min=1, help="Pairs compared per problem. If there are more, a random subset is used.")
    ] = 1000,
    seed: Annotated[int, Option(metavar="N", min=0, help="Seed of the subset, and of the bootstrap.")] = 0,
    label: shared.Label = None,
    *,
    written: shared.Written,
) -> None:
    """Show how similar two correct samples of a problem are.

    For each similarity it prints quantiles over pairs, and which share of the pairs has similarity 1. With --labels it
    says how well each similarity and threshold agrees with pairs that were labelled (docs/similarity.md).

    \b
    Examples:
      quatro eval similarity runs/math -b math500 --label Ours -o ours-similarity.json
      quatro eval similarity samples/math500.jsonl --labels labels.jsonl --linkage components,complete
    """
    from evals.metrics.counting import Clustering
    from evals.metrics.studies.labels import THRESHOLDS, agreement_result, read_labels
    from evals.metrics.studies.similarity import DEFAULT_MAX_PAIRS, check_study, similarity_result

    written.check(files)
    chosen = check_study(names(similarity, "--similarity"), None if labels else tokens)  # before any file is read
    if labels is None:
        refuse_idle({"--threshold": threshold, "--linkage": linkage}, "similarities alone, which are not clustered")
    else:
        refuse_idle({"--max-pairs": max_pairs != DEFAULT_MAX_PAIRS}, "--labels, which takes all labelled pairs")
    samples, about = shared.graded_samples(files, benchmarks, label=label)
    if labels is not None:
        wanted, cuts = numbers(threshold, "--threshold", float) or THRESHOLDS, names(tokens, "--tokens")
        found = [
            Clustering([one], None if one == "exact" else wanted, linked, cut)
            for one in dict.fromkeys([*chosen, *["exact"] * (similarity is None)])
            for linked in names(linkage, "--linkage") or ["components"]
            for cut in cuts or (None,)
        ]
        result = agreement_result(samples, read_labels(labels), found, seed=seed, about=about)
        written.write(result)
        if not written.json:
            _show_agreement(result)
        return
    with shared.progress("comparing answers") as tell:
        result = similarity_result(
            samples, similarities=chosen, tokens=tokens, max_pairs=max_pairs, seed=seed, on_progress=tell, about=about
        )
    output.warn(*result.warnings)
    written.write(result)
    if written.json:
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


def _show_agreement(result: "Result") -> None:
    """The settings with the threshold that the labels favour, or the default one, best first."""
    from evals.similarity import Setting, default_threshold

    body, names = [], ("precision", "recall", "ari")
    for row in sorted(result.rows, key=lambda row: -row.value):
        told, is_default = row.model_extra or {}, row.threshold == default_threshold(row.similarity)
        if told.get("is_favoured") or is_default:
            marks = ", ".join(["favoured"] * ("is_favoured" in told) + ["default"] * is_default)
            cells = [(row.value, row.ci_low, row.ci_high), *map(told.get, names)]
            shown = ["{:.2f} [{:.2f}, {:.2f}]".format(*cell) if cell and None not in cell else None for cell in cells]
            body.append([str(Setting.of(row)), marks, *shown])
    title = f"Agreement with {told['num_pairs']} labels of {row.num_problems} problems; 95 %, over problems only"
    output.table(title, ["together if", "threshold", "kappa", *names], body)


@spread
def clusters(
    files: shared.Files,
    benchmarks: Benchmarks,
    id: shared.Id,
    grader: shared.Grader = None,
    json: Json = False,
    *,
    same: shared.Same,
) -> None:
    """Show the largest clusters of a problem, with a text each.

    The text is the commonest of its cluster. Only the samples of this problem are graded.

    \b
    Examples:
      quatro eval clusters samples/math500.jsonl --id test/algebra/12
      quatro eval clusters ours.jsonl --id test/algebra/12 --json
    """
    from evals.metrics.studies.clusters import clusters

    how = shared.options(benchmarks, same, grader=grader)
    found = clusters(files, id, progress=shared.progress, **how)
    output.answer(found.document(), f"{found}\n", json=json)
