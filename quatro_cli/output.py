"""Everything the command line writes: data to stdout, everything else to stderr. The only file that uses rich.

Texts from models, sample files and paths are untrusted: markup is never interpreted, and control characters are made
visible (`\\x1b`) before they reach a terminal. rich is imported only where something is drawn.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from quatro.runs.views.live import Panel

PLAIN_INTERVAL_S = 30.0  # without a terminal, a bar says this often where it is
_WHOLE_WORDS: Any = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}
LEAST_NAME = 12  # letters of a column of names that stay on one line of a narrow terminal
NATURAL_WIDTH = 100_000  # tables in a pipe are as wide as they need to be

StreamName = Literal["stdout", "stderr"]


def visible(text: str, keep: str = "", *, controls_only: bool = False) -> str:
    """As `evals.text.visible`, on one line; `evals` is imported late, since another project's may be in its place."""
    from evals.text import visible

    return visible(text, keep=keep, controls_only=controls_only)


Bar = Callable[..., None]  # a progress bar: call it with what is done, and perhaps a note


class Output:
    """Writes to whatever `sys.stdout` and `sys.stderr` are at the time of the call."""

    _is_muted = _are_errors_muted = False

    def mute(self, *, errors: bool) -> None:
        """From here on say nothing, ``errors`` excepted or not: one of several ranks speaks for all."""
        self._is_muted, self._are_errors_muted = True, errors

    # ---- stdout: data

    def data(self, text: str) -> None:
        """Write a document to stdout as it is; only raw control characters are spelled out."""
        if self._is_muted:
            return
        safe = visible(text.replace("\r\n", "\n"), keep="\t\n", controls_only=True)
        self._write("stdout", safe if safe.endswith("\n") else safe + "\n")

    def json(self, document: Any) -> None:
        """Write ``document`` to stdout; NaN and infinities become null, as everywhere in our files."""
        if self._is_muted:
            return
        from evals.files.whole import finite

        # ASCII only: C1 controls, direction overrides and lone surrogates are harmless as \u escapes.
        self._write("stdout", json.dumps(finite(document), indent=2, allow_nan=False, default=str) + "\n")

    def answer(self, document: Any, text: str, *, json: bool) -> None:
        """What a command that says one thing ends with: ``document`` if ``json``, else ``text``."""
        if json:
            self.json(document)
        else:
            self.data(text)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A table on stdout; columns of numbers are flushed right, None is shown as a dash.

        On a terminal long names and heads are folded, and where that is not enough each cell has a line; numbers stay
        whole. In a pipe a row is one line, as wide as it needs to be.
        """
        from evals.text import Grid, is_number, value_cell

        if not self.is_terminal("stdout"):
            self._write("stdout", "".join(f"{line}\n" for line in Grid(title, columns, rows).lines()))
            return
        heads, cells = [visible(column) for column in columns], [[value_cell(value) for value in row] for row in rows]
        are_numbers = [all(is_number(row[at]) for row in cells) for at in range(len(heads))]
        title = f"{visible(title)}\n" if title else ""
        fitting = _fitting_heads(heads, cells, are_numbers, self.width("stdout"))
        if fitting is None:
            indent = max(map(len, heads)) + 2
            records = (
                "".join(f"{head:{indent}}{cell}\n" for head, cell in zip(heads, row, strict=True)) for row in cells
            )
            self._write("stdout", title + "\n".join(records))
            return
        console = self._console("stdout")
        with console.capture() as captured:
            console.print(_drawn_table(fitting, cells, are_numbers))
        self._write("stdout", title + captured.get())

    def sections(self, sections: Sequence[tuple[str, Sequence[Sequence[object]]]]) -> None:
        """Titles on stdout, each with rows of cells in columns below; the last cell of a row may have several lines.

        A row of a single cell is a remark about the others. No word is broken.
        """
        from evals.text import value_cell

        room = self.width("stdout") if self.is_terminal("stdout") else NATURAL_WIDTH
        blocks = []
        for title, rows in sections:
            lines = [visible(title)]
            leads = [[value_cell(value) for value in row[:-1]] for row in rows]
            widths = [max(map(len, column)) for column in zip_longest(*leads, fillvalue="")]
            for lead, row in zip(leads, rows, strict=True):
                head = "".join(f"  {cell:{width}}" for cell, width in zip(lead, widths, strict=False)) + "  "
                for line in value_cell(row[-1], keep="\n").split("\n"):
                    parts = textwrap.wrap(line, max(room - len(head), 20), **_WHOLE_WORDS) or [""]
                    lines += [f"{head}{parts[0]}".rstrip(), *(f"{' ' * len(head)}{part}" for part in parts[1:])]
                    head = " " * len(head)
            blocks.append("\n".join([*lines, ""]))
        self._write("stdout", "\n".join(blocks))

    # ---- stderr: everything else

    def info(self, *messages: str) -> None:
        for message in messages:
            self._say("", "", message)

    def warn(self, *messages: str) -> None:
        for message in messages:
            self._say("warning: ", "1;33", message)

    def error(self, message: str) -> None:
        self._say("error: ", "1;31", message, is_error=True)

    def confirm(self, question: str, *, option: str) -> bool:
        """Whether somebody answers yes; ``option`` is what answers it without asking.

        Raises UsageError if nobody answers, as in a script.
        """
        self._write("stderr", f"{visible(question)} [y/N] ")
        answer = sys.stdin.readline()
        if not answer:
            from evals.errors import UsageError

            self._write("stderr", "\n")
            raise UsageError(f"nobody is there to answer; add {option}")
        return answer.strip().lower() in ("y", "yes")

    @contextlib.contextmanager
    def progress(self, description: str, total: int) -> Iterator[Bar]:
        """A bar on stderr of a terminal; elsewhere a plain line now and then."""
        if not self.is_terminal("stderr"):
            yield self._plain_bar(description, total)
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
        )
        with Progress(*columns, console=self._console("stderr"), transient=True, redirect_stdout=False) as progress:
            task = progress.add_task(visible(description), total=total, note="")

            yield lambda done, note="": progress.update(task, completed=done, note=visible(note))

    def _plain_bar(self, description: str, total: int) -> Bar:
        said, said_at = -1, time.monotonic()

        def update(done: int, note: str = "") -> None:
            nonlocal said, said_at
            now = time.monotonic()
            if done != said and (done >= total or now - said_at >= PLAIN_INTERVAL_S):
                said, said_at = done, now
                self.info(f"{description}: {done}/{total}{'  ' + note if note else ''}")

        return update

    @contextlib.contextmanager
    def live(self, panel: Callable[[], Panel]) -> Iterator[None]:
        """On stderr of a terminal ``panel()`` is drawn in place, twice a second, by a thread; elsewhere nothing.

        If an error ends it before anything is done, the panel vanishes.
        """
        if self._is_muted or not self.is_terminal("stderr"):
            yield
            return
        from rich.live import Live

        console = self._console("stderr")

        def drawn() -> RenderableType:
            return _drawn_panel(panel(), max(console.width - 2, 20))  # room for the ^C that a terminal shows

        # stdout is not redirected: rich would send our data to stderr.
        with Live(get_renderable=drawn, console=console, refresh_per_second=2, redirect_stdout=False) as live:
            live.refresh()
            try:
                yield
            except BaseException:
                live.transient = panel().done == 0
                raise

    # ---- how

    def is_terminal(self, name: StreamName) -> bool:
        stream = getattr(sys, name)
        try:
            return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
        except ValueError:  # closed
            return False

    def width(self, name: StreamName) -> int:
        """How many columns a terminal has."""
        return self._console(name).width

    def flush(self) -> None:
        """Push out what is buffered; OSError for a full disk and the like, and none for a reader that went away."""
        self._write("stdout", "")
        self._write("stderr", "")

    def _say(self, prefix: str, color: str, message: str, *, is_error: bool = False) -> None:
        if self._are_errors_muted if is_error else self._is_muted:
            return
        if prefix and self._has_color("stderr"):
            prefix = f"\x1b[{color}m{prefix}\x1b[0m"
        from evals.errors import with_pages

        text = visible(with_pages(message), keep="\n\t")
        self._write("stderr", f"{prefix}{text}\n")

    def _has_color(self, name: StreamName) -> bool:
        return self.is_terminal(name) and not os.environ.get("NO_COLOR")

    def _console(self, name: StreamName) -> Console:
        from rich.console import Console

        return Console(
            file=getattr(sys, name),
            force_terminal=self.is_terminal(name),
            color_system="auto" if self._has_color(name) else None,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def _write(self, name: StreamName, text: str) -> None:
        """Write and flush; a reader that has gone away (`| head`) is no error, and work goes on without it."""
        stream: TextIO | None = getattr(sys, name)
        if stream is None or stream.closed:
            return
        try:
            stream.write(text)
            stream.flush()
        except BrokenPipeError:
            _silence(name, stream)
        except OSError as error:  # a full disk: what is buffered is lost, and the last flush would end otherwise
            _silence(name, stream)
            error.filename = name
            raise


def _silence(name: StreamName, stream: TextIO) -> None:
    """Point the stream at nowhere, so that neither later writes nor the interpreter's last flush complain."""
    null = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - lives as long as the process
    with contextlib.suppress(OSError, ValueError):
        os.dup2(null.fileno(), stream.fileno())
    setattr(sys, name, null)


def _fitting_heads(
    heads: Sequence[str], rows: Sequence[Sequence[str]], are_numbers: Sequence[bool], room: int
) -> Sequence[str] | None:
    """``heads``, or those of numbers folded, with which all numbers stay whole in ``room``; None if not even these."""
    room -= 3 * (len(heads) - 1)  # between two columns
    widths = [max((len(row[at]) for row in rows), default=1) for at in range(len(heads))]
    folded = [
        "\n".join(textwrap.wrap(head, width, **_WHOLE_WORDS)) if is_number else head
        for head, width, is_number in zip(heads, widths, are_numbers, strict=True)
    ]
    for chosen in (heads, folded):
        wanted = [max(width, *map(len, head.split("\n"))) for head, width in zip(chosen, widths, strict=True)]
        least = [w if is_number else min(w, LEAST_NAME) for w, is_number in zip(wanted, are_numbers, strict=True)]
        if sum(least) <= room:
            return chosen
    return None


def _drawn_panel(panel: Panel, width: int) -> RenderableType:
    from rich import box
    from rich.panel import Panel as RichPanel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", overflow="fold")
    grid.add_column(overflow="fold")
    for label, value in panel.rows:
        grid.add_row(Text(visible(label)), Text(visible(value)))
    frame = Table.grid()  # a bar ends no line of its own: it needs a cell
    frame.add_row(ProgressBar(total=max(panel.total, 1), completed=panel.done))
    frame.add_row(grid)
    title = Text(visible(panel.title))
    return RichPanel(frame, title=title, box=box.ROUNDED, title_align="left", width=width)


def _drawn_table(heads: Sequence[str], rows: Sequence[Sequence[str]], are_numbers: Sequence[bool]) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="")
    for head, is_number in zip(heads, are_numbers, strict=True):
        table.add_column(Text(head), justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


output = Output()
