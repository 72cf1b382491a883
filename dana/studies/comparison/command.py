"""The command ``dana studies compare``."""

import argparse

from dana.cli.flags import (
    INTEGERS,
    MANY,
    AddCommand,
    Flag,
    add_command,
    add_remake,
    plain_flags,
)
from dana.cli.settings import settings_from

FLAGS = [
    Flag("--task", "compare.tasks", options=MANY),
    Flag("--fit", "compare.fit", options=INTEGERS),
    *plain_flags("selectors+ seeds plants others budgets+", "compare."),
    *plain_flags("encoder geometry store", "selection."),
    *plain_flags("pool+ data task_path+ out"),
    Flag("--jobs", "jobs", "steps that run in parallel, each in its own process"),
]


def add_comparison(add: AddCommand) -> None:
    """Add the command to the command line's subparsers."""
    command = add_command(
        add, "compare", _compare, FLAGS, reads=("inputs", "on_bad_record", "selection")
    )
    add_remake(command)
    command.add_argument("--dry-run", action="store_true", help="list the steps and their states")


def _compare(args: argparse.Namespace) -> None:
    """Compare selectors by how well they find target text planted in a pool of other text.

    Plants --plants texts of a task among --others pieces of pool text of the same lengths, fits
    each selector on other texts of the task, with several sizes and seeds, and measures the
    selected text: recall of the plants, sources, length, perplexity of held-out target text. Writes
    OUT/comparison.csv (one row per task, fit size, seed, selector, budget and metric), summary.csv
    (means over seeds, intervals over documents, cost) and report.html. If it is killed, the same
    command resumes.
    """
    from dana.studies.comparison.page import summary_text
    from dana.studies.comparison.stage import plan_compare, run_compare

    settings = settings_from(args)
    if args.dry_run:
        for step, state in plan_compare(settings).states().items():
            print(f"{state:<8} {step}")
    else:
        path = run_compare(settings, args.remake)
        print(f"{summary_text(path)}\n\nwritten: {path}")
