"""The splits of a task: different items, the same ones every time, and none of the training split in the test split."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from evals.benchmarks.catalogue import maker_of
from evals.benchmarks.gym import COLUMN, MOST_ITEMS, PREFIX, Reference, dataset, digest_of, drawn
from evals.benchmarks.problems import Problem
from evals.errors import DataError

Part = Literal["train", "test", "start"]

_SEED = 20_260
# A task draws item i from Random(seed + i), so neighbouring seeds give nearly the same items. These lie further apart
# than the items of any data set. A part of its own is for the first supervised learning of embedded policies.
_SEEDS: dict[Part, int] = {"train": _SEED, "test": _SEED + 1_000_000, "start": _SEED + 2_000_000}
# A task that has given nothing new in this many items in a row has no more.
_MOST_IN_VAIN = 2_000
_ANY_ANSWER = "(any answer that the checker accepts)"


@dataclass(frozen=True)
class Form:
    """How the questions and answers of a task with its settings are written for a policy that is too small for them.

    ``prompt`` makes the prompt of an entry, or None of an entry that is not used. ``key`` is what two prompts of one
    problem share. ``short`` writes a reference answer briefly, and ``long`` takes an answer back to the library's form.
    """

    task: str
    settings: Mapping[str, Any]
    prompt: Callable[[Mapping[str, Any]], str | None]
    key: Callable[[str], str]
    short: Callable[[str], str]
    long: Callable[[str], str]


def form_of(name: str) -> Form | None:
    """The compact form in which the embedded benchmark of that name is posed; None where there is none."""
    form: Form | None = getattr(maker_of(name), "FORMS", {}).get(name)
    return form


class Item(NamedTuple):
    """A problem: its prompt, the reference answer for people to read, and what the checker needs."""

    prompt: str
    answer: str
    reference: Reference


@lru_cache(maxsize=16)
def items(
    task: str, settings: str, part: Part, *, count: int, num_test: int, at: str, form: str = ""
) -> tuple[Item, ...]:
    """The first ``count`` different items of a part; without ``part="test"``, none of the ``num_test`` test items.

    ``settings`` are those of `as_key`. Raises DataError, which begins with ``at``, if the task does not give that many
    different items.
    """
    found = form_of(form)
    seen: set[str] = set()
    if part != "test":
        test = items(task, settings, "test", count=num_test, num_test=num_test, at=at, form=form)
        seen = {_key(item.prompt, found) for item in test}
    chosen: list[Item] = []
    in_vain = 0
    for item in _all_items(task, settings, _SEEDS[part], form, found):
        key = _key(item.prompt, found)
        in_vain = in_vain + 1 if key in seen else 0
        if key not in seen:
            seen.add(key)
            chosen.append(item)
        if len(chosen) == count:
            return tuple(chosen)
        if in_vain == _MOST_IN_VAIN:
            break
    name = "count" if part == "test" else "num_train"
    others = "" if part == "test" else " that are not in the test split"
    raise DataError(
        f"{at}: the task {task} of reasoning-gym gives only {len(chosen)} different {part} items{others} with these "
        f"settings, and {count} are asked for; lower `{name}` in an entry of quatro-benchmarks.toml, or choose "
        "settings that give more"
    )


def _all_items(task: str, settings: str, seed: int, name: str, form: Form | None) -> Iterator[Item]:
    data = dataset(task, settings, seed)
    failures = 0
    for index in range(MOST_ITEMS):
        try:
            entry = drawn(data, index)
        except Exception:
            # Some generators give up on some seeds; which ones, the seed decides.
            failures += 1
            if failures == _MOST_IN_VAIN:
                return
            continue
        prompt = str(entry["question"]) if form is None else form.prompt(entry)
        if prompt is None:
            continue
        answer = _ANY_ANSWER if entry["answer"] is None else str(entry["answer"])
        if form is not None:
            answer = form.short(answer)
        yield Item(prompt, answer or _ANY_ANSWER, Reference(task, settings, seed, index, digest_of(entry), name))


def _key(prompt: str, form: Form | None) -> str:
    return prompt if form is None else form.key(prompt)


def problems_of_items(name: str, part: Part, found: Iterable[Item]) -> list[Problem]:
    """The items as problems of the benchmark ``name``."""
    return [
        Problem(name, f"{name.removeprefix(PREFIX)}/{part}/{i:04d}", *item[:2], {COLUMN: item.reference.column()})
        for i, item in enumerate(found)
    ]
