"""The command ``dana studies splits``."""

import argparse
from pathlib import Path

from dana.cli.flags import AddCommand, add_command, add_remake, local_folder


def add_splits(add: AddCommand) -> None:
    """Add the command to the command line's subparsers."""
    splits = add_command(add, "splits", _splits, settings=False)
    add_remake(splits)
    splits.add_argument("action", choices=["make", "audit"])
    folders = "audit: folders with train, dev and test files, see below"
    splits.add_argument("folders", type=local_folder, nargs="*", metavar="DIR", help=folders)
    domain = (
        "make: name of a domain and its source and target file, or one file with both; repeat for"
        " each domain"
    )
    splits.add_argument(
        "--domain", nargs="+", action="append", metavar=("NAME", "FILE"), help=domain
    )
    sides = "names of both sides; fields of JSONL, CSV, TSV, Parquet (default: source target)"
    splits.add_argument("--sides", nargs="+", metavar="SIDE", help=sides)
    for name in ("dev", "test"):
        pairs = f"make: pairs of {name} per domain (default: 2000)"
        splits.add_argument(f"--{name}", type=int, metavar="N", default=2000, help=pairs)
    splits.add_argument(
        "--cap", type=int, metavar="N", help="make: maximum pairs of train per domain"
    )
    splits.add_argument(
        "--seed", type=int, default=0, help="make: seed of dev and test (default: 0)"
    )
    out = "folder of the splits, or of the audit's table"
    splits.add_argument("--out", type=local_folder, metavar="DIR", help=out)


def _splits(args: argparse.Namespace) -> None:
    """Split parallel text into train, dev and test without common lines, or audit existing splits.

    make    Drops pairs that repeat a source or target line, draws dev and test of each domain, and caps train. Input
            is two plain-text files, aligned line by line (.gz, .zst), or one .jsonl, .csv, .tsv or .parquet with both
            sides. Writes OUT/NAME/train.parquet, dev, test (line number, and one column per side), OUT/sizes.csv and
            the audit, OUT/overlap.csv.
    audit   Shows the share of dev and test lines that are also in train, by side. DIR holds train.de train.en dev.de
            dev.en test.de test.en, or train.parquet ..., or one such folder per domain.

      dana studies splits make --domain law law.de law.en --sides de en --cap 9000 --out x
      dana studies splits audit x somebody/elses --sides de en
    """
    from dana.core.errors import ConfigError
    from dana.core.remake import call_remaking
    from dana.studies.splits import stage
    from dana.studies.splits.aligned import open_aligned

    if args.action == "audit":
        if not args.folders:
            raise ConfigError("splits audit: name folders with train, dev and test files")
        print(stage.overlap_text(stage.audit_folders(args.folders, args.sides, args.out)))
        return
    if args.out is None or not args.domain:
        raise ConfigError("splits make: give --domain NAME SOURCE TARGET and --out DIR")
    domains = {}
    for name, *files in args.domain:
        if name in domains or len(files) not in (1, 2):
            raise ConfigError(f"--domain {name}: must be given once, with one or two files")
        domains[name] = open_aligned([Path(file) for file in files], args.sides)
    sizes = stage.SplitSettings(args.dev, args.test, args.cap, args.seed)
    artifact = call_remaking(lambda: stage.splits_stage(domains, args.out, sizes), args.remake)
    print(stage.sizes_text(artifact.path))
    print(f"\n{stage.overlap_text(stage.read_overlap(artifact.path))}\n\nwritten: {artifact.path}")
