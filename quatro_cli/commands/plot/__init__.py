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


for name in ("training", "passk", "ucc", "flips", "similarity", "heatmap"):
    app.add(name, f"quatro_cli.commands.plot.figures:{name.replace('-', '_')}")
