"""`quatro config`: what a configuration resolves to, how two differ, and which keys there are."""

import os
from typing import Annotated

from typer import Option

from quatro_cli.help import App
from quatro_cli.options import Config, Json, Method, Set
from quatro_cli.output import output

SchemaMethod = Annotated[
    str | None,
    Option("-m", "--method", metavar="METHOD", help="The keys of METHOD alone, which may be your own, module:Class."),
]

app = App()


@app.callback()
def _config() -> None:
    """Show, compare and explain configurations.

    \b
    Examples:
      quatro config show quickstart -s method.delta=0.1
      quatro config diff quickstart runs/quickstart-quatro-0
    """


def show(source: Config, settings: Set, method: Method = None, json: Json = False) -> None:
    """Print a configuration in full, and where each value is from.

    A comment says where a value comes from: a file, an option, the paper, verl (whose defaults the paper uses where it
    states nothing), or a preset ("our reading"). A value without a comment is a default of quatro.

    \b
    Examples:
      quatro config show quickstart -m gspo -s method.preset=official
      quatro config show math-1.5b -s optimizer.lr=1e-5 > mine.yaml
    """
    from quatro.config import config_to_yaml, resolve_config, shipped_configs

    resolved = resolve_config(source, overrides=settings, method=method)
    own, shipped = (f"{folder}{os.sep}" for folder in (resolved.path.parent, shipped_configs()["quickstart"].parent))
    origins = {key: origin.removeprefix(own) for key, origin in resolved.origins.items()}
    origins = {key: origin.replace(shipped, "shipped ", 1) for key, origin in origins.items()}
    if json:
        output.json({"schema": 1, "config": resolved.config.model_dump(mode="json"), "origins": origins})
        return
    comments = {key: origin for key, origin in origins.items() if origin != "default"}
    output.data(config_to_yaml(resolved.config, comments=comments))


def diff(a: Config, b: Config, json: Json = False) -> None:
    """Print the keys in which two configurations differ.

    A dash means that a configuration does not have the key.

    \b
    Examples:
      quatro config diff math-1.5b math-7b
      quatro config diff runs/quickstart-quatro-0 runs/quickstart-gspo-0 --json
    """
    from quatro.config import differing_keys, load_config

    found = differing_keys([load_config(a), load_config(b)])
    if json:
        differences = [{"key": key, "a": of_a, "b": of_b} for key, (of_a, of_b) in found.items()]
        output.json({"schema": 1, "a": a, "b": b, "differences": differences})
    elif found:
        output.table("", ["key", a, b], [[key, *values] for key, values in found.items()])
    else:
        output.info(f"{a} and {b} agree on every key")


def schema(method: SchemaMethod = None, json: Json = False) -> None:
    """Print every key with its type, default and meaning.

    \b
    Examples:
      quatro config schema -m my_method:MyMethod
      quatro config schema --json > schema.json
    """
    from evals.errors import with_pages
    from quatro.config import schema_json, schema_text

    if json:
        output.json(schema_json(method))
    else:
        output.data(with_pages(schema_text(method)))


app.add("show", show)
app.add("diff", diff)
app.add("schema", schema)
