"""`quatro verl-command`: one of our configurations as a command of verl."""

from pathlib import Path
from typing import Annotated

from typer import Option

from quatro_cli.options import Config, Json, Method, Set
from quatro_cli.output import output


def verl_command(
    source: Config,
    settings: Set,
    method: Method = None,
    nodes: Annotated[int, Option(metavar="N", min=1, help="Nodes of the Ray cluster.")] = 1,
    gpus_per_node: Annotated[int, Option(metavar="M", min=1, help="GPUs per node.")] = 1,
    prompts: Annotated[Path, Option(metavar="FILE", help="The parquet file of prompts for verl.")] = Path(
        "prompts.parquet"
    ),
    write_prompts: Annotated[
        bool, Option("--write-prompts", help="First write that file, from the configuration's data.")
    ] = False,
    json: Json = False,
) -> None:
    """Print the command that runs a configuration on verl.

    quatro must be installed beside verl. docs/clusters.md says what differs from our own trainer, and how to run the
    command on a Ray cluster.

    \b
    Examples:
      quatro verl-command math-1.5b-2gpu --gpus-per-node 2 > run.sh
      quatro verl-command math-7b-4gpu --nodes 2 --gpus-per-node 4 > run.sh
    """
    from quatro.config import resolve_config
    from quatro.integrations.verl.command import verl_command as make
    from quatro.integrations.verl.command import write_prompts as make_file

    resolved = resolve_config(source, overrides=settings, method=method)
    command = make(resolved.config, name=resolved.stem, prompts=str(prompts), nodes=nodes, gpus_per_node=gpus_per_node)
    if write_prompts:
        output.info(f"{make_file(resolved.config, prompts)} prompts written to {prompts}")
    output.answer({"schema": 1, "overrides": command.overrides}, command.script, json=json)
