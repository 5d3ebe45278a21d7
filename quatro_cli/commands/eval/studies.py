"""`quatro eval similarity | side-by-side`: how diverse correct answers are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from quatro_cli.commands.eval import shared
from quatro_cli.options import Benchmarks, Json, names, numbers
from quatro_cli.output import output

if TYPE_CHECKING:
    from evals.results.document import Result, Row


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
            samples,
            similarities=measures,
            tokens=tokens,
            max_pairs=max_pairs,
            seed=seed,
            on_progress=tell,
            **about,
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
        body.append([*lead, pairs, *quantiles, equal])
    columns = [*leads, *heads.values(), "pairs at 1, %"]
    output.table("Similarity of two correct answers to a problem", columns, body)


def side_by_side(
    files: shared.Files,
    benchmarks: Benchmarks,
    label: shared.Labels,
    k: Annotated[str | None, Option(metavar="K[,K]", help="Add Pass@k and UCC@k for these k.")] = None,
    similarity: shared.Similarities = None,
    threshold: shared.Thresholds = None,
    linkage: shared.Linkage = "components",
    tokens: shared.Tokens = None,
    jobs: shared.Jobs = None,
    ci: shared.Interval = False,
    seed: shared.BootstrapSeed = 0,
    first: shared.First = None,
    json: Json = False,
    out: shared.Out = None,
) -> None:
    """Show several samples files side by side, a row for each.

    A row has the sampling temperature, pass@1, UCR and the number of clusters; the title says what all rows share. UCR
    is the number of clusters of correct samples per sample. It falls as n grows, so draw equal n (or take it, --n).

    \b
    Examples:
      quatro eval side-by-side gspo-T1.jsonl gspo-T1.5.jsonl quatro-T1.jsonl
      quatro eval side-by-side cold.jsonl hot.jsonl --label cold --label hot --ci -o hot.json
    """
    from evals.results.reading import labels_of
    from evals.tables.side_by_side import Side, temperature_result

    how = shared.clustering(similarity, threshold, linkage, tokens)
    ks = numbers(k, "--k", int) or []
    shared.check_out(out, files)
    named = labels_of(files, label)
    found = shared.several_counted(files, benchmarks, first=first, jobs=jobs)
    sides = [Side(name, *one) for name, one in zip(named, found, strict=True)]
    with shared.progress("clustering problems") as tell:
        result = temperature_result(sides, clustering=how, ks=ks, ci=ci, seed=seed, jobs=jobs, on_progress=tell)
    output.warn(*result.warnings)
    shared.write(result, json=json, out=out)
    if not json:
        _show_sides(result)


_DRAWN = ("T", "top_p", "problems", "n")
_SIDES = {
    "pass@k": "pass@{} %",
    "ucc@k": "UCC@{}",
    "ucr": "UCR",
    "num_clusters": "clusters",
    "effective_number": "effective",
}


def _show_sides(result: Result) -> None:
    """A table for each setting: sides and benchmarks down; what all of its rows share stands in its title."""
    from evals.results.shown import grid_of, number_cell, rows_in_order, title_of, without_lone_average
    from evals.similarity import setting_of

    tables: dict[str, list[Row]] = {}
    for row in rows_in_order(result.rows):
        tables.setdefault(setting_of(row), []).append(row)
    for setting, rows in tables.items():
        names_of: dict[str, list[str]] = {}
        for row in rows:
            names_of.setdefault(_extra(row, "label"), []).append(row.benchmark)
        shown = [row for row in rows if row.benchmark in without_lone_average(names_of[_extra(row, "label")])]
        shown.sort(key=lambda row: (list(_SIDES).index(row.metric), row.k or 0))
        drawn = [(_extra(row, "temperature"), _extra(row, "top_p"), row.num_problems, row.n) for row in shown]
        columns = dict(zip(_DRAWN, zip(*drawn, strict=True), strict=True))
        same = {head: values[0] for head, values in columns.items() if len(set(values)) == 1}
        cells = []
        for row, values in zip(shown, drawn, strict=True):
            own = (value for head, value in zip(_DRAWN, values, strict=True) if head not in same)
            lead = (_extra(row, "label"), title_of(row.benchmark), *own)
            cells.append((lead, _SIDES[row.metric].format(row.k), number_cell(row)))
        said = [f"{head} {value:g}" for head, value in same.items() if value is not None]
        leads = ["samples", "benchmark", *(head for head in _DRAWN if head not in same)]
        shared.show(grid_of(", ".join(["Side by side", *said, setting]), leads, cells))


def _extra(row: Row, key: str) -> Any:
    return (row.model_extra or {})[key]
