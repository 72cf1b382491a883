"""Structure of a checkout: its package's rooms (packages and lone modules), the arrows between them, and its lines.

    python benchmarks/structure.py            # this checkout
    python benchmarks/structure.py OTHER      # another, such as a git worktree of an older commit

A room has an arrow to another if any of its files imports from it, at any level of indentation.
"""

import argparse
import ast
from collections import defaultdict
from pathlib import Path


def main() -> None:
    """Print the totals, and the rooms that each room imports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).parents[1])
    package = parser.parse_args().checkout / "dana"
    lines, arrows = defaultdict(int), defaultdict(set)
    for path in sorted(package.rglob("*.py")):
        room, text = path.relative_to(package).parts[0].removesuffix(".py"), path.read_text(encoding="utf-8")
        lines[room] += len(text.splitlines())
        arrows[room] |= imported(text) - {room}
    drawn = {room: sorted(arrows[room] & lines.keys()) for room in sorted(lines)}
    print(f"{len(lines)} rooms, {sum(map(len, drawn.values()))} arrows, {sum(lines.values()):,} lines")
    for room, others in drawn.items():
        print(f"{room:<14} {lines[room]:>6,}   {' '.join(others)}")


def imported(text: str) -> set[str]:
    """Rooms that a module's source imports from."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"dana.{alias.name}" for alias in node.names] if node.module == "dana" else [node.module or ""]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("dana.")}
    return found


if __name__ == "__main__":
    main()
