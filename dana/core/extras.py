"""Say how to install what an optional part needs."""

import re
from importlib.metadata import PackageNotFoundError, requires

from dana.core.registry import DISTRIBUTION

OF_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
OTHER_EXTRAS = re.compile(rf"{DISTRIBUTION}\[([^\]]+)\]")


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra, by their own names on the index.

    So it works however dana was installed, from a checkout, a wheel or the index.

    Args:
        extra: Name of an extra in ``pyproject.toml``.
    """
    packages = _packages(extra)
    if not packages:
        return f"pip install '{DISTRIBUTION}[{extra}]'"
    quoted = [f"'{package}'" for package in packages]
    return f"pip install {' '.join(quoted)}"


def _packages(extra: str) -> list[str]:
    """List the packages of an extra, and of the extras that it names; none without metadata."""
    try:
        requirements = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []
    packages: list[str] = []
    for requirement in requirements:
        package, _, condition = requirement.partition(";")
        found = OF_EXTRA.search(condition)
        if found is None or found[1] != extra:
            continue
        others = OTHER_EXTRAS.match(package)
        if others is None:
            packages.append(package.strip())
            continue
        for other in others[1].split(","):
            packages += _packages(other)
    return packages
