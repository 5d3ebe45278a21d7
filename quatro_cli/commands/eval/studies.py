"""`quatro eval similarity | side-by-side | bias`: how diverse correct answers are, and what a measure of it hides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from quatro_cli import completion
from quatro_cli.commands.eval import shared
from quatro_cli.options import Benchmarks, Json, names, numbers, usage_error
from quatro_cli.output import output

if TYPE_CHECKING:
    from evals.benchmarks.catalogue import Kind
    from evals.results.document import Result, Row
    from evals.similarity.catalogue import Setting


def similarity(
    files: shared.Files,
    benchmarks: Benchmarks,
    similarity: Annotated[
        str | None,
        Option(
            metavar="NAME[,NAME]",
            help="As in `quatro eval ucc`. Default: all built-in ones except exact.",
            autocompletion=completion.similarities,
        ),
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
    shared.say_and_write(result, json=json, out=out)
    if json:
        return
    from evals.tables.parts import rows_in_order, title_of

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
    asked = shared.asked_for(first=first)
    found = shared.several_counted(files, benchmarks, asked=asked, jobs=jobs)
    sides = [Side(name, *one) for name, one in zip(named, found, strict=True)]
    with shared.progress("clustering") as tell:
        result = temperature_result(sides, clustering=how, ks=ks, ci=ci, seed=seed, jobs=jobs, on_progress=tell)
    shared.say_and_write(result, json=json, out=out)
    if not json:
        _show_sides(result)


def bias(
    files: shared.Files,
    benchmarks: Benchmarks,
    k: shared.Ks = None,
    similarity: shared.Similarity = None,
    threshold: shared.Threshold = None,
    linkage: shared.Linkage = "components",
    tokens: shared.Tokens = None,
    draws: Annotated[int, Option(metavar="N", min=1, help="Random subsets of each problem, for each k.")] = 20,
    seed: Annotated[int, Option(metavar="N", min=0, help="Seed of the random subsets.")] = 0,
    label: shared.Label = None,
    json: Json = False,
    out: shared.Out = None,
) -> None:
    """Show how much UCC@k owes to clustering all n samples.

    UCC@k counts the clusters of all n samples. Among k samples alone two of these clusters may be more, since the
    sample that connects them is missing. The first row is UCC@k. For the second row k samples are drawn (--draws times)
    and clustered alone; ± is the standard error of these draws. With exact the two differ by chance only.

    \b
    Examples:
      quatro eval bias samples/math500.jsonl
      quatro eval bias samples/math500.jsonl --linkage complete -o bias.json
    """
    from evals.studies.partition_bias import reclustered_result

    ks = numbers(k, "--k", int)
    measures = names(similarity, "--similarity")
    _setting({"": None}, measures, threshold, linkage, tokens)  # before any file is read
    shared.check_out(out, files)
    samples, about = shared.graded_samples(files, benchmarks, label=label)
    kinds = {problem.benchmark: problem.kind for problem in samples.graded()}
    setting = _setting(kinds, measures, threshold, linkage, tokens)
    with shared.progress("clustering afresh") as tell:
        result = reclustered_result(
            samples, setting=setting, seed=seed, ks=ks, num_draws=draws, on_progress=tell, **about
        )
    shared.say_and_write(result, json=json, out=out)
    if not json:
        _show_bias(result.rows)


def _setting(
    kinds: Mapping[str, Kind | None],
    measures: list[str] | None,
    threshold: float | None,
    linkage: str,
    tokens: str | None,
) -> Setting:
    """The one setting that the options mean for benchmarks of these ``kinds``; raises UsageError for several."""
    from evals.metrics.counting import Clustering

    thresholds = [threshold] if threshold is not None else None
    found = {
        one
        for name, kind in kinds.items()
        for one in Clustering(measures, thresholds, linkage, tokens).settings(name, kind)
    }
    if len(found) != 1:
        used = " and ".join(sorted(map(str, found)))
        raise usage_error(
            f"one setting at a time, found {used}; choose with --similarity and --tokens, or a benchmark with -b"
        )
    return found.pop()


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
    from evals.similarity.catalogue import setting_of
    from evals.tables.parts import rows_in_order, title_of, without_lone_average

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
            cells.append((lead, _SIDES[row.metric].format(row.k), shared.number_cell(row)))
        said = [f"{head} {value:g}" for head, value in same.items() if value is not None]
        leads = ["samples", "benchmark", *(head for head in _DRAWN if head not in same)]
        shared.show_grid(", ".join(["Side by side", *said, setting]), leads, cells)


def _show_bias(rows: list[Row]) -> None:
    from evals.similarity.catalogue import Setting
    from evals.studies.partition_bias import RECLUSTERED
    from evals.tables.parts import title_of, without_lone_average

    order = {"ucc@k": "clusters of all n", RECLUSTERED: "k clustered afresh"}
    names = without_lone_average(row.benchmark for row in rows)
    rows = [row for row in rows if row.benchmark in names]
    cells = [
        (
            (title_of(row.benchmark), row.num_problems, row.n, order[row.metric]),
            shared.head_of(row),
            f"{row.value:.2f}" + (f" ± {row.draws_se:.2f}" if row.draws_se else ""),
        )
        for row in sorted(rows, key=lambda row: (names.index(row.benchmark), list(order).index(row.metric)))
    ]
    shared.show_grid(f"UCC@k, {Setting.of(rows[0])}", ["benchmark", "problems", "n", ""], cells)


def _extra(row: Row, key: str) -> Any:
    return (row.model_extra or {})[key]
