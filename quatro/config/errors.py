"""Turns pydantic's errors into one line for each problem: where, which key, what was found, what was expected."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from quatro.config.blocks import block_of
from quatro.config.model import Config, ConfigProblems
from quatro.config.yaml_reader import KeyPath
from quatro.config.yaml_writer import scalar_text

EXTENDS = "extends"  # the one key of a file that is none of the configuration
# Where each key was set: "file:line" or the option as typed.
Locations = dict[KeyPath, str]

# Keys that quatro no longer has -> what to do instead.
REMOVED = {
    "audit_rollouts": "leave it out: audit.prompts measures the realised KL, on the responses that were learnt from",
}
_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "model_type": "a block of keys",
    "dict_type": "a block of keys",
    "finite_number": "a finite number",
    "none_required": "null",
}
_DOTTED = re.compile(r"(?<![a-z])[a-z]+(?:[_.][a-z]+)+")
_BOUND_WORDS = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
_TRUTH_WORDS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def problem_lines(
    problems: Sequence[Mapping[str, Any]], raw: Mapping[str, Any], locations: Locations, files: Sequence[str]
) -> list[str]:
    """One line for each problem, in the order of ``files``, of which each extends the next; of options come last."""
    entries = [
        (path, f"{text}{_others(path, text, problem, locations)}")
        for problem in problems
        for path, text in _entries(problem)
    ]
    lines = [(_place(path, raw, locations, files[0]), path, text) for path, text in entries]
    lines.sort(key=lambda line: _order(line[0], files))
    return [f"{place}: {'.'.join(map(str, path))}: {text}" for place, path, text in lines]


def closest(word: str, known: Iterable[str]) -> str:
    """`; did you mean ...?`, or nothing if no known word is similar."""
    guess = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {guess[0]}?" if guess else ""


def _entries(problem: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    path: KeyPath = tuple(problem["loc"])
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, ConfigProblems):
        yield from ((tuple(key.split(".")), text) for key, text in cause.problems)
        return
    match problem["type"]:
        case "message":
            yield path, problem["msg"]
        case "missing_method":
            yield path, f"missing, expected one of {problem['msg']}, or your own as package.module:Class"
        case "missing":
            yield path, f"missing, expected {_description(path, problem.get('model'))}"
        case "extra_forbidden" if instead := REMOVED.get(".".join(map(str, path))):
            yield path, f"was removed; {instead}"
        case "extra_forbidden":
            yield path, f"unknown key{_suggest_key(path, problem.get('model'))}"
        case "value_error" | "assertion_error" if isinstance(problem["input"], Mapping):
            # A method's own rule about several of its keys: it names them itself.
            yield path, str(cause)
        case "value_error":
            yield path, f"found {_shown(problem['input'])}, {cause}"
        case _:
            yield path, f"found {_shown(problem['input'])}, expected {_expected(problem)}{_suggest_value(problem)}"


def _others(path: KeyPath, text: str, problem: Mapping[str, Any], locations: Locations) -> str:
    """Where the other keys were set that a rule between keys names, if not where ``path`` was."""
    if not isinstance(problem.get("ctx", {}).get("error"), ConfigProblems):
        return ""
    keys = dict.fromkeys(key for key in _DOTTED.findall(text) if tuple(key.split(".")) != path)
    places = {key: locations.get(tuple(key.split("."))) for key in keys}
    return "".join(
        f"; {key} comes from {place}" for key, place in places.items() if place not in (None, locations.get(path))
    )


def _expected(problem: Mapping[str, Any]) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    if kind in _EXPECTED:
        return _EXPECTED[kind]
    for bound, words in _BOUND_WORDS.items():
        if bound in context:
            limit = context[bound]
            return f"{words} {limit if isinstance(limit, int) else f'{limit:g}'}"
    if kind == "literal_error":
        return f"one of {', '.join(_choices(problem))}"
    return re.sub(r"^Input should (be|have) ", "", problem["msg"])


def _choices(problem: Mapping[str, Any]) -> list[str]:
    return re.findall(r"'([^']*)'", problem["ctx"]["expected"]) or [problem["ctx"]["expected"]]


def _suggest_value(problem: Mapping[str, Any]) -> str:
    found, kind = problem["input"], problem["type"]
    if not isinstance(found, str):
        return ""
    if kind == "literal_error":
        return closest(found, _choices(problem))
    if kind == "bool_type" and found.lower() in _TRUTH_WORDS:
        return f"; did you mean {_TRUTH_WORDS[found.lower()]}?"
    if kind in ("int_type", "float_type") and re.fullmatch(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?", found):
        return f"; did you mean {found} without quotes?"
    return ""


def _suggest_key(path: KeyPath, owner: type[BaseModel] | None) -> str:
    """The key that was meant; ``owner`` has the keys of a method's block or of a reward's options."""
    *above, last = map(str, path)
    prefix = "".join(f"{part}." for part in above)
    name, colon, value = last.partition(":")
    if colon:
        return f"; write a space after the colon: {name}: {value}"
    model = owner or _model_at(above)
    here = [key for key in model.model_fields if not (owner and key == "name")] if model else []
    here += [] if above else [EXTENDS]
    everywhere = _all_keys(Config)
    guess = [f"{prefix}{key}" for key in difflib.get_close_matches(last, here, n=1)]
    guess += [key for key in everywhere if key.rpartition(".")[2] == last]
    guess += [] if owner else difflib.get_close_matches(last, everywhere, n=1)
    return f"; did you mean {guess[0]}?" if guess else f"; known here: {', '.join(here) or 'none'}"


def _model_at(path: Sequence[str]) -> type[BaseModel] | None:
    model: type[BaseModel] | None = Config
    for part in path:
        field = model.model_fields.get(part) if model else None
        model = block_of(field) if field else None
    return model


def _all_keys(model: type[BaseModel], above: str = "") -> list[str]:
    keys = []
    for key, field in model.model_fields.items():
        keys.append(f"{above}{key}")
        block = block_of(field)
        keys += _all_keys(block, f"{above}{key}.") if block else []
    return keys


def _description(path: KeyPath, owner: type[BaseModel] | None) -> str:
    model = owner or _model_at([str(part) for part in path[:-1]])
    field = model.model_fields.get(str(path[-1])) if model else None
    return field.description if field and field.description else "a value"


def _place(path: KeyPath, raw: Mapping[str, Any], locations: Locations, file: str) -> str:
    """Where the key was set; for a key that nobody set, its block's place or the file."""
    for length in range(len(path), 0, -1):
        if path[:length] in locations:
            return locations[path[:length]]
    return file


def _order(place: str, files: Sequence[str]) -> tuple[int, int]:
    for number, file in enumerate(files):
        if place.startswith(f"{file}:"):
            return number, int(place.rpartition(":")[2])
    return len(files) + (place != files[0]), 0


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a block of keys"
    try:
        text = scalar_text(value)
    except TypeError:
        text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
