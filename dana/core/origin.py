"""Origin of a component's code: whose it is and which version of it, as plain values for a fingerprint."""

import inspect
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from secrets import token_hex
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
    """Whose code a component is, and which version of it: what a fingerprint holds of code.

    A class that says ``version`` in its own body is known by that number, which is raised whenever the numbers that it
    gives change, and by nothing else: not by its module, its comments or the release it came in. One that does not say
    is known by the version of its distribution; one of no distribution by a digest of its source.

    Args:
        component: An object or a class. If it wraps another's object, its ``made_by`` is that one.

    Returns:
        ``package``, ``class``, ``version`` and, where it wraps, ``made_by``, the same of what is wrapped.
    """
    origin = dict(_origin_of_class(component if isinstance(component, type) else type(component)))
    inner = getattr(component, "made_by", None)
    return origin if inner is None else {**origin, "made_by": origin_of(inner)}


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
def _origin_of_class(cls: type) -> dict[str, str | int]:
    top = cls.__module__.partition(".")[0]
    owner = next(iter(packages_distributions().get(top, [])), None)
    own = vars(cls).get("version")  # not a base's: a plug-in's subclass gives other numbers than ours
    if not isinstance(own, str | int):
        own = version(owner) if owner else f"source {_source_digest(cls)}"
        bases = [(base.__qualname__, vars(base).get("version")) for base in cls.__mro__[1:]]
        own += "".join(f", {name} {number}" for name, number in bases if isinstance(number, str | int))
    return {"package": owner or top, "class": cls.__qualname__, "version": own}


def _source_digest(cls: type) -> str:
    """Digest of the file that a class is of, a script say; of its own text in a notebook."""
    try:
        file = inspect.getsourcefile(cls)
        text = Path(file).read_bytes() if file and Path(file).is_file() else inspect.getsource(cls).encode()
        return blake2b(text, digest_size=16).hexdigest()
    except (OSError, TypeError):
        return token_hex(16)  # nothing is known of it: it is never what another process had


def package_versions() -> dict[str, str]:
    """Versions of the packages that decide results, and of Python."""
    found = {"python": platform.python_version()}
    for name in RECORDED_PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
