"""`quatro eval import`: samples of other tools as ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quatro_cli import completion
from quatro_cli.help import App
from quatro_cli.options import usage_error
from quatro_cli.output import output


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Output of the other tool.")],
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="OUT.jsonl", help="The samples file to write; it must be new.")
    ],
    tool: Annotated[str, typer.Option("--from", metavar="TOOL", help="lm-eval, evalplus, verl, parquet or jsonl.")],
    columns: Annotated[
        list[str],
        typer.Option(
            "--column",
            metavar="NAME=FIELD",
            help="Take NAME (say `answer`) from FIELD; dots reach into objects. Repeatable.",
            default_factory=list,
            show_default=False,
        ),
    ],
    benchmark: Annotated[
        str | None,
        typer.Option(
            "-b",
            "--benchmark",
            metavar="NAME",
            help="The benchmark, if the file does not name it.",
            autocompletion=completion.benchmarks,
        ),
    ] = None,
    answer_after: Annotated[
        str,
        typer.Option(
            "--answer-after", metavar="TEXT", help="Text before the answer; its last occurrence counts (GSM8K: ####)."
        ),
    ] = "",
) -> None:
    """Convert samples from other tools.

    \b
    TOOL      completion            answer                     id                benchmark
    lm-eval   resps, every repeat   target                     doc_id            in the file's name
    evalplus  solution, completion  none (code)                task_id           of task_id
    verl      output                gts                        of input          data_source
    parquet,  completion,           answer,                    id,               benchmark,
    jsonl     responses             reward_model.ground_truth  extra_info.index  data_source

    The tool's own scores are kept as `source_scores` and are not used. With --column correct=FIELD they are the grades.

    \b
    Examples:
      quatro eval import --from lm-eval samples_gsm8k.jsonl --answer-after '####' -o gsm8k.jsonl
      quatro eval import --from parquet out.parquet --column answer=gold -b mine -o mine.jsonl
    """
    from evals.samples.importing import import_samples

    mapping: dict[str, str] = {}
    for column in columns:
        name, equals, field = column.partition("=")
        if not equals or not name or not field or name in mapping:
            raise usage_error(f"--column {column!r}: expected NAME=FIELD, each NAME once")
        mapping[name] = field
    imported = import_samples(file, out, tool=tool, benchmark=benchmark, columns=mapping, answer_after=answer_after)
    output.info(*imported.notes)
    output.info(
        f"{imported.num_samples} samples of {imported.num_problems} problems of {', '.join(imported.benchmarks)}"
    )
    output.data(str(imported.path))


old_app = App()


@old_app.callback()
def _samples() -> None:
    """The old name of `quatro eval import`."""


old_app.add_old_name("import", "eval import", import_)
