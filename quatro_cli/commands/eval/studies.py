"""`quatro eval similarity | side-by-side | bias`: how diverse correct answers are, and what a measure of it hides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from quatro_cli import completion
from quatro_cli.commands.eval.options import (
    BootstrapSeed,
    Files,
    First,
    Interval,
    Jobs,
    Ks,
    Label,
    Labels,
    Linkage,
    Out,
    Similarities,
    Similarity,
    Threshold,
    Thresholds,
    Tokens,
    asked_for,
    check_out,
    clustering,
    counted_samples,
    graded_samples,
    progress,
    say_and_write,
    warn_of_foreign_grades,
)
from quatro_cli.options import Benchmarks, Json, names, numbers, usage_error
from quatro_cli.output import output

if TYPE_CHECKING:
    from evals.benchmarks.catalogue import Kind
    from evals.results.document import Result, Row
    from evals.similarity.setting import Setting


def similarity(
    files: Files,
    benchmarks: Benchmarks,
    similarity: Annotated[
        str | None,
        typer.Option(
            "--similarity",
            metavar="NAME[,NAME]",
            help="As in `quatro eval ucc`. Default: all built-in ones except exact.",
            autocompletion=completion.similarities,
        ),
    ] = None,
    tokens: Tokens = None,
    max_pairs: Annotated[
        int,
        typer.Option(
            "--max-pairs",
            metavar="N",
            min=1,
            help="Pairs compared per problem. If there are more, a random subset is used.",
        ),
    ] = 1000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of the random subset of pairs.")] = 0,
    label: Label = None,
    json: Json = False,
    out: Out = None,
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
    check_out(out, files)
    samples, about = graded_samples(files, benchmarks, label=label)
    with progress("comparing answers") as tell:
        result = similarity_result(
            samples,
            similarities=measures,
            tokens=tokens,
            max_pairs=max_pairs,
            seed=seed,
            on_progress=tell,
            **about,
        )
    say_and_write(result, json=json, out=out)
    if json:
        return
    from evals.tables.titles import rows_in_order, title_of

    body = []
    for row in rows_in_order(result.rows):
        extra = row.model_extra or {}
        quantiles = [f"{extra['quantiles'][p]:.3f}" for p in ("0.05", "0.25", "0.5", "0.75", "0.95")]
        pairs = f"{extra['num_pairs']} of {extra['num_pairs_total']}"
        equal = f"{100 * extra['equal_share']:.1f}"
        body.append([title_of(row.benchmark), row.similarity, row.num_problems, row.n, pairs, *quantiles, equal])
    columns = [
        "benchmark",
        "similarity",
        "problems",
        "n",
        "pairs",
        "5 %",
        "25 %",
        "median",
        "75 %",
        "95 %",
        "pairs at 1, %",
    ]
    output.table("Similarity of two correct answers to a problem", columns, body)


def side_by_side(
    files: Files,
    benchmarks: Benchmarks,
    label: Labels,
    k: Annotated[str | None, typer.Option("--k", metavar="K[,K]", help="Add Pass@k and UCC@k for these k.")] = None,
    similarity: Similarities = None,
    threshold: Thresholds = None,
    linkage: Linkage = "components",
    tokens: Tokens = None,
    jobs: Jobs = None,
    ci: Interval = False,
    seed: BootstrapSeed = 0,
    first: First = None,
    json: Json = False,
    out: Out = None,
) -> None:
    """Show several samples files side by side, a row for each.

    A row has the sampling temperature, pass@1, UCR and the number of clusters; the title says what all rows share. UCR
    is the number of clusters of correct samples per sample. It falls as n grows, so draw equal n (or take it, --n).

    \b
    Examples:
      quatro eval side-by-side gspo-T1.jsonl gspo-T1.5.jsonl quatro-T1.jsonl
      quatro eval side-by-side cold.jsonl hot.jsonl --label cold --label hot --ci -o hot.json
    """
    from evals.results.labels import labels_of
    from evals.samples.about import agreed_grader
    from evals.tables.side_by_side import Side, temperature_result

    how = clustering(similarity, threshold, linkage, tokens)
    ks = numbers(k, "--k", int) or []
    check_out(out, files)
    named = labels_of(files, label)
    asked = asked_for(first=first)
    found = [counted_samples([path], benchmarks, asked=asked, jobs=jobs) for path in files]
    agreed_grader({str(path): about["grader"] for path, (_, about) in zip(files, found, strict=True)})
    sides = [Side(name, *one) for name, one in zip(named, found, strict=True)]
    warn_of_foreign_grades({path: about for path, (_, about) in zip(files, found, strict=True)})
    with progress("clustering") as tell:
        result = temperature_result(sides, **how, ks=ks, ci=ci, seed=seed, jobs=jobs, on_progress=tell)
    say_and_write(result, json=json, out=out)
    if not json:
        _show_sides(result)


def bias(
    files: Files,
    benchmarks: Benchmarks,
    k: Ks = None,
    similarity: Similarity = None,
    threshold: Threshold = None,
    linkage: Linkage = "components",
    tokens: Tokens = None,
    draws: Annotated[
        int, typer.Option("--draws", metavar="N", min=1, help="Random subsets of each problem, for each k.")
    ] = 20,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of the random subsets.")] = 0,
    label: Label = None,
    json: Json = False,
    out: Out = None,
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
    check_out(out, files)
    samples, about = graded_samples(files, benchmarks, label=label)
    kinds = {problem.benchmark: problem.kind for problem in samples.graded()}
    setting = _setting(kinds, measures, threshold, linkage, tokens)
    with progress("clustering afresh") as tell:
        result = reclustered_result(
            samples, setting=setting, seed=seed, ks=ks, num_draws=draws, on_progress=tell, **about
        )
    say_and_write(result, json=json, out=out)
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
    from evals.metrics.counting import clustering_settings

    thresholds = [threshold] if threshold is not None else None
    found = {
        one
        for name, kind in kinds.items()
        for one in clustering_settings(name, measures, thresholds, linkage, tokens, kind)
    }
    if len(found) != 1:
        used = " and ".join(sorted(map(str, found)))
        raise usage_error(
            f"one setting at a time, found {used}; choose with --similarity and --tokens, or a benchmark with -b"
        )
    return found.pop()


_DRAWN = ("T", "top_p", "problems", "n")
_SIDE_HEADS = {"ucr": "UCR", "num_clusters": "clusters", "effective_number": "effective"}


def _show_sides(result: Result) -> None:
    from evals.similarity.setting import Setting
    from evals.tables.titles import rows_in_order, title_of, without_lone_average
    from quatro_cli.commands.eval.tables import number_cell

    tables: dict[str, dict[tuple[str, str], dict[tuple[str, int | None], Row]]] = {}
    for row in rows_in_order(result.rows):
        label = (row.model_extra or {})["label"]
        cells = tables.setdefault(str(Setting.of(row)), {}).setdefault((label, row.benchmark), {})
        cells[row.metric, row.k] = row
    ks = sorted({row.k for row in result.rows if row.k is not None})
    pairs: list[tuple[str, int | None, str]] = [("pass@k", k, f"pass@{k} %") for k in ks]
    pairs += [("ucc@k", k, f"UCC@{k}") for k in ks if k > 1]
    pairs += [(metric, None, head) for metric, head in _SIDE_HEADS.items()]
    for title, lines in tables.items():
        body = []
        for (label, benchmark), cells in lines.items():
            if benchmark not in without_lone_average(name for of, name in lines if of == label):
                continue
            ucr = cells["ucr", None]
            extra = ucr.model_extra or {}
            drawn = [extra["temperature"], extra["top_p"], ucr.num_problems, ucr.n]
            shown = [number_cell(cells[metric, k]) for metric, k, _ in pairs]
            body.append((label, title_of(benchmark), drawn, shown))
        # What all rows share stands in the title: that leaves room for the numbers.
        shared = {
            head: values.pop() for at, head in enumerate(_DRAWN) if len(values := {row[2][at] for row in body}) == 1
        }
        columns = [
            "samples",
            "benchmark",
            *(head for head in _DRAWN if head not in shared),
            *(head for *_, head in pairs),
        ]
        rows = [
            [label, name, *(value for head, value in zip(_DRAWN, drawn, strict=True) if head not in shared), *shown]
            for label, name, drawn, shown in body
        ]
        said = [f"{head} {value:g}" for head, value in shared.items() if value is not None]
        output.table(", ".join(["Side by side", *said, title]), columns, rows)


def _show_bias(rows: list[Row]) -> None:
    from evals.similarity.setting import Setting
    from evals.studies.partition_bias import RECLUSTERED
    from evals.tables.titles import title_of, without_lone_average

    names = without_lone_average(row.benchmark for row in rows)
    ks = list(dict.fromkeys(row.k for row in rows))
    value = {(row.metric, row.benchmark, row.k): row for row in rows}
    body = []
    for name in names:
        for metric, shown in (("ucc@k", "clusters of all n"), (RECLUSTERED, "k clustered afresh")):
            found = [value[metric, name, k] for k in ks]
            cells = [f"{row.value:.2f}" + (f" ± {row.draws_se:.2f}" if row.draws_se else "") for row in found]
            body.append([title_of(name), found[0].num_problems, found[0].n, shown, *cells])
    output.table(f"UCC@k, {Setting.of(rows[0])}", ["benchmark", "problems", "n", "", *(f"k={k}" for k in ks)], body)
