"""Turns pydantic's errors into one line for each problem: where, which key, what was found, what was expected."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from evals.text import table_beside
from quatro.config.blocks import TAGS, SourceConfig, block_of
from quatro.config.model import Config, ConfigProblems
from quatro.config.yaml_text import KeyPath, scalar_text
from quatro.registry import METHODS

EXTENDS = "extends"  # the one key of a file that is none of the configuration
# Where each key was set: "file:line" or the option as typed.
Places = dict[KeyPath, str]
Problem = tuple[KeyPath, str]
# The classes of blocks that `Config` does not know: the method, the options of the reward; at () of another root.
Owners = Mapping[KeyPath, type[BaseModel]]

_TABLES = table_beside(__file__, "errors.toml")
# Keys that quatro no longer has -> what to do instead; those of a sweep file's cells have their own table.
REMOVED: Mapping[str, str] = _TABLES["removed"]
REMOVED_OF_CELLS: Mapping[str, str] = _TABLES["removed of cells"]
_EXPECTED: Mapping[str, str] = _TABLES["expected"]
_BOUND_WORDS = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}


def problems_of(error: ValidationError, owners: Owners, above: KeyPath = ()) -> list[Problem]:
    """The path of each wrong key, and what is wrong; ``error`` is about the block at ``above``."""
    found = [(one, tuple(part for part in one["loc"] if part not in TAGS)) for one in error.errors()]
    return [problem for one, path in found for problem in _problems(one, (*above, *path), owners)]


def problem_lines(problems: Iterable[Problem], places: Places, file: str) -> list[str]:
    """One line for each problem: those of files by their lines, then those of options."""
    lines = [(_place(path, places, file), path, text) for path, text in problems]
    lines.sort(key=lambda line: _order(line[0]))
    return [f"{place}: {'.'.join(map(str, path))}: {text}" for place, path, text in lines]


def closest(word: str, known: Iterable[str]) -> str:
    """`; did you mean ...?`, or nothing if no known word is similar."""
    guess = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {guess[0]}?" if guess else ""


def _problems(problem: Mapping[str, Any], path: KeyPath, owners: Owners) -> Iterator[Problem]:
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, ConfigProblems):
        yield from ((tuple(key.split(".")), text) for key, text in cause.problems)
        return
    match problem["type"]:
        case "missing":
            model = _model_at(path[:-1], owners)
            field = model.model_fields.get(str(path[-1])) if model else None
            yield path, f"missing, expected {field.description if field and field.description else 'a value'}"
        case "extra_forbidden" if instead := _instead(path):
            yield path, f"was removed; {instead}"
        case "extra_forbidden":
            yield path, f"unknown key{_suggest_key(path, owners)}"
        case "value_error" | "assertion_error" if isinstance(problem["input"], Mapping):
            # A method's own rule about several of its keys: it names them itself.
            yield path, str(cause)
        case "value_error":
            yield path, f"found {_shown(problem['input'])}, {cause}"
        case "literal_error":
            choices = re.findall(r"'([^']*)'", problem["ctx"]["expected"]) or [problem["ctx"]["expected"]]
            hint = closest(str(problem["input"]), choices)
            yield path, f"found {_shown(problem['input'])}, expected one of {', '.join(choices)}{hint}"
        case _:
            yield path, f"found {_shown(problem['input'])}, expected {_expected(problem)}"


def _expected(problem: Mapping[str, Any]) -> str:
    if problem["type"] in _EXPECTED:
        return _EXPECTED[problem["type"]]
    for bound, words in _BOUND_WORDS.items():
        if (limit := problem.get("ctx", {}).get(bound)) is not None:
            return f"{words} {limit if isinstance(limit, int) else f'{limit:g}'}"
    return re.sub(r"^Input should (be|have) ", "", problem["msg"])


def _instead(path: KeyPath) -> str | None:
    """What to do instead of a key that was removed; None for any other key."""
    if len(path) == 3 and path[0] == "cells":
        return REMOVED_OF_CELLS.get(str(path[2]))
    return REMOVED.get(".".join(map(str, path)))


def _suggest_key(path: KeyPath, owners: Owners) -> str:
    """The key that was meant, there or elsewhere in the configuration."""
    *above, last = map(str, path)
    name, colon, value = last.partition(":")
    if colon:
        return f"; write a space after the colon: {name}: {value}"
    model, root = _model_at(path[:-1], owners), owners.get((), Config)
    here = [*(model.model_fields if model else ()), *([] if above or root is not Config else [EXTENDS])]
    everywhere = _all_keys(root, owners)
    if exact := [key for key in everywhere if key.rpartition(".")[2] == last]:
        return f"; did you mean {' or '.join(exact[:3])}?"
    of_methods = root is Config and above in ([], ["method"])
    if of_methods and (having := [name for name in METHODS if last in METHODS[name].model_fields]):
        return f"; method.{last} is a key of {', '.join(having)}"
    guess = [".".join([*above, key]) for key in difflib.get_close_matches(last, here, n=1)]
    guess += [] if above else difflib.get_close_matches(last, everywhere, n=1)
    return f"; did you mean {guess[0]}?" if guess else f"; known here: {', '.join(here) or 'none'}"


def _model_at(path: KeyPath, owners: Owners) -> type[BaseModel] | None:
    """The class of the block at ``path``."""
    model: type[BaseModel] | None = owners.get((), Config)
    for depth, part in enumerate(path, start=1):
        field = model.model_fields.get(str(part)) if model else None
        is_source = len(path) > 2 and path[: depth - 1] == ("data", "prompts")
        model = SourceConfig if is_source else owners.get(path[:depth]) or (block_of(field) if field else None)
    return model


def _all_keys(model: type[BaseModel], owners: Owners, above: KeyPath = ()) -> list[str]:
    keys = []
    for key, field in model.model_fields.items():
        path = (*above, key)
        keys.append(".".join(map(str, path)))
        block = owners.get(path) or block_of(field)
        keys += _all_keys(block, owners, path) if block else []
    return keys


def _place(path: KeyPath, places: Places, file: str) -> str:
    """Where the key was set; for a key that nobody set, its block's place or the file."""
    return next((places[path[:length]] for length in range(len(path), 0, -1) if path[:length] in places), file)


def _order(place: str) -> tuple[bool, str, int]:
    file, _, line = place.rpartition(":")
    return (False, file, int(line)) if line.isascii() and line.isdigit() else (True, "", 0)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a block of keys"
    try:
        text = scalar_text(value)
    except TypeError:
        text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
