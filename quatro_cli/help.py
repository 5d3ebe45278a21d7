"""How commands are listed and how their help is laid out. Every group of commands is an `App`."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise, product
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from quatro_cli.options import usage_error

# What stands in an option's help for all similarities and their thresholds, which are looked up when help is shown.
SIMILARITIES, THRESHOLDS = "{similarities}", "{thresholds}"
# What quatro no longer has, each with what to do instead; keys: `quatro/config/errors.py`. Of words with | between them
# each stood there.
_INSTEAD = {
    "quatro verl-command --check": "start what it prints: verl validates it before it asks for a GPU",
    "quatro sweep --submit|--time|--partition": "docs/paper.md has an array script for SLURM, each task of which "
    "trains a point with `quatro train`; without a cluster type `quatro sweep DIR`",
    "quatro train --probe": "type --rehearse CARD, which needs no GPU, or measure one iteration of each choice with "
    "--steps 1 and compare perf/step_s in their metrics.jsonl",
    "quatro runs import": "docs/trl.md draws the metrics of TRL and verl beside a run's, in a few lines of Python",
    "quatro samples": "type `quatro eval import`",
    "quatro eval temperature|side-by-side": "type `quatro eval ucc FILE -o RESULT.json` for each file, then `quatro "
    "table RESULT.json... --metric ucr`, or `quatro plot side-by-side RESULT.json...`",
    "quatro plot passk|ucc --with-paper": "`quatro table RESULT.json... --with-paper` has the published numbers",
    "quatro runs list --name|--method|--status": "`grep` chooses lines, a shell pattern such as runs/*gspo* chooses "
    "paths",
    "quatro rollouts --failed": "`jq 'select(.error)' RUN/rollouts/*.jsonl` shows those on which the reward failed",
    "quatro paper --json": "README.md in the folder says what was made, and what is missing and why",
    "quatro runs list --sort": "pipe the table through `sort`, or --json through `jq`",
    "quatro plot training --title": "put it into the caption",
    "quatro plot limitation|delta-lambda|entropy|stability": "`quatro paper SWEEP` draws it; `quatro plot training` "
    "has the curves of single runs",
    "quatro plot flips|side-by-side --top-p|--temperature|--cell": "`quatro paper SWEEP` draws it",
    "quatro plot temperature": "type `quatro plot side-by-side`",
    "quatro plot threshold": "`quatro eval ucc FILE --threshold 0.5,0.6,0.7,0.8,0.9` prints the numbers",
    "quatro plot heatmap --label": "type --labels NAME,NAME",
    "quatro plot heatmap --scale": "colours go from 0 to 1; `evals.studies.similarity` has the matrix for others",
    "quatro eval|plot bias": "type `quatro eval ucc FILE --n 16 --k 16`, and compare with `quatro eval ucc FILE "
    "--k 16`",
    "quatro benchmarks fetch --hub|--config|--split": "name the data set as OWNER/NAME:CONFIG:SPLIT, or in an entry of "
    "./quatro-benchmarks.toml (`quatro benchmarks --help` shows one)",
    "quatro benchmarks fetch --accept-count": "name a file of other rows by its path, as in `quatro sample -b FILE`",
    "quatro report --answers": "`quatro eval clusters FILE --id ID` shows all clusters of a problem",
    "quatro benchmarks templates": "`quatro config schema` has them, below data.template",
    "quatro table --whole-paper": "--with-paper shows those at your benchmarks and k; all are in `evals.results.paper`",
    "quatro table --layout settings": "`quatro config show RUN` has them, `quatro runs compare` what differs",
    "quatro table --layout cost": "RUN/metrics.jsonl has seconds, tokens and rollouts of every iteration",
    "quatro table --layout tidy": "`quatro eval ... -o FILE.csv` writes rows; in Python quatro.read_metrics(RUN) and "
    "quatro.read_result(FILE).frame() are data frames",
    "quatro table --layout": "the metric says it: --metric ucc@k, --metric entropy; with --average it is the mean",
    "quatro table --standalone": "\\input the table into a document of your own",
    "quatro table --digits": "`--format json` has every value in full",
    "quatro eval clusters --format|--label": "`--json` has the texts, to put into boxes of your own",
    "quatro eval clusters --out|-o": "write `--json > FILE`",
    "quatro eval clusters --random": "name a problem with --id",
    "quatro eval clusters --members": "`quatro plot heatmap FILE --id ID` shows which samples are near which",
    "quatro eval grade --grader math-verify": "docs/grading.md has it as a function of your own, in three lines",
    "quatro eval grade --outcome": "type `--explain --json | jq '.samples[] | select(.outcome == \"error\")'`",
    "quatro eval import --split-by": "write a file for each value first, as with pandas: "
    "`for name, rows in frame.groupby('model'): rows.to_json(f'{name}.jsonl', orient='records', lines=True)`",
    "quatro eval passk --compare": "type `quatro eval compare A B`",
    "quatro eval ucc --compare": "type `quatro eval compare A B --metric ucc@k`",
    "quatro export --dtype": "transformers writes another number format: `AutoModelForCausalLM.from_pretrained(DIR, "
    "dtype='bfloat16').save_pretrained(NEW)`; vLLM takes --dtype bfloat16 for a folder as it is",
    "quatro doctor --similarity": "`pytest tests/evals/studies`, in quatro's repository, compares with the libraries",
    "quatro eval ucc --backend": "`pytest tests/evals/studies`, in quatro's repository, compares with the libraries",
    "quatro eval ucc --show": "type `quatro eval clusters FILE --id ID`",
    "quatro eval passk|ucc|compare|clusters --regrade|--policy|--extraction|--thinking|--allow-unsafe-code": "grade "
    "first, with `quatro eval grade FILE -o graded`, which has such options, and measure what it writes",
    "quatro eval passk|ucc|compare|flips --bootstrap-seed": "leave it out: intervals are computed, not drawn",
}
REMOVED = {
    " ".join(words): instead
    for pattern, instead in _INSTEAD.items()
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
        self.table[name], self.table.headings[name] = command, heading


class _Table(UserDict[str, Any]):
    """Commands by name; each is made when it is looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.headings: dict[str, str] = {}

    def __getitem__(self, name: str) -> Any:
        command = self.data[name]
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


class Command(TyperCommand):
    """A command whose help says what goes where, without names of types."""

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

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_options(self, ctx, formatter)


class Group(TyperGroup):
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
        _write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Commands in order, under the headings that they were registered with."""
        width = max(map(len, self.table))
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.table.items():
            line = (name.ljust(width), command.get_short_help_str(formatter.width - 6 - width))
            sections.setdefault(self.table.headings[name], []).append(line)
        for heading, lines in sections.items():
            with formatter.section(heading):
                formatter.write_dl(lines)


def _refuse_removed(ctx: Any, typed: str) -> None:
    if instead := REMOVED.get(f"{ctx.command_path} {typed}"):
        raise usage_error(f"`{ctx.command_path} {typed}` was removed: {instead}")


def _write_options(command: Any, ctx: Any, formatter: Any) -> None:
    """Arguments, then options. The metavar says what goes there: the type that Typer adds is left out."""
    for kind, heading in (("argument", "Arguments"), ("option", "Options")):
        params = [param for param in command.get_params(ctx) if param.param_type_name == kind]
        records = [record for param in params if (record := param.get_help_record(ctx)) is not None]
        if kind == "argument":
            records = [(name.partition(" <")[0], text) for name, text in records]
        records = [(name, _looked_up(text)) for name, text in records]
        if records:
            with formatter.section(heading):
                formatter.write_dl(records)


def _looked_up(text: str) -> str:
    if SIMILARITIES not in text and THRESHOLDS not in text:
        return text
    from evals import similarity

    return text.replace(SIMILARITIES, ", ".join(similarity.SIMILARITIES)).replace(
        THRESHOLDS, similarity.thresholds_text()
    )
