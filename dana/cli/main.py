"""The command line: joins the groups of commands, sets up logging and turns errors into exit codes."""

import argparse
import io
import os
import sys
from collections.abc import Collection, Sequence
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from importlib.metadata import version

from dana.cli.components import add_components
from dana.cli.flags import Parser
from dana.cli.runs import add_runs
from dana.cli.selection import add_selection
from dana.cli.tasks import add_tasks
from dana.cli.training import add_training
from dana.core.errors import ConfigError, DanaError, FirstProcessError, without_secrets
from dana.core.launch import leave_launch, processes, report_errors_once, stop_on_signal, use_all_cores
from dana.core.logging import get_logger, is_main_process, progress, setup
from dana.core.studies import load_object, missing_studies, studies

log = get_logger(__name__)

EPILOG = """\
examples:
  dana quickstart
  dana score --task notes.txt --general 'pool/*.jsonl.gz' --out runs/notes
  dana weigh runs/notes --policy segments --beta 0.2
  dana adapt runs/notes --model bert-base-uncased --steps 1000
  dana finetune --model runs/notes/adapted --task-card chemprot --save --out runs/notes/finetune/chemprot/dana
  dana report runs/notes
  dana predict runs/notes/finetune/chemprot/dana-model new.jsonl --out labelled.parquet

rank, score, weigh, adapt, pack, pretrain and finetune take --config RECIPE.yaml and --set key=value ... for any
setting (for example --set adapt.learning_rate=5e-5). recipes/*.yaml list them with comments."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, 1 for a strict check's warnings, 2 for errors, 75 after a stop."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parsed = argparse.Namespace()
    try:
        with report_errors_once():
            with nullcontext() if is_main_process() else redirect_stderr(io.StringIO()):  # usage is told once
                build_parser(given).parse_args(given, parsed)
            _check_not_empty(given)
            setup(parsed.verbose)
            use_all_cores()
            _run(parsed)
        return 0
    except FirstProcessError as error:
        return error.exit_code
    except DanaError as error:
        progress.write(f"dana: error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a full disk, a folder that may not be written: the user's to mend, wherever it is met
        where = f"{error.filename}: " if error.filename else ""
        progress.write(f"dana: error: {without_secrets(f'{where}{error.strerror or error}')}", file=sys.stderr)
        return DanaError.exit_code
    except KeyboardInterrupt:
        print("dana: interrupted; finished work is saved, and the same command resumes", file=sys.stderr)
        return 130


def _run(parsed: argparse.Namespace) -> None:
    """Run the command; of one that is work for one process, the first of a launch runs it and the others do nothing."""
    if processes() > 1 and not parsed.processes:
        if not is_main_process():
            return
        log.info("launch    %d processes were launched; this is work for one, the others end", processes())
        leave_launch()
    # Not None: DeepSpeed flushes it when it builds its kernels.
    with nullcontext() if is_main_process() else redirect_stdout(io.StringIO()), stop_on_signal():
        parsed.run(parsed)


def _check_not_empty(given: Sequence[str]) -> None:
    """An empty argument is a variable of a shell that was not set; as a path it would mean the working directory.

    Raises:
        ConfigError: Naming the flag, or what stands before it.
    """
    for before, argument in zip(["dana", *given], given, strict=False):
        flag, equals, value = argument.partition("=") if argument.startswith("--") else (before, "=", argument)
        if equals and not value.strip():
            raise ConfigError(f"{flag} '': nothing is named; give a value, or leave it out")


def build_parser(given: Collection[str] | None = None) -> argparse.ArgumentParser:
    """The command line.

    Args:
        given: What was typed: of a study's commands only those that are named there are loaded, of the others
            ``dana --help`` has the line alone. None loads all.
    """
    parser = Parser(
        prog="dana",
        description="Find the general text that looks like yours, adapt a language model to it, measure the gain.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dana {version('dana')}")
    parser.add_argument("--verbose", action="store_true", help="also log details")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add = commands.add_parser

    for group in (add_runs, add_selection, add_training, add_tasks, add_components):
        group(add)
    left_out = dict(missing_studies())
    for study in studies():
        for name, (line, target) in study.commands.items():
            if name in commands.choices:
                left_out[f"{study.name} {name}"] = "there is a command of this name"
            elif given is None or name in given:
                load_object(target)(add)
            else:
                add(name, help=line)
    parser.epilog = "\n".join([EPILOG, *(f"missing study {name}: {reason}" for name, reason in left_out.items())])
    return parser
