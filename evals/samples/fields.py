"""What readers of other tools' files share: JSON rows, fields by their paths, and texts and scores in any form."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evals.files.strict_json import parse_row, read_lines, refuse, shown
from evals.samples.types import FIELDS

Fields = dict[str, Any]
ID_CHARS = 12  # of a hash in place of an id: two of a million prompts are equal with a chance of 1 in 500

# Columns of a table that say what somebody else thought of a sample.
_SCORES = ("correct", "is_correct", "score", "reward", "acc", "accuracy")
_WORDS = {"true": True, "false": False, "pass": True, "fail": False}
# Correct, incorrect, partial and no answer, of inspect-ai alone: elsewhere a C may be the choice of a model.
_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}


def json_rows(file: Path) -> Iterator[tuple[int, Fields]]:
    """The rows of JSON lines, or of a `.json` file that is one list of them."""
    content = file.read_bytes().removeprefix(b"\xef\xbb\xbf") if file.suffix == ".json" and file.is_file() else b""
    if content.lstrip().startswith(b"["):
        document = parse_row(b'{"rows": ' + content + b"}", str(file)) or {}
        if list(document) != ["rows"]:
            refuse(str(file), "expected one JSON list, found more after it")
        for number, one in enumerate(document["rows"], start=1):
            if type(one) is not dict:
                refuse(f"{file}:{number}", f"expected a list of JSON objects, found {shown(one)}")
            yield number, one
        return
    for number, line, _ in read_lines(file):
        row = parse_row(line, f"{file}:{number}")
        assert row is not None  # only a reader that allows a torn last line gets None
        yield number, row


def look_up(row: Any, path: str) -> Any:
    """The value at a field name, or at names, and places in a list, joined by dots; None where there is none."""
    if isinstance(row, list):
        row = {str(place): value for place, value in enumerate(row)}
    if isinstance(row, dict) and path in row:
        return row[path]
    head, dot, rest = path.partition(".")
    return look_up(row[head], rest) if dot and isinstance(row, dict) and head in row else None


def object_at(row: Any, path: str) -> Fields:
    """The object at a path of `look_up`, empty where there is none."""
    found = look_up(row, path)
    return found if isinstance(found, dict) else {}


def objects_in(row: Any, path: str) -> list[Fields]:
    """The objects in the list at a path of `look_up`."""
    found = look_up(row, path)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def prompt_text(prompt: Any) -> str | None:
    """A prompt as text: chat turns {"role", "content"} are joined by blank lines."""
    if isinstance(prompt, list):
        turns = [turn.get("content") for turn in prompt if isinstance(turn, dict)]
        return "\n\n".join(turn for turn in turns if type(turn) is str) or None
    return prompt if type(prompt) is str else None


def reply_text(reply: Any) -> Any:
    """The text of a response: of chat turns {"role", "content"} that of the last one of the assistant."""
    if not isinstance(reply, list):
        return reply
    said = [turn.get("content") for turn in reply if isinstance(turn, dict) and turn.get("role") == "assistant"]
    return (said[-1] or "") if said else None


def named_scores(scores: Mapping[str, Any]) -> dict[str, bool | int | float]:
    """The ``scores`` that are numbers or letters, by name; the parts of a score that has several as `name.part`."""
    flat: dict[str, Any] = {}
    for name, value in scores.items():
        parts = dict(enumerate(value)) if isinstance(value, list) else value
        flat |= {f"{name}.{part}": one for part, one in parts.items()} if isinstance(parts, dict) else {name: value}
    return {name: found for name, value in flat.items() if (found := score_of(value, letters=True)) is not None}


def others(row: Mapping[str, Any], taken: set[str]) -> Fields:
    """The columns of ``row`` that are neither ``taken`` nor fields of a sample, with scores as `source_scores`."""
    reserved = {*FIELDS, "outcome", "verdicts", "source_scores"}
    extra = {key: value for key, value in row.items() if key not in reserved | taken | set(_SCORES)}
    given = row.get("source_scores")
    scores = dict(given) if isinstance(given, dict) else {}
    for name in _SCORES:
        if name in row and name not in taken:
            value = score_of(row[name])
            scores[name] = row[name] if value is None else value
    return {**extra, **({"source_scores": scores} if scores else {})}


def score_of(value: Any, *, letters: bool = False) -> bool | int | float | None:
    """What somebody else's score says, also as a text (`True`, `0`, `pass`); None where it is neither."""
    if isinstance(value, str):
        if letters and value in _LETTERS:
            return _LETTERS[value]
        if value.strip().lower() in _WORDS:
            return _WORDS[value.strip().lower()]
        try:
            found = float(value)
        except ValueError:
            return None
        return int(found) if found.is_integer() else found
    return value if type(value) in (bool, int, float) else None
