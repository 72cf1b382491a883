"""The commands for whole runs: ``dana quickstart``, ``init``, ``run`` and ``report``."""

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.cli.flags import (
    AddCommand,
    Flag,
    add_command,
    add_dry_run,
    add_inputs,
    add_remake,
    local_folder,
)
from dana.cli.selection import ALLOW, TEXTS
from dana.cli.settings import next_command, settings_from
from dana.core.errors import ConfigError

if TYPE_CHECKING:
    from dana.stages.settings import RunSettings

QUICKSTART = "recipes/quickstart.yaml"
NEW_SENTENCES = "quickstart/new.csv"  # in the package
OWN_TEXT = """
next, on your own labelled texts (a table: CSV, JSON lines, Parquet, Excel) and other documents
  dana init YOUR_TABLE.csv --pool YOUR_POOL/
  dana run YOUR_TABLE --quick"""
COLUMNS = {
    "text": (
        "column of the text, of the pool too (default: text, or else the column with the most "
        "words)"
    ),
    "text-pair": "column of the second text, for labels of pairs of texts",
    "group": (
        "column of a group, for example an author, whose texts stay in one fold (default: one so "
        "named; none: no)"
    ),
}


def add_runs(add: AddCommand) -> None:
    """Add the commands.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    out = Flag("--out", "out", "folder of the run (default: runs/quickstart)")
    quickstart = add_command(add, "quickstart", _quickstart, [out], reads=None)
    quickstart.set_defaults(processes=True, beats="dana quickstart")
    add_dry_run(quickstart)
    add_remake(quickstart)
    init = add_command(add, "init", _init, settings=False)
    init.set_defaults(beats="dana init")
    table = (
        "labelled texts: CSV, TSV, JSON, Parquet, Excel, packed or not, a folder of Arrow files, "
        "or one with a folder of text files per label; - is standard input"
    )
    init.add_argument("table", metavar="TABLE", help=table)
    init.add_argument(
        "--pool",
        nargs="+",
        help="text to choose from: files, folders, globs or URLs",
    )
    init.add_argument(
        "--unlabelled",
        nargs="+",
        metavar="FILE",
        help="more texts of the same kind, without labels, to adapt on: files, folders, globs or URLs",
    )
    init.add_argument(
        "--out",
        type=local_folder,
        metavar="FOLDER",
        help="(default: the name of TABLE without suffix)",
    )
    for name, text in COLUMNS.items():
        init.add_argument(f"--{name}", metavar="FIELD", help=text)
    add_inputs(init)
    label = (
        "column of the label (default: one with a usual name, or else the only one whose values "
        "repeat); again for each of several columns of 0 and 1"
    )
    init.add_argument("--label", metavar="FIELD", action="append", help=label)
    kinds = (
        "kind of the label: single_label, multi_label, regression or token_labels "
        "(default: decided by the values)"
    )
    init.add_argument("--kind", help=kinds)
    places = "names of the places, where a label is a vector of 0 and 1"
    init.add_argument("--labels", metavar="NAME", nargs="+", help=places)
    init.add_argument("--test", metavar="FILE", help="labelled texts to test on, instead of folds")
    init.add_argument(
        "--folds", type=int, help="number of folds (default: 5; one fixed split above 5,000 rows)"
    )
    models = (
        "model to adapt: a name or a folder; auto takes the strongest installed one that this "
        "device adapts in five minutes (default: auto)"
    )
    init.add_argument("--model", metavar="NAME", default="auto", help=models)
    objectives = (
        "what the arms learn: masked, position (for roles), crops (for topics), causal (of decoders) or "
        "auto: a pilot chooses (default: auto; causal for decoders; masked where words have labels)"
    )
    init.add_argument("--objective", help=objectives)
    bad_records = "fail (default) or skip records of the pool that cannot be read or have no text"
    init.add_argument("--on-bad-record", default="fail", help=bad_records)
    flags = [flag for flag in TEXTS if flag.name in ("--task", "--pool", "--task-path", "--out")]
    run = add_command(add, "run", _run, [*flags, Flag("--jobs", "jobs"), ALLOW], reads=None)
    run.set_defaults(processes=True, beats="dana run")
    add_dry_run(run)
    add_remake(run)
    quick = (
        "end after the probes of at most 3 adaptations or folds, of the arms random and dana; "
        "nothing that is probed is fine-tuned"
    )
    run.add_argument("--quick", action="store_true", help=quick)
    minutes = (
        "begin no step after so many minutes, nor one that is likely to take longer than what is left; "
        "the report and the model are of what is done, and the same command goes on"
    )
    run.add_argument("--minutes", type=float, metavar="N", help=minutes)
    recipe = (
        "a run's folder, of dana init or dana score; a YAML file, or a name that ships: quickstart"
    )
    run.add_argument("recipe", help=recipe)
    report = add_command(add, "report", _report, settings=False, json=True)
    report.add_argument(
        "folder", type=local_folder, nargs="?", metavar="DIR", help="a run's folder, with anything"
    )
    several = "folders of runs, side by side on one page"
    report.add_argument("--compare", type=local_folder, nargs="+", metavar="RUN", help=several)
    report.add_argument(
        "--out", type=local_folder, metavar="DIR", help="folder of that page (default: comparison)"
    )


def _quickstart(args: argparse.Namespace) -> None:
    """Run the whole job on text that ships with dana: no data, no Hub, no GPU.

    The task is the role of a sentence in the abstract of a paper: 500 are labelled, 1,500 are
    tested. From 1,200 other documents it selects those most like them, and adapts the small model
    that ships with dana on these, and on as many random ones. A linear model on the vectors of each
    says what that was worth, beside TF-IDF; report.html shows it. The best of these classifiers
    labels three new sentences. Minutes on two cores. Run it again to resume.
    """
    from dana.core.shipped import find_shipped
    from dana.stages.final import result_lines
    from dana.stages.report import search_lines
    from dana.stages.run import run_recipe

    settings = settings_from(args, str(find_shipped(QUICKSTART)))
    if args.dry_run:
        _show_plan(settings, quick=True, verbose=args.verbose)
        return
    print(f"report: {run_recipe(settings, quick=True, remake=args.remake)}")
    folder = Path(settings.out)
    lines = [*result_lines(folder), *search_lines(folder), *prediction_lines(folder), OWN_TEXT]
    for line in lines:
        print(line)


def prediction_lines(folder: Path) -> list[str]:
    """Label the new sentences that ship with the quickstart by the model that a run ended in.

    Args:
        folder: Folder of the run.

    Returns:
        A line for each sentence, below a heading; none if the run has no model.
    """
    if not (folder / "model").is_dir():
        return []
    from dana.core.shipped import package_folder
    from dana.stages.predict import NewText, predict_stage

    file = package_folder() / NEW_SENTENCES
    lines = [f"\nnew sentences: dana predict {folder} {file}"]
    for table in predict_stage(str(folder), NewText([str(file)])):
        for row in table.to_pylist():
            start = textwrap.shorten(row["text"], 70, placeholder=" ...")
            lines.append(f"  {row['label']:<11} {row['probability']:.2f}  {start}")
    return lines


def _init(args: argparse.Namespace) -> None:
    """Prepare a run from a table of labelled texts and other text: a pool, texts without labels, or both.

    Finds separator, encoding and columns by looking, drops repeats, divides the texts into
    stratified folds, compares the pool with them, and writes FOLDER with card.yaml, texts.parquet
    and recipe.yaml. It says how small a difference so many texts can show, and how much
    the run trains. Then: dana run FOLDER.
    """
    from dana.stages.init import init
    from dana.stages.settings import inputs_from

    names = [name.replace("-", "_") for name in COLUMNS]
    names += [
        "label",
        "kind",
        "labels",
        "test",
        "folds",
        "model",
        "objective",
        "on_bad_record",
        "unlabelled",
    ]
    options = {name: getattr(args, name) for name in names}
    inputs = inputs_from(args.inputs)
    folder = init(args.table, args.pool, args.out, inputs=inputs, **options)
    print(next_command("run", folder, "--quick", note="then without --quick"))


def _run(args: argparse.Namespace) -> None:
    """Run every step of a recipe, from text to fine-tuned models, and write a report.

    Each step writes an artifact under the recipe's `out`. A rerun reuses artifacts made from the
    same settings and refuses others, naming the differences; --remake replaces them. What costs
    seconds comes first: baselines and the vectors of the base, then the selection, the adapted
    models and their probes, then fine-tuning. After each the scores so far are shown and the report
    is written. --quick ends after the probes of the first three folds, --minutes N after N minutes; a
    run without them goes on from there. A step that fails stops only the steps that need it. With
    --jobs N, N steps run in parallel, each with its share of GPUs and cores and a log in OUT/steps.
    --dry-run counts the steps that are done, changed or missing; with --verbose it lists them.
    """
    from dana.stages.final import result_lines
    from dana.stages.report import search_lines
    from dana.stages.run import run_recipe

    settings = settings_from(args, args.recipe)
    if args.dry_run:
        _show_plan(settings, args.quick, args.verbose)
        return
    report = run_recipe(settings, args.quick, args.remake, args.minutes)
    print(f"report: {report if report.is_file() else 'none yet'}")
    if settings.final:
        folder = Path(settings.out)
        for line in [*result_lines(folder), *search_lines(folder)]:
            print(line)


def _show_plan(settings: "RunSettings", quick: bool = False, verbose: bool = False) -> None:
    """Count the steps of a run and their states, with `verbose` list them; nothing is written."""
    from dana.stages.plan import plan_text
    from dana.stages.run import check_pool, plan_run

    check_pool(settings)
    print(plan_text(plan_run(settings, quick), verbose))


def _report(args: argparse.Namespace) -> dict[str, Any] | None:
    """Write report.html, report.md and tables/*.csv of a run's folder.

    The page needs no other file. For steps that were not run the report names the command.

    With --compare RUN RUN ... it writes comparison.html, comparison.md and tables/ instead:
    verdicts, paired differences and differing settings of several runs; the others are compared
    with the first. With --json it prints scores and verdicts, and writes nothing.
    """
    from dana.stages.report import compare_stage, report_stage, run_summary

    if args.compare and args.folder:
        raise ConfigError(f"DIR {args.folder} and --compare: give the runs after --compare only")
    if args.out and not args.compare:
        raise ConfigError(f"--out {args.out} has no effect without --compare; remove it")
    if not args.folder and (args.json or not args.compare):
        raise ConfigError(
            "DIR is missing: give a run's folder, or without --json several after --compare"
        )
    if args.json:
        return run_summary(args.folder)
    if not args.compare:
        print(f"written: {report_stage(args.folder)}")
        return None
    out = args.out or Path("comparison")
    print(f"written: {compare_stage(args.compare, out)}")
    return None
