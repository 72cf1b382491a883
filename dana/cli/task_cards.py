"""The command that lists, shows and checks task cards: ``dana tasks``."""

import argparse
from pathlib import Path

from dana.cli.flags import AddCommand, add_command

OF_ACTION = {
    "tag": "list",
    "corpus": "check",
    "out": "check",
    "strict": "check",
}  # flags that one action alone looks at


def add_task_cards(add: AddCommand) -> None:
    """Add the command.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    tasks = add_command(add, "tasks", _tasks, settings=False)
    tasks.add_argument("action", choices=["list", "show", "check"])
    tasks.add_argument("name", nargs="?", metavar="NAME", help="show, check: a task card's name or YAML file")
    tasks.add_argument("--data", metavar="DIR", help="folder that holds a card's data, where it is not under DANA_DATA")
    task_path = "folders whose cards are found by name, beside the shipped ones and those under DANA_TASK_PATH"
    tasks.add_argument("--task-path", nargs="+", default=[], metavar="DIR", help=task_path)
    tasks.add_argument("--tag", metavar="TAG", help="list: only the cards with this tag")
    corpus = "check: text whose overlap with the test split is measured: files, folders, globs or hf: names"
    tasks.add_argument("--corpus", nargs="+", metavar="FILE", help=corpus)
    tasks.add_argument("--out", type=Path, metavar="DIR", help="check: folder for splits, labels, overlap ... as CSV")
    tasks.add_argument("--strict", action="store_true", help="check: exit code 1 if there is a warning")


def _tasks(parsed: argparse.Namespace) -> None:
    """List the task cards, show one, or check one's data.

    list    a line a card: metric, number of labels, expected examples by split, whether its data is here (or named on
            the Hub, or missing), tags
    show    the whole card as it is used, its file and where its data was found
    check   read every split and report sizes, label shares and their drift from train, lengths, empty texts,
            duplicates, and texts that splits share exactly or nearly; a warning says what to do

      dana tasks check acl_arc --corpus 'pool/*.jsonl.gz' --out checks/acl_arc
    """
    from dana.core.errors import ConfigError, Warned
    from dana.core.text_table import aligned
    from dana.stages.check_task import check_task
    from dana.tasks.card import load_card
    from dana.tasks.described import card_rows, card_text
    from dana.tasks.finder import card_names, search_in

    search_in(parsed.task_path)
    for flag, action in OF_ACTION.items():
        if getattr(parsed, flag) and parsed.action != action:
            raise ConfigError(f"tasks {parsed.action}: --{flag} belongs to {action}")
    if parsed.action == "list":
        if parsed.name:
            raise ConfigError(f"tasks list: takes no name; to look at one: dana tasks show {parsed.name}")
        print(aligned(card_rows(map(load_card, card_names()), parsed.data, parsed.tag)))
    elif not parsed.name:
        raise ConfigError(f"tasks {parsed.action}: name one, for example: dana tasks {parsed.action} chemprot")
    elif parsed.action == "show":
        print(card_text(load_card(parsed.name), parsed.data), end="")
    else:
        check = check_task(parsed.name, parsed.data, parsed.corpus or (), parsed.out)
        print(check)
        if parsed.strict and check.warnings:
            raise Warned(f"{parsed.name}: the check has warnings, see above ({len(check.warnings)})")
