"""Read rooms and arrows of the code from its syntax trees. ``python tests/architecture.py`` draws the picture.

A room is a folder of ``dana/`` with all that lies below it, ``recipes/``, ``benchmarks/``, or one
of the two modules beside the rooms. An arrow A -> B is an import of B anywhere in A: in a function
and for types, too. A floor is one above the highest room that is imported.
"""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "dana"
PICTURE = ROOT / "docs" / "images" / "architecture.svg"

Graph = dict[str, set[str]]  # room to the rooms that it imports


def python_files(*folders: str) -> list[Path]:
    """The Python files of folders of the repository, sorted; by default of all whose rooms are counted."""
    return sorted(
        path
        for folder in folders or ("dana", "recipes", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
    )


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def room(path: Path) -> str:
    """The room of a file: ``cli``, ``recipes``; ``dana`` and ``__main__`` are the modules beside the rooms."""
    top, *rest = path.relative_to(ROOT).parts
    if top != "dana":
        return top
    return "dana" if rest == ["__init__.py"] else rest[0].removesuffix(".py")


def study(path: Path) -> str:
    """The study of a file below ``dana/studies``, else an empty name."""
    parts = path.relative_to(PACKAGE).parts if path.is_relative_to(PACKAGE) else ()
    return parts[1] if len(parts) > 2 and parts[0] == "studies" else ""


def module_file(name: str) -> Path | None:
    """The file of a dotted name; None where it is no module of this repository."""
    stem = ROOT / name.replace(".", "/")
    return next(
        (file for file in (stem.with_suffix(".py"), stem / "__init__.py") if file.is_file()), None
    )


@cache
def imported_files(path: Path) -> frozenset[Path]:
    """Files of this repository that a file imports, in functions and for types, too."""
    names = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = path.parents[node.level - 1].relative_to(ROOT).parts if node.level else ()
            module = ".".join([*above, *filter(None, [node.module])])
            inner = {f"{module}.{alias.name}" for alias in node.names}
            modules = {name for name in inner if module_file(name)}
            names.update(modules or {module})
    return frozenset(file for file in map(module_file, names) if file and file != path)


def arrows() -> dict[tuple[str, str], list[str]]:
    """Every arrow between two rooms with the imports that make it, as ``file -> file``."""
    between = defaultdict(list)
    for path in python_files():
        for other in sorted(imported_files(path)):
            if room(path) != room(other):
                between[room(path), room(other)].append(
                    f"{path.relative_to(ROOT)} -> {other.relative_to(ROOT)}"
                )
    return dict(sorted(between.items()))


def graph() -> Graph:
    """Every room with those that it imports."""
    rooms: Graph = {
        room(path): set()
        for path in python_files()
        if path.name != "__init__.py" or room(path) == "dana"
    }
    for one, other in arrows():
        rooms[one].add(other)
    return rooms


def circle(imports: dict[Path, frozenset[Path]]) -> list[Path]:
    """One circle of files that import each other, or an empty list: depth-first search."""
    visits: set[Path] = set()

    def visit(file: Path, walk: list[Path]) -> list[Path]:
        if file in walk:
            return [*walk[walk.index(file) :], file]
        if file in visits:
            return []
        loop = next(
            filter(None, (visit(other, [*walk, file]) for other in sorted(imports.get(file, ())))),
            [],
        )
        visits.add(file)
        return loop

    return next(filter(None, (visit(file, []) for file in sorted(imports))), [])


def floors(imports: Graph) -> dict[str, int]:
    """The floor of each room, from 1; of rooms without a circle."""

    @cache
    def floor(name: str) -> int:
        return 1 + max((floor(other) for other in imports[name]), default=0)

    return {name: floor(name) for name in imports}


# --- the picture

WIDTH, HEIGHT, ROW, COLUMN, MARGIN = 116, 30, 84, 132, 20  # pixels


def direct(imports: Graph) -> set[tuple[str, str]]:
    """Arrows that no longer way of arrows implies: the transitive reduction."""

    @cache
    def below(name: str) -> frozenset[str]:
        return frozenset(imports[name]).union(*(below(other) for other in imports[name]))

    return {
        (one, other)
        for one in imports
        for other in imports[one]
        if not any(other in below(by) for by in imports[one])
    }


def picture(imports: Graph | None = None) -> str:
    """Draw the rooms as boxes on floors and their arrows, those that others imply in grey, as SVG."""
    imports = graph() if imports is None else imports
    level = floors(imports)
    rows = [
        sorted(name for name in imports if level[name] == floor)
        for floor in range(max(level.values()), 0, -1)
    ]
    wide = max(map(len, rows)) * COLUMN + 2 * MARGIN
    points: dict[str, tuple[float, float]] = {}
    for depth, row in enumerate(rows):
        # A room stands below the mean of the rooms that import it, so that few arrows cross.
        above = {name: [points[one][0] for one in points if name in imports[one]] for name in row}
        row.sort(key=lambda name: (sum(above[name]) / len(above[name]) if above[name] else 0, name))
        start = (wide - len(row) * COLUMN) / 2
        for column, name in enumerate(row):
            points[name] = (start + (column + 0.5) * COLUMN, MARGIN + depth * ROW)
    lines = []
    reduction = direct(imports)
    for kind, colour, stroke in (("implied", "#d5d9e0", 1), ("direct", "#3f51b5", 1.6)):
        for one in sorted(imports):
            for other in sorted(imports[one]):
                if ((one, other) in reduction) == (kind == "direct"):
                    (x, y), (u, v) = points[one], points[other]
                    y += HEIGHT
                    middle = (y + v) / 2
                    lines.append(
                        f'<path d="M{x:g},{y:g} C{x:g},{middle:g} {u:g},{middle:g} {u:g},{v - 5:g}" fill="none" '
                        f'stroke="{colour}" stroke-width="{stroke}" marker-end="url(#{kind})"/>'
                    )
    for name, (x, y) in points.items():
        fill = "#fff3e0" if name in ("studies", "recipes", "benchmarks") else "#e8eaf6"
        lines.append(
            f'<rect x="{x - WIDTH / 2:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="{fill}" '
            f'stroke="#3f51b5"/><text x="{x:g}" y="{y + 20:g}" text-anchor="middle">{name}</text>'
        )
    heads = "".join(
        f'<marker id="{kind}" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="{colour}"/></marker>'
        for kind, colour in (("implied", "#d5d9e0"), ("direct", "#3f51b5"))
    )
    tall = 2 * MARGIN + (len(rows) - 1) * ROW + HEIGHT
    body = "\n".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" width="{wide}" height="{tall}" '
        f'font-family="sans-serif" font-size="14">\n<defs>{heads}</defs>\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(), encoding="utf-8")
    print(f"written: {PICTURE.relative_to(ROOT)}")
