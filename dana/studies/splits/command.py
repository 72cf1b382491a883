"""The command that splits parallel text and audits splits: ``dana splits``."""

import argparse
from pathlib import Path

from dana.cli.flags import AddCommand, add_command, local_folder


def add_splits(add: AddCommand) -> None:
    """Add the command.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    splits = add_command(add, "splits", _splits, settings=False)
    splits.add_argument("action", choices=["make", "audit"])
    folders = "audit: folders with train, dev and test files, see below"
    splits.add_argument("folders", type=local_folder, nargs="*", metavar="DIR", help=folders)
    domain = "make: a domain's name, its source and its target file, or one file; once for each domain"
    splits.add_argument("--domain", nargs="+", action="append", metavar=("NAME", "FILE"), help=domain)
    sides = "names of both sides, or fields of JSONL, CSV, TSV, Parquet that hold them (default: source target)"
    splits.add_argument("--sides", nargs="+", metavar="SIDE", help=sides)
    for name in ("dev", "test"):
        pairs = f"make: pairs of {name}, a domain (default: 2000)"
        splits.add_argument(f"--{name}", type=int, metavar="N", default=2000, help=pairs)
    splits.add_argument("--cap", type=int, metavar="N", help="make: at most so many pairs of train, a domain")
    splits.add_argument("--seed", type=int, default=0, help="make: of the draw of dev and test (default: 0)")
    out = "folder of the splits; of the audit's table as CSV"
    splits.add_argument("--out", type=local_folder, metavar="DIR", help=out)


def _splits(parsed: argparse.Namespace) -> None:
    """Split parallel text into train, dev and test that share no line, or audit splits that are there.

    make    keep the first of all pairs with the same source or the same target, draw dev and test of each domain, cap
            what is left. Two plain-text files, aligned line by line (.gz, .zst), or one .jsonl, .csv, .tsv or .parquet
            with both sides. Writes OUT/NAME/train.parquet, dev, test (line, and a column a side), OUT/sizes.csv and the
            audit, OUT/overlap.csv.
    audit   the share of dev and test lines that are also in train, by either side. DIR holds train.de train.en dev.de
            dev.en test.de test.en, or train.parquet ..., or folders of such, one a domain.

      dana splits make --domain it it.de.gz it.en.gz --domain law law.de law.en --sides de en --cap 500000 --out split
      dana splits audit split somebody/elses --sides de en
    """
    from dana.core.errors import ConfigError
    from dana.studies.splits import stage
    from dana.studies.splits.aligned import open_aligned

    if parsed.action == "audit":
        if not parsed.folders:
            raise ConfigError("splits audit: name folders with train, dev and test files")
        print(stage.overlap_text(stage.audit_folders(parsed.folders, parsed.sides, parsed.out)))
        return
    if parsed.out is None or not parsed.domain:
        raise ConfigError("splits make: --domain NAME SOURCE TARGET and --out DIR are needed")
    domains = {}
    for name, *files in parsed.domain:
        if name in domains or len(files) not in (1, 2):
            raise ConfigError(f"--domain {name}: must be given once, and followed by one or two files")
        domains[name] = open_aligned([Path(file) for file in files], parsed.sides)
    sizes = stage.SplitSettings(parsed.dev, parsed.test, parsed.cap, parsed.seed)
    artifact = stage.splits_stage(domains, parsed.out, sizes)
    print(stage.sizes_text(artifact.path))
    print(f"\n{stage.overlap_text(stage.read_overlap(artifact.path))}\n\nwritten: {artifact.path}")
