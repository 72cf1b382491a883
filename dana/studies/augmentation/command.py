"""The command ``dana studies augment``."""

import argparse

from dana.cli.flags import AddCommand, add_command, add_remake, local_folder

SETTINGS = ("ratio", "keywords", "reading", "generator", "control", "shuffle_labels", "seed")


def add_augment(add: AddCommand) -> None:
    """Add the command to the command line's subparsers."""
    augment = add_command(add, "augment", _augment, settings=False)
    add_remake(augment)
    augment.add_argument(
        "card", metavar="CARD", help="name or YAML file of a task card with one label per text"
    )
    augment.add_argument("--data", metavar="PATH", help="folder of the card's data")
    topics = "folder of a run with topics (dana studies topics fit)"
    augment.add_argument(
        "--topics-of", type=local_folder, required=True, metavar="DIR", help=topics
    )
    augment.add_argument(
        "--topic", type=int, metavar="T", help="control topic: number of the topic, from 0"
    )
    pool = "control topic: keyword pool, files of unlabelled text without the card's test texts"
    augment.add_argument("--pool", nargs="+", default=[], metavar="FILES", help=pool)
    transductive = (
        "allow test texts in the pool; without --pool the pool is the test texts, without labels"
    )
    augment.add_argument("--transductive", action="store_true", help=transductive)
    augment.add_argument(
        "--ratio", type=float, help="synthetic texts of a label per real one (default: 1)"
    )
    augment.add_argument(
        "--keywords", type=int, metavar="N", help="distinct keywords per document (default: 10)"
    )
    reading = "keyword score: paper (default), or release, as in the paper's code"
    augment.add_argument("--reading", metavar="WHICH", help=reading)
    generator = (
        "embedded (default), without a checkpoint; chat:MODEL, a chat model such as smollm2;"
        " t5:model=..."
    )
    augment.add_argument("--generator", metavar="SPEC", help=generator)
    control = (
        "source of keywords: documents on the topic (topic, default), random labelled texts"
        " (random), or none"
    )
    augment.add_argument("--control", metavar="WHERE", help=control)
    shuffle = "shuffle the labels of the synthetic texts, as a control"
    augment.add_argument("--shuffle-labels", action="store_true", default=None, help=shuffle)
    augment.add_argument(
        "--seed", type=int, help="seed of generators, texts and draws (default: 0)"
    )
    augment.add_argument(
        "--out", type=local_folder, required=True, metavar="DIR", help="folder of the texts"
    )


def _augment(args: argparse.Namespace) -> None:
    """Write synthetic labelled texts on a topic that the labelled texts lack.

    Fits one generator per label to the label's texts and their keywords, then writes texts from the
    keywords of unlabelled documents on the topic, and measures how well a classifier of words tells
    them from real ones (an AUROC, in the manifest too). Writes OUT/synthetic.jsonl (id, text,
    label, topic, keywords, keywords_of, generator, seed, written_for), OUT/train.jsonl with real
    and synthetic texts, dev.jsonl and test.jsonl, so that dana finetune takes the folder as --data
    OUT. If it is killed, the same command resumes with the missing labels. See
    docs/studies/augmentation.md.

      dana studies augment mycard --topics-of runs/pool --topic 3 --pool pool/ --out runs/on-topic-3
      dana studies augment mycard --topics-of runs/pool --control random --out runs/random
      dana finetune --model dana-mini --task mycard --data runs/on-topic-3 --out runs/tuned
    """
    from dana.core.artifacts import Artifact
    from dana.core.remake import call_remaking
    from dana.studies.augmentation.stage import augment_stage, augmentation_text
    from dana.studies.augmentation.synthetic import AugmentSettings
    from dana.tasks.card import load_card

    values = {name: getattr(args, name) for name in SETTINGS}
    settings = {name: value for name, value in values.items() if value is not None}

    def augment() -> Artifact:
        return augment_stage(
            load_card(args.card),
            args.data,
            args.topics_of,
            AugmentSettings(**settings),
            args.out,
            topic=args.topic,
            pool=args.pool,
            transductive=args.transductive,
        )

    artifact = call_remaking(augment, args.remake)
    print(f"{augmentation_text(artifact)}\nwritten: {artifact.path}")
