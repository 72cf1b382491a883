"""Find the files that ship with dana: recipes, task cards and configurations of accelerate."""

from importlib.resources import files
from pathlib import Path

from dana.core.errors import ArtifactError, ConfigError, nearest, nearest_path


def package_folder() -> Path:
    """Return the folder of the package."""
    return Path(str(files("dana")))


def find_shipped(name: str) -> Path:
    """Find a file or folder that ships with dana.

    An installed package holds it in its folder ``shipped``. In a source checkout, and so in an
    editable installation, it stands beside the package.

    Args:
        name: Relative path, for example ``tasks`` or ``recipes/quickstart.yaml``.

    Returns:
        The path of the file or folder.

    Raises:
        ArtifactError: If the installation lacks it; names the folder in which it should be.
    """
    package = package_folder()
    installed = package / "shipped"
    # Beside an installed package stand other packages, which may be called `tasks`, too.
    root = installed if installed.is_dir() else package.parent
    path = root / name
    if not path.exists():
        raise ArtifactError(
            f"{name}: missing from this installation (looked in {root}); install dana again"
        )
    return path


def find_recipe(name: str | Path) -> Path:
    """Find the YAML of a recipe by its path, or by its name among those that ship with dana.

    Args:
        name: Path of a file, or a name such as ``quickstart`` or ``papers/dana/table4``. A file of
            this name comes first.

    Returns:
        The path of the recipe.

    Raises:
        ConfigError: If it is neither; suggests the nearest name.
    """
    if Path(name).is_file():
        return Path(name)
    root = find_shipped("recipes")
    recipes = {}
    for path in sorted(root.rglob("*.yaml")):
        recipes[path.relative_to(root).with_suffix("").as_posix()] = path
    stem = Path(name).as_posix().removeprefix("recipes/").removesuffix(".yaml")
    if stem in recipes:
        return recipes[stem]
    near = nearest(stem, recipes) or nearest_path(name) or "."
    raise ConfigError(
        f"{name}: no such file, nor a recipe that ships with dana{near} "
        f"Available: {', '.join(recipes)}"
    )
