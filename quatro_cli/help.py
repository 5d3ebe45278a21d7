"""How commands are listed and how their help is laid out. Every group of commands is an `App`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from itertools import groupby
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from quatro_cli.output import output
from quatro_cli.removed import REMOVED

# Spellings that still work and that help does not show: shown one -> old one.
OLD_SPELLINGS = {"--bootstrap-seed": "--seed", "--n": "--num-samples"}
# Flags that a word may follow, which the parser takes for an argument: flag and word -> hidden flag.
FLAGS_WITH_WORDS = {("--with-paper", "all"): "--with-paper-all"}
# What stands in an option's help for all similarities and their thresholds, which are looked up when help is shown.
SIMILARITIES, THRESHOLDS = "{similarities}", "{thresholds}"


class App(typer.Typer):
    """A group of commands; ``add`` registers one, ``add_old_name`` keeps a name that it had before."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(no_args_is_help=True, rich_markup_mode=None, **{"cls": Group, **settings})

    def add(self, name: str, command: Callable[..., Any] | typer.Typer, **settings: Any) -> None:
        """Register a function or a group; ``rich_help_panel`` is the heading that it stands under."""
        if isinstance(command, typer.Typer):
            self.add_typer(command, name=name, **settings)
        else:
            self.command(name, cls=Command, **settings)(command)

    def add_old_name(self, old: str, new: str, command: Callable[..., Any]) -> None:
        """``old`` still works, is not listed, and says on stderr that `quatro NEW` is the command's name."""

        @wraps(command)
        def noted(*arguments: Any, **options: Any) -> Any:
            output.info(f"note: this command is called `quatro {new}`")
            return command(*arguments, **options)

        self.add(old, noted, hidden=True)


class Command(TyperCommand):
    """A command whose help says what goes where, without names of types."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Options and arguments, after a flag and its word have become one."""
        joined: list[str] = []
        for arg in args:
            flag = FLAGS_WITH_WORDS.get((joined[-1], arg)) if joined else None
            joined = [*joined[:-1], flag] if flag else [*joined, arg]
        try:
            parsed: list[str] = super().parse_args(ctx, joined)
        except Exception as error:
            if instead := REMOVED.get(f"{ctx.command_path} {getattr(error, 'option_name', '')}"):
                error.message, error.possibilities = f"{error.option_name} was removed; {instead}", None
            elif (quoted := _before_the_shell(args)) and hasattr(error, "message"):
                error.message += f". The shell split the braces; quote them: {quoted}"
            raise
        return parsed

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_options(self, ctx, formatter)


class Group(TyperGroup):
    """A group of commands, with the help of `Command`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Commands in order, under the headings that they were registered with."""
        shown = {name: self.commands[name] for name in self.list_commands(ctx) if not self.commands[name].hidden}
        width = max(map(len, shown))
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in shown.items():
            heading = getattr(command, "rich_help_panel", None) or "Commands"
            line = (name.ljust(width), command.get_short_help_str(formatter.width - 6 - width))
            sections.setdefault(heading, []).append(line)
        for heading, lines in sections.items():
            with formatter.section(heading):
                formatter.write_dl(lines)


def _before_the_shell(args: list[str]) -> str | None:
    """`'eval={every: 5, n: 4}'`, which without quotes a shell hands over as `eval=every:5 eval=n:4`; None if not so."""
    for key, group in groupby(args, lambda arg: arg.partition("=")[0]):
        parts = [arg.partition("=")[2].partition(":") for arg in group]
        if len(parts) > 1 and all(name and colon for name, colon, _ in parts):
            return f"'{key}={{{', '.join(f'{name}: {value.strip()}' for name, _, value in parts)}}}'"
    return None


def _write_options(command: Any, ctx: Any, formatter: Any) -> None:
    """Arguments, then options. The metavar says what goes there: the type that Typer adds is left out."""
    for kind, heading in (("argument", "Arguments"), ("option", "Options")):
        params = [param for param in command.get_params(ctx) if param.param_type_name == kind]
        records = [record for param in params if (record := param.get_help_record(ctx)) is not None]
        if kind == "argument":
            records = [(name.partition(" <")[0], text) for name, text in records]
        for shown, old in OLD_SPELLINGS.items():
            records = [(name.replace(f"{shown}, {old}", shown), text) for name, text in records]
        records = [(name, _looked_up(text)) for name, text in records]
        if records:
            with formatter.section(heading):
                formatter.write_dl(records)


def _looked_up(text: str) -> str:
    if SIMILARITIES not in text and THRESHOLDS not in text:
        return text
    from evals.similarity.catalogue import names_text, thresholds_text

    return text.replace(SIMILARITIES, names_text()).replace(THRESHOLDS, thresholds_text())
