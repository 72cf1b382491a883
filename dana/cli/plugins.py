"""The commands of components: ``dana plugins list`` and ``check``."""

import argparse
from importlib import import_module
from typing import Any

from dana.cli.flags import AddCommand, add_command, add_group
from dana.core.text_table import tabulate

KINDS = ("detector", "selector", "encoder", "objective")


def add_plugins(add: AddCommand) -> None:
    """Add the commands.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    group = add_group(add, "plugins", "detectors, selectors, encoders and objectives, own and installed: list, check")
    listing = add_command(group, "list", _list, settings=False, json=True)
    listing.add_argument("kind", nargs="?", choices=KINDS, help=f"{', '.join(KINDS)} (default: all)")
    check = add_command(group, "check", _check, settings=False)
    check.add_argument("kind", choices=KINDS[:3], help=", ".join(KINDS[:3]))
    check.add_argument("name", help="a name or spec, for example knn or knn:k=10")


def _list(args: argparse.Namespace) -> dict[str, Any]:
    """List kind, name, package and description of each component, one per line."""
    from dana.core.errors import PluginError
    from dana.core.registry import Registry, is_importable

    rows = []
    for kind in [args.kind] if args.kind else KINDS:
        registry = Registry(f"dana.{kind}s")
        for name, claims in registry.entries().items():
            try:
                description = (registry.load(name).__doc__ or "").strip().partition("\n")[0]
            except PluginError as error:
                absent = [claim.module for claim in claims if not is_importable(claim.module)]
                description = f"missing: no module {absent[0]}" if absent else f"broken: {error}"
            package = claims[0].dist.name if claims[0].dist else "?"
            rows.append({"kind": kind, "name": name, "package": package, "description": description})
    print(tabulate(rows))
    return {"plugins": rows}


def _check(args: argparse.Namespace) -> None:
    """Check one against the contract of its kind; print one line per check."""
    from dana.core.errors import PluginError

    results = getattr(import_module("dana.selectors.checks"), f"check_{args.kind}")(args.name)
    print("\n".join(map(str, results)))
    failures = sum(not result.passed for result in results)
    if failures:
        raise PluginError(f"{args.name} breaks {failures} of {len(results)} checks")
