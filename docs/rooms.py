"""Draws docs/images/rooms.svg: the rooms of the three packages on their floors, from the imports of every module.

A room is a folder or a loose file that lies directly in a package. Its floor is the longest way down through what it
imports, imports inside functions included. An arrow that follows from two others is left out. `docs/generate.py`
writes the picture with the other generated pages, and its `--check` compares it.
"""

from __future__ import annotations

import ast
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
PACKAGES = ("quatro", "evals", "quatro_cli")
WIDTH, ROW, BOX, GAP, LETTER = 980, 58, 26, 34, 7.3  # pixels; LETTER is the mean width of one in a box
COLOURS = {"quatro_cli": "#e8eef7", "quatro": "#e6f3ea", "evals": "#f8efe0"}


def trees() -> dict[str, ast.Module]:
    """The syntax tree of each module of the packages, by its dotted name."""
    found = {}
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports(found: dict[str, ast.Module]) -> dict[str, set[str]]:
    """The modules of the packages that each module imports, inside functions too."""
    arrows: dict[str, set[str]] = {}
    for name, tree in found.items():
        targets = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                targets |= {f"{node.module}.{alias.name}" for alias in node.names}
        arrows[name] = {target for one in targets if (target := _module(one, found)) and target != name}
    return arrows


def _module(name: str, found: dict[str, ast.Module]) -> str:
    while name and name not in found:
        name = name.rpartition(".")[0]
    return name


def room_of(module: str) -> str:
    """`quatro.loop` for `quatro.loop.draw`; a package's own `__init__` is a room too."""
    return ".".join(module.split(".")[:2])


def rooms_of(package: str) -> dict[str, set[str]]:
    """Which rooms of the same package each room imports."""
    found: dict[str, set[str]] = {}
    for module, targets in imports(trees()).items():
        room = room_of(module)
        if room.startswith(f"{package}.") and not room.endswith(".__main__"):
            inside = {room_of(target) for target in targets if target.startswith(f"{package}.")}
            found.setdefault(room, set()).update(inside - {room})
    return found


def reached(rooms: dict[str, set[str]], room: str) -> set[str]:
    """Every room below ``room``."""
    below = set(rooms[room])
    for other in rooms[room]:
        below |= reached(rooms, other)
    return below


def floors_of(rooms: dict[str, set[str]]) -> list[list[str]]:
    """The rooms of each floor, from the top."""

    def height(room: str) -> int:
        return 1 + max(map(height, rooms[room]), default=0)

    heights = {room: height(room) for room in rooms}
    return [sorted(room for room in rooms if heights[room] == floor) for floor in range(max(heights.values()), 0, -1)]


def picture() -> str:
    """The SVG; its text is the same wherever it is made."""
    parts: list[str] = []
    top = 10
    for package, colour in COLOURS.items():
        rooms = rooms_of(package)
        floors = floors_of(rooms)
        height = ROW * len(floors) + 34
        parts.append(f'<rect x="4" y="{top}" width="{WIDTH - 8}" height="{height}" rx="8" fill="{colour}"/>')
        parts.append(f'<text x="16" y="{top + 24}" class="package">{package}</text>')
        places: dict[str, tuple[float, float]] = {}
        boxes: list[str] = []
        for number, floor in enumerate(floors):
            labels = [room.split(".")[1] for room in floor]
            widths = [len(label) * LETTER + 20 for label in labels]
            left = (WIDTH - sum(widths) - GAP * (len(widths) - 1)) / 2
            y = top + 30 + number * ROW
            for room, label, width in zip(floor, labels, widths, strict=True):
                places[room] = (left + width / 2, y)
                boxes.append(f'<rect x="{left:.0f}" y="{y}" width="{width:.0f}" height="{BOX}" rx="5" class="room"/>')
                boxes.append(f'<text x="{left + width / 2:.0f}" y="{y + 17}" class="name">{escape(label)}</text>')
                left += width + GAP
        for room in sorted(rooms):
            direct = rooms[room] - set().union(*(reached(rooms, other) for other in rooms[room]))
            for other in sorted(direct):
                (x1, y1), (x2, y2) = places[room], places[other]
                middle = (y1 + BOX + y2) / 2
                curve = f"M{x1:.0f} {y1 + BOX}C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {y2 - 5}"
                parts.append(f'<path d="{curve}" class="arrow"/>')
        parts += boxes
        top += height + 30
        if package != "evals":
            parts.append(f'<path d="M{WIDTH / 2:.0f} {top - 28}V{top - 6}" class="between"/>')
    style = (
        "text{font-family:Helvetica,Arial,sans-serif;fill:#222}.package{font-size:15px;font-weight:bold}"
        ".name{font-size:12.5px;text-anchor:middle}.room{fill:#fff;stroke:#667}"
        ".arrow{fill:none;stroke:#889;stroke-width:1;marker-end:url(#tip)}"
        ".between{stroke:#222;stroke-width:2;marker-end:url(#tip)}"
    )
    tip = '<marker id="tip" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top - 20}" width="{WIDTH}">'
    opening = [head, f"<style>{style}</style>", f'<defs>{tip}<path d="M0 0L6 3L0 6z" fill="#667"/></marker></defs>']
    return "\n".join([*opening, f'<rect width="{WIDTH}" height="{top - 20}" fill="#fff"/>', *parts, "</svg>"]) + "\n"
