"""The command `quatro`: parse, call one function, print. Commands import what is heavy inside their bodies.

From an exception follow a message for a person and an exit code. Nothing of `evals` or `quatro` is imported at the top:
the first thing checked is that `evals` is ours.
"""

import contextlib
import faulthandler
import gc
import logging
import os
import signal
import sys
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from quatro_cli.help import App, Group
from quatro_cli.output import output

# Heading -> commands, in the order of `quatro --help`. Each lies in the module of its name, which is imported when the
# command is typed.
COMMANDS = {
    "Train": ("train", "sweep", "runs", "rollouts", "export", "verl-command"),
    "Measure": ("sample", "eval"),
    "Present": ("view", "table", "plot", "report", "paper"),
    "Reference": ("config", "benchmarks", "doctor", "demo"),
}
GROUPS = ("runs", "eval", "plot", "config", "benchmarks")
EXIT_BUG = 1
EXIT_MISSING = 3
EXIT_SIGINT = 130

OURS = ("evals", "quatro", "quatro_cli")


def report(error: BaseException) -> int:
    """Say what happened on stderr; returns the exit code."""
    from evals.errors import QuatroError, extra_of, how_to_install, is_out_of_memory
    from evals.files.own_code import line_of_any_own, own_in_use

    if isinstance(error, KeyboardInterrupt):
        output.info("interrupted")
        return EXIT_SIGINT
    if isinstance(error, QuatroError):
        if not getattr(error, "is_said", False):  # of several ranks one speaks
            output.error(str(error))
        return error.exit_code
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.split(".")[0] not in OURS:
        package = error.name.split(".")[0]
        how = how_to_install(extra_of(package))
        output.error(f"the package {package!r} is not installed; install it with `{how}`")
        return EXIT_MISSING
    if is_out_of_memory(error):
        output.error(
            f"out of memory: {error}\nWhat was saved is whole. A run draws fewer responses at once with "
            "`rollout.rows_at_once`, learns from fewer with `microbatch_tokens`, and needs less of everything with "
            "`rollout.max_new_tokens`: quatro train RUN/config.yaml -s rollout.rows_at_once=64 -o NEW"
        )
        return EXIT_BUG
    if isinstance(error, OSError):
        reason = error.strerror or str(error) or type(error).__name__
        output.error(f"{reason}: {error.filename}" if error.filename is not None else reason)
        return EXIT_BUG
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):  # `Path.resolve`, before 3.13
        output.error(f"{error}: a symbolic link leads back to itself; remove it")
        return EXIT_BUG
    output.info("".join(traceback.format_exception(error)))
    said = f"{type(error).__name__}: {error}"
    if own := line_of_any_own(error):
        output.error(f"your own code raised {said}\n  {own}")
    elif in_use := own_in_use():
        output.error(
            f"{said}\nYour own code, {in_use}, gave something else than docs/extending.md says, or this is a bug."
        )
    else:
        output.error(f"this is a bug: {said}\nPlease report it with the command you typed, and what stands above.")
    return EXIT_BUG


def foreign_evals() -> str | None:
    """What is wrong if the top-level package `evals` is not ours (OpenAI's has the same name), else None."""
    spec = find_spec("evals")
    if spec is not None and spec.origin is not None:
        init = Path(spec.origin)
        # Ours has an empty __init__.py. A foreign one installed over it leaves our other files in place.
        if (init.parent / "errors.py").is_file() and init.stat().st_size == 0:
            return None
    where = "is missing" if spec is None else f"at {spec.origin or list(spec.submodule_search_locations or [])!r}"
    return (
        f"the package `evals` {where} and not the one that came with quatro; another project uses the same name. "
        "Type: pip uninstall evals, and then in quatro's checkout: pip install --force-reinstall --no-deps -e . "
        "(or name its wheel in place of `-e .`)"
    )


class _LogHandler(logging.Handler):
    """Log records of our libraries become messages on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        (output.warn if record.levelno >= logging.WARNING else output.info)(record.getMessage())


class _Root(Group):
    """Turns every exception of every command into a message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        problem = foreign_evals()
        if problem is not None:
            if sys.stderr is not None:
                sys.stderr.write(f"error: {problem}\n")  # `output` would need our `evals`
            raise typer.Exit(EXIT_MISSING)
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
            raise typer.Exit(report(error)) from error


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
    """SIGUSR1 and a crash in C code write the stacks of all threads to stderr."""
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
    if os.name == "nt":
        output.error("quatro needs Linux or macOS; on Windows, install it inside WSL")
        sys.exit(EXIT_MISSING)
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
