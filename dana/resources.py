"""Files that ship with dana outside the package: task cards, recipes, launch configurations."""

import sys
from pathlib import Path

from dana.errors import ArtifactError


def resource(name: str) -> Path:
    """Where a shipped file or folder lies: the source checkout, or ``share/dana`` of the installation.

    Args:
        name: For example ``tasks`` or ``recipes/quickstart.yaml``.

    Raises:
        ArtifactError: If neither place has it.
    """
    roots = [Path(__file__).parent.parent, Path(sys.prefix) / "share" / "dana"]
    for root in roots:
        if (root / name).exists():
            return root / name
    raise ArtifactError(f"{name}: not shipped with this installation (looked in {', '.join(map(str, roots))})")
