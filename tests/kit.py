"""What many tests need: typing a command, the files of a result, and a look at what an error says."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from quatro.rewards.base import Grade, Grades, Groups, Reward
from quatro.types import Prompt
from quatro_cli.app import app

RELATIVES = Path(__file__).parents[1] / "docs" / "relatives.py"


def quatro(*words: object, code: int = 0, input: str | None = None) -> Result:
    """What the command ``quatro *words`` printed; it runs in this process and must end with ``code``.

    ``input`` is what the user types. A refusal (2) prints nothing on stdout but what a question to the user is about.
    """
    done = CliRunner().invoke(app, list(map(str, words)), input=input)
    assert done.exit_code == code, f"quatro {' '.join(map(str, words))} ended with {done.exit_code}: {done.output}"
    assert code != 2 or input is not None or not done.stdout, f"a refusal belongs on stderr, not: {done.stdout}"
    return done


def settings(*pairs: str) -> list[str]:
    """The words ``-s KEY=VALUE`` of a command for each ``KEY=VALUE``."""
    return [word for pair in pairs for word in ("-s", pair)]


def says(error: object, *data: object, key: object = None, value: object = None, advice: object = None) -> None:
    """An error names its key, the value found, what to type (``advice``) and other data, each as a word of its own.

    ``error`` is what `quatro` returned (its stderr), an exception, what `pytest.raises` caught, or a text. The sentence
    around the data is free. A number or name counts only whole: 7 is not said by 17, 0.7 or seven-7.
    """
    said = _plain(getattr(error, "stderr", getattr(error, "value", error)))
    for part in (key, value, advice, *data):
        if part is not None:
            text = _plain(part)
            before = r"(?<![\w.-])" if re.match(r"[\w-]", text) else ""
            after = r"(?![\w-]|\.\w)" if re.search(r"\w\Z", text) else ""
            assert re.search(before + re.escape(text) + after, said), f"{text} is not named in: {said}"


def _plain(text: object) -> str:
    return " ".join(str(text).split())  # messages are wrapped to the terminal's width


def relatives() -> dict[str, Any]:
    """What docs/relatives.py defines, by name: the methods of one's own that docs/methods.md names."""
    return runpy.run_path(str(RELATIVES), run_name=RELATIVES.name)


def read_json(path: Path) -> Any:
    """The one document in a file."""
    return json.loads(path.read_text(encoding="utf-8"))


def read_rows(path: Path) -> list[Any]:
    """The documents of a file that has one a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """``path``, which has one document a line from here on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rewards(grades: Any) -> list[list[float]]:
    """Of what `Reward.score` returned: the rewards of each prompt's rollouts."""
    return [[grade.reward for grade in group] for group in grades]


def verdicts(grades: Any) -> list[list[bool | None]]:
    """Of what `Reward.score` returned: which rollouts are correct."""
    return [[grade.correct for grade in group] for group in grades]


def num_failed(grades: Any) -> tuple[int, int]:
    """Of what `Reward.score` returned: the rollouts that raised or died, and those that ran out of time."""
    failed = [grade for group in grades for grade in group if grade.error]
    num_timeouts = sum(grade.is_timeout for grade in failed)
    return len(failed) - num_timeouts, num_timeouts


class DigitReward(Reward):
    """The share of words that are digits: an untrained policy earns mixed rewards with it. No process is started."""

    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Grades:
        words = [[rollout.text.split() for rollout in group] for group in completions]
        return [[Grade(sum(map(str.isdigit, one)) / max(1, len(one))) for one in group] for group in words]


class ManyDigitsReward(DigitReward):
    """1 where more than a third of the words are digits, else 0: a good part of all groups earns the same."""

    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Grades:
        return [[Grade(float(one.reward > 1 / 3)) for one in group] for group in super().score(prompts, completions)]
