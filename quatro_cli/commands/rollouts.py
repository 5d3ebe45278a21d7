"""`quatro rollouts`: what a model wrote while it was trained."""

from typing import Annotated

from typer import Option

from quatro_cli.options import Json, Run, usage_error
from quatro_cli.output import output


def rollouts(
    run: Run,
    step: Annotated[int | None, Option(metavar="N", help="The iteration. Default: the last one.", min=1)] = None,
    id: Annotated[str | None, Option(metavar="ID", help="Only the responses to this problem.")] = None,
    best: Annotated[bool, Option("--best", help="The largest rewards first.")] = False,
    worst: Annotated[bool, Option("--worst", help="The smallest rewards first.")] = False,
    count: Annotated[int, Option("-n", metavar="N", help="How many responses.", min=1)] = 5,
    json: Json = False,
) -> None:
    """Show training responses of a run with their rewards.

    \b
    Examples:
      quatro rollouts runs/math --step 20 --worst -n 3
      quatro rollouts runs/math --step 20 --id algebra/17 -n 8 --json
    """
    from evals.text import visible
    from quatro.runs.views.rollouts import Order, chosen, failures_text, read_rollouts

    if best and worst:
        raise usage_error("--best and --worst exclude each other; give one")
    step, rows = read_rollouts(run, step)
    num_failed = sum(bool(row.get("error")) for row in rows)
    order: Order = "best" if best else "worst" if worst else "file"
    found = chosen(rows, id=id, order=order, count=count)
    if json:
        output.json({"schema": 1, "run": str(run), "step": step, "total": len(rows), "rollouts": found})
        return
    if num_failed:
        output.info(f"{failures_text(num_failed, len(rows))} of iteration {step}")
    output.info(f"{len(found)} of {len(rows)} responses of iteration {step}")
    for row in found:
        facts = [f"{row.get('id')} #{row.get('sample_index')}"]
        facts += [f"{name} {row.get(name):.4g}" for name in ("reward", "advantage") if row.get(name) is not None] or [
            "dropped"
        ]
        facts += [f"{row.get('num_tokens')} tokens, {row.get('finish_reason')}"]
        facts += [f"{name} {value:.4g}" for name, value in (row.get("reward_parts") or {}).items()]
        facts += [f"failed: {row['error']}"] if row.get("error") else []
        output.data(visible(f"--- {'  '.join(facts)}") + f"\n{visible(str(row.get('completion')))}")
