"""The command `quatro`: parse, call one function, print. Commands import what is heavy inside their bodies."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import logging
import os
import signal
import sys
from typing import Annotated, Any

import typer
from typer import Option

from quatro_cli import errors
from quatro_cli.help import App, Group
from quatro_cli.output import output

# Heading -> commands, in the order of `quatro --help`. Each lies in the module of its name, which is imported when the
# command is typed.
COMMANDS = {
    "Train": ("train", "sweep", "runs", "rollouts", "export", "verl-command"),
    "Measure": ("sample", "eval"),
    "Present": ("table", "plot", "report", "paper"),
    "Reference": ("config", "benchmarks", "doctor", "demo"),
}
GROUPS = ("runs", "eval", "plot", "config", "benchmarks")


class _LogHandler(logging.Handler):
    """Log records of our libraries become messages on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            self.handleError(record)
            return
        (output.warn if record.levelno >= logging.WARNING else output.info)(message)


class _Root(Group):
    """Turns every exception of every command into a message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        problem = errors.foreign_evals()
        if problem is not None:
            if sys.stderr is not None:
                sys.stderr.write(f"error: {problem}\n")  # `output` would need our `evals`
            raise typer.Exit(errors.EXIT_MISSING)
        _listen_to_logs()
        try:
            result = super().invoke(ctx)
            output.flush()
            return result
        except (typer.Exit, typer.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:
            if hasattr(error, "show"):  # Typer's own usage errors know how to present themselves
                raise
            raise typer.Exit(errors.report(error)) from error


app = App(
    name="quatro",
    cls=_Root,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from quatro import __version__

        output.data(f"quatro {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Fine-tune language models inside query-adaptive trust regions, and measure what it did.

    \b
    Examples:
      quatro train quickstart
      quatro eval passk samples/math500.jsonl --k 1,16,256
    """


for heading, names in COMMANDS.items():
    for name in names:
        module = name.replace("-", "_")
        app.add(name, f"quatro_cli.commands.{module}:{'app' if name in GROUPS else module}", heading)


def _listen_to_logs() -> None:
    for name in ("quatro", "evals"):
        logger = logging.getLogger(name)
        if not any(isinstance(handler, _LogHandler) for handler in logger.handlers):
            logger.addHandler(_LogHandler())
            logger.setLevel(logging.INFO)
            logger.propagate = False


def _dump_stacks_on_signal() -> None:
    """SIGUSR1 and a crash in C code write the stacks of all threads to stderr; a run has them in its log.txt."""
    if hasattr(signal, "SIGUSR1") and sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # a stderr without a file descriptor
            faulthandler.enable()
            faulthandler.register(signal.SIGUSR1)


def main() -> None:
    """The command `quatro`, with output that is the same in every locale."""
    for stream in (sys.stdout, sys.stderr):
        # Identical output in every locale; what UTF-8 cannot hold (lone surrogates) is spelled out.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    if not output.is_terminal("stderr"):
        # transformers and the Hub client draw bars of their own, which have no place in a log.
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    _dump_stacks_on_signal()
    # Importing torch makes a million objects and no garbage: looking for it every 700 takes a fifth of the start.
    gc.set_threshold(10_000)
    try:
        app(prog_name="quatro")
    finally:
        gc.freeze()  # the process ends: Python would look through all objects again, for another fifth
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # A Ctrl-C from here on ends the process itself: Python would print a traceback of its own way out.
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
