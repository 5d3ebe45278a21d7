"""Programs in completions: the text to run, and a normal form in which programs that differ in layout are one text.

Completions are hostile: they are read by `ast`, never run, and there are bounds on sizes and on all parsing together.
"""

import ast
import builtins
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

# Characters. What a model writes as a program is far below; some texts cost the parser the square of a line's length.
_LONGEST_PROGRAM = 50_000
_LONGEST_LINE = 10_000
_MOST_PARSED = 500_000
_MOST_BLOCKS = 32
_MOST_STARTS = 8

_UNREADABLE = re.compile("[\0\ud800-\udfff]")
_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,}(?!~))(?P<language>[^`]*)")
_FENCE_AFTER_PROSE = re.compile(
    r"(?P<indent>)[^`]*(?P<fence>`{3,})(?P<language>[ \t]*(?:py[\w.]*[ \t]*)?)", re.IGNORECASE
)
_PYTHON = re.compile(r"[\s{.]*(py(thon)?\d*\b.*)?", re.IGNORECASE)
_START = re.compile(r"(import|from|def|class|async def)\s+\w|@\w")
_KNOWN_NAMES = frozenset([*dir(builtins), "__file__"])


class _Program(NamedTuple):
    """A text that parses; ``is_whole`` if nothing was cut off to make it so."""

    text: str
    tree: ast.Module
    is_whole: bool


_NOTHING = _Program("", ast.Module([], []), False)


def extract_program(completion: str, *, prompt: str | None = None, entry_point: str | None = None) -> str | None:
    """The program in a model's ``completion``; None if there is none.

    It is the first of these that defines ``entry_point``, or does anything where there is no entry point:

    1. the completion, if all of it is a program,
    2. ``prompt`` + completion, if the completion begins with an indented line,
    3. the last fenced block that is a program as a whole, then the last that begins with one,
    4. the completion, then ``prompt`` + last block, then ``prompt`` + completion,
    5. the completion from a later line on that begins with `def`, `class`, `import`, `from` or `@`.

    If none defines the entry point, it is the first that does anything.

    Of a text that does not parse, the longest prefix of lines that does is taken. Lines such as `[DONE]`, which parse
    and can only raise NameError, end a program too. Names that a program uses and does not define are looked for in the
    blocks before it and in the prompt, and the whole block is put in front. Blocks in other languages are passed over.
    What lies beyond 50,000 characters, or behind a line of 10,000, is cut off. Nothing is raised.
    """
    completion, prompt = _plain(completion), _plain(prompt or "")
    reader = _Reader()
    others = []
    for program, earlier in _candidates(reader, completion, prompt):
        if _fits(program, entry_point):
            context = (reader.longest(text) for text in (*_fenced(prompt)[::-1], prompt))
            return _with_helpers(program, chain(reversed(earlier), context))
        others.append(program)
    return next((program.text for program in others if _fits(program, None)), None)


def normal_program(text: str) -> str:
    """The program without comments, docstrings and layout; ``text`` itself if it does not parse.

    Strings that are statements go with the docstrings, and `pass` stands where a body would be empty. Quotes, brackets
    around expressions and the spelling of numbers are those of `ast.unparse`. Texts of more than 50,000 characters
    count as such that do not parse. Nothing is raised.
    """
    try:
        tree = parsed(text) if len(text) <= _LONGEST_PROGRAM else None
        return text if tree is None else ast.unparse(_without_texts(tree))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return text


def normal_solution(completion: str, *, prompt: str | None = None, entry_point: str | None = None) -> str:
    """The normal form of the program in ``completion``; the completion itself if it holds none."""
    program = extract_program(completion, prompt=prompt, entry_point=entry_point)
    return completion if program is None else normal_program(program)


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _candidates(reader: "_Reader", completion: str, prompt: str) -> Iterator[tuple[_Program, Sequence[_Program]]]:
    """Programs by preference, each with those of the blocks before it."""
    alone = reader.longest(completion)
    if alone.is_whole:
        yield alone, ()
    lines = completion.split("\n")
    first = next((line for line in lines if line.strip()), "")
    if prompt and first[:1] in " \t" and not _FENCE.fullmatch(first):
        yield reader.continued(prompt, completion), ()
    blocks = _fenced(completion)
    found = [reader.longest(block) for block in reversed(blocks)][::-1]
    for is_whole in (True, False):
        for place in reversed(range(len(found))):
            if found[place].is_whole == is_whole:
                yield found[place], found[:place]
    yield alone, ()
    if prompt:
        for rest in (*blocks[-1:], completion):
            yield reader.continued(prompt, rest), ()
    starts = [place for place, line in enumerate(lines) if _START.match(line)]
    for place in starts[:_MOST_STARTS]:
        yield reader.longest("\n".join(lines[place:])), ()


class _Reader:
    """Reads texts as programs; when it has parsed `_MOST_PARSED` characters, it finds no more."""

    def __init__(self) -> None:
        self._num_left = _MOST_PARSED

    def longest(self, text: str, *, beyond: int = 0) -> _Program:
        """The longest prefix of more than ``beyond`` lines that is a program; without the indentation of line one.

        Of a text that breaks off inside a function, nothing of that function is kept.
        """
        lines = _readable_lines(text)
        first = next((line for line in lines if line.strip()), "")
        indent = first[: len(first) - len(first.lstrip(" \t"))]
        if indent:
            lines = [line.removeprefix(indent) for line in lines]
        end = len(lines)
        while end > beyond:
            source = "\n".join(lines[:end])
            self._num_left -= len(source)
            if self._num_left < 0:
                break
            try:
                tree = parsed(source)
            except SyntaxError as error:
                # The text is read from its start: what includes the place of its first error has that error too.
                wrong = error.lineno or 1
            except (ValueError, MemoryError, RecursionError):  # which say no place
                wrong = end // 2 + 1
            else:
                following = next((line for line in lines[end:] if line.strip()), "")
                if not following.startswith((" ", "\t")) or not tree.body:  # no statement goes on there
                    return _before_prose(_Program(source, tree, end == text.count("\n") + 1))
                last = tree.body[-1]
                wrong = min(node.lineno for node in (last, *getattr(last, "decorator_list", ())))
            end = min(wrong, end) - 1
        return _NOTHING

    def continued(self, prompt: str, rest: str) -> _Program:
        """The longest beginning of ``prompt`` + ``rest`` that does more than the prompt alone."""
        program = self.longest(prompt + rest, beyond=prompt.count("\n"))
        return program if _num_acts(program) > _num_acts(self.longest(prompt)) else _NOTHING


def parsed(source: str) -> ast.Module:
    """The tree of a program; raises what `ast.parse` raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as those on escapes in strings
        return ast.parse(source)


def _readable_lines(text: str) -> list[str]:
    """The lines before the first that the parser cannot take."""
    text = text[: _LONGEST_PROGRAM + 1]
    bad = _UNREADABLE.search(text)
    is_cut = bad is not None or len(text) > _LONGEST_PROGRAM
    lines = text[: bad.start() if bad else None].split("\n")
    if is_cut:
        lines.pop()
    return lines[: next((place for place, line in enumerate(lines) if len(line) > _LONGEST_LINE), None)]


def _num_acts(program: _Program) -> int:
    """How many calls and statements it has, without statements that only name or annotate something."""
    idle = (ast.Expr, ast.AnnAssign, ast.Pass)
    nodes = ast.walk(program.tree)
    return sum(isinstance(node, ast.Call | ast.stmt) and not isinstance(node, idle) for node in nodes)


def _fits(program: _Program, entry_point: str | None) -> bool:
    """Whether the program defines the entry point or, where there is none, does anything."""
    if entry_point is None:
        return _num_acts(program) > 0
    # A method of a class of this name serves as well, as on the sites that APPS is from.
    classes = [node for node in program.tree.body if isinstance(node, ast.ClassDef) and node.name == "Solution"]
    bodies = [program.tree.body, *(one.body for one in classes)]
    return any(entry_point in _defined_in(body) for body in bodies)


def _defined_in(body: Sequence[ast.stmt]) -> set[str]:
    """Names that the statements of a module or class bind, those inside functions left out."""
    names: set[str] = set()
    waiting: list[ast.AST] = [*body]
    while waiting:
        node = waiting.pop()
        names |= _bound_by(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))
    return names


def _bound_by(node: ast.AST) -> set[str]:
    """Names that this node binds, not counting the nodes inside."""
    match node:
        case ast.FunctionDef(name=str(name)) | ast.AsyncFunctionDef(name=str(name)) | ast.ClassDef(name=str(name)):
            return {name}
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return {name}
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.MatchMapping(rest=str(name)):
            return {name}
        case ast.alias(name=name, asname=asname):
            return {asname or name.partition(".")[0]}
    return set()


def _missing_in(tree: ast.AST) -> set[str]:
    """Names that are used in the tree, bound nowhere in it, and none of Python's."""
    used: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(tree):
        bound |= _bound_by(node)
        if isinstance(node, ast.Name):
            used.add(node.id)
    return set() if "*" in bound else used - bound - _KNOWN_NAMES


def _with_helpers(program: _Program, earlier: Iterable[_Program]) -> str:
    """The program behind those of the ``earlier`` ones, the nearest first, that define what it lacks."""
    texts, missing = [program.text], _missing_in(program.tree)
    for block in earlier if missing else ():
        if block.is_whole and missing & (defined := _defined_in(block.tree.body)):
            texts.insert(0, block.text)
            missing = (missing - defined) | _missing_in(block.tree)
    return "\n".join(texts)


def _before_prose(program: _Program) -> _Program:
    """The program up to the first statement that can only raise NameError, such as `[DONE]` or `Note: This`."""
    idle = [(place, one) for place, one in enumerate(program.tree.body) if _is_idle(one)]
    missing = _missing_in(program.tree) if idle else set()
    for place, statement in idle:
        if missing & _missing_in(statement):
            lines = program.text.split("\n")[: statement.lineno - 1]
            return _Program("\n".join(lines), ast.Module(program.tree.body[:place], []), False)
    return program


def _is_idle(statement: ast.stmt) -> bool:
    """Whether it only looks something up."""
    match statement:
        case ast.Expr(value=ast.Constant()):
            return False
        case ast.Expr() | ast.AnnAssign(value=None):
            return not any(isinstance(node, ast.Call) for node in ast.walk(statement))
    return False


def _fenced(text: str) -> list[str]:
    """The last fenced blocks of Markdown that are Python's or name no language; the last one may lack its end."""
    blocks: list[tuple[str, list[str]]] = []
    fence, indent = "", ""
    for line in text.split("\n"):
        marked = _FENCE.fullmatch(line) if "```" in line or "~~~" in line else None
        if not fence and marked is None and "```" in line:
            marked = _FENCE_AFTER_PROSE.fullmatch(line)
        # A fence deep inside a block belongs to its docstring.
        if marked is None or (fence and (marked["fence"][0] != fence[0] or len(marked["indent"]) > len(indent) + 3)):
            if fence:
                blocks[-1][1].append(line.removeprefix(indent))
        elif fence and not marked["language"].strip() and len(marked["fence"]) >= len(fence):
            fence = ""
        else:
            fence, indent = marked["fence"], marked["indent"]
            blocks.append((marked["language"], []))
    texts = ["\n".join(lines) for language, lines in blocks if _PYTHON.fullmatch(language)]
    if fence and texts:
        texts[-1] = texts[-1].rstrip().removesuffix(fence)
    return texts[-_MOST_BLOCKS:]


def _without_texts(tree: ast.Module) -> ast.Module:
    """The tree, changed: without statements that are strings, and without the `u` of `u"text"`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.kind = None
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list) and statements:
                kept = [statement for statement in statements if not _is_text(statement)]
                is_optional = isinstance(node, ast.Module) or name == "orelse"
                setattr(node, name, kept if kept or is_optional else [ast.Pass()])
    return tree


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(getattr(statement.value, "value", None), str)
