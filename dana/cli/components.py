"""The commands that list components and check one: ``dana detectors``, ``selectors``, ``encoders``, ``objectives``."""

import argparse
from importlib import import_module

from dana.cli.flags import AddCommand, add_command

CHECKED = {"detectors": "knn", "selectors": "random", "encoders": "hashing"}  # kind to a name to check


def add_components(add: AddCommand) -> None:
    """Add the commands.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    for kind, example in CHECKED.items():
        text = f"List the {kind}, plug-ins too, or check one against the contract"
        parser = add_command(add, kind, _components, settings=False, text=text)
        parser.add_argument("action", choices=["list", "check"])
        parser.add_argument("name", nargs="?", help=f"what to check: a name or spec, for example {example}")
    text = "List the objectives of training, plug-ins too"
    objectives = add_command(add, "objectives", _components, settings=False, text=text)
    objectives.add_argument("action", choices=["list"])
    objectives.set_defaults(name=None)


def _components(parsed: argparse.Namespace) -> None:
    """List the components of a kind, or check one against the contract."""
    from dana.core.errors import ConfigError

    kind = parsed.command
    if parsed.action == "list":
        if parsed.name:
            raise ConfigError(f"{kind} list: takes no name; to look at one: dana {kind} check {parsed.name}")
        print(_listed(kind))
    elif parsed.name:
        _check(kind, parsed.name)
    else:
        raise ConfigError(f"{kind} check: name one, for example: dana {kind} check {CHECKED[kind]}")


def _listed(kind: str) -> str:
    """A line a component: name, the package it is from, the first line of its docstring."""
    from dana.core.errors import PluginError
    from dana.core.registry import Registry, is_present

    registry, lines = Registry(f"dana.{kind}"), []
    for name, claims in registry.entries().items():
        try:
            says = (registry.load(name).__doc__ or "").strip().partition("\n")[0]
        except PluginError as error:
            absent = [claim.module for claim in claims if not is_present(claim.module)]
            says = f"missing: there is no module {absent[0]}" if absent else f"broken: {error}"
        lines.append(f"{name:<20} {claims[0].dist.name if claims[0].dist else '?':<12} {says}")
    return "\n".join(lines)


def _check(kind: str, name: str) -> None:
    """Print the outcome of every check of the contract.

    Raises:
        PluginError: If one failed.
    """
    from dana.core.errors import PluginError

    results = getattr(import_module("dana.selectors.checks"), f"check_{kind.removesuffix('s')}")(name)
    print("\n".join(map(str, results)))
    failed = sum(not result.passed for result in results)
    if failed:
        raise PluginError(f"{name} breaks {failed} of {len(results)} checks")
