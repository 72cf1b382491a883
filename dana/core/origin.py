"""Origin of a component's code: package, version and a digest of its source, as plain values for a fingerprint."""

import inspect
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

from dana.core.errors import DanaError, PluginError

OURS = "dana"
RECORDED_PACKAGES = (
    "dana",
    "torch",
    "transformers",
    "accelerate",
    "scikit-learn",
    "pyod",
    "numpy",
    "sentencex",
    "datasketch",
)


def origin_of(component: Any) -> dict[str, Any]:
    """Distribution, version and a digest of the source of what a component is made of.

    Of dana's own components, the modules of the class, its bases and what it fits to; of others', all modules of their
    top-level package, because nobody knows which of them decide.

    Args:
        component: An object. If it wraps another's class or object, its ``made_by`` names that one.

    Returns:
        ``package``, ``version`` (empty where nothing is installed), ``source`` and, where it wraps, ``made_by``.
    """
    found = dict(_origin_of_class(component if isinstance(component, type) else type(component)))
    inner = getattr(component, "made_by", None)
    return found if inner is None else {**found, "made_by": origin_of(inner)}


@contextmanager
def blamed(kind: str, spec: str, component: Any) -> Iterator[None]:
    """Tell whatever goes wrong inside, dana's own errors apart, with the component's name and package.

    Args:
        kind: ``detector`` or ``encoder``.
        spec: How it was named.
        component: Whose code runs inside.

    Raises:
        PluginError: Instead of the error.
    """
    try:
        yield
    except DanaError:
        raise
    except Exception as error:
        package = type(getattr(component, "candidate", component)).__module__.partition(".")[0]
        said = " ".join(str(error).split())
        raise PluginError(f"{kind} {spec!r} of {package}: {type(error).__name__}: {said}") from error


@cache
def _origin_of_class(cls: type) -> dict[str, str]:
    top = cls.__module__.partition(".")[0]
    owners = packages_distributions().get(top, [])
    files = _own_modules(cls) if top == OURS else _all_modules(top)
    digest = blake2b(digest_size=16)
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return {
        "package": owners[0] if owners else top,
        "version": version(owners[0]) if owners else "",
        "source": digest.hexdigest(),
    }


def _own_modules(cls: type) -> list[Path]:
    """Files of the class, its bases and what it fits to, as far as they are ours."""
    classes = {base for one in (cls, getattr(cls, "fitted_type", cls)) if isinstance(one, type) for base in one.__mro__}
    files = {inspect.getsourcefile(one) for one in classes if one.__module__.partition(".")[0] == OURS}
    return sorted(Path(file) for file in files if file)


def _all_modules(top: str) -> list[Path]:
    """Source and compiled files of a top-level package, or of a module that is alone."""
    module = sys.modules.get(top)
    folders = [Path(folder) for folder in getattr(module, "__path__", [])]
    if folders:
        return sorted(file for folder in folders for kind in ("*.py", "*.so", "*.pyd") for file in folder.rglob(kind))
    file = getattr(module, "__file__", None)
    return [Path(file)] if file else []


def package_versions() -> dict[str, str]:
    """Versions of the packages that decide results, and of Python."""
    found = {"python": platform.python_version()}
    for name in RECORDED_PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
