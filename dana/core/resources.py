"""Files that ship with dana outside the package: task cards, recipes, launch configurations."""

import sys
from pathlib import Path

from dana.core.errors import ArtifactError, ConfigError, nearest, nearest_path


def resource(name: str) -> Path:
    """Where a shipped file or folder lies: the source checkout, or ``share/dana`` of the installation.

    Args:
        name: For example ``tasks`` or ``recipes/quickstart.yaml``.

    Raises:
        ArtifactError: If neither place has it.
    """
    roots = [Path(__file__).parent.parent.parent, Path(sys.prefix) / "share" / "dana"]
    for root in roots:
        if (root / name).exists():
            return root / name
    raise ArtifactError(f"{name}: not shipped with this installation (looked in {', '.join(map(str, roots))})")


def recipe(named: str | Path) -> Path:
    """The YAML of a recipe: a file, or the name of one that ships with dana: ``quickstart``, ``papers/dana/table4``.

    Raises:
        ConfigError: If it is neither; the nearest name is suggested.
    """
    if Path(named).is_file():
        return Path(named)
    root = resource("recipes")
    shipped = {path.relative_to(root).with_suffix("").as_posix(): path for path in sorted(root.rglob("*.yaml"))}
    name = Path(named).as_posix().removeprefix("recipes/").removesuffix(".yaml")
    if name in shipped:
        return shipped[name]
    near = nearest(name, shipped) or nearest_path(named) or "."
    raise ConfigError(f"{named}: no such file, nor a recipe that ships with dana{near} Known: {', '.join(shipped)}.")
