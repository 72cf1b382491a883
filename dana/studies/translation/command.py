"""The command ``dana studies translation``."""

import argparse
from dataclasses import replace

from dana.cli.flags import AddCommand, Flag, add_command, add_remake, plain_flags
from dana.cli.settings import settings_from
from dana.core.config import require

FLAGS = [
    *plain_flags("sides+ selectors+ targets+ share epochs", "translation."),
    *plain_flags("encoder", "selection."),
    *plain_flags("out"),
    Flag("--jobs", "jobs", "steps that run in parallel, each in its own process"),
]


def add_translation(add: AddCommand) -> None:
    """Add the command to the command line's subparsers."""
    command = add_command(
        add, "translation", _translation, FLAGS, reads=("translation", "selection", "detector")
    )
    add_remake(command)
    for name, text in (("train", "training"), ("dev", "development"), ("test", "test")):
        command.add_argument(
            f"--{name}",
            nargs="+",
            action="append",
            default=[],
            metavar=("NAME", "FILE"),
            help=f"name of a domain and its {text} text: source and target file, or one file with"
            " both; repeat",
        )


def _translation(args: argparse.Namespace) -> None:
    """Train translators on domains and on selected text, and test each on every domain.

    Trains a small Marian from scratch on the text of each domain, on all, and on the text that each
    of --selectors chooses for a domain, and translates every test set. Writes BLEU and chrF with
    sacrebleu's signatures, bootstrap intervals, paired tests and the correlation of BLEU with the
    cosine of domains: OUT/translation.html and OUT/tables. Sizes and training are settings (--set
    translation.layers=6 ...). If it is killed, the same command resumes.

      dana studies translation --train law l.de l.en --test law t.de t.en --train it i.parquet
      --test it j.parquet --out mt
    """
    from dana.core.remake import call_remaking
    from dana.studies.translation.stage import run_translation

    settings = settings_from(args)
    study = settings.section("translation")
    for split in ("train", "dev", "test"):
        values = getattr(args, split)
        names = [name for name, *_ in values]
        require(len({*names}) == len(names), f"--{split}", names, "each domain once")
        files = getattr(study, split) | {name: paths for name, *paths in values}
        study = replace(study, **{split: files})
    settings = replace(settings, **{"translation": study})
    page = call_remaking(lambda: run_translation(settings, args.remake), args.remake)
    print(page.with_suffix(".md").read_text(encoding="utf-8").partition("\n## What was read?")[0])
    print(f"written: {page}, {page.with_suffix('.md').name}, tables/")
