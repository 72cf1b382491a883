"""The command of topic models: ``dana topics``."""

import argparse
from pathlib import Path

from dana.cli.flags import AddCommand, Flag, add_command, local_folder
from dana.cli.given import keep, settings_from
from dana.cli.selection import TEXTS
from dana.core.errors import ConfigError

OF_TEXTS = "--general --on-bad-record --text-field --id-field --text-documents --near-duplicates --sample --seed --out"
FLAGS = [
    *(flag for flag in TEXTS if flag.name in OF_TEXTS.split()),
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
    topics = add_command(add, "topics", _topics, FLAGS)
    topics.set_defaults(processes=True)
    topics.add_argument("action", choices=["fit", "show", "assign"])
    of = "assign: a run's folder with the topics (default: that of --out)"
    topics.add_argument("--topics-of", type=local_folder, metavar="DIR", help=of)


def _topics(parsed: argparse.Namespace) -> None:
    """Fit topics to the general text, show what they are, or say of each document how much of it is of each.

    fit     draw --fit documents, fit --model to them for every number of topics in --k from --seeds beginnings, keep
            the best by coherence times diversity. Writes OUT/topic-model: the model (safetensors, JSON), topics.csv,
            fits.csv.
    show    print what is in OUT/topic-model: of each topic its share, coherence and words.
    assign  write OUT/topics/part-*.parquet, a row a document: doc_id, source, topic (the largest), share (its), words
            (known ones), theta (the shares of all topics; pandas.read_parquet("OUT/topics") opens it). Takes the
            corpus in OUT, or --general; the topics in OUT, or those of --topics-of.

    Killed, the same command goes on: fit with the fits that are missing, assign with the shards. torchrun
    --nproc_per_node N -m dana topics assign shares the shards; the bytes are the same whoever did what.

      dana topics fit --general 'pool/*.jsonl.gz' --k 10 25 50 --seeds 3 --out runs/pool
      dana topics assign --topics-of runs/pool --general other/ --out runs/other
    """
    from dana.studies.topics.stage import run_topic_assign, run_topic_fit, topics_text

    _check_flags(parsed)
    settings = settings_from(parsed)
    out = Path(settings.out)
    is_named = bool(parsed.general or parsed.config or any(text.startswith("general=") for text in parsed.overrides))
    if parsed.action == "show":
        print(topics_text(out))
    elif parsed.action == "fit":
        artifact = run_topic_fit(settings, is_named)
        keep(settings, out)
        print(f"{topics_text(out)}\n\nwritten: {artifact.path}")
    else:
        artifact = run_topic_assign(settings, parsed.topics_of or out, is_named)
        keep(settings, out)
        print(f"written: {artifact.path} ({artifact.manifest['counts']['units']:,} documents)")


def _check_flags(parsed: argparse.Namespace) -> None:
    """Refuse flags that the action does not look at.

    Raises:
        ConfigError: Naming the flag.
    """
    given = {setting: flag for setting, flag in parsed.flags.items() if getattr(parsed, setting) is not None}
    given |= {override.partition("=")[0]: override for override in parsed.overrides}
    of_fit = ("topics.", "selection.") if parsed.action == "assign" else ""
    ignored = [key for key in given if key != "out" and key.startswith(of_fit)] if parsed.action != "fit" else []
    if ignored:
        raise ConfigError(f"topics {parsed.action}: {given[ignored[0]]} belongs to fit")
    if parsed.topics_of is not None and parsed.action != "assign":
        raise ConfigError(f"topics {parsed.action}: --topics-of belongs to assign")
