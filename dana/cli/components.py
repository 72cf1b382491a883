"""The commands that list components and check one: ``dana detectors``, ``selectors``, ``encoders``, ``objectives``."""

import argparse
from importlib import import_module

from dana.cli.flags import AddCommand, add_command, add_group

EXAMPLES = {"detectors": "knn", "selectors": "random", "encoders": "hashing", "objectives": ""}  # for the help of check


def add_components(add: AddCommand) -> None:
    """Add the commands.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    for kind, example in EXAMPLES.items():
        group = add_group(add, kind, f"List the {kind}, with plug-ins{', or check one' if example else ''}")
        listing = add_command(group, "list", _list, settings=False)
        listing.set_defaults(kind=kind)
        if example:
            check = add_command(group, "check", _check, settings=False)
            check.set_defaults(kind=kind)
            check.add_argument("name", help=f"a name or spec, for example {example}")


def _list(args: argparse.Namespace) -> None:
    """List name, package and description of each, one per line."""
    from dana.core.errors import PluginError
    from dana.core.registry import Registry, is_importable

    registry = Registry(f"dana.{args.kind}")
    for name, claims in registry.entries().items():
        try:
            description = (registry.load(name).__doc__ or "").strip().partition("\n")[0]
        except PluginError as error:
            absent = [claim.module for claim in claims if not is_importable(claim.module)]
            description = f"missing: no module {absent[0]}" if absent else f"broken: {error}"
        print(f"{name:<20} {claims[0].dist.name if claims[0].dist else '?':<12} {description}")


def _check(args: argparse.Namespace) -> None:
    """Check one against the contract of its kind; print one line per check."""
    from dana.core.errors import PluginError

    results = getattr(import_module("dana.selectors.checks"), f"check_{args.kind.removesuffix('s')}")(args.name)
    print("\n".join(map(str, results)))
    failures = sum(not result.passed for result in results)
    if failures:
        raise PluginError(f"{args.name} breaks {failures} of {len(results)} checks")
