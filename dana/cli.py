"""The command line: thin. Every command's flags fill the same settings as a recipe's YAML, then call one stage."""

import argparse
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dana import __version__, commands
from dana.errors import ConfigError, DanaError
from dana.logging import setup

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
    (
        "--on-bad-record",
        "on_bad_record",
        "fail (default) or skip: what to do with a record that cannot be read",
    ),
    (
        "--decontaminate",
        "hygiene.decontaminate",
        "task cards: leave out documents that share 13 words, or a sentence of 8, with their dev or test texts",
    ),
    (
        "--near-duplicates",
        "hygiene.near_duplicates",
        "leave out general documents this like an earlier one, for example 0.8 (needs dana[dedup])",
    ),
    ("--encoder", "selection.encoder", "minilm (default), static, hashing, or transformer:NAME_OR_FOLDER"),
    ("--geometry", "selection.geometry", "none, l2, center+l2 (default) or whiten:K"),
    ("--units", "selection.units", "what is scored: sentence (default) or window:N word-pieces"),
    ("--seed", "selection.seed", "root seed of splits, samples and detectors (default 0)"),
    ("--store", "selection.store", "folder of an embedding store: what was encoded once is looked up"),
    ("--out", "out", "folder of the run"),
]
MANY = ("general", "hygiene.decontaminate")  # flags that take several values
ZOO = [
    ("--detectors", "ranking.detectors", "all (default), or names with commas: knn,lof,pyod:ECOD"),
    ("--seeds", "ranking.seeds", "repetitions, each with its own split (default 5)"),
]
SCORE = [
    ("--detector", "detector", "auto (default: the best of the ranking), or a name such as knn or knn:k=10"),
    ("--selector", "selector", "detector (default), cascade (cascade:keep=0.3,detector=knn) or random"),
]
WEIGH = [
    ("--policy", "weigh.policy", "sigmoid, segments (default) or sampled"),
    ("--beta", "weigh.beta", "share of the units to keep (default 0.2)"),
    ("--budget", "weigh.budget", "instead of beta: '50000 units' or '2e6 tokens'"),
    ("--gamma", "weigh.gamma", "units in a segment (default 15)"),
    ("--sharpness", "weigh.sharpness", "C of the sigmoid (default 4)"),
    (
        "--midpoint",
        "weigh.midpoint",
        "alpha of the sigmoid on standardised scores (default: the beta-quantile)",
    ),
]
ADAPT = [
    ("--model", "model", "checkpoint to adapt: a folder or a Hub name"),
    ("--steps", "adapt.steps", "optimizer steps"),
    ("--tokens", "adapt.tokens", "stop after so many tokens instead: what makes arms comparable"),
    ("--batch-size", "adapt.batch_size", "examples a step, over all processes (default 256)"),
    ("--max-tokens", "adapt.max_tokens", "tokens an example (default 256)"),
    ("--learning-rate", "adapt.learning_rate", "peak learning rate (default 1e-4)"),
    (
        "--denominator",
        "adapt.denominator",
        "batch (default), weight_sum or token_count: docs/design.md, Loss",
    ),
    ("--seed", "adapt.seed", "decides masks and order (default 0)"),
    ("--resume", "adapt.execution.resume", "auto (default: go on from the newest sound checkpoint) or never"),
    ("--layout", "adapt.execution.layout", "auto (default: measured), padded, packed or unpadded"),
]
FINETUNE = [
    ("--model", "model", "checkpoint to fine-tune: a folder or a Hub name"),
    ("--task-card", "cards", "a card's name or YAML file"),
    ("--data", "data", "folder with the card's data, where it is not under $DANA_DATA/tasks"),
    ("--seeds", "finetune.seeds", "repetitions with seeds 0, 1, ..."),
    ("--preset", "finetune.preset", "hyper-parameters of the card: paper, default or quick"),
    ("--out", "out", "folder for metrics.json and predictions.parquet"),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, 2 for anything the user can mend, 75 after a stop that saved."""
    parsed = build_parser().parse_args(arguments)
    setup(parsed.verbose)
    _use_all_cores()
    try:
        _check_processes(parsed.run)
        parsed.run(parsed)
        return 0
    except DanaError as error:
        print(f"dana: error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(
            "dana: interrupted; what was finished is kept, the same command goes on from there",
            file=sys.stderr,
        )
        return 130


def _check_processes(run: Callable[[argparse.Namespace], None]) -> None:
    """Only training shares its work out; two processes of another step would write over each other.

    Raises:
        ConfigError: If a step for one process was launched in several.
    """
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes > 1 and run not in (commands.score, commands.adapt, commands.pretrain, commands.finetune):
        raise ConfigError(
            f"{processes} processes were launched: only score, adapt, pretrain and finetune take more than one"
        )


def _use_all_cores() -> None:
    """`accelerate launch` leaves one OpenMP thread a process; started directly, dana takes the cores it may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(cores))
    # Waiting threads sleep rather than spin, which leaves a shared machine to the others.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="dana",
        description="Find the general text that looks like yours, adapt a language model to it, measure the gain.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dana {__version__}")
    parser.add_argument("--verbose", action="store_true", help="also log details")
    add = parser.add_subparsers(title="commands", required=True, metavar="COMMAND").add_parser

    _add_whole_runs(add)
    _add_selection(add)
    _add_training(add)
    detectors = add("detectors", help="list the detectors, or check one against the contract")
    detectors.add_argument("action", choices=["list", "check"])
    detectors.add_argument("name", nargs="?", help="what to check: a name or spec, for example knn or pyod:ECOD")
    detectors.set_defaults(run=commands.detectors)
    _add_store(add("store", help="look into an embedding store, check it, or make it smaller"))
    return parser


def _add_store(store: argparse.ArgumentParser) -> None:
    store.add_argument("action", choices=["info", "verify", "prune"])
    store.add_argument("folder", type=Path, metavar="DIR", help="what --store named")
    store.add_argument("--keep", nargs="+", metavar="ENCODER", help="prune: only these, by id or name, see info")
    store.add_argument("--max-bytes", metavar="SIZE", help="prune: drop the oldest segments until it fits, e.g. 200G")
    store.description = inspect.getdoc(commands.store)
    store.formatter_class = argparse.RawDescriptionHelpFormatter
    store.set_defaults(run=commands.store)


def _add_whole_runs(add: Any) -> None:
    quick = add("quickstart", help="the whole job on text from this machine: no data, no hub, no GPU")
    _flags(quick, [("--out", "out", "folder of the run (default runs/quickstart)")], commands.quickstart)
    run = add("run", help="every step of a recipe; a rerun goes on where it stopped")
    run.add_argument("recipe", type=Path, help="for example recipes/quickstart.yaml")
    run.add_argument("overrides", nargs="*", metavar="key=value", help="settings that differ from the recipe's")
    _flags(run, [], commands.run_recipe, config=False)
    _flags(_with_run(add("report", help="write report.html, report.md and tables"), "anything"), [], commands.report)


def _add_selection(add: Any) -> None:
    _flags(add("rank", help="which detector tells this task from this general text?"), TEXTS + ZOO, commands.rank)
    score = add("score", help="score every unit of the general text against the task")
    _flags(score, TEXTS + SCORE, commands.score)
    part = score.add_mutually_exclusive_group()
    part.add_argument("--prepare", action="store_true", help="only read the texts and fit the selector")
    part.add_argument("--shard", metavar="I/N", help="only score the I-th of N shares of what was prepared")
    part.add_argument("--merge", action="store_true", help="only join what the shards left")
    part.add_argument(
        "--dry-run", action="store_true", help="estimate time, memory and disk from a sample, write nothing"
    )
    weigh = add("weigh", help="turn scores into weights")
    _flags(_with_run(weigh, "scores/ and corpus/"), WEIGH, commands.weigh)
    weigh.add_argument("--to", type=Path, help="folder of the weights (default DIR/weights)")


def _add_training(add: Any) -> None:
    adapt = add("adapt", help="continue pretraining with the weights")
    _flags(_with_run(adapt, "corpus/, weights/ and task/"), ADAPT, commands.adapt)
    adapt.add_argument("--weights", type=Path, help="folder of the weights (default DIR/weights)")
    adapt.add_argument("--unweighted", action="store_true", help="the whole corpus with weight 1: the general arm")
    adapt.add_argument("--to", type=Path, help="folder of the model (default DIR/adapted)")
    adapt.add_argument("--push-to-hub", metavar="NAME", help="also upload the folder, privately, as organisation/name")
    pack = add("pack", help="tokenise the corpus once, ahead of training")
    _flags(_with_run(pack, "corpus/"), [("--model", "model", "whose tokenizer: a folder or a Hub name")], commands.pack)
    pretrain = add("pretrain", help="train a small tokenizer and model from scratch")
    size = [("--size", "size", "tiny, mini, small, medium or base")]
    _flags(_with_run(pretrain, "corpus/ and task/"), size, commands.pretrain)
    pretrain.add_argument("--to", type=Path, help="folder of the model (default DIR/base)")
    _flags(add("finetune", help="fine-tune a checkpoint on a labelled task, over seeds"), FINETUNE, commands.finetune)


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
        many: dict[str, Any] = {"nargs": "+"} if setting in MANY else {}
        parser.add_argument(flag, dest=setting, help=text, metavar=flag[2:].replace("-", "_").upper(), **many)
    if config:
        parser.add_argument("--config", type=Path, help="a recipe's YAML, whose settings the flags override")
        parser.add_argument(
            "--set", dest="overrides", nargs="+", default=[], metavar="key=value", help="any other setting"
        )
    parser.description = inspect.getdoc(run)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(run=run, settings=[setting for _, setting, _ in flags])
