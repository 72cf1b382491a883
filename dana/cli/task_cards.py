"""The command that lists, shows and checks task cards: ``dana tasks``."""

import argparse

from dana.cli.flags import AddCommand, add_command

OF_ACTION = {"tag": "list"}  # flags that one action alone looks at


def add_task_cards(add: AddCommand) -> None:
    """Add the command.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    tasks = add_command(add, "tasks", _tasks, settings=False)
    tasks.add_argument("action", choices=["list", "show"])
    tasks.add_argument("name", nargs="?", metavar="NAME", help="show: a task card's name or YAML file")
    tasks.add_argument("--data", metavar="DIR", help="folder that holds a card's data, where it is not under DANA_DATA")
    tasks.add_argument("--tag", metavar="TAG", help="list: only the cards with this tag")


def _tasks(parsed: argparse.Namespace) -> None:
    """List the task cards, or show one.

    list    a line a card: metric, number of labels, expected examples by split, whether its data is here (or named on
            the Hub, or missing), tags
    show    the whole card as it is used, its file and where its data was found
    """
    from dana.core.errors import ConfigError
    from dana.core.text_table import aligned
    from dana.tasks.card import card_names, load_card
    from dana.tasks.described import card_rows, card_text

    for flag, action in OF_ACTION.items():
        if getattr(parsed, flag) and parsed.action != action:
            raise ConfigError(f"tasks {parsed.action}: --{flag} belongs to {action}")
    if parsed.action == "list":
        if parsed.name:
            raise ConfigError(f"tasks list: takes no name; to look at one: dana tasks show {parsed.name}")
        print(aligned(card_rows(map(load_card, card_names()), parsed.data, parsed.tag)))
    elif parsed.name:
        print(card_text(load_card(parsed.name), parsed.data), end="")
    else:
        raise ConfigError(f"tasks {parsed.action}: name one, for example: dana tasks {parsed.action} chemprot")
