"""The command that measures what a classifier leans on topic: ``dana topic-gap``."""

import argparse

from dana.cli.flags import MANY, AddCommand, Flag, add_command
from dana.cli.given import settings_from
from dana.cli.tasks import FINETUNE

NUMBERS = {"nargs": "+", "type": int}
TOPICS = {"nargs": "+", "type": lambda text: int(text) if text.lstrip("-").isdigit() else text}
READS = ("topic_gap", "finetune", "topics", "inputs", "on_bad_record")
OF_FINETUNING = "--model --data --task-path --text-field --label-field --id-field --seeds --preset"
FLAGS = [
    *(flag for flag in FINETUNE if flag.name in OF_FINETUNING.split()),
    Flag("--n", "topic_gap.n", "texts of each label to train on", NUMBERS),
    Flag("--topics", "topic_gap.topics", "topics by number, from 0, or all", TOPICS),
    Flag("--topics-k", "topics.k", "how many topics are fitted; of several the best is taken", NUMBERS),
    Flag("--topics-of", "topic_gap.topics_of", "a run's folder with topics (dana topics fit)"),
    Flag("--general", "general", "text to fit topics to, instead of the task's own", MANY),
    Flag("--arms", "topic_gap.arms", "what is trained on: on, off, augmented, ..., or a plug-in's", MANY),
    Flag("--test", "topic_gap.test", "texts of each label to test on, on topic"),
    Flag("--validation", "topic_gap.validation", "texts of each label to choose the epoch by, off topic"),
    Flag("--labels", "topic_gap.labels", "labels to take (default: all)", MANY),
    Flag("--window", "topic_gap.window", "characters that are kept of a document"),
    Flag("--short", "topic_gap.short", "drop documents shorter than the window, or keep them whole"),
    Flag("--draw", "topic_gap.draw", "sets by ranks, or random among the same documents"),
    Flag("--seed", "selection.seed", "root seed of windows, topics and draws"),
    Flag("--out", "out"),
    Flag("--jobs", "jobs", "cells that run side by side, each in a process of its own"),
]


def add_topic_gap(add: AddCommand) -> None:
    """Add the command.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    command = add_command(add, "topic-gap", _topic_gap, FLAGS, reads=READS)
    command.add_argument("card", metavar="CARD", help="a task card's name or YAML file")


def _topic_gap(parsed: argparse.Namespace) -> None:
    """Measure how much a classifier leans on topic: train on texts about one or not, test on texts about it.

    Fine-tunes --model on texts about a topic, and on texts that are least about it, and tests both on texts about it:
    what is lost is what it had learnt of topic instead of label. For every topic, --n and seed. Writes tables over
    topics with tests, and OUT/topic_gap.html, which says it in words. Killed, the same command goes on.

      dana topic-gap genre_mix --model MODEL --topics-k 10 --n 30 100 --seeds 3 --short keep --out runs/gap
    """
    from dana.studies.topic_gap.stage import run_topic_gap

    page = run_topic_gap(parsed.card, settings_from(parsed))
    print(page.with_suffix(".md").read_text(encoding="utf-8").partition("\n## Macro-F1")[0])
    print(f"written: {page}, {page.with_suffix('.md').name}, tables/results.csv, gap.csv and summary.csv")
