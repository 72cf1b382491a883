"""The commands for whole runs: ``dana quickstart``, ``run`` and ``report``."""

import argparse
from pathlib import Path
from typing import Any

from dana.cli.flags import AddCommand, Flag, add_command, add_dry_run, local_folder
from dana.cli.selection import TEXTS
from dana.cli.settings import settings_from
from dana.core.errors import ConfigError


def add_runs(add: AddCommand) -> None:
    """Add the commands.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    out = Flag("--out", "out", "folder of the run (default: runs/quickstart)")
    quickstart = add_command(add, "quickstart", _quickstart, [out], reads=None)
    quickstart.set_defaults(processes=True)
    add_dry_run(quickstart)
    flags = [flag for flag in TEXTS if flag.name in ("--task", "--general", "--task-path", "--out")]
    run = add_command(add, "run", _run, [*flags, Flag("--jobs", "jobs")], reads=None)
    run.set_defaults(processes=True)
    add_dry_run(run)
    run.add_argument("--quick", action="store_true", help="a first answer, in OUT/quick: 3 adaptations, 0.25 M tokens")
    run.add_argument("recipe", help="a folder of dana init, a YAML file, or a name that ships with dana: quickstart")
    report = add_command(add, "report", _report, settings=False, json=True)
    report.add_argument("folder", type=local_folder, nargs="?", metavar="DIR", help="a run's folder, with anything")
    report.add_argument(
        "--compare", type=local_folder, nargs="+", metavar="RUN", help="folders of runs, side by side on one page"
    )
    report.add_argument("--out", type=local_folder, metavar="DIR", help="folder of that page (default: comparison)")


def _quickstart(args: argparse.Namespace) -> None:
    """Run the whole job on text from this machine: no data, no Hub, no GPU.

    Harvests the documentation of the installed Python packages, with scipy's planted in it as the text to find,
    compares selectors, selects, and shows sources and five passages after about a minute. Then it adapts the small
    model that ships with dana, once on the selected and once on as much random text, fine-tunes all three eight times
    and writes runs/quickstart/report.html. About five minutes on two cores. Run it again to resume.
    """
    from dana.stages.harvest import OWN_TEXT, RECIPE
    from dana.stages.run import run_recipe

    settings = settings_from(args, RECIPE)
    print(f"report: {run_recipe(settings)}\n{OWN_TEXT}")


def _run(args: argparse.Namespace) -> None:
    """Run every step of a recipe: a grid of cells, from text to fine-tuned models, and a report.

    Each cell writes an artifact under the recipe's `out`. A rerun reuses artifacts made from the same settings and
    refuses others, naming the differences. A cell that fails stops only the cells that need it. With --jobs N, N cells
    run in parallel, each with its share of GPUs and cores and a log in OUT/cells.
    """
    from dana.stages.run import run_recipe

    print(f"report: {run_recipe(settings_from(args, args.recipe))}")


def _report(args: argparse.Namespace) -> dict[str, Any] | None:
    """Write report.html, report.md and tables/*.csv of a run's folder.

    The page needs no other file. For steps that were not run the report names the command.

    With --compare RUN RUN ... it writes comparison.html, comparison.md and tables/ instead: verdicts, paired
    differences and differing settings of several runs; the others are compared with the first. With --json it prints
    scores and verdicts, and writes nothing.
    """
    from dana.stages.report import compare_stage, report_stage, run_summary

    if args.compare and args.folder:
        raise ConfigError(f"DIR {args.folder} and --compare: give the runs after --compare only")
    if args.out and not args.compare:
        raise ConfigError(f"--out {args.out} has no effect without --compare; remove it")
    if args.json and not args.folder:
        raise ConfigError("--json: give it a run's folder")
    if args.json:
        return run_summary(args.folder)
    if args.compare:
        print(f"written: {compare_stage(args.compare, args.out or Path('comparison'))}")
    elif args.folder:
        print(f"written: {report_stage(args.folder)}")
    else:
        raise ConfigError("DIR is missing: give a run's folder, or several after --compare")
    return None
