"""The command of topic models: ``dana topics``."""

import argparse
from pathlib import Path

from dana.cli.flags import AddCommand, Flag, add_command, add_group, local_folder
from dana.cli.given import keep, settings_from
from dana.cli.selection import TEXTS

OF_TEXTS = "--general --on-bad-record --text-field --id-field --text-documents --near-duplicates --sample --out"
TEXT = [flag for flag in TEXTS if flag.name in OF_TEXTS.split()]
FIT = [
    *TEXT,
    Flag("--seed", "selection.seed"),
    Flag("--model", "topics.model"),
    Flag("--k", "topics.k", options={"nargs": "+", "type": int}),
    Flag("--seeds", "topics.seeds"),
    Flag("--vocabulary", "topics.vocabulary"),
    Flag("--min-documents", "topics.min_documents"),
    Flag("--max-share", "topics.max_share"),
    Flag("--stop-words", "topics.stop_words"),
    Flag("--fit", "topics.fit"),
]


def add_topics(add: AddCommand) -> None:
    """Add the command.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    text = "Fit topics to the general text, show what they are, or say of each document how much of it is of each"
    topics = add_group(add, "topics", text)
    add_command(topics, "fit", _fit, FIT).set_defaults(processes=True, command="topics fit")
    add_command(topics, "show", _show, [Flag("--out", "out")]).set_defaults(command="topics show")
    assign = add_command(topics, "assign", _assign, TEXT)
    assign.set_defaults(processes=True, command="topics assign")
    of = "a run's folder with the topics (default: that of --out)"
    assign.add_argument("--topics-of", type=local_folder, metavar="DIR", help=of)


def _fit(parsed: argparse.Namespace) -> None:
    """Fit topics to the general text, and keep the best.

    Draws --fit documents, fits --model to them for every number of topics in --k from --seeds beginnings, keeps the
    best by coherence times diversity. Writes OUT/topic-model: the model (safetensors, JSON), topics.csv, fits.csv.
    Killed, the same command goes on with the fits that are missing.

      dana topics fit --general 'pool/*.jsonl.gz' --k 10 25 50 --seeds 3 --out runs/pool
    """
    from dana.studies.topics.stage import run_topic_fit, topics_text

    settings = settings_from(parsed)
    artifact = run_topic_fit(settings, "general" in parsed.given)
    keep(settings, Path(settings.out))
    print(f"{topics_text(Path(settings.out))}\n\nwritten: {artifact.path}")


def _show(parsed: argparse.Namespace) -> None:
    """Show the topics in OUT/topic-model: of each its share, coherence and words."""
    from dana.studies.topics.stage import topics_text

    print(topics_text(Path(settings_from(parsed).out)))


def _assign(parsed: argparse.Namespace) -> None:
    """Say of each document how much of it is of each topic.

    Writes OUT/topics/part-*.parquet, a row a document: doc_id, source, topic (the largest), share (its), words (known
    ones), theta (the shares of all topics; pandas.read_parquet("OUT/topics") opens it). Takes the corpus in OUT, or
    --general; the topics in OUT, or those of --topics-of. Killed, the same command goes on with the shards that are
    missing. torchrun --nproc_per_node N -m dana topics assign shares them; the bytes are the same whoever did what.

      dana topics assign --topics-of runs/pool --general other/ --out runs/other
    """
    from dana.studies.topics.stage import run_topic_assign

    settings = settings_from(parsed)
    artifact = run_topic_assign(settings, parsed.topics_of or Path(settings.out), "general" in parsed.given)
    keep(settings, Path(settings.out))
    print(f"written: {artifact.path} ({artifact.manifest['counts']['units']:,} documents)")
