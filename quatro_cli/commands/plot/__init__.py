"""`quatro plot`: the commands that draw figures."""

from quatro_cli.help import App

app = App()


@app.callback()
def _plot() -> None:
    """Draw figures (needs the extra `plot`).

    \b
    Examples:
      quatro plot training runs/quickstart-quatro-0
      quatro plot passk base.json ours.json -o passk.pdf
    """


app.add("training", "quatro_cli.commands.plot.runs:training")
app.add("passk", "quatro_cli.commands.plot.results:passk")
app.add("ucc", "quatro_cli.commands.plot.results:ucc")
app.add("differences", "quatro_cli.commands.plot.results:differences")
app.add("flips", "quatro_cli.commands.plot.results:flips")
app.add("similarity", "quatro_cli.commands.plot.results:similarity")
app.add("heatmap", "quatro_cli.commands.plot.results:heatmap")
app.add("side-by-side", "quatro_cli.commands.plot.results:side_by_side")
