"""docs/architecture.md is true: each of its ways is walked, and its functions are called in the order that it gives."""

import json
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
TRAIN = ["train", "quickstart", "--steps", "1", "-s", "prompts_per_step=2", "-s", "minibatch_prompts=1", "-o", "run"]
# Heading -> the command, how it ends, and the function in which the user presses Ctrl-C.
WAYS = {
    "From a prompt to a weight": (TRAIN, 0, None),
    "From a file to a number": (["eval", "ucc", "samples.jsonl", "--k", "1,4"], 0, None),
    "From a Ctrl-C to the end": (TRAIN, 130, "quatro.loop.learn.learn"),
}


def way(heading: str) -> list[str]:
    """The functions of the numbered list below a heading: each item begins with the name of one."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    names = re.findall(r"^\d+\. `([\w.]+)`", section, re.MULTILINE)
    assert len(names) > 5
    return names


def out_of_order(names: list[str], called: list[str]) -> list[str]:
    """The names that are not called, or not after all names before them."""
    place = {name: number for number, name in enumerate(called)}
    found, last = [], -1
    for name in names:
        if place.get(name, -1) <= last:
            found.append(name)
        else:
            last = place[name]
    return found


@pytest.mark.parametrize(
    "heading", [pytest.param(way, marks=pytest.mark.slow) if "weight" in way else way for way in WAYS]
)
def test_the_functions_of_a_way_are_called_in_its_order(heading, fork, tmp_path):
    argv, code, interrupt_in = WAYS[heading]
    rows = [
        {
            "benchmark": "sums",
            "id": str(at // 4),
            "sample_index": at % 4,
            "completion": f"\\boxed{{{at % 3}}}",
            "answer": "1",
        }
        for at in range(8)
    ]
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    asked = {"argv": argv, "interrupt_in": interrupt_in, "to": "called.json"}
    child = fork([Path(__file__).with_name("walking.py"), json.dumps(asked)], cwd=tmp_path)
    assert child.wait() == code, child.communicate()
    called = json.loads((tmp_path / "called.json").read_text(encoding="utf-8"))
    names = way(heading)
    assert out_of_order(names, called) == []
    assert out_of_order([*names[1:], names[0]], called) == [names[0]]
