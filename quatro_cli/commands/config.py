"""`quatro config`: what a configuration resolves to, how two differ, and which keys there are."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from quatro_cli.options import Json, Set
from quatro_cli.output import output

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Source = Annotated[str, typer.Argument(metavar="CONFIG|RUN", help="A file, a run directory or a shipped name.")]


@app.callback()
def _config() -> None:
    """Look at configurations.

    \b
    Examples:
      quatro config show quickstart -s method.delta=0.1
      quatro config diff quickstart runs/quickstart-quatro-0
    """


@app.command("show")
def show(
    source: Source,
    settings: Set,
    method: Annotated[
        str | None, typer.Option("-m", "--method", metavar="METHOD", help="Replace the whole method block.")
    ] = None,
    json: Json = False,
) -> None:
    """Print the whole resolved configuration as YAML, with what set each key; unmarked keys have a default of ours.

    "stated by the paper" or "verl's default", which the paper follows where it states nothing, says whose a value is;
    "our reading" is what a preset has to fill in beyond them.

    \b
    Examples:
      quatro config show quickstart -m gspo -s method.preset=official
      quatro config show math-1.5b -s optimizer.lr=1e-5 > mine.yaml
    """
    from quatro.config import config_to_yaml, resolve_config

    resolved = resolve_config(source, overrides=settings, method=method)
    folder = f"{resolved.path.parent}{os.sep}"
    origins = {key: origin.removeprefix(folder) for key, origin in resolved.origins.items()}
    if json:
        output.json({"schema": 1, "config": resolved.config.model_dump(mode="json"), "origins": origins})
        return
    comments = {key: origin for key, origin in origins.items() if origin != "default"}
    output.data(config_to_yaml(resolved.config, comments=comments))


@app.command("diff")
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A file, a run directory or a shipped name.")],
    b: Annotated[str, typer.Argument(metavar="B", help="What to compare it with.")],
    json: Json = False,
) -> None:
    """Print the keys on which two configurations disagree; a dash where one has no such key.

    \b
    Examples:
      quatro config diff math-1.5b math-7b
      quatro config diff runs/quickstart-quatro-0 runs/quickstart-gspo-0 --json
    """
    from quatro.config import diff_configs, load_config

    differences = diff_configs(load_config(a), load_config(b))
    if json:
        output.json({"schema": 1, "a": a, "b": b, "differences": [found._asdict() for found in differences]})
    elif differences:
        output.table("", ["key", a, b], differences)
    else:
        output.info(f"{a} and {b} agree on every key")


@app.command("schema")
def schema(json: Json = False) -> None:
    """Print every key with its type, its default and its meaning.

    \b
    Examples:
      quatro config schema | grep -A1 kl
      quatro config schema --json > schema.json
    """
    from quatro.config import schema_json, schema_text

    if json:
        output.json(schema_json())
    else:
        output.data(schema_text())
