"""Create components from specs, through the entry points of dana and of installed plug-ins.

A component is named by a *spec*, the same text on the command line and in YAML::

    knn                      the class registered as ``knn``, with its defaults
    knn:k=10                 with a parameter
    transformer:bert-base-uncased,layer=-2    a value without a key is the first parameter
    other-package:knn        the ``knn`` of a distribution, if two define the name

Listing imports nothing, so a broken plug-in does not affect others. In fingerprints, code is
represented by the package, class and version of a component (:func:`origin_of`).
"""

import inspect
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib import metadata
from importlib.metadata import (
    EntryPoint,
    EntryPoints,
    PackageNotFoundError,
    distributions,
    packages_distributions,
    version,
)
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from secrets import token_hex
from typing import Any, get_type_hints

from dana.core.config import parse_yaml, require
from dana.core.errors import ConfigError, DanaError, PluginError, suggestion


def entry_points(group: str) -> EntryPoints:
    """Return the entry points of a group.

    The installed packages are read once for each search path.
    """
    return _installed(group, tuple(sys.path))


@cache
def _installed(group: str, path: tuple[str, ...]) -> EntryPoints:
    return metadata.entry_points(group=group)


@dataclass(frozen=True)
class Registry:
    """The components of one entry-point group.

    Attributes:
        group: Name of the group.
        also: The registry whose names do in place of its own; None if there is none.
    """

    group: str
    also: "Registry | None" = None

    def entries(self) -> dict[str, list[EntryPoint]]:
        """Map each name, sorted, to its entry points, without importing any."""
        entries: dict[str, list[EntryPoint]] = {}
        for entry in entry_points(group=self.group):
            claims = entries.setdefault(entry.name, [])
            # One package can be on the path twice.
            if entry.value not in [other.value for other in claims]:
                claims.append(entry)
        return dict(sorted(entries.items()))

    def load(
        self,
        name: str,
        distribution: str | None = None,
        entries: dict[str, list[EntryPoint]] | None = None,
    ) -> type:
        """Load the class registered as ``name``.

        Args:
            name: The name.
            distribution: The distribution that defines it; None if only one does.
            entries: From :meth:`entries`, so that they are not searched again.

        Raises:
            PluginError: If the name is unknown (suggests the nearest) or ambiguous, or its module
                does not import.
        """
        entries = entries or self.entries()
        if name not in entries:
            kind = self.group.rpartition(".")[2].removesuffix("s")
            names = [*entries]
            if self.also:
                names += self.also.entries()
            raise PluginError(f"unknown {kind} {name!r}{suggestion(name, names)}")
        claims = entries[name]
        if distribution is not None:
            claims = [entry for entry in claims if _is_of(entry, distribution)]
        if len(claims) != 1:
            owners = ", ".join(sorted(map(_owner_of, entries[name])))
            raise PluginError(
                f"{name!r} in {self.group} is defined by {owners}; write DISTRIBUTION:{name}"
            )
        [entry] = claims
        try:
            component: type = entry.load()
            return component
        except Exception as error:
            problem = f"does not load ({entry.value}): {type(error).__name__}: {error}"
            raise PluginError(f"{name!r} of {_owner_of(entry)} {problem}") from error

    def create(self, spec: str) -> Any:
        """Create the component of a spec with its parameters.

        Raises:
            PluginError: See :meth:`load`.
            ConfigError: If a parameter is unknown or its value is not allowed.
        """
        require(isinstance(spec, str), "spec", spec, "text: a name, or name:parameter=value,...")
        name, _, tail = spec.partition(":")
        distribution = None
        entries = self.entries()
        if name not in entries:
            claims = chain.from_iterable(entries.values())
            if any(_is_of(entry, name) for entry in claims):
                distribution = name
                name, _, tail = tail.partition(":")
        cls = self.load(name, distribution, entries)
        positional, keywords = parse_arguments(tail, spec)
        return build(cls, spec, positional, keywords)


def _is_of(entry: EntryPoint, distribution: str) -> bool:
    """Return whether an entry point belongs to a distribution."""
    return entry.dist is not None and entry.dist.name == distribution


def _owner_of(entry: EntryPoint) -> str:
    """Name the distribution of an entry point; ``?`` if it has none."""
    return entry.dist.name if entry.dist else "?"


def is_importable(module: str) -> bool:
    """Return True if a module is installed; imports only its parent packages."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # its parent is missing, or the name is invalid
        return False


def parse_arguments(text: str, spec: str) -> tuple[list[Any], dict[str, Any]]:
    """Parse ``bert-base-uncased,layer=-2`` into positional and keyword arguments.

    Their values have the types of YAML.
    """
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            if keywords:
                raise ConfigError(
                    f"{spec!r}: {part!r} has no key; put it before the parameters with keys"
                )
            positional.append(_parse_value(part, spec))
        elif key in keywords:
            raise ConfigError(f"{spec!r}: {key!r} is given twice")
        else:
            keywords[key] = _parse_value(value, spec)
    return positional, keywords


def _parse_value(text: str, spec: str) -> Any:
    """Parse a value as YAML."""
    return parse_yaml(text, f"{spec!r}: {text[:60]!r}")


def check_plain(hint: Any, value: Any, key: str) -> None:
    """Refuse a value that is not of its parameter's plain type.

    Other types are checked by the component.
    """
    # This imports pydantic, which dana --help does not need.
    from dana.core.settings import check_value, is_plain

    if is_plain(hint):
        check_value(hint, value, key)


def build(cls: type, spec: str, positional: list[Any], keywords: dict[str, Any]) -> Any:
    """Call ``cls`` with the arguments of a spec.

    Raises:
        ConfigError: If an argument is wrong; shows the spec.
        PluginError: If the class raises another error.
    """
    signature = _signature_of(cls)
    try:
        arguments = signature.bind(*positional, **keywords).arguments
    except TypeError as error:
        parameters = signature.parameters.values()
        names = ", ".join(str(part) for part in parameters if part.kind != part.KEYWORD_ONLY)
        raise ConfigError(
            f"{spec!r}: {error}. {cls.__name__} takes: {names or 'nothing'}"
        ) from error
    for name, value in arguments.items():
        check_plain(signature.parameters[name].annotation, value, f"{spec!r}: {name}")
    try:
        return cls(*positional, **keywords)
    except ConfigError as error:  # the name alone: a parameter may be a secret
        raise ConfigError(f"{spec.partition(':')[0]}: {error}") from error
    except DanaError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{spec!r}: {error}") from error
    except Exception as error:  # a plug-in may raise anything
        raise PluginError(
            f"{spec!r} of {cls.__module__}: {type(error).__name__}: {error}"
        ) from error


def _signature_of(cls: type) -> inspect.Signature:
    """Return the signature of a class; the types of a settings model are without their ranges."""
    signature = inspect.signature(cls)
    if not hasattr(cls, "__pydantic_fields__"):
        return signature
    kinds = get_type_hints(cls)
    parameters = []
    for part in signature.parameters.values():
        parameters.append(part.replace(annotation=kinds.get(part.name, part.annotation)))
    return signature.replace(parameters=parameters)


DETECTORS = Registry("dana.detectors")
ENCODERS = Registry("dana.encoders")
SELECTORS = Registry("dana.selectors", also=DETECTORS)  # a detector over the run's encoder is one
OBJECTIVES = Registry("dana.objectives")


OURS = "dana"  # the package
DISTRIBUTION = "dana-lm"  # its name on the package index, where another project has the name dana
RECORDED_PACKAGES = [
    "dana",
    "torch",
    "transformers",
    "accelerate",
    "scikit-learn",
    "pyod",
    "numpy",
    "sentencex",
    "datasketch",
]


def origin_of(component: Any) -> dict[str, Any]:
    """Identify the code of a component for fingerprints, by package, class and version.

    The version is the ``version`` attribute that the class itself defines; it is raised whenever
    the numbers that the class computes change, so moving, commenting or releasing the code changes
    no fingerprint. Without one it is the version of the distribution; without a distribution, a
    digest of the source.

    Args:
        component: An object or a class. A wrapper names the wrapped object in its ``made_by``.

    Returns:
        ``package``, ``class``, ``version`` and, for a wrapper, ``made_by``: the same of the wrapped
        object.
    """
    cls = component if isinstance(component, type) else type(component)
    origin: dict[str, Any] = dict(_origin_of_class(cls))
    wrapped = getattr(component, "made_by", None)
    if wrapped is not None:
        origin["made_by"] = origin_of(wrapped)
    return origin


@contextmanager
def plugin_errors(kind: str, spec: str, component: Any) -> Iterator[None]:
    """Turn errors of a component's code into a PluginError that names component and package.

    Args:
        kind: ``detector`` or ``encoder``.
        spec: Spec of the component.
        component: The object whose code runs in the block.

    Raises:
        PluginError: For any error but those of dana.
    """
    try:
        yield
    except DanaError:
        raise
    except Exception as error:
        package = type(getattr(component, "candidate", component)).__module__.partition(".")[0]
        message = " ".join(str(error).split())
        raise PluginError(
            f"{kind} {spec!r} of {package}: {type(error).__name__}: {message}"
        ) from error


_owners = cache(packages_distributions)  # reads the metadata of every installed package


@cache
def _origin_of_class(cls: type) -> dict[str, str | int]:
    package = cls.__module__.partition(".")[0]
    owner = _distribution_of(package)
    number = vars(cls).get("version")  # not inherited: a subclass computes other numbers
    if not isinstance(number, str | int):
        number = version(owner) if owner else f"source {_source_digest(cls)}"
        for base in cls.__mro__[1:]:
            base_number = vars(base).get("version")
            if isinstance(base_number, str | int):
                number += f", {base.__qualname__} {base_number}"
    return {"package": owner or package, "class": cls.__qualname__, "version": number}


def _distribution_of(package: str) -> str | None:
    """Return the distribution of a top-level package; None if it is not installed."""
    if package == OURS:
        return OURS
    return next(iter(_owners().get(package, [])), None)


def _source_digest(cls: type) -> str:
    """Compute a digest of the file that defines a class, or of the class's text in a notebook."""
    try:
        file = inspect.getsourcefile(cls)
        is_file = file is not None and Path(file).is_file()
        source = Path(file).read_bytes() if file and is_file else inspect.getsource(cls).encode()
        return blake2b(source, digest_size=16).hexdigest()
    except (OSError, TypeError):
        return token_hex(16)  # unknown source: never equal to that of another process


def other_owners() -> list[str]:
    """Find other installed distributions with a package ``dana``.

    They may overwrite files of this one.
    """
    owners = []
    for distribution in distributions():
        modules = (distribution.read_text("top_level.txt") or "").split()
        records = ""
        if not modules:
            records = distribution.read_text("RECORD") or ""
        if OURS not in modules and f"\n{OURS}/" not in f"\n{records}":
            continue  # before the metadata are parsed, which takes a tenth of a second for all
        # Without metadata it is what a build left in a checkout.
        is_installed = distribution.read_text("METADATA") is not None
        if is_installed and distribution.name != DISTRIBUTION:
            owners.append(f"{distribution.name} {distribution.version}")
    return sorted(set(owners))


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide results."""
    versions = {"python": platform.python_version()}
    for name in RECORDED_PACKAGES:
        try:
            versions[name] = version(DISTRIBUTION if name == OURS else name)
        except PackageNotFoundError:
            continue
    return versions
