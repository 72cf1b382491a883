"""The command for embedding stores: ``dana store``."""

import argparse
from typing import TYPE_CHECKING

from dana.cli.flags import AddCommand, add_command, local_folder

if TYPE_CHECKING:
    from dana.core.shared import Shared


def add_stores(add: AddCommand) -> None:
    """Add the command.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    store = add_command(add, "store", _store, settings=False)
    store.add_argument("action", choices=["info", "verify", "prune"])
    store.add_argument("folder", type=local_folder, metavar="DIR", help="of --store or --share, or a run's")
    store.add_argument("--keep", nargs="+", metavar="ENCODER", help="prune: only these, by id or name, see info")
    store.add_argument("--max-bytes", metavar="SIZE", help="prune: drop the oldest segments until it fits, e.g. 200G")


def _store(parsed: argparse.Namespace) -> None:
    """Look into an embedding store or a shared folder, check it, or make it smaller.

    info    what it holds: encoders, rows, bytes, dtype; of what --share named also corpora and tokens, and how many
            runs have them: 0 is in use by none. Any of these folders may be removed: runs keep their files
    verify  read all of it: digests, order of keys, checksums, finite values; encode a few stored texts again
    prune   keep only some encoders (--keep), drop the oldest segments until it fits (--max-bytes); always remove
            damaged segments and files that dead processes left unfinished

    A store is a cache: whatever is pruned or damaged is encoded again when it is next asked for.
    """
    from dana.core.errors import ArtifactError, ConfigError
    from dana.core.shared import describe_shared
    from dana.stages.stores import describe_store, parse_bytes, prune_store, verify_store

    if parsed.action != "prune" and (parsed.keep or parsed.max_bytes):
        raise ConfigError(f"store {parsed.action}: --keep and --max-bytes belong to prune")
    if parsed.action == "prune" and not (parsed.keep or parsed.max_bytes):
        raise ConfigError("store prune: give --keep ENCODER ... for what stays, or --max-bytes SIZE for how much")
    store = parsed.folder / "embeddings"
    store = store if store.is_dir() else parsed.folder
    if parsed.action == "info":
        if shared := list(describe_shared(parsed.folder)):
            print("\n".join(["kind       runs              bytes  folder", *map(_line, shared), ""]))
        rows = describe_store(store) if store != parsed.folder or not shared else []
        if rows:
            print(f"{'id':<12} {'encoder':<28} {'dtype':<8} {'dims':>5} {'segments':>8} {'rows':>14} {'bytes':>18}")
        for row in rows:
            sizes = f"{row.dims:>5} {row.segments:>8} {row.rows:>14,} {row.size:>18,}"
            print(f"{row.name[:12]:<12} {row.spec:<28} {row.dtype:<8} {sizes}")
    elif parsed.action == "prune":
        most = parse_bytes(parsed.max_bytes) if parsed.max_bytes else None
        gone = prune_store(store, parsed.keep, most)
        segments = f"{gone.oldest} oldest, {gone.damaged} damaged, {gone.unfinished} unfinished"
        print(f"freed: {gone.freed:,} bytes ({gone.encoders} encoders, {segments})")
    else:
        verdicts = verify_store(store)
        for verdict in verdicts:
            again = f"{verdict.encoded} texts encoded again, largest difference {verdict.difference:.2g}"
            print(f"{verdict.name[:12]:<12} {verdict.rows:,} rows; {verdict.why_not or again}")
            print("".join(f"  {problem}\n" for problem in verdict.problems), end="")
        if flawed := sum(bool(verdict.problems) for verdict in verdicts):
            raise ArtifactError(f"{parsed.folder}: {flawed} of {len(verdicts)} encoders' rows have problems, see above")


def _line(one: "Shared") -> str:
    return f"{one.kind:<10} {one.links:>4} {one.size:>18,}  {one.kind}/{one.name}"
