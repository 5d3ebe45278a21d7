"""`quatro export`: a run's weights as a plain Hugging Face folder."""

from pathlib import Path
from shlex import quote
from typing import Annotated

from typer import Option

from quatro_cli.options import Json, Run, Step, checkpoint_step
from quatro_cli.output import output

MIB = 2**20


def export(
    run: Run,
    out: Annotated[Path, Option("-o", "--out", metavar="DIR", help="The folder to make.")],
    step: Step = None,
    json: Json = False,
) -> None:
    """Write a run's model as a plain Hugging Face folder.

    The checkpoint's hashes are verified first, and the weights are kept bit by bit; an adapter is merged, in float32.
    The folder gets a model card; add results to it with `(echo; quatro table RESULT.json...) >> DIR/README.md`. Those
    in RUN/results go into .eval_results, for the model's page on the Hub.

    \b
    Examples:
      quatro export runs/quickstart-quatro-0 -o models/countdown
      quatro export runs/math -o models/math-quatro --step 80
    """
    from quatro.runs.export import export_model

    with output.progress("export", 100) as bar:

        def report(done: int, total: int) -> None:
            bar(100 * done // max(1, total), f"{done / MIB:,.0f} of {total / MIB:,.0f} MiB")

        exported = export_model(run, out, step=checkpoint_step(step), progress=report)
    output.info(f"step {exported.step}, weights as {exported.dtype}; read {out / 'README.md'} before you publish it")
    output.answer(
        {"schema": 1, "folder": str(out), "step": exported.step, "dtype": exported.dtype}, str(out), json=json
    )
    output.info(f"to publish it: hf upload OWNER/NAME {quote(str(out))}")
