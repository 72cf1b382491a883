"""The command that lists, shows and checks task cards: ``dana tasks``."""

import argparse
from pathlib import Path

from dana.cli.flags import MANY, AddCommand, Flag, add_command

OF_ACTION = {"tag": "list", "corpus": "check", "strict": "check", "out": "check"}  # flags one action alone looks at
TASK_PATH = "folders whose cards are found by name, beside the shipped ones and those under DANA_TASK_PATH"
OUT = "check: folder for splits, labels, overlap ... as CSV (default: none is written)"
FLAGS = [
    Flag("--data", "data", "folder that holds a card's data, where it is not under DANA_DATA"),
    Flag("--task-path", "task_path", TASK_PATH, MANY),
    Flag("--out", "out", OUT),
]


def add_task_cards(add: AddCommand) -> None:
    """Add the command.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    tasks = add_command(add, "tasks", _tasks, FLAGS, settings=False)
    tasks.add_argument("action", choices=["list", "show", "check"])
    tasks.add_argument("name", nargs="?", metavar="NAME", help="a task card's name or YAML file, for all but list")
    tasks.add_argument("--tag", metavar="TAG", help="list: only the cards with this tag")
    corpus = "check: text whose overlap with the test split is measured: files, folders, globs, URLs or hf: names"
    tasks.add_argument("--corpus", nargs="+", metavar="FILE", help=corpus)
    tasks.add_argument("--strict", action="store_true", help="check: exit code 1 if there is a warning")


def _tasks(parsed: argparse.Namespace) -> None:
    """List the task cards, show one, or check one's data.

    list       a line a card: metric, number of labels, expected examples by split, whether its data is here (or named
               on the Hub, or missing), tags
    show       the whole card as it is used, its file and where its data was found
    check      read every split and report sizes, label shares and their drift from train, lengths, empty texts,
               duplicates, and texts that splits share exactly or nearly; a warning says what to do

      dana tasks check acl_arc --corpus 'pool/*.jsonl.gz' --out checks/acl_arc
    """
    from dana.core.errors import ConfigError, Warned
    from dana.core.text_table import aligned
    from dana.stages.check_task import check_task
    from dana.tasks.card import load_card
    from dana.tasks.finder import card_names, search_in
    from dana.tasks.tables import card_rows, card_text

    _check_flags(parsed)
    search_in(parsed.task_path or [])
    if parsed.action == "list":
        if parsed.name:
            raise ConfigError(f"tasks list: takes no name; to look at one: dana tasks show {parsed.name}")
        print(aligned(card_rows(map(load_card, card_names()), parsed.data, parsed.tag)))
    elif not parsed.name:
        raise ConfigError(f"tasks {parsed.action}: name one, for example: dana tasks {parsed.action} chemprot")
    elif parsed.action == "show":
        print(card_text(load_card(parsed.name), parsed.data), end="")
    else:
        check = check_task(parsed.name, parsed.data, parsed.corpus or (), Path(parsed.out) if parsed.out else None)
        print(check)
        if parsed.strict and check.warnings:
            raise Warned(f"{parsed.name}: the check has warnings, see above ({len(check.warnings)})")


def _check_flags(parsed: argparse.Namespace) -> None:
    """Refuse flags that the action does not look at.

    Raises:
        ConfigError: Naming the flag.
    """
    from dana.core.errors import ConfigError

    given = {flag: action for flag, action in OF_ACTION.items() if getattr(parsed, flag)}
    for flag, action in given.items():
        if parsed.action != action:
            raise ConfigError(f"tasks {parsed.action}: --{flag.replace('_', '-')} belongs to {action}")
