"""What reaches stdout and stderr, on terminals and without."""

import json
import os
import pty
import re
import subprocess
import sys
import textwrap
import unicodedata
from pathlib import Path

import pytest

from quatro.runs.views.live import Panel
from quatro_cli.output import Output, visible

HOSTILE = "a\x1b[2Jb [/nope] [bold]c\u202e\u200b\x9b\udc80"


def run_script(script: str, **kwargs) -> subprocess.CompletedProcess:
    head = "from quatro.runs.views.live import Panel\nfrom quatro_cli.output import output\n"
    code = head + textwrap.dedent(script)
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"} | kwargs.pop("env", {})
    return subprocess.run([sys.executable, "-c", code], env=environment, timeout=60, check=False, **kwargs)


def on_terminal(script: str, *, columns: int = 80, **environment: str) -> str:
    """Everything a script writes when both streams are a terminal."""
    controller, terminal = pty.openpty()
    settings = {"TERM": "xterm-256color", "COLUMNS": str(columns), **environment}
    done = run_script(script, stdout=terminal, stderr=terminal, env=settings)
    os.close(terminal)
    chunks = []
    with os.fdopen(controller, "rb") as reader:
        while True:
            try:
                chunk = reader.read1(65536)
            except OSError:
                break
            if not chunk:
                break
            chunks.append(chunk)
    assert done.returncode == 0
    return b"".join(chunks).decode("utf-8")


def test_visible_spells_out_whatever_acts_on_a_terminal():
    shown = visible(HOSTILE)
    assert shown == "a\\x1b[2Jb [/nope] [bold]c\\u202e\\u200b\\x9b\\udc80"
    assert visible("two\nlines\t", keep="\n") == "two\nlines\\t"
    assert visible("a\xad\u061c\U000e0001b") == "a\\xad\\u061c\\U000e0001b"
    hidden = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs")]
    assert [character for character in hidden if visible(character) == character] == []
    assert visible("é中文 ∑π\u0301") == "é中文 ∑π\u0301"


def test_json_is_one_document_with_null_for_what_is_not_finite(capsys):
    np = pytest.importorskip("numpy")
    numbers = [np.float32(0.5), np.int64(3), np.float64("nan")]
    Output().json({"a": float("nan"), "b": [float("inf"), 1.5], "c": HOSTILE, 3: (1, 2), "n": numbers, "p": Path("x")})
    captured = capsys.readouterr()
    assert captured.err == ""
    assert json.loads(captured.out) == {
        "a": None, "b": [None, 1.5], "c": HOSTILE, "3": [1, 2], "n": [0.5, 3, None], "p": "x"
    }  # fmt: skip
    assert captured.out.isascii()
    assert "\x1b" not in captured.out


def test_data_goes_to_stdout_and_everything_else_to_stderr(capsys):
    output = Output()
    output.data("key: [value]\n")
    output.info("told")
    output.warn("careful")
    output.error("broken")
    captured = capsys.readouterr()
    assert captured.out == "key: [value]\n"
    assert captured.err == "told\nwarning: careful\nerror: broken\n"


def test_a_table_in_a_pipe_is_never_cut_and_shows_hostile_cells_as_text(capsys):
    wide = "w" * 300
    Output().table("t [/x]", ["name", "k"], [[HOSTILE, 1], [wide, None], ["c", 0.5]])
    out = capsys.readouterr().out
    assert wide in out
    assert "\\x1b[2Jb [/nope] [bold]c" in out
    assert "\x1b" not in out
    assert out.splitlines()[0] == "t [/x]"
    # Numbers are flushed right: every row ends in the same column.
    assert len({len(line) for line in out.splitlines()[1:]}) == 1
    assert out.splitlines()[3].endswith("-")


def test_no_escape_sequence_without_a_terminal(capsys):
    output = Output()
    with output.progress("sampling [/x]", 2) as bar:
        bar(1)
        bar(2, HOSTILE)
    with output.live(lambda: Panel(HOSTILE, 1, 1, [(HOSTILE, HOSTILE)])):
        output.info(HOSTILE)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "\x1b" not in captured.err
    assert captured.err.splitlines()[0].startswith("sampling [/x]: 2/2")


EVERYTHING = """
output.table("title", ["benchmark", "pass@k"], [["countdown [/nope] \\x1b[2J", "31.4"], ["x", "100.0"]])
output.warn("careful")
with output.progress("drawing", 3) as bar:
    for i in range(4):
        bar(i, "note [/nope]")
with output.live(lambda: Panel("run [/nope]", 1, 2, [("reward", "0.31 ▁▂▃")])):
    pass
output.json({"done": True})
"""


@pytest.mark.parametrize("columns", [20, 80, 200])
def test_fault_37_a_terminal_of_any_width_gets_panel_table_and_bar(columns):
    shown = on_terminal(EVERYTHING, columns=columns)
    assert "reward" in shown
    assert "careful" in shown
    assert "\x1b[2J" not in shown  # only our own escape sequences
    assert "Traceback" not in shown


NARROW = """
row = ["countdown/test/0000-and-more", "compared as texts", 0.09375, "32.5 MiB"]
output.table("title", ["benchmark", "decided by", "reward", "size"], [row])
"""


def test_a_table_that_does_not_fit_folds_names_and_no_number():
    shown = on_terminal(NARROW, columns=50, NO_COLOR="1")
    assert [line.split() for line in shown.splitlines()[3:]] == [
        ["countdown/test", "compared", "as", "0.09375", "32.5", "MiB"],
        ["/0000-and-more", "texts"],
    ]


NUMBERS = """
row = ["countdown", 200, 256, "26.1 [13.5, 38.7]", "100.0 [100.0, 100.0]", 0.123456]
heads = ["benchmark", "problems", "samples of each", "pass@1", "pass@k", "a rather long head"]
output.table("", heads, [row, row])
"""


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 200])
def test_no_number_is_cut_at_any_width(columns):
    shown = on_terminal(NUMBERS, columns=columns, NO_COLOR="1")
    for number in ("200", "256", "26.1 [13.5, 38.7]", "100.0 [100.0, 100.0]", "0.1235"):
        assert len(re.findall(rf"(?<![\w.]){re.escape(number)}(?![\w.])", shown)) == 2, shown
    assert max(map(len, shown.splitlines())) <= columns or columns < 60


def test_sections_keep_the_lines_of_a_last_cell_and_wrap_it_between_words():
    error = "it failed:\n  at /a/long/path/that/nobody/breaks/into/pieces.py:3 in f"
    rows = [("status", error), ("a\nb\x1b", 1.5, "x"), ("and 3 more",)]
    drawn = on_terminal(f"output.sections([('run', {rows!r})])", columns=40)
    assert drawn.splitlines() == [
        "run",
        "  status    it failed:",
        "              at",
        "            /a/long/path/that/nobody/breaks/into/pieces.py:3",
        "            in f",
        "  a\\nb\\x1b  1.5  x",
        "  and 3 more",
    ]


def test_no_color_is_respected_on_a_terminal():
    colored, plain = on_terminal("output.error('x')"), on_terminal("output.error('x')", NO_COLOR="1")
    assert "\x1b[" in colored
    assert "\x1b[" not in plain


def test_fault_37_closed_stdout_is_no_traceback_and_work_goes_on():
    # The reader of stdout is gone before the first write.
    reader, writer = os.pipe()
    os.close(reader)
    done = run_script(
        "for i in range(3):\n    output.data('x' * 100000)\noutput.info('still here')",
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    assert done.returncode == 0
    assert done.stderr == b"still here\n"


def test_missing_streams_are_no_error():
    done = subprocess.run(
        [
            "/bin/sh",
            "-c",
            f"{sys.executable} -c 'from quatro_cli.output import output; "
            'output.data("x"); output.warn("y")\' >&- 2>&-',
        ],
        check=False,
        timeout=60,
    )
    assert done.returncode == 0
