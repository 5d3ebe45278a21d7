"""A reward of your own: 1 for a correct countdown answer, a little more for a short one, and a metric in the log.

    quatro train quickstart -s reward=examples.own_reward:brief --dry-run
    quatro train quickstart -s reward=examples.own_reward:brief -s reward.options.bonus=0.2 -o runs/brief

The name of a parameter says what it gets (docs/rewards.md lists the names); any other is set by `reward.options`.
"""

from quatro.tasks.countdown import solves


def brief(completion: str, answer: str, finish_reason: str, bonus: float = 0.1) -> dict[str, float]:
    """The reward, the verdict (for `accuracy/mean`), and the steps of the chain, whose mean is `reward/parts/steps`."""
    steps, is_correct = completion.count("="), solves(answer, completion, finish_reason)
    return {"reward": 1.0 + bonus / steps if is_correct else 0.0, "correct": is_correct, "steps": steps}
