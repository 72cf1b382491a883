"""The command line: thin. Every command's flags fill the same settings as a recipe's YAML, then call one stage."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana import __version__
from dana.errors import DanaError
from dana.logging import setup

if TYPE_CHECKING:
    from dana.stages.settings import RunSettings

EPILOG = """\
examples:
  dana quickstart
  dana rank --task chemprot --data DIR --general 'pool/*.jsonl.gz' --out runs/chem
  dana score --task notes.txt --general pool/ --detector auto --out runs/notes
  dana weigh runs/notes --policy segments --beta 0.2
  dana adapt runs/notes --model bert-base-uncased --steps 1000
  dana finetune --model runs/notes/adapted --task-card chemprot --seeds 8 --out runs/chem/finetune
  dana report runs/notes

Every command takes --config RECIPE.yaml and --set key=value ... for any setting of a recipe
(for example --set adapt.learning_rate=5e-5). recipes/*.yaml list them with comments."""

# flag, the setting it fills, help. A flag without a setting is read by the command itself.
TEXTS = [
    ("--task", "task", "a task card's name or YAML file, or text: a file, glob or folder"),
    ("--general", "general", "general text: files, globs, folders, or hf:name[:config][:split]"),
    ("--data", "data", "folder with the card's data, where it is not under $DANA_DATA/tasks"),
    ("--on-bad-record", "on_bad_record", "fail (default) or skip: what to do with a record that cannot be read"),
    ("--encoder", "selection.encoder", "minilm (default), hashing, or transformer:NAME_OR_FOLDER"),
    ("--geometry", "selection.geometry", "none, l2, center+l2 (default) or whiten:K"),
    ("--units", "selection.units", "what is scored: sentence (default) or window:N word-pieces"),
    ("--seed", "selection.seed", "root seed of splits, samples and detectors (default 0)"),
    ("--out", "out", "folder of the run"),
]
ZOO = [
    ("--detectors", "ranking.detectors", "all (default), or names with commas: knn,lof,pyod:ECOD"),
    ("--seeds", "ranking.seeds", "repetitions, each with its own split (default 5)"),
]
SCORE = [
    ("--detector", "detector", "auto (default: the best of the ranking), or a name such as knn or knn:k=10"),
    ("--selector", "selector", "detector (default) or random"),
]
WEIGH = [
    ("--policy", "weigh.policy", "sigmoid, segments (default) or sampled"),
    ("--beta", "weigh.beta", "share of the segments to keep (default 0.2)"),
    ("--budget", "weigh.budget", "instead of beta: '50000 units' or '2e6 tokens'"),
    ("--gamma", "weigh.gamma", "units in a segment (default 15)"),
    ("--sharpness", "weigh.sharpness", "C of the sigmoid (default 4)"),
    ("--midpoint", "weigh.midpoint", "alpha of the sigmoid on standardised scores (default: the beta-quantile)"),
]
ADAPT = [
    ("--model", "model", "checkpoint to adapt: a folder or a Hub name"),
    ("--steps", "adapt.steps", "optimizer steps"),
    ("--tokens", "adapt.tokens", "stop after so many tokens instead: what makes arms comparable"),
    ("--batch-size", "adapt.batch_size", "examples a step, over all processes (default 256)"),
    ("--max-tokens", "adapt.max_tokens", "tokens an example (default 256)"),
    ("--learning-rate", "adapt.learning_rate", "peak learning rate (default 1e-4)"),
    ("--denominator", "adapt.denominator", "batch (default), weight_sum or token_count: docs/design.md, Loss"),
    ("--seed", "adapt.seed", "decides masks and order (default 0)"),
]
FINETUNE = [
    ("--model", "model", "checkpoint to fine-tune: a folder or a Hub name"),
    ("--task-card", "cards", "a card's name or YAML file"),
    ("--data", "data", "folder with the card's data, where it is not under $DANA_DATA/tasks"),
    ("--seeds", "finetune.seeds", "repetitions with seeds 0, 1, ..."),
    ("--preset", "finetune.preset", "hyper-parameters of the card: paper, default or quick"),
    ("--out", "out", "folder for metrics.json and predictions.parquet"),
]
LISTS = {"general", "ranking.detectors", "cards"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, or 2 for anything the user can mend."""
    parsed = build_parser().parse_args(arguments)
    setup(parsed.verbose)
    _use_all_cores()
    try:
        parsed.run(parsed)
        return 0
    except DanaError as error:
        print(f"dana: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("dana: interrupted; what was finished is kept, the same command goes on from there", file=sys.stderr)
        return 130


def _use_all_cores() -> None:
    """`accelerate launch` leaves one OpenMP thread a process; started directly, dana takes the cores it may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(cores))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="dana",
        description="Find the general text that looks like yours, adapt a language model to it, measure whether it helped.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dana {__version__}")
    parser.add_argument("--verbose", action="store_true", help="also log details")
    add = parser.add_subparsers(title="commands", required=True, metavar="COMMAND").add_parser

    quick = add("quickstart", help="the whole job on text from this machine: no data, no hub, no GPU")
    _flags(quick, [("--out", "out", "folder of the run (default runs/quickstart)")], quickstart)
    run = add("run", help="every step of a recipe; a rerun goes on where it stopped")
    run.add_argument("recipe", type=Path, help="for example recipes/quickstart.yaml")
    run.add_argument("overrides", nargs="*", metavar="key=value", help="settings that differ from the recipe's")
    _flags(run, [], run_recipe, config=False)
    _flags(add("rank", help="which detector tells this task from this general text?"), TEXTS + ZOO, rank)
    _flags(add("score", help="score every unit of the general text against the task"), TEXTS + SCORE, score)
    weigh_parser = add("weigh", help="turn scores into weights")
    _flags(_with_run(weigh_parser, "scores/ and corpus/"), WEIGH, weigh)
    weigh_parser.add_argument("--to", type=Path, help="folder of the weights (default DIR/weights)")
    adapt_parser = add("adapt", help="continue pretraining with the weights")
    _flags(_with_run(adapt_parser, "corpus/, weights/ and task/"), ADAPT, adapt)
    adapt_parser.add_argument("--weights", type=Path, help="folder of the weights (default DIR/weights)")
    adapt_parser.add_argument("--unweighted", action="store_true", help="the whole corpus with weight 1: the general arm")
    adapt_parser.add_argument("--to", type=Path, help="folder of the model (default DIR/adapted)")
    pretrain_parser = add("pretrain", help="train a small tokenizer and model from scratch")
    _flags(_with_run(pretrain_parser, "corpus/ and task/"), [("--size", "size", "tiny, mini, small, medium or base")], pretrain)
    pretrain_parser.add_argument("--to", type=Path, help="folder of the model (default DIR/base)")
    _flags(add("finetune", help="fine-tune a checkpoint on a labelled task, over seeds"), FINETUNE, finetune)
    _flags(_with_run(add("report", help="write report.html, report.md and tables"), "anything"), [], report)

    detectors = add("detectors", help="list the detectors, or check one against the contract")
    detectors.add_argument("action", choices=["list", "check"])
    detectors.add_argument("name", nargs="?", help="what to check: a name or spec, for example knn or pyod:ECOD")
    detectors.set_defaults(run=detectors_command)
    return parser


def _with_run(parser: argparse.ArgumentParser, needs: str) -> argparse.ArgumentParser:
    parser.add_argument("folder", type=Path, metavar="DIR", help=f"a run's folder, with {needs}")
    return parser


def _flags(
    parser: argparse.ArgumentParser,
    flags: list[tuple[str, str, str]],
    run: Callable[[argparse.Namespace], None],
    config: bool = True,
) -> None:
    for flag, setting, text in flags:
        many: dict[str, Any] = {"nargs": "+"} if setting == "general" else {}
        parser.add_argument(flag, dest=setting, help=text, metavar=flag[2:].replace("-", "_").upper(), **many)
    if config:
        parser.add_argument("--config", type=Path, help="a recipe's YAML, whose settings the flags override")
        parser.add_argument("--set", dest="overrides", nargs="+", default=[], metavar="key=value", help="any other setting")
    parser.description = f"{parser.description or ''}"
    parser.set_defaults(run=run, settings=[setting for _, setting, _ in flags])


def settings_from(parsed: argparse.Namespace, **fixed: Any) -> "RunSettings":
    """Settings of the recipe, if one is named, then the flags, then key=value."""
    from dana.config import load, read_yaml
    from dana.stages.settings import RunSettings

    path = getattr(parsed, "recipe", None) or getattr(parsed, "config", None)
    values = {**(read_yaml(path) if path else {}), **fixed}
    overrides = []
    for setting in parsed.settings:
        given = getattr(parsed, setting)
        if given is not None:
            if setting in LISTS and isinstance(given, str):
                given = given.split(",") if setting == "ranking.detectors" else [given]
            overrides.append(f"{setting}={_as_yaml(given)}")
    return load(RunSettings, values, [*overrides, *parsed.overrides], origin=str(path) if path else "command line")


def _as_yaml(value: Any) -> str:
    import json

    return json.dumps(value) if isinstance(value, list) else str(value)


def quickstart(parsed: argparse.Namespace) -> None:
    """``dana quickstart``."""
    from dana.stages.quickstart import quickstart_settings, what_next
    from dana.stages.run import run

    settings = quickstart_settings(parsed.out, parsed.overrides)
    print(what_next(run(settings), settings))


def run_recipe(parsed: argparse.Namespace) -> None:
    """``dana run``."""
    from dana.stages.run import run

    print(f"report: {run(settings_from(parsed))}")


def rank(parsed: argparse.Namespace) -> None:
    """``dana rank``."""
    from dana.stages.rank import RANKING, table
    from dana.stages.run import rank as run_rank

    settings = settings_from(parsed)
    content = run_rank(settings)
    print(table(content))
    print(f"\nchosen: {content['chosen']}   written: {Path(settings.out) / RANKING}")
    print(f"next:   dana score with the same --task, --general and --out {settings.out}")


def score(parsed: argparse.Namespace) -> None:
    """``dana score``."""
    from dana.stages.run import score as run_score

    settings = settings_from(parsed)
    artifact = run_score(settings)
    print(f"written: {artifact.path} ({artifact.manifest['counts']['units']:,} units)")
    print(f"next:    dana weigh {settings.out} --policy segments --beta 0.2")


def weigh(parsed: argparse.Namespace) -> None:
    """``dana weigh``."""
    from dana.stages.weigh import kept_by_source, weigh_stage

    folder = parsed.folder
    settings = settings_from(parsed).weigh
    artifact = weigh_stage(folder / "scores", folder / "corpus", settings, parsed.to or folder / "weights")
    print(kept_by_source(artifact.path).to_string(index=False, float_format=lambda value: f"{value:.4f}"))
    print(f"\nwritten: {artifact.path} ({artifact.manifest['counts']['units']})")
    print(f"next:    dana adapt {folder} --model NAME_OR_FOLDER --steps 1000")


def adapt(parsed: argparse.Namespace) -> None:
    """``dana adapt``."""
    from dana.config import require
    from dana.stages.adapt import adapt_stage
    from dana.stages.held_out import held_out_stage

    folder = parsed.folder
    settings = settings_from(parsed)
    require(bool(settings.model), "--model", settings.model, "the checkpoint to adapt: a folder or a Hub name")
    weights = None if parsed.unweighted else parsed.weights or folder / "weights"
    held_out = folder / "task" / "held_out", held_out_stage(folder / "corpus", folder / "held_out").path
    out = parsed.to or folder / "adapted"
    artifact = adapt_stage(str(settings.model), folder / "corpus", weights, *held_out, settings.adapt, out)
    print(f"written: {artifact.path}\nnext:    dana finetune --model {artifact.path} --task-card NAME --out {folder}/finetune")


def pretrain(parsed: argparse.Namespace) -> None:
    """``dana pretrain``."""
    from dana.stages.held_out import held_out_stage
    from dana.stages.pretrain import pretrain_stage

    folder = parsed.folder
    settings = settings_from(parsed)
    held_out = folder / "task" / "held_out", held_out_stage(folder / "corpus", folder / "held_out").path
    out = parsed.to or folder / "base"
    artifact = pretrain_stage(settings.size, folder / "corpus", *held_out, settings.pretrain, out)
    print(f"written: {artifact.path}\nnext:    dana adapt {folder} --model {artifact.path}")


def finetune(parsed: argparse.Namespace) -> None:
    """``dana finetune``."""
    from dana.config import require
    from dana.stages.finetune import finetune_stage

    settings = settings_from(parsed)
    require(bool(settings.model), "--model", settings.model, "the checkpoint to fine-tune: a folder or a Hub name")
    require(len(settings.cards) == 1, "--task-card", settings.cards, "one card")
    artifact = finetune_stage(str(settings.model), settings.cards[0], settings.finetune, Path(settings.out), settings.data)
    print((artifact.path / "metrics.json").read_text(encoding="utf-8"))
    print(f"written: {artifact.path}")


def report(parsed: argparse.Namespace) -> None:
    """``dana report``."""
    from dana.stages.report import report_stage

    print(f"written: {report_stage(parsed.folder)}")


def detectors_command(parsed: argparse.Namespace) -> None:
    """``dana detectors list`` and ``dana detectors check NAME``."""
    from dana.detectors.checks import check_detector
    from dana.errors import ConfigError, PluginError
    from dana.registry import DETECTORS

    if parsed.action == "list":
        for name, claims in DETECTORS.entries().items():
            try:
                says = (DETECTORS.load(name).__doc__ or "").strip().partition("\n")[0]
            except PluginError as error:
                says = f"broken: {error}"
            print(f"{name:<20} {claims[0].dist.name if claims[0].dist else '?':<12} {says}")
        return
    if not parsed.name:
        raise ConfigError("detectors check: name the detector, for example: dana detectors check knn")
    results = check_detector(parsed.name)
    for result in results:
        print(result)
    if not all(result.passed for result in results):
        raise PluginError(f"{parsed.name} breaks {sum(not result.passed for result in results)} of {len(results)} checks")
