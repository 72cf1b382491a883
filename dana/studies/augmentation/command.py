"""The command of synthetic training text: ``dana augment``."""

import argparse

from dana.cli.flags import AddCommand, add_command, local_folder

SETTINGS = ("ratio", "keywords", "reading", "generator", "control", "shuffle_labels", "seed")


def add_augment(add: AddCommand) -> None:
    """Add the command.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    augment = add_command(add, "augment", _augment, settings=False)
    augment.add_argument("card", metavar="CARD", help="a task card's name or YAML file, of one label a text")
    augment.add_argument("--data", metavar="PATH", help="folder of the card's data")
    topics = "a run's folder with topics (dana topics fit)"
    augment.add_argument("--topics-of", type=local_folder, required=True, metavar="DIR", help=topics)
    augment.add_argument("--topic", type=int, metavar="T", help="control topic: its number, from 0")
    pool = "control topic: keyword pool, files of text without labels, without the card's test texts"
    augment.add_argument("--general", nargs="+", default=[], metavar="FILES", help=pool)
    transductive = "let the pool hold test texts; without --general it is the test texts, without their labels"
    augment.add_argument("--transductive", action="store_true", help=transductive)
    augment.add_argument("--ratio", type=float, help="synthetic texts of a label for each real one of it (default: 1)")
    augment.add_argument("--keywords", type=int, metavar="N", help="different keywords of a document (default: 10)")
    reading = "keyword score: paper (default), or release, that of the paper's code"
    augment.add_argument("--reading", metavar="WHICH", help=reading)
    generator = "embedded (default), which needs no checkpoint, or t5:model=FOLDER, with settings as t5:...,epochs=16"
    augment.add_argument("--generator", metavar="SPEC", help=generator)
    control = "keywords from documents on the topic (topic, default), from random labelled texts (random), or none"
    augment.add_argument("--control", metavar="WHERE", help=control)
    shuffle = "give the synthetic texts each other's labels at random, to see what labels are worth"
    augment.add_argument("--shuffle-labels", action="store_true", default=None, help=shuffle)
    augment.add_argument("--seed", type=int, help="of generators, texts and draws (default: 0)")
    augment.add_argument("--out", type=local_folder, required=True, metavar="DIR", help="folder of the texts")


def _augment(parsed: argparse.Namespace) -> None:
    """Write synthetic labelled texts on a topic that the labelled texts lack.

    A generator a label learns to write the label's texts from their keywords, then writes texts from the keywords of
    documents on the topic, which need no labels. Writes OUT/synthetic.jsonl (id, text, label, topic, keywords,
    keywords_of, generator, seed, written_for), OUT/train.jsonl, the real and the synthetic texts, dev.jsonl and
    test.jsonl, so that --data OUT of dana finetune takes the folder. Killed, the same command goes on with the labels
    that are missing. docs/studies/augmentation.md says more.

      dana augment mycard --topics-of runs/pool --topic 3 --general 'pool/*.jsonl.gz' --out runs/on-topic-3
      dana augment mycard --topics-of runs/pool --control random --out runs/random-keywords
      dana finetune --model dana-mini --task-card mycard --data runs/on-topic-3 --out runs/tuned
    """
    from dana.studies.augmentation.stage import augment_stage, augmented_text
    from dana.studies.augmentation.synthetic import AugmentSettings
    from dana.tasks.card import load_card

    given = {name: value for name in SETTINGS if (value := getattr(parsed, name)) is not None}
    artifact = augment_stage(
        load_card(parsed.card),
        parsed.data,
        parsed.topics_of,
        AugmentSettings(**given),
        parsed.out,
        topic=parsed.topic,
        general=parsed.general,
        transductive=parsed.transductive,
    )
    print(f"{augmented_text(artifact)}\nwritten: {artifact.path}")
