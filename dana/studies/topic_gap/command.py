"""The command ``dana studies topic-gap``."""

import argparse

from dana.cli.flags import INTEGERS, MANY, AddCommand, Flag, add_command, add_remake, plain_flags
from dana.cli.settings import settings_from
from dana.cli.tasks import FINETUNE


def _topic(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text


READS = ("topic_gap", "finetune", "topics", "inputs", "on_bad_record")
OF_FINETUNING = (
    "--data --task-path --text-field --label-field --id-field --seeds --preset --jobs --out"
)
FLAGS = [
    Flag("--model", "model", "checkpoint to fine-tune: a folder or a Hub name"),
    *(flag for flag in FINETUNE if flag.name in OF_FINETUNING.split()),
    Flag("--n", "topic_gap.n", options=INTEGERS),
    Flag("--topics", "topic_gap.topics", options={"nargs": "+", "type": _topic}),
    Flag("--topics-k", "topics.k", options=INTEGERS),
    Flag("--pool", "pool", "text to fit topics to, instead of the task's", MANY),
    *plain_flags("topics_of arms+ test validation labels+ window short draw", "topic_gap."),
    *plain_flags("seed", "selection."),
]


def add_topic_gap(add: AddCommand) -> None:
    """Add the command to the command line's subparsers."""
    command = add_command(add, "topic-gap", _topic_gap, FLAGS, reads=READS)
    add_remake(command)
    command.add_argument("card", metavar="CARD", help="name or YAML file of a task card")


def _topic_gap(args: argparse.Namespace) -> None:
    """Measure how much a classifier relies on topic: train on or off a topic, test on it.

    For every topic, --n and seed, fine-tunes --model on texts about the topic and on texts least
    about it, and tests both on texts about it. The difference is what it learnt of topic instead of
    label. Writes tables with tests over topics and the page OUT/topic_gap.html. If it is killed,
    the same command resumes.

      dana studies topic-gap genre_mix --model MODEL --topics-k 10 --n 30 100 --seeds 3 --short keep
      --out runs/gap
    """
    from dana.core.remake import call_remaking
    from dana.studies.topic_gap.stage import run_topic_gap

    settings = settings_from(args)
    page = call_remaking(lambda: run_topic_gap(args.card, settings, args.remake), args.remake)
    print(page.with_suffix(".md").read_text(encoding="utf-8").partition("\n## Macro-F1")[0])
    text = page.with_suffix(".md").name
    print(f"written: {page}, {text}, tables/results.csv, gap.csv and summary.csv")
