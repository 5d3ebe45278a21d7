import contextlib
import math
import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.errors import UsageError
from quatro.config import load_config
from quatro.config.yaml_text import MAX_BYTES, load_yaml, parse_yaml, to_yaml

# Text that YAML 1.1 or 1.2 could take for something else, beside any text at all.
_TRICKY = st.sampled_from(
    [
        *["yes", "No", "on", "null", "~", "1e-6", "010", "1:30", "0x1F", ".inf", "<<", "=", "-"],
        "",
        "a: b",
        "# a",
        " a",
        "a ",
    ]
)
TEXT = _TRICKY | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | TEXT
DATA = st.dictionaries(
    TEXT, st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=8), max_size=4
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("1.0E+3", 1000.0),
        (".5", 0.5),
        ("2.", 2.0),
        ("-3", -3),
        ("+3", 3),
        ("010", 10),  # YAML 1.2: decimal; YAML 1.1 reads 8
        ("0o17", 15),
        ("0x1F", 31),
        ("1:30", "1:30"),  # YAML 1.1 reads 90
        ("1_000", "1_000"),
        ("0b1", "0b1"),
        ("2020-01-01", "2020-01-01"),
        ("yes", "yes"),
        ("NO", "NO"),
        ("on", "on"),
        ("off", "off"),
        ("true", True),
        ("FALSE", False),
        ("tRUE", "tRUE"),
        ("null", None),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ('"true"', "true"),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("[0.9, 0.999]", [0.9, 0.999]),
        ("{a: 1}", {"a": 1}),
    ],
)
def test_scalars_follow_yaml_1_2_core(text, value):
    found = parse_yaml(f"key: {text}", "f").data["key"]
    assert found == value
    assert type(found) is type(value)


def test_a_number_of_thousands_of_digits_is_no_whole_number():
    for text in ("9" * 5000, "0x" + "9" * 5000, "0o" + "7" * 5000):
        with pytest.raises(UsageError, match=r"seed: found .*, expected a whole number"):
            load_config("quickstart", overrides=[f"seed={text}"])


def test_nan_is_a_number():
    assert math.isnan(parse_yaml("key: .nan", "f").data["key"])


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\na: 2", 2, "'a' is given twice, first on line 1"),
        ("a: 1\nb:\n  c: 1\n  c: 2", 4, "'c' is given twice, first on line 3"),
        ("{a: 1, 'a': 2}", 1, "given twice"),
        ("a: 1\nb: *a", 2, "anchor or alias a"),
        ("a: &x 1", 1, "anchor or alias x"),
        ("a: !!str 1", 1, "tag"),
        ("a: ! 1", 1, "tag"),
        ("a: !!python/object/apply:os.system [ls]", 1, "tag"),
        ("a: 1\n!!python/name:os.system b: 2", 2, "tag"),
        ("a: 1\n&x b: 2", 2, "anchor or alias x"),
        ("? [a]\n: b", 1, "keys are plain text"),
        ("a: 1\n1: 2", 2, "key 1: keys are text"),
        ("a: " + "[" * 200, 1, "inside one another 50 times"),
        ("a: 1\n---\nb: 1", 2, "second document"),
        ("a: [1", 1, "not YAML"),
        ("a: 1\n\tb: 2", 2, "not YAML"),
        ("a: 1\nb: \x00", 2, "U+0000"),
        ('a: "\\ud800"', 1, "surrogate"),
        ("", 1, "found nothing"),
        ("[1]", 1, "found a list"),
        ("a", 1, "found a str"),
    ],
)
def test_refusals_name_file_and_line(text: str, line: int, says: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse_yaml(text, "some/file.yaml")
    message = str(refusal.value)
    assert message.startswith(f"some/file.yaml:{line}: ")
    assert says in message
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize("hidden", ["\x85", "\u2028", "\u2029"])
@pytest.mark.parametrize(
    ("text", "place"),
    [("a: 1\n# as before{}b: 2\n", "f:2: U+{} in column 12"), ('a: "x{}y"', "f:1: U+{} in column 6")],
    ids=["comment", "text"],
)
def test_a_line_break_that_editors_do_not_show_is_refused(text, place, hidden):
    """Behind one in a comment a key would count that nobody sees; written as an escape it is text."""
    with pytest.raises(UsageError, match=re.escape(place.format(f"{ord(hidden):04X}"))):
        parse_yaml(text.format(hidden), "f")
    with pytest.raises(UsageError, match=r"^-s model=x.*U\+"):
        load_config("quickstart", overrides=[f"model=x{hidden}y"])
    assert parse_yaml(f'a: "x\\u{ord(hidden):04x}y"', "f").data == {"a": f"x{hidden}y"}


def test_escape_beyond_unicode_is_refused():
    with pytest.raises(UsageError, match="f: not YAML"):
        parse_yaml('a: "\\U00110000"', "f")


def test_every_key_path_has_its_line():
    text = "# comment\na: 1\nb:\n  c: 2\n\n  d:\n    - 1\n    - e: 3\n'f': |\n  text\n"
    document = parse_yaml(text, "f")
    assert dict(document.lines) == {
        (): 2,
        ("a",): 2,
        ("b",): 3,
        ("b", "c"): 4,
        ("b", "d"): 6,
        ("b", "d", 0): 7,
        ("b", "d", 1): 8,
        ("b", "d", 1, "e"): 8,
        ("f",): 9,
    }


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x,x,x,x,x]\n" + "".join(f"{k}: &{k} [*a,*a,*a,*a,*a]\n" for k in "bcdefghi"),  # a billion laughs
        "[" * 200_000,
        "a: " + "{a: " * 60_000,
        "- " * 120_000,
        "? " * 120_000,
        "a: &" + "x" * 250_000,
        'a: "' + "\\ud800" * 40_000 + '"',
    ],
    ids=["laughs", "brackets", "braces", "dashes", "questions", "long anchor", "escapes"],
)
def test_bombs_are_refused_in_a_short_message(text):
    with pytest.raises(UsageError) as refusal:
        parse_yaml(text, "bomb.yaml")
    assert len(str(refusal.value)) < 400


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_a_document_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert isinstance(parse_yaml(text, "f").data, dict)


@settings(deadline=None)
@given(DATA)
def test_what_is_written_is_read_back(data: dict[str, object]) -> None:
    text = to_yaml(data)
    found = parse_yaml(text, "f").data if data else {}
    assert found == data
    assert repr(found) == repr(data)  # 1 == 1.0 == True, but they are not the same setting


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_written_floats_are_floats_to_readers_of_yaml_1_1(value: float) -> None:
    found = yaml.safe_load(to_yaml({"lr": value}))["lr"]
    assert type(found) is float
    assert found == value


def test_files_are_utf_8_and_small(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes("\ufeffname: dual λ\n".encode())
    assert load_yaml(path).data == {"name": "dual λ"}

    path.write_bytes("a: 1\nname: é\n".encode("latin-1"))
    with pytest.raises(UsageError, match=r"a\.yaml:2: byte 0xe9 is not UTF-8"):
        load_yaml(path)

    path.write_bytes(b"#" * MAX_BYTES + b"\na: 1\n")
    with pytest.raises(UsageError, match="larger than 256 kB"):
        load_yaml(path)

    with pytest.raises(UsageError, match="no such file"):
        load_yaml(tmp_path / "missing.yaml")
    with pytest.raises(UsageError, match="no such file"):
        load_yaml(tmp_path)
