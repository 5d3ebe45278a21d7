"""`quatro samples`: samples of other tools as ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quatro_cli.output import output

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _samples() -> None:
    """Bring samples of other tools into our form.

    \b
    Examples:
      quatro samples import --from lm-eval samples_gsm8k_2026-01-31T10-00-00.jsonl -o gsm8k.jsonl
      quatro samples import --from verl 100.jsonl -b math500 -o math500.jsonl
    """


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What the other tool wrote.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="OUT.jsonl", help="Where the samples go; a new file.")],
    tool: Annotated[str, typer.Option("--from", metavar="TOOL", help="lm-eval, evalplus, verl, parquet or jsonl.")],
    columns: Annotated[
        list[str],
        typer.Option(
            "--column",
            metavar="NAME=FIELD",
            help="Field of a sample's NAME, before the tool's own; dots go into objects. Repeatable.",
            default_factory=list,
            show_default=False,
        ),
    ],
    benchmark: Annotated[
        str | None, typer.Option("-b", "--benchmark", metavar="NAME", help="Benchmark, where the file does not say.")
    ] = None,
    answer_after: Annotated[
        str, typer.Option("--answer-after", metavar="TEXT", help="The answer follows the last TEXT (GSM8K: ####).")
    ] = "",
) -> None:
    """Convert another tool's output to a samples file that `quatro eval` reads.

    \b
    TOOL      completion            answer                     id                benchmark
    lm-eval   resps, every repeat   target                     doc_id            samples_NAME_TIME.jsonl
    evalplus  solution, completion  none (code)                task_id           of task_id
    verl      output                gts                        of input          data_source
    parquet,  completion,           answer,                    id,               benchmark,
    jsonl     responses             reward_model.ground_truth  extra_info.index  data_source

    Scores of the tool are kept as `source_scores` and decide nothing; --column correct=FIELD takes its word.

    \b
    Examples:
      quatro samples import --from lm-eval samples_gsm8k.jsonl --answer-after '####' -o gsm8k.jsonl
      quatro samples import --from parquet out.parquet --column answer=gold -b mine -o mine.jsonl
    """
    from evals.errors import UsageError
    from evals.samples.importing import import_samples

    mapping: dict[str, str] = {}
    for column in columns:
        name, equals, field = column.partition("=")
        if not equals or not name or not field or name in mapping:
            raise UsageError(f"--column {column!r}: expected NAME=FIELD, each NAME once")
        mapping[name] = field
    imported = import_samples(file, out, tool=tool, benchmark=benchmark, columns=mapping, answer_after=answer_after)
    for note in imported.notes:
        output.info(note)
    output.info(
        f"{imported.num_samples} samples of {imported.num_problems} problems of {', '.join(imported.benchmarks)}"
    )
    output.data(str(imported.path))
