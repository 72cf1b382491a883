"""Define commands and flags.

Each flag fills one setting, whose description and default are its ``--help`` line.
"""

import argparse
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from dana.core.errors import nearest, without_secrets
from dana.core.storage import is_url
from dana.core.studies import missing_studies

Run = Callable[[argparse.Namespace], Mapping[str, Any] | None]
AddCommand = Callable[..., argparse.ArgumentParser]  # add_parser of argparse's subparsers


@dataclass(frozen=True)
class Flag:
    """A flag and the setting it fills.

    Attributes:
        name: For example ``--beta``.
        setting: Full name of the setting, for example ``weigh.beta``.
        text: Description, instead of the setting's own.
        options: Further arguments of argparse's ``add_argument``.
    """

    name: str
    setting: str
    text: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


MANY = {"nargs": "+"}
INTEGERS = {"nargs": "+", "type": int}


def plain_flags(names: str, section: str = "") -> list[Flag]:
    """Make the flags that are named like their settings.

    Args:
        names: Names in words; one that ends in ``+`` takes several values.
        section: Section of the settings, with a dot.
    """
    flags = []
    for name in names.split():
        key = name.rstrip("+")
        flag = f"--{key.replace('_', '-')}"
        options = MANY if name.endswith("+") else {}
        flags.append(Flag(flag, section + key, options=options))
    return flags


def add_command(
    add: AddCommand,
    name: str,
    run: Run,
    flags: Sequence[Flag] = (),
    *,
    settings: bool = True,
    folder: str = "",
    reads: Sequence[str] | None = (),
    json: bool = False,
) -> argparse.ArgumentParser:
    """Add a command to the command line.

    Args:
        add: ``add_parser`` of argparse's subparsers.
        name: Name of the command.
        run: Function of the command, which returns what ``--json`` prints. Its docstring is the
            ``--help``, the first line that of ``dana --help``.
        flags: The settings that are flags.
        settings: Whether it also takes ``--config`` and ``--set``.
        folder: What the run's folder must hold; empty if the command takes no DIR.
        reads: Sections of the settings that it uses besides those of its flags; None for all.
        json: Whether it takes ``--json``.
    """
    text = inspect.getdoc(run) or ""
    first = text.partition("\n")[0].rstrip(".")
    parser = add(name, help=first, description=text, formatter_class=HelpFormatter)
    if folder:
        parser.add_argument(
            "folder", type=local_folder, metavar="DIR", help=f"a run's folder, with {folder}"
        )
    for flag in flags:
        texts: dict[str, Any] = {"help": flag.text or flag.setting}
        texts["metavar"] = flag.name.removeprefix("--").replace("-", "_").upper()
        parser.add_argument(
            flag.name, action=FillSetting, dest=flag.setting, **texts, **flag.options
        )
    if settings:
        recipe = "a recipe's YAML, or the name of one that ships with dana; flags override it"
        parser.add_argument("--config", help=recipe)
        many: dict[str, Any] = {
            "nargs": "+",
            "action": "extend",
            "default": [],
            "metavar": "key=value",
        }
        parser.add_argument("--set", dest="overrides", help="other settings", **many)
    if json:
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object; all else goes to stderr"
        )
    flag_names = {flag.setting: flag.name for flag in flags}
    sections: list[str] = []  # which the command uses; empty for all
    if reads is not None:
        own_sections = dict.fromkeys(setting.partition(".")[0] for setting in flag_names)
        sections = [*own_sections, *reads]
    parser.set_defaults(
        run=run,
        command=parser.prog.removeprefix("dana "),
        flags=flag_names,
        reads=sections,
        processes=False,
        json=False,
    )
    return parser


def add_inputs(parser: Any) -> None:
    """Add ``--inputs`` to a command without settings."""
    parser.add_argument(
        "--inputs",
        nargs="+",
        default=[],
        metavar="key=value",
        help="how files are read, where looking at them finds something else: encoding, separator, "
        "quotes, header, skip_lines",
    )


def add_dry_run(parser: Any) -> None:
    """Add ``--dry-run`` to a command or a script."""
    text = "check the settings and say what would be done; write nothing"
    parser.add_argument("--dry-run", action="store_true", help=text)


def add_remake(parser: argparse.ArgumentParser) -> None:
    """Add ``--remake`` to a command that makes artifacts."""
    text = "replace what other settings have made, instead of refusing"
    parser.add_argument("--remake", action="store_true", help=text)


def add_group(add: AddCommand, name: str, text: str) -> AddCommand:
    """Add a command with subcommands.

    Args:
        add: ``add_parser`` of the command line's subparsers.
        name: Name of the command.
        text: Its line in ``dana --help``.

    Returns:
        Function that adds a subcommand.
    """
    parser = add(name, help=text, description=text)
    return parser.add_subparsers(required=True, metavar="ACTION").add_parser


def local_folder(text: str) -> Path:
    """Convert an argument to a local folder; a URL is refused."""
    if is_url(text):
        hint = "copy it to a local folder, for example with aws s3 sync"
        raise argparse.ArgumentTypeError(f"{text}: is a URL, and runs need a local folder; {hint}")
    return Path(text)


class Parser(argparse.ArgumentParser):
    """Argument parser whose errors are one line with the nearest flag or command."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown arguments here, where the flags of the command are available."""
        args, unknown = super().parse_known_args(args, namespace)
        if unknown:
            flag = unknown[0].partition("=")[0]
            near = nearest(flag, self._option_string_actions) if flag.startswith("-") else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return args, unknown

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with code 2."""
        text = without_secrets(message)
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if choice is not None:
            word, choices = choice.groups()
            near = _nearest_command(self, word, re.findall(r"[\w-]+", choices))
            text = without_secrets(f"{message}{near}")
            reason = missing_studies().get(word.replace("-", "_"))
            if reason:
                text = f"study {word}: {reason}"
        self.exit(2, f"dana: error: {text}; see {self.prog} --help\n")


def _nearest_command(parser: argparse.ArgumentParser, word: str, choices: Sequence[str]) -> str:
    """Suggest the command that has a word's name in a group, else the nearest of the choices."""
    paths = {}
    for name, subparser in _subparsers(parser).items():
        for command in _subparsers(subparser):
            paths[command] = f"{name} {command}"
    if word in paths:
        return f"; did you mean '{paths[word]}'?"
    return nearest(word, choices)


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the commands of a parser with their parsers."""
    commands = {}
    for action in parser._actions:
        if isinstance(action.choices, dict):
            commands.update(action.choices)
    return commands


class FillSetting(argparse.Action):
    """Store the value of a flag under the full name of its setting."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        """Store the value; argparse calls this for each flag of the command line."""
        setattr(namespace, self.dest, self.const if self.nargs == 0 else values)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help of a flag: the help of its setting, with its range and default."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if not isinstance(action, FillSetting):
            return action.help
        from dana.core.settings import find_setting, range_of
        from dana.stages.settings import RunSettings

        setting = find_setting(RunSettings, action.dest)
        text = setting.help if action.help == action.dest else str(action.help)
        notes = [range_of(setting.hint)]
        if "(default" not in text and setting.default not in (None, "", []):
            notes.append(f"default: {_plain(setting.default)}")
        note = "; ".join(filter(None, notes))
        if note:
            text = f"{text} ({note})"
        return text.replace("%", "%%")


def _plain(value: Any) -> str:
    """Format a default as it would be typed."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)
