"""`quatro rollouts`: what a model wrote while it was trained."""

from __future__ import annotations

from typing import Annotated

import typer

from quatro_cli.options import Json, Run, usage_error
from quatro_cli.output import output


def rollouts(
    run: Run,
    step: Annotated[
        int | None, typer.Option("--step", metavar="N", help="The iteration. Default: the last one.", min=1)
    ] = None,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="The responses to this problem alone.")] = None,
    best: Annotated[bool, typer.Option("--best", help="The largest rewards first.")] = False,
    worst: Annotated[bool, typer.Option("--worst", help="The smallest rewards first.")] = False,
    count: Annotated[int, typer.Option("-n", metavar="N", help="How many responses.", min=1)] = 5,
    json: Json = False,
) -> None:
    """Show training responses of a run with their rewards.

    \b
    Examples:
      quatro rollouts runs/quickstart-quatro-0
      quatro rollouts runs/math --step 20 --worst -n 3
      quatro rollouts runs/math --step 20 --id algebra/17 -n 8 --json
    """
    from evals.text import visible
    from quatro.runs.rollouts import chosen, read_rollouts

    if best and worst:
        raise usage_error("--best and --worst exclude each other; give one")
    step, rows = read_rollouts(run, step)
    found = chosen(rows, id=id, order="best" if best else "worst" if worst else "file", count=count)
    if json:
        output.json({"schema": 1, "run": str(run), "step": step, "total": len(rows), "rollouts": found})
        return
    output.info(f"{len(found)} of {len(rows)} responses of iteration {step}")
    for row in found:
        facts = [f"{row.get('id')} #{row.get('sample_index')}", f"reward {row.get('reward'):.4g}"]
        facts += [
            f"advantage {row.get('advantage'):.4g}",
            f"{row.get('num_tokens')} tokens, {row.get('finish_reason')}",
        ]
        facts += [f"{name} {value:.4g}" for name, value in (row.get("reward_parts") or {}).items()]
        output.data(visible(f"--- {'  '.join(facts)}") + f"\n{visible(str(row.get('completion')))}")
