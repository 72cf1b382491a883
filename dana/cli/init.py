"""The command ``dana init``: from a table of labelled texts and a pool to the folder of a run."""

import argparse

from dana.cli.flags import AddCommand, add_command, local_folder
from dana.cli.settings import next_command

COLUMNS = {
    "text": "column of the text (default: text, or else the column with the most words)",
    "label": "column of the label (default: one with a usual name, or else the only one whose values repeat)",
    "group": "column of a group, for example an author, whose texts stay in one fold",
}


def add_init(add: AddCommand) -> None:
    """Add the command.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    init = add_command(add, "init", _init, settings=False)
    table = "labelled texts: CSV, TSV, JSON lines, Parquet, Excel, or a folder with a folder of text files per label"
    init.add_argument("table", metavar="TABLE", help=table)
    init.add_argument("--pool", nargs="+", required=True, help="general text: files, folders, globs or URLs")
    init.add_argument("--out", type=local_folder, metavar="FOLDER", help="(default: the name of TABLE without suffix)")
    for name, text in COLUMNS.items():
        init.add_argument(f"--{name}", metavar="FIELD", help=text)
    init.add_argument("--test", metavar="FILE", help="labelled texts to test on, instead of folds")
    init.add_argument("--folds", type=int, help="number of folds (default: 5; one fixed split above 5,000 rows)")


def _init(args: argparse.Namespace) -> None:
    """Prepare a run from a table of labelled texts and a pool of other documents.

    Finds separator, encoding and columns by looking, drops repeats, divides the texts into stratified folds, compares
    the pool with them, and writes FOLDER with card.yaml, texts.parquet, recipe.yaml and init.json. It says how small a
    difference so many texts can show, and how long the run takes here. Then: dana run FOLDER.
    """
    from dana.stages.init import init

    options = {name: getattr(args, name) for name in (*COLUMNS, "test", "folds")}
    folder = init(args.table, args.pool, args.out, **options)
    print(next_command("run", folder, "--quick", note="then without --quick"))
