"""The flags and the work of ``dana tasks topic-gap``."""

import argparse
from pathlib import Path

from dana.cli.flags import MANY, Flag
from dana.cli.given import settings_from

NUMBERS = {"nargs": "+", "type": int}
TOPICS = {"nargs": "+", "type": lambda text: int(text) if text.lstrip("-").isdigit() else text}
READS = ("topic_gap", "finetune", "topics", "inputs", "on_bad_record")
FLAGS = [
    Flag("--model", "model", "topic-gap: checkpoint to fine-tune: a folder or a Hub name"),
    Flag("--n", "topic_gap.n", "topic-gap: texts of each label to train on", NUMBERS),
    Flag("--topics", "topic_gap.topics", "topic-gap: topics by number, from 0, or all", TOPICS),
    Flag("--topics-k", "topics.k", "topic-gap: how many topics are fitted; of several the best is taken", NUMBERS),
    Flag("--topics-of", "topic_gap.topics_of", "topic-gap: a run's folder with topics (dana topics fit)"),
    Flag("--general", "general", "topic-gap: text to fit topics to, instead of the task's own", MANY),
    Flag("--arms", "topic_gap.arms", "topic-gap: what is trained on: on, off, augmented, ..., or a plug-in's", MANY),
    Flag("--test", "topic_gap.test", "topic-gap: texts of each label to test on, on topic"),
    Flag("--validation", "topic_gap.validation", "topic-gap: texts of each label to choose the epoch by, off topic"),
    Flag("--labels", "topic_gap.labels", "topic-gap: labels to take (default: all)", MANY),
    Flag("--window", "topic_gap.window", "topic-gap: characters that are kept of a document"),
    Flag("--short", "topic_gap.short", "topic-gap: drop documents shorter than the window, or keep them whole"),
    Flag("--draw", "topic_gap.draw", "topic-gap: sets by ranks, or random among the same documents"),
    Flag("--seeds", "finetune.seeds", "topic-gap: seeds of fine-tuning: how many, from 0"),
    Flag("--preset", "finetune.preset", "topic-gap: hyper-parameters of the card: paper, default or quick"),
    Flag("--text-field", "finetune.text_field", "topic-gap: field of the text, instead of the card's"),
    Flag("--label-field", "finetune.label_field", "topic-gap: field of the label, instead of the card's"),
    Flag("--id-field", "finetune.id_field", "topic-gap: field that names an example, instead of the card's"),
    Flag("--seed", "selection.seed", "topic-gap: root seed of windows, topics and draws"),
    Flag("--jobs", "jobs", "topic-gap: cells that run side by side, each in a process of its own"),
]


def measure_gap(parsed: argparse.Namespace) -> None:
    """Run the measurement, or list its cells.

    Args:
        parsed: The command line.
    """
    from dana.studies.topic_gap.stage import plan_topic_gap, run_topic_gap

    settings = settings_from(parsed)
    if parsed.dry_run:
        states = plan_topic_gap(parsed.name, settings).states()
        print("\n".join(f"{state:<8} {cell}" for cell, state in states.items()))
        return
    page = run_topic_gap(parsed.name, settings)
    print(page.read_text(encoding="utf-8").partition("\n## Macro-F1")[0])
    for name in ("results.csv", "gap.csv", "summary.csv", page.name):
        print(f"written: {Path(settings.out) / name}")
