"""The commands for whole runs: ``dana quickstart``, ``run``, ``report`` and ``verify``."""

import argparse
from pathlib import Path

from dana.cli.flags import MANY, AddCommand, Flag, add_command, local_folder
from dana.cli.settings import settings_from
from dana.core.errors import ConfigError


def add_runs(add: AddCommand) -> None:
    """Add the commands.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    out = Flag("--out", "out", "folder of the run (default: runs/quickstart)")
    add_command(add, "quickstart", _quickstart, [out], reads=None).set_defaults(processes=True)
    flags = [Flag("--jobs", "jobs"), Flag("--task-path", "task_path", options=MANY)]
    run = add_command(add, "run", _run, flags, settings=False, reads=None)
    run.set_defaults(processes=True)
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="list the cells and which of them are done; run nothing",
    )
    run.add_argument("recipe", help="a YAML file, or the name of one that ships with dana: quickstart")
    run.add_argument("overrides", nargs="*", metavar="key=value", help="settings that differ from the recipe's")
    report = add_command(add, "report", _report, settings=False)
    report.add_argument("folder", type=local_folder, nargs="?", metavar="DIR", help="a run's folder, with anything")
    report.add_argument(
        "--compare", type=local_folder, nargs="+", metavar="RUN", help="folders of runs, side by side on one page"
    )
    report.add_argument("--out", type=local_folder, metavar="DIR", help="folder of that page (default: comparison)")
    verify = add_command(add, "verify", _verify, settings=False)
    verify.add_argument("folder", type=local_folder, metavar="DIR", help="a run's folder, or a part of one")


def _quickstart(parsed: argparse.Namespace) -> None:
    """Run the whole job on text from this machine: no data, no Hub, no GPU.

    Harvests the documentation of the installed Python packages, trains a tiny base, compares selectors, selects,
    adapts two arms on equal tokens, fine-tunes each over seeds and writes runs/quickstart/report.html. About 15
    minutes of processor time. Run it again and it goes on where it was.
    """
    from dana.stages.harvest import OWN_TEXT, RECIPE
    from dana.stages.run import run_recipe

    settings = settings_from(parsed, RECIPE)
    print(f"report: {run_recipe(settings)}\n{OWN_TEXT}")


def _run(parsed: argparse.Namespace) -> None:
    """Run every step of a recipe: a grid of cells, from text to fine-tuned models, and a report.

    Each cell leaves an artifact under the recipe's `out`; a rerun reuses what is there and was made from the same
    settings, and refuses what was made from others, naming the difference. A cell that fails stops only those that need
    it. With --jobs N cells run side by side, each with its share of GPUs and cores and a log in OUT/cells.
    """
    from dana.stages.run import plan_run, run_recipe

    settings = settings_from(parsed, parsed.recipe)
    if parsed.dry_run:
        print("\n".join(f"{state:<8} {cell}" for cell, state in plan_run(settings).states().items()))
    else:
        print(f"report: {run_recipe(settings)}")


def _report(parsed: argparse.Namespace) -> None:
    """Write report.html, report.md and tables/*.csv of a run's folder.

    The page needs no other file. Sections for which the folder holds nothing are left out, and the report says which
    command makes them.

    With --compare RUN RUN ... it writes comparison.html, comparison.md and tables/ instead: verdicts, paired
    differences and differing settings of several runs; the others are compared with the first.
    """
    from dana.stages.report import compare_stage, report_stage

    if parsed.compare and parsed.folder:
        raise ConfigError(f"DIR {parsed.folder} and --compare: name the runs after --compare alone")
    if parsed.out and not parsed.compare:
        raise ConfigError(f"--out {parsed.out} goes with --compare; the report of one run is written into its folder")
    if parsed.compare:
        print(f"written: {compare_stage(parsed.compare, parsed.out or Path('comparison'))}")
    elif parsed.folder:
        print(f"written: {report_stage(parsed.folder)}")
    else:
        raise ConfigError("DIR is missing: name a run's folder, or several after --compare")


def _verify(parsed: argparse.Namespace) -> None:
    """Check every byte of what dana wrote below a folder; name each file that is damaged, missing or unknown."""
    from dana.stages.verify import verify

    for line in verify(parsed.folder):
        print(line)
