"""Answers that may be undecided: True, False, or None where neither can be shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def all_of(answers: Iterable[bool | None]) -> bool | None:
    """Whether all hold; what stands behind the first that does not is not asked for."""
    is_undecided = False
    for answer in answers:
        if answer is False:
            return False
        is_undecided = is_undecided or answer is None
    return None if is_undecided else True


def any_of(answers: Iterable[bool | None]) -> bool | None:
    """Whether any holds; what stands behind the first that does is not asked for."""
    is_undecided = False
    for answer in answers:
        if answer:
            return True
        is_undecided = is_undecided or answer is None
    return None if is_undecided else False


def same_unordered(items: Iterable[T], others: Sequence[T], same: Callable[[T, T], bool | None]) -> bool | None:
    """Whether as many items have equal partners: equality is transitive, so any equal partner will do."""
    left, is_undecided = list(others), False
    for item in items:
        answers = [same(item, other) for other in left]
        if True in answers:
            del left[answers.index(True)]
        elif None in answers:
            is_undecided = True
        else:
            return False
    return None if is_undecided else True
