"""`quatro view`: runs, curves and answers in a browser while they grow."""

from pathlib import Path
from typing import Annotated

from typer import Option

from quatro_cli.options import run_paths
from quatro_cli.output import output


def view(
    paths: Annotated[
        list[Path] | None,
        run_paths("[PATH...]", "Runs, sweeps, samples, or folders with runs. Default: this folder."),
    ] = None,
    port: Annotated[int, Option(metavar="N", min=0, max=65535, help="0: a free one.")] = 0,
    no_open: Annotated[bool, Option("--no-open", help="Only print the address.")] = False,
    who: Annotated[str, Option(metavar="NAME", help="Signs the labels.")] = "you",
) -> None:
    """Look at runs and sweeps in a browser while they grow.

    The page of `quatro report`, with the responses of each iteration, all answers clustered as you choose, and pairs to
    label for `quatro eval similarity --labels`. Only labels are written. From another machine:
    `ssh -L 8000:127.0.0.1:8000 HOST`, and there the second example.

    \b
    Examples:
      quatro view runs/math sweeps/delta
      quatro view --no-open --port 8000
    """
    import threading
    import webbrowser

    from evals.report.serving import PageServer
    from quatro.runs.views.served import View

    shown = View(paths or [Path()], who=who)
    with PageServer(shown.page, shown.routes, {"label": shown.label}, port) as server:
        threading.Thread(target=shown.watch, args=(server.tell,), daemon=True).start()
        threading.Thread(target=shown.count, daemon=True).start()
        output.data(server.address)
        output.info("this address holds a token and is for you alone; Ctrl-C ends it")
        if not no_open:
            threading.Thread(target=webbrowser.open, args=(server.opening,), daemon=True).start()
        server.serve_forever()
