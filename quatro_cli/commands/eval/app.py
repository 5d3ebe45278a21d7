"""`quatro eval`: the commands that measure samples."""

from __future__ import annotations

from quatro_cli.commands.eval.clusters import clusters
from quatro_cli.commands.eval.compare import compare
from quatro_cli.commands.eval.flips import flips
from quatro_cli.commands.eval.grade import grade
from quatro_cli.commands.eval.importing import import_
from quatro_cli.commands.eval.passk import passk
from quatro_cli.commands.eval.studies import bias, side_by_side, similarity
from quatro_cli.commands.eval.ucc import ucc
from quatro_cli.help import App

app = App()


@app.callback()
def _eval() -> None:
    """Measure samples: how often correct, in how many ways.

    passk and ucc grade samples that are not graded yet. `quatro eval grade` grades them once and stores the grades; it
    has more options.

    \b
    Examples:
      quatro eval passk samples/math500.jsonl --k 1,16,256 --ci
      quatro eval ucc runs/quickstart-quatro-0 --json
    """


app.add("passk", passk)
app.add("ucc", ucc)
app.add("compare", compare)
app.add("clusters", clusters)
app.add("grade", grade)
app.add("flips", flips)
app.add("similarity", similarity)
app.add("side-by-side", side_by_side)
app.add("bias", bias)
app.add("import", import_)
