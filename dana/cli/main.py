"""Run a command of the command line: parse it, set up logging and turn errors into exit codes."""

import argparse
import atexit
import io
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stderr, redirect_stdout
from importlib.metadata import version
from typing import Any

from dana.cli.files import add_files, add_plugins
from dana.cli.flags import Parser, add_dry_run, add_group
from dana.cli.runs import add_runs
from dana.cli.selection import add_selection
from dana.cli.tasks import add_tasks, add_training
from dana.core.errors import ConfigError, DanaError, FirstProcessError, without_secrets
from dana.core.launch import (
    busy_text,
    leave_launch,
    processes,
    report_errors_once,
    stop_on_signal,
    use_all_cores,
)
from dana.core.logging import (
    Heartbeat,
    format_duration,
    get_logger,
    is_main_process,
    progress,
    setup,
)
from dana.core.registry import DISTRIBUTION, other_owners
from dana.core.studies import load_object, missing_studies, studies

log = get_logger(__name__)

EPILOG = """\
a table of labelled texts and other text, from start to verdict:
  dana init tickets.csv --pool pool/
  dana run tickets --quick

a text file and other text, step by step:
  dana score --task notes.txt --pool 'pool/*.jsonl.gz' --out runs/notes
  dana weigh runs/notes --policy segments --beta 0.2
  dana adapt runs/notes --model dana-mini --steps 100

without data of yours:
  dana quickstart

--config RECIPE.yaml and --set key=value ... give any other setting, as --set adapt.warmup=0.1"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    It is 0, 1 for warnings of a strict check, 2 for errors, and 75 after a stop.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    return _answer(lambda: build_parser(words), words)


def run_script(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], object],
    arguments: Sequence[str] | None = None,
) -> int:
    """Run a script like a command: errors in one line, a stop that saves; returns its exit code.

    Args:
        parser: Parser of the script; gets ``--dry-run``.
        run: Called with the parsed arguments; with ``dry_run`` among them it says what it would do,
            and writes nothing.
        arguments: Words of the command line.
    """
    add_dry_run(parser)
    parser.set_defaults(run=run, json=False, processes=False, verbose=False)
    words = sys.argv[1:] if arguments is None else list(arguments)
    return _answer(lambda: parser, words)


def _answer(build: Callable[[], argparse.ArgumentParser], words: list[str]) -> int:
    """Parse words and run what they name; returns an exit code."""
    _write_utf8()
    args = argparse.Namespace()
    try:
        with report_errors_once():
            with _errors_of_first_process():
                build().parse_args(words, args)
            _check_not_empty(words)
            setup(args.verbose)
            use_all_cores()
            _refuse_other_owners()
            _run(args)
        return 0
    except FirstProcessError as error:
        return error.exit_code
    except BrokenPipeError:  # the reader, for example `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (DanaError, OSError, MemoryError) as error:
        progress.write(f"dana: error: {_describe(error)}", file=sys.stderr)
        return getattr(error, "exit_code", DanaError.exit_code)
    except KeyboardInterrupt:
        print(
            "dana: interrupted; finished work is saved, and the same command resumes",
            file=sys.stderr,
        )
        # A second Ctrl-C while Python ends would show a traceback of torch.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
        return 130


def _refuse_other_owners() -> None:
    """Refuse to work beside another project that installs a package ``dana``.

    Both write the same files, so nobody knows whose code would run.

    Raises:
        ConfigError: Names the other distribution, and what to do.
    """
    others = other_owners()
    if not others:
        return
    names = " ".join(other.partition(" ")[0] for other in others)
    raise ConfigError(
        f"{' and '.join(others)} is installed here and brings a package dana, too, whose files may have "
        f"replaced files of {DISTRIBUTION}: pip uninstall {names}, then install {DISTRIBUTION} again"
    )


def _errors_of_first_process() -> AbstractContextManager[object]:
    """Return a context in which only the first process writes errors, so that they come once."""
    if is_main_process():
        return nullcontext()
    return redirect_stderr(io.StringIO())


def _write_utf8() -> None:
    """Write both standard streams in UTF-8 whatever the locale, so that no text ends a command.

    What UTF-8 cannot hold, half a character in the name of a file, is escaped.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # another stream is that of a caller in Python
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _describe(error: Exception) -> str:
    """Say in a line what the user can mend.

    It is a setting, a full disk, a folder without permission, or too much data.
    """
    if isinstance(error, MemoryError):
        return f"out of memory: {error or 'no details'}"
    if not isinstance(error, OSError):
        return str(error)
    place = f"{error.filename}: " if error.filename else ""
    return without_secrets(f"{place}{error.strerror or error}")


def _run(args: argparse.Namespace) -> None:
    """Run the command, on all processes of a launch or, if it needs only one, on the first."""
    if processes() > 1 and not args.processes:
        if not is_main_process():
            return
        log.info("launch    this command needs one process of %d; the others end", processes())
        leave_launch()
    # A stream, because DeepSpeed flushes it when it builds its kernels.
    out = redirect_stdout(sys.stderr) if args.json else nullcontext()
    with (
        out if is_main_process() else redirect_stdout(io.StringIO()),
        stop_on_signal(),
        _heartbeat(args),
    ):
        answer = args.run(args)
    if args.json and is_main_process():
        text = json.dumps(_without_nan(answer), default=str, ensure_ascii=False, allow_nan=False)
        print(text)


def _without_nan(value: Any) -> Any:
    """Replace numbers that are not finite by None, in lists and mappings, too: JSON has none."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_nan(inner) for inner in value]
    return value


def _heartbeat(args: argparse.Namespace) -> AbstractContextManager[object]:
    """Return a context in which a command of many parts says that it is at work."""
    if getattr(args, "beats", "") == "":
        return nullcontext()
    start = time.monotonic()

    def words() -> str:
        spent = f"{'at work':<9} {args.beats} ({format_duration(time.monotonic() - start)})"
        busy = busy_text()
        return f"{spent}; {busy}" if busy else spent

    return Heartbeat(words)


def _check_not_empty(words: Sequence[str]) -> None:
    """Refuse empty arguments.

    Most are unset shell variables, which as a path would mean the working directory.

    Raises:
        ConfigError: Names the flag, or the word before the empty argument.
    """
    for before, argument in zip(["dana", *words], words, strict=False):
        flag = before
        value = argument
        if argument.startswith("--"):
            flag, equals, value = argument.partition("=")
            if not equals:  # the value is the next argument
                continue
        if not value.strip():
            raise ConfigError(f"{flag} '': is empty; give a value or remove it")


def build_parser(words: Collection[str] | None = None) -> argparse.ArgumentParser:
    """Build the parser of all commands.

    Args:
        words: The typed words. Commands of studies are loaded only if they are among them; the
            others have only their line in ``dana --help``. None loads all.
    """
    text = (
        "Find the text of a pool that looks like yours, adapt a language model to it, "
        "measure the gain."
    )
    parser = Parser(
        prog="dana", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"dana {version(DISTRIBUTION)}")
    parser.add_argument("--verbose", action="store_true", help="also log details")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    for group in (add_runs, add_selection, add_training, add_tasks, add_plugins):
        group(commands.add_parser)
    not_added = {name for study in studies() for name in study.commands}
    experiments = f"experiments: {', '.join(sorted(not_added))}"
    study_add = add_group(commands.add_parser, "studies", experiments)
    add_files(commands.add_parser)
    left_out = dict(missing_studies())
    for study in studies():
        for name, (line, target) in study.commands.items():
            if name not in not_added:
                left_out[f"{study.name} {name}"] = "another study has a command of this name"
            elif words is None or name in words:
                load_object(target)(study_add)
            else:
                study_add(name, help=line)
            not_added.discard(name)
    missing = [f"missing study {name}: {reason}" for name, reason in left_out.items()]
    parser.epilog = "\n".join([EPILOG, *missing])
    return parser
