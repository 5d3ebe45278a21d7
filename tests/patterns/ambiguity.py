r"""Whether a regular expression can read one text in ever more ways, which is what backtracking tries one by one.

The rule. A *place* is a character, or a set of characters, where it stands in the pattern. A pattern is refused if
1. some text leads from a place back to it in two ways: a repeat inside a repeat, `(a+)+`, or two alternatives of one
   repeat that begin alike for ever, `(?:a|a)*`, `(?:\d+,?)+`. The time is exponential in the length of the text;
2. some text leads from a place back to it, from there to a place of a later repeat, and from this place back to it:
   two repeats with nothing between them that the text must have, `a*a*`, `\s*,?\s*`. The time is at least quadratic.
What follows does not matter: that a pattern cannot fail behind its repeats today is no reason to keep it so.
A lookahead or lookbehind of one character, `$` and `^` restrict the characters beside them; others restrict nothing.
An atomic group and a possessive repeat match in one way, and their inside is a pattern of its own; so is a lookaround.
A repeat of more than twenty is without end. A reference to a group stands for any characters of this group.
That a search begins anew at each place of a text is not seen here: see `pumping`.
"""

from __future__ import annotations

import functools
import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

MOST_COPIES = 20
# What is tried where a set has it.
FIRST = "a1 .,-"
# Characters that stand for all others, beside those of the pattern itself.
_SAMPLE = "".join(map(chr, range(128))) + "\x85\xa0²é½ΩЖ٣あ中\u200b\u2028\ud800𝟙"


Nodes = tuple[int, ...]


class Edge(NamedTuple):
    """From one place to the next: ``mask`` is of the characters that may stand at the latter."""

    target: int
    mask: int
    is_inside_atom: bool


class Automaton:
    """The places of a pattern and the edges between them."""

    def __init__(self, pattern: str | bytes, flags: int = 0) -> None:
        self.tree = parser.parse(pattern, flags)
        self.flags = self.tree.state.flags
        own = {chr(code + step) for code in _codes(self.tree) for step in (-1, 0, 1) if 0 <= code + step < 0x110000}
        self.alphabet = sorted({*_SAMPLE, *own} if isinstance(pattern, str) else map(chr, range(256)))
        self.everything = (1 << len(self.alphabet)) - 1
        self.masks: list[int] = []
        self.atoms: list[tuple[int, ...]] = []
        self.inner: list[tuple[Any, int]] = []  # lookarounds and atomic groups, to be judged alone
        self._groups: dict[int, int] = {}
        self._next: list[list[tuple[int, int, int]]] = []  # of a state: (state, characters behind, characters before)
        self._read: dict[int, int] = {}  # of a state: the place that it reads
        self._behind: list[int] = []  # of a place: the state behind it
        self._of_atom: list[tuple[int, ...]] = []
        self._open_atoms: tuple[int, ...] = ()
        self._num_atoms = 0

    def build(self, tree: Any = None, flags: int | None = None) -> list[list[Edge]]:
        """The edges from each place of ``tree``, or of the whole pattern; place 0 is before the first character."""
        start = self._place(self.everything, self._state())  # before the first character
        self._sequence(self.tree if tree is None else tree, start, self.flags if flags is None else flags)
        return [list(self._edges(place)) for place in range(len(self.masks))]

    def _state(self) -> int:
        self._next.append([])
        self._of_atom.append(self._open_atoms)
        return len(self._next) - 1

    def _join(self, start: int, end: int, behind: int | None = None, before: int | None = None) -> None:
        everything = self.everything
        self._next[start].append(
            (end, everything if behind is None else behind, everything if before is None else before)
        )

    def _place(self, mask: int, start: int) -> int:
        end = self._state()
        # A state reads one place: what joins it goes through a state of its own.
        reading = self._state()
        self._join(start, reading)
        self._read[reading] = len(self.masks)
        self._behind.append(end)
        self.masks.append(mask)
        self.atoms.append(self._open_atoms)
        return end

    def _sequence(self, tree: Iterable[tuple[Any, Any]], start: int, flags: int) -> int:
        for kind, argument in tree:
            start = self._item(kind, argument, start, flags)
        return start

    def _item(self, kind: Any, argument: Any, start: int, flags: int) -> int:
        mask = self.characters(kind, argument, flags)
        if mask is not None:
            return self._place(mask, start)
        if kind is sre.SUBPATTERN:
            group, added, removed, inside = argument
            first = len(self.masks)
            end = self._sequence(inside, start, (flags | added) & ~removed)
            if group is not None:
                self._groups[group] = _union(self.masks[first:])
            return end
        if kind is sre.BRANCH:
            end = self._state()
            for branch in argument[1]:
                begin = self._state()
                self._join(start, begin)
                self._join(self._sequence(branch, begin, flags), end)
            return end
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            return self._repeat(*argument, start, flags)
        if kind is sre.POSSESSIVE_REPEAT:
            _, high, inside = argument
            mask = self.characters(*inside[0], flags) if len(inside) == 1 else None
            end = self._atom([(sre.MAX_REPEAT, argument)], start, flags)
            if mask is None or high <= MOST_COPIES:
                return end
            out = self._state()  # all of them have been read
            self._join(end, out, before=self.everything & ~mask)
            return out
        if kind is sre.ATOMIC_GROUP:
            return self._atom(argument, start, flags)
        if kind is sre.GROUPREF:
            return self._place(self._groups.get(argument, self.everything), start)
        if kind in (sre.ASSERT, sre.ASSERT_NOT):
            return self._look(kind, *argument, start, flags)
        if kind is sre.AT:
            return self._at(argument, start, flags)
        raise NotImplementedError(f"{kind} of a pattern")

    def _repeat(self, low: int, high: int, inside: Any, start: int, flags: int) -> int:
        is_endless = high > MOST_COPIES
        optional_ends = []
        num_copies = max(1, min(low, MOST_COPIES)) if is_endless else high
        for copy in range(num_copies):
            begin = self._state()
            self._join(start, begin)
            if copy >= low:
                optional_ends.append(start)
            start = self._sequence(inside, begin, flags)
        end = self._state()
        for one in (*optional_ends, start):
            self._join(one, end)
        if is_endless:
            self._join(start, begin)
        return end

    def _atom(self, tree: Any, start: int, flags: int) -> int:
        self.inner.append((tree, flags))
        kept = self._open_atoms
        self._num_atoms += 1
        self._open_atoms = (*kept, self._num_atoms)
        begin = self._state()
        self._join(start, begin)
        last = self._sequence(tree, begin, flags)
        self._open_atoms = kept
        end = self._state()
        self._join(last, end)
        return end

    def _look(self, kind: Any, direction: int, inside: Any, start: int, flags: int) -> int:
        self.inner.append((inside, flags))
        end = self._state()
        items = list(inside)
        one = items[0 if direction > 0 else -1] if items else None
        mask = self.characters(*one, flags) if one else None
        if mask is None or (kind is sre.ASSERT_NOT and len(items) > 1):
            self._join(start, end)
            return end
        if kind is sre.ASSERT_NOT:
            mask = self.everything & ~mask
        self._join(start, end, *((None, mask) if direction > 0 else (mask, None)))
        return end

    def _at(self, where: Any, start: int, flags: int) -> int:
        end = self._state()
        newline, word = self._mask("\n".__contains__), self._category(sre.CATEGORY_WORD, flags)
        is_lines = bool(flags & re.MULTILINE)
        if where in (sre.AT_END, sre.AT_END_STRING):
            self._join(start, end, before=newline if where is sre.AT_END else 0)
        elif where in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
            self._join(start, end, behind=newline if is_lines and where is sre.AT_BEGINNING else 0)
        else:
            other = self.everything & ~word
            is_edge = where is sre.AT_BOUNDARY
            self._join(start, end, word, other if is_edge else word)
            self._join(start, end, other, word if is_edge else other)
        return end

    def characters(self, kind: Any, argument: Any, flags: int) -> int | None:
        """The characters of a part that is one character, as bits; None of other parts."""
        if kind is sre.LITERAL:
            return self._literal(argument, flags)
        if kind is sre.NOT_LITERAL:
            return self.everything & ~self._literal(argument, flags)
        if kind is sre.ANY:
            return self.everything if flags & re.DOTALL else self._mask(lambda one: one != "\n")
        if kind is sre.SUBPATTERN and len(argument[3]) == 1:
            return self.characters(*argument[3][0], (flags | argument[1]) & ~argument[2]) if not argument[0] else None
        if kind is not sre.IN:
            return None
        mask, is_negated = 0, False
        for part, value in argument:
            if part is sre.NEGATE:
                is_negated = True
            elif part is sre.LITERAL:
                mask |= self._literal(value, flags)
            elif part is sre.RANGE:
                low, high = value
                mask |= self._mask(
                    lambda one, low=low, high=high: any(low <= ord(c) <= high for c in _cases(one, flags))
                )
            else:
                mask |= self._category(value, flags)
        return self.everything & ~mask if is_negated else mask

    def _literal(self, code: int, flags: int) -> int:
        return self._mask(lambda one: chr(code) in _cases(one, flags))

    def _category(self, category: Any, flags: int) -> int:
        name = str(category).removeprefix("CATEGORY_")
        letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[name.removeprefix("NOT_")]
        letter = letter.upper() if name.startswith("NOT_") else letter
        return self._mask(re.compile(f"\\{letter}", flags & re.ASCII).match)

    def _mask(self, holds: Any) -> int:
        return sum(1 << bit for bit, one in enumerate(self.alphabet) if holds(one))

    def is_one_way(self, left: Edge, right: Edge) -> bool:
        """Whether an atomic group decides between two edges."""
        is_inside = left.is_inside_atom or right.is_inside_atom or left.target != right.target
        return is_inside and bool(set(self.atoms[left.target]) & set(self.atoms[right.target]))

    def text(self, masks: Iterable[int], first: str = "") -> str:
        """A text of one of the characters of each mask: ``first`` if that is one, or else a letter or digit."""
        shown = [[one for bit, one in enumerate(self.alphabet) if mask >> bit & 1] for mask in masks]
        return "".join(
            min(ones, key=lambda one: (one != first, not one.isascii(), not one.isalnum(), one)) for ones in shown
        )

    def _edges(self, place: int) -> Iterator[Edge]:
        """Every way from a place to the next one, without going through a state twice."""
        end, atoms = self._behind[place], set(self.atoms[place])

        def walk(state: int, seen: frozenset[int], mask: int, shared: set[int]) -> Iterator[Edge]:
            shared = shared & set(self._of_atom[state])
            if state in self._read:
                target = self._read[state]
                if found := mask & self.masks[target]:
                    yield Edge(target, found, bool(shared))
            for following, behind, before in self._next[state]:
                if following not in seen and (self.masks[place] & behind or not place) and mask & before:
                    yield from walk(following, seen | {following}, mask & before, shared)

        yield from walk(end, frozenset([end]), self.everything, atoms)


def ambiguity(pattern: str | bytes, flags: int = 0) -> str | None:
    """The text that a pattern can read in ever more ways when it is repeated; None if it keeps the rule above."""
    waiting: list[tuple[Any, int | None]] = [(None, None)]
    while waiting:
        automaton = Automaton(pattern, flags)
        edges = automaton.build(*waiting.pop())
        loops = _loops(edges)
        text = _two_ways_back(automaton, edges, loops) or _two_repeats(automaton, edges, loops)
        if text is not None:
            return text
        waiting += automaton.inner
    return None


def repeated(pattern: str | bytes, flags: int = 0) -> Iterator[tuple[str, str]]:
    """(a text that leads to a repeat, a text that it repeats) for every place in a repeat of a pattern."""
    waiting: list[tuple[Any, int | None]] = [(None, None)]
    while waiting:
        automaton = Automaton(pattern, flags)
        edges = automaton.build(*waiting.pop())
        for place, loop in enumerate(_loops(edges)):
            before = _way_to(place, 0, edges) if loop else []
            for edge in edges[place]:
                if edge.target in loop:
                    body = [edge.mask, *_way_to(place, edge.target, edges)]
                    yield from ((automaton.text(before, first), automaton.text(body, first)) for first in FIRST)
        waiting += automaton.inner


def _way_to(place: int, start: int, edges: Sequence[Sequence[Edge]]) -> list[int]:
    def steps(nodes: Nodes) -> Iterator[tuple[Nodes, int]]:
        yield from (((edge.target,), edge.mask) for edge in edges[nodes[0]])

    way = _way((start,), lambda nodes: nodes[0] == place, steps, set())
    assert way is not None  # it is asked only where there is one
    return way[1]


def _loops(edges: Sequence[Sequence[Edge]]) -> list[frozenset[int]]:
    """Of each place, the places that it leads to and that lead back to it."""
    reached: list[set[int]] = []
    for place in range(len(edges)):
        waiting, seen = [place], set[int]()
        while waiting:
            new = {edge.target for edge in edges[waiting.pop()]} - seen
            seen |= new
            waiting += new
        reached.append(seen)
    return [frozenset(other for other in seen if place in reached[other]) for place, seen in enumerate(reached)]


def _two_ways_back(
    automaton: Automaton, edges: Sequence[Sequence[Edge]], loops: Sequence[frozenset[int]]
) -> str | None:
    hopeless: set[Nodes] = set()
    for place, loop in enumerate(loops):

        def steps(nodes: Nodes, loop: frozenset[int] = loop) -> Iterator[tuple[Nodes, int]]:
            for left, right in itertools.product(edges[nodes[0]], edges[nodes[-1]]):
                if {left.target, right.target} <= loop and left.mask & right.mask:
                    yield (left.target, right.target), left.mask & right.mask

        for left, right in itertools.combinations(edges[place], 2):
            mask, targets = left.mask & right.mask, {left.target, right.target}
            if not mask or not targets <= loop or automaton.is_one_way(left, right):
                continue
            way = _way((left.target, right.target), lambda nodes: nodes[0] == nodes[1], steps, hopeless)
            if way is not None:
                met = (way[0][0], way[0][0])
                back = _way(met, lambda nodes, goal=(place, place): nodes == goal, steps, set())
                assert back is not None  # as all is one loop
                return automaton.text([mask, *way[1], *back[1]])
    return None


def _two_repeats(automaton: Automaton, edges: Sequence[Sequence[Edge]], loops: Sequence[frozenset[int]]) -> str | None:
    for place, later in itertools.permutations([place for place, loop in enumerate(loops) if loop], 2):
        if later in loops[place] or not automaton.masks[place] & automaton.masks[later]:
            continue
        # The end of an atomic group is decided, unless a repeat around it begins it anew.
        if set.intersection(*(set(automaton.atoms[one]) for one in {place, *loops[place]})):
            continue

        def steps(nodes: Nodes, place: int = place, later: int = later) -> Iterator[tuple[Nodes, int]]:
            for first, moving, second in itertools.product(*(edges[node] for node in nodes)):
                mask = first.mask & moving.mask & second.mask
                if mask and first.target in loops[place] and second.target in loops[later]:
                    yield (first.target, moving.target, second.target), mask

        way = _way((place, place, later), lambda nodes, goal=(place, later, later): nodes == goal, steps, set())
        if way is not None:
            return automaton.text(way[1])
    return None


def _way(
    start: Nodes,
    is_goal: Callable[[Nodes], bool],
    steps: Callable[[Nodes], Iterable[tuple[Nodes, int]]],
    hopeless: set[Nodes],
) -> tuple[Nodes, list[int]] | None:
    """The nearest goal and the characters on the way there; None where no way leads to one, as from ``hopeless``."""
    came_from: dict[Nodes, tuple[Nodes, int] | None] = {start: None}
    waiting = [start]
    for nodes in waiting:  # which grows
        if is_goal(nodes):
            masks = []
            at = nodes
            while (step := came_from[at]) is not None:
                at, mask = step
                masks.append(mask)
            return nodes, masks[::-1]
        for target, mask in steps(nodes):
            if target not in came_from and target not in hopeless:
                came_from[target] = (nodes, mask)
                waiting.append(target)
    hopeless |= came_from.keys()
    return None


def _codes(tree: Any) -> Iterator[int]:
    """The characters that a pattern names, and the ends of its ranges."""
    if isinstance(tree, tuple) and len(tree) == 2 and tree[0] in (sre.LITERAL, sre.NOT_LITERAL):
        yield tree[1]
    elif isinstance(tree, tuple) and len(tree) == 2 and tree[0] is sre.RANGE:
        yield from tree[1]
    elif isinstance(tree, tuple | list | parser.SubPattern):
        for item in tree:
            yield from _codes(item)


def _cases(one: str, flags: int) -> set[str]:
    return {one, one.lower()[:1], one.upper()[:1]} if flags & re.IGNORECASE else {one}


def _union(masks: Iterable[int]) -> int:
    return functools.reduce(operator.or_, masks, 0)
