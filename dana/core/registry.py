"""Registry: a spec to a component object, through the entry points of dana and of installed plug-ins alike.

A component is named by a *spec*, the same text on the command line and in YAML::

    knn                      the class registered as ``knn``, with its defaults
    knn:k=10                 with a parameter
    transformer:bert-base-uncased,layer=-2    a bare value fills the first field
    other-package:knn        which distribution's ``knn``, where two claim the name

Listing imports nothing; a broken plug-in breaks only itself. Whose code a component is, and which version of it
(:func:`origin_of`), is what a fingerprint holds of code.
"""

import inspect
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import Any, get_args

import yaml

from dana.core.config import KINDS, require, typed
from dana.core.errors import ConfigError, DanaError, PluginError, suggestion


@dataclass(frozen=True)
class Registry:
    """The components of one entry-point group."""

    group: str

    def entries(self) -> dict[str, list[EntryPoint]]:
        """Name to every entry point that claims it, sorted by name. Nothing is imported."""
        found: dict[str, list[EntryPoint]] = {}
        for entry in entry_points(group=self.group):
            claims = found.setdefault(entry.name, [])
            if all(entry.value != other.value for other in claims):  # one package can be on the path twice
                claims.append(entry)
        return dict(sorted(found.items()))

    def load(
        self, name: str, distribution: str | None = None, entries: dict[str, list[EntryPoint]] | None = None
    ) -> type:
        """The class registered as ``name``; `entries` are those of :meth:`entries`, whose search takes milliseconds.

        Raises:
            PluginError: If the name is unknown (the nearest is suggested), claimed twice, or its
                package does not import.
        """
        entries = entries or self.entries()
        if name not in entries:
            kind = self.group.rpartition(".")[2].removesuffix("s")
            raise PluginError(f"unknown {kind} {name!r}{suggestion(name, entries)}")
        claims = entries[name]
        if distribution is not None:
            claims = [entry for entry in claims if entry.dist and entry.dist.name == distribution]
        if len(claims) != 1:
            owners = ", ".join(sorted(entry.dist.name if entry.dist else "?" for entry in entries[name]))
            raise PluginError(f"{name!r} in {self.group} is claimed by {owners}; write DISTRIBUTION:{name}")
        try:
            return claims[0].load()
        except Exception as error:
            owner = claims[0].dist.name if claims[0].dist else "?"
            raise PluginError(
                f"{name!r} of {owner} does not load ({claims[0].value}): {type(error).__name__}: {error}"
            ) from error

    def create(self, spec: str) -> Any:
        """The component a spec names, built with the parameters it gives.

        Raises:
            PluginError: See :meth:`load`.
            ConfigError: If a parameter is unknown or its value is refused.
        """
        require(isinstance(spec, str), "spec", spec, "text: a name, or name:parameter=value,...")
        head, _, tail = spec.partition(":")
        distribution, entries = None, self.entries()
        if head not in entries and any(
            entry.dist and entry.dist.name == head for claims in entries.values() for entry in claims
        ):
            distribution, (head, _, tail) = head, tail.partition(":")
        cls = self.load(head, distribution, entries)
        return build(cls, spec, *parse_arguments(tail, spec))


def is_present(module: str) -> bool:
    """Whether a module can be found; nothing but the packages above it is imported."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # not even the package above it, or no name of a module
        return False


def parse_arguments(text: str, spec: str) -> tuple[list[Any], dict[str, Any]]:
    """Split ``bert-base-uncased,layer=-2`` into positional and named values, typed as YAML reads them."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            if named:
                raise ConfigError(f"{spec!r}: the bare value {part!r} follows a named one")
            positional.append(_typed(part, spec))
        elif key in named:
            raise ConfigError(f"{spec!r}: {key!r} is given twice")
        else:
            named[key] = _typed(value, spec)
    return positional, named


def _typed(text: str, spec: str) -> Any:
    """A value as YAML reads it, and 1e-3 as a number, which YAML 1.1 takes for text."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{spec!r}: {text!r} is not YAML: {getattr(error, 'problem', error)}") from error
    if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9.]+e[-+]?[0-9]+", value, re.IGNORECASE):
        return float(value)
    return value


def build(cls: type, spec: str, positional: list[Any], named: dict[str, Any]) -> Any:
    """Call ``cls`` with a spec's arguments, turning what it refuses into a ConfigError that shows the spec."""
    signature = inspect.signature(cls)
    try:
        given = signature.bind(*positional, **named).arguments
    except TypeError as error:
        parameters = [part for part in signature.parameters.values() if part.kind != part.KEYWORD_ONLY]
        allowed = ", ".join(map(str, parameters))
        raise ConfigError(f"{spec!r}: {error}. {cls.__name__} takes: {allowed or 'nothing'}") from error
    for name, value in given.items():
        hint = signature.parameters[name].annotation
        if {*(get_args(hint) or [hint])} <= KINDS.keys():  # of other kinds the component knows more
            typed(hint, value, f"{spec!r}: {name}")
    try:
        return cls(*positional, **named)
    except DanaError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{spec!r}: {error}") from error
    except Exception as error:  # whatever a plug-in raises
        raise PluginError(f"{spec!r} of {cls.__module__}: {type(error).__name__}: {error}") from error


DETECTORS = Registry("dana.detectors")
ENCODERS = Registry("dana.encoders")
SELECTORS = Registry("dana.selectors")
OBJECTIVES = Registry("dana.objectives")


OURS = "dana"
RECORDED_PACKAGES = (
    *("dana", "torch", "transformers", "accelerate", "scikit-learn"),
    *("pyod", "numpy", "sentencex", "datasketch"),
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
