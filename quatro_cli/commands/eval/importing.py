"""`quatro eval import`: samples of other tools as ours."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from quatro_cli.options import repeated, usage_error
from quatro_cli.output import output


def import_(
    file: Annotated[Path, Argument(metavar="FILE", help="Output of the other tool.")],
    out: Annotated[Path, Option("-o", "--out", metavar="OUT", help="The .jsonl file to write.")],
    tool: Annotated[str, Option("--from", metavar="TOOL", help="One of the tools above.")],
    columns: Annotated[
        list[str],
        repeated(
            "--column",
            metavar="NAME=FIELD",
            help="Take NAME (such as `answer`) from FIELD; a dot leads into an object or a list.",
        ),
    ],
    benchmark: Annotated[
        str | None, Option("-b", "--benchmark", metavar="NAME", help="The benchmark, if the file does not name it.")
    ] = None,
    answer_after: Annotated[
        str,
        Option("--answer-after", metavar="TEXT", help="Reference answers follow TEXT in their column (GSM8K: ####)."),
    ] = "",
) -> None:
    """Convert samples from other tools.

    \b
    TOOL       completion                  answer                id        benchmark
    lm-eval    resps, every repeat         target                doc_id    in the file's name
    inspect    output.choices              target                id        the task
    lighteval  model_response.text         choices[gold_index]   of query  the task
    evalplus   solution, completion        none (code)           task_id   of task_id
    verifiers  last reply                  task.data.answer      key       env
    trl        completion                  answer                of prompt -b NAME
    verl       output                      gts                   of input  data_source
    parquet,   completion(s),              answer,               id,       benchmark,
    csv,jsonl  responses                   reward_model.ground.. index     data_source

    Other columns are kept. The tool's own scores (of a table: correct, is_correct, score, reward, acc, accuracy) become
    `source_scores`. These are not used; `quatro eval grade` says how often it agrees with them. With --column
    correct=FIELD they become the grades.

    \b
    Examples:
      quatro eval import --from lm-eval samples_gsm8k.jsonl --answer-after '####' -o gsm8k.jsonl
      quatro eval import --from parquet out.parquet -o imported.jsonl
    """
    from evals.samples.importing import import_samples

    mapping: dict[str, str] = {}
    for column in columns:
        name, equals, field = column.partition("=")
        if not equals or not name or not field or name in mapping:
            raise usage_error(f"--column {column!r}: expected NAME=FIELD, each NAME once")
        mapping[name] = field
    done = import_samples(file, out, tool=tool, benchmark=benchmark, columns=mapping, answer_after=answer_after)
    output.info(*done.notes)
    output.data(str(done.path))
