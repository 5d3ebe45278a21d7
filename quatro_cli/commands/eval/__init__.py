"""`quatro eval`: the commands that measure samples."""

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


app.add("passk", "quatro_cli.commands.eval.passk_ucc:passk")
app.add("ucc", "quatro_cli.commands.eval.passk_ucc:ucc")
app.add("compare", "quatro_cli.commands.eval.compare:compare")
app.add("power", "quatro_cli.commands.eval.compare:power")
app.add("clusters", "quatro_cli.commands.eval.studies:clusters")
app.add("grade", "quatro_cli.commands.eval.grade:grade")
app.add("flips", "quatro_cli.commands.eval.compare:flips")
app.add("similarity", "quatro_cli.commands.eval.studies:similarity")
app.add("import", "quatro_cli.commands.eval.importing:import_")
app.add("export", "quatro_cli.commands.eval.exporting:export")
