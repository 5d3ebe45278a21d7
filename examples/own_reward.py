"""A reward of your own: 1 for a correct countdown answer, and a little more for a short one; it logs a metric as well.

    quatro train quickstart -s reward=examples.own_reward:brief --dry-run
    quatro train quickstart -s reward=examples.own_reward:brief -s reward.options.bonus=0.2 -o runs/brief

The parameters are named after what they get (docs/rewards.md lists the names); others are set by `reward.options`.
"""

from evals.benchmarks.countdown import solves


def brief(completion: str, answer: str, finish_reason: str, bonus: float = 0.1) -> dict[str, float]:
    """The reward; the verdict, for `accuracy/mean`; the number of steps, whose mean becomes `reward/parts/steps`."""
    steps, is_correct = completion.count("="), solves(answer, completion, finish_reason)
    return {"reward": 1.0 + bonus / steps if is_correct else 0.0, "correct": is_correct, "steps": steps}
