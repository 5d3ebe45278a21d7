"""How commands are listed and how their help is laid out. Every group of commands is an `App`."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable
from functools import cache
from importlib import import_module
from itertools import pairwise, product
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from quatro_cli.options import usage_error

# What stands in an option's help for all similarities and their thresholds, which are looked up when help is shown.
SIMILARITIES, THRESHOLDS = "{similarities}", "{thresholds}"


@cache
def removed() -> dict[str, str]:
    """What quatro no longer has, as it was typed -> what to do instead."""
    from evals.text import table_beside

    found = table_beside(__file__, "removed.toml")
    return {
        " ".join(words): instead
        for pattern, instead in found.items()
        for words in product(*(word.split("|") for word in pattern.split()))
    }


class App(typer.Typer):
    """A group of commands; ``add`` registers one."""

    def __init__(self, *, cls: type[Group] | None = None, **settings: Any) -> None:
        self.table = _Table()
        own = type("_Group", (cls or Group,), {"table": self.table})
        settings = {"no_args_is_help": True, "rich_markup_mode": None, "add_completion": False, **settings}
        super().__init__(cls=own, **settings)

    def add(self, name: str, command: Callable[..., Any] | str, heading: str = "Commands") -> None:
        """Register a function, or `module:function` or `module:app`, which is imported when the command is typed."""
        self.table[name] = command, heading


class _Table(UserDict[str, Any]):
    """Commands by name, with their headings in ``data``; each is made when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        command, _ = self.data[name]
        if isinstance(command, str):
            module, _, attribute = command.partition(":")
            command = getattr(import_module(module), attribute)
        if not isinstance(command, typer.Typer):
            one = typer.Typer(add_completion=False, rich_markup_mode=None)
            one.command(name, cls=Command)(command)
            command = one
        made = typer.main.get_command(command)
        made.name = name
        return made


class _Helping:
    """Help that says what goes where, without names of types."""

    def get_help(self, ctx: Any) -> str:
        from evals.errors import with_pages

        return with_pages(super().get_help(ctx))  # type: ignore[misc]  # of the Typer class that stands behind this

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then options. The metavar says what goes there: the type that Typer adds is left out."""
        for kind, heading in (("argument", "Arguments"), ("option", "Options")):
            params = [param for param in self.get_params(ctx) if param.param_type_name == kind]  # type: ignore[attr-defined]
            records = [record for param in params if (record := param.get_help_record(ctx)) is not None]
            if kind == "argument":
                records = [(name.partition(" <")[0], text) for name, text in records]
            records = [(name, _looked_up(text)) for name, text in records]
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class Command(_Helping, TyperCommand):
    """A command that refuses what was removed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Options and arguments; raises UsageError for a removed one."""
        for pair in pairwise(args):
            _refuse_removed(ctx, " ".join(pair))
        try:
            parsed: list[str] = super().parse_args(ctx, list(args))
        except Exception as error:
            _refuse_removed(ctx, getattr(error, "option_name", ""))
            said = getattr(error, "message", "")  # that there are too many arguments, and which
            stray = next((arg for arg in args if "=" in arg and not arg.startswith("-") and arg in said), None)
            takes = [option for option in ("-s", "-g") if any(option in one.opts for one in self.params)]
            if stray and takes:
                raise usage_error(f"{stray}: write {' or '.join(f'{one} {stray}' for one in takes)}") from error
            raise
        return parsed


class Group(_Helping, TyperGroup):
    """A group of commands, with the help of `Command`."""

    table: _Table

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": self.table})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is meant; raises UsageError for a removed one."""
        _refuse_removed(ctx, args[0])
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names in order; no command is imported for them."""
        return list(self.table)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Commands in order, under the headings that they were registered with."""
        width = max(map(len, self.table))
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.table.items():
            line = (name.ljust(width), command.get_short_help_str(formatter.width - 6 - width))
            sections.setdefault(self.table.data[name][1], []).append(line)
        for heading, lines in sections.items():
            with formatter.section(heading):
                formatter.write_dl(lines)


def _refuse_removed(ctx: Any, typed: str) -> None:
    if instead := removed().get(f"{ctx.command_path} {typed}"):
        raise usage_error(f"`{ctx.command_path} {typed}` was removed: {instead}")


def _looked_up(text: str) -> str:
    if SIMILARITIES not in text and THRESHOLDS not in text:
        return text
    from evals import similarity

    return text.replace(SIMILARITIES, ", ".join(similarity.SIMILARITIES)).replace(
        THRESHOLDS, similarity.thresholds_text()
    )
