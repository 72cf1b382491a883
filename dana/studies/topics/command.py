"""The command ``dana studies topics``."""

import argparse
from pathlib import Path

from dana.cli.flags import (
    INTEGERS,
    AddCommand,
    Flag,
    add_command,
    add_group,
    add_remake,
    local_folder,
    plain_flags,
)
from dana.cli.selection import TEXTS
from dana.cli.settings import settings_from

OF_TEXTS = (
    "--pool --on-bad-record --text-field --id-field --text-documents --near-duplicates --sample"
    " --out"
)
TEXT = [flag for flag in TEXTS if flag.name in OF_TEXTS.split()]
FIT = [
    *TEXT,
    *plain_flags("seed", "selection."),
    Flag("--k", "topics.k", options=INTEGERS),
    *plain_flags("model seeds vocabulary min_documents max_share stop_words fit", "topics."),
]


def add_topics(add: AddCommand) -> None:
    """Add the command to the command line's subparsers."""
    text = "Fit topics to the pool, show them, or compute each document's shares"
    topics = add_group(add, "topics", text)
    fit = add_command(topics, "fit", _fit, FIT)
    fit.set_defaults(processes=True)
    add_remake(fit)
    add_command(topics, "show", _show, [Flag("--out", "out")])
    assign = add_command(topics, "assign", _assign, TEXT)
    assign.set_defaults(processes=True)
    add_remake(assign)
    text = "folder of the run with the topics (default: --out)"
    assign.add_argument("--topics-of", type=local_folder, metavar="DIR", help=text)


def _fit(args: argparse.Namespace) -> None:
    """Fit topics to the pool and save the best model.

    Draws --fit documents, fits --model to them for every number of topics in --k and every seed,
    and saves the fit with the best coherence times diversity. Writes OUT/topic-model: the model
    (safetensors, JSON), topics.csv and fits.csv. If it is killed, the same command resumes with the
    missing fits.

      dana studies topics fit --pool 'pool/*.jsonl.gz' --k 10 25 50 --seeds 3 --out runs/pool
    """
    from dana.core.remake import call_remaking
    from dana.stages.recipe import begin_recipe
    from dana.studies.topics.stage import run_topic_fit, topics_text

    settings = settings_from(args)
    is_named = "pool" in args.explicit
    artifact = call_remaking(lambda: run_topic_fit(settings, is_named), args.remake)
    begin_recipe(settings, Path(settings.out))
    print(f"{topics_text(Path(settings.out))}\n\nwritten: {artifact.path}")


def _show(args: argparse.Namespace) -> None:
    """Show the topics in OUT/topic-model: share, coherence and words of each."""
    from dana.studies.topics.stage import topics_text

    print(topics_text(Path(settings_from(args).out)))


def _assign(args: argparse.Namespace) -> None:
    """Compute each document's shares of the topics.

    Writes OUT/topics/part-*.parquet with one row per document: doc_id, source, topic (the largest),
    share (of that topic), words (in the vocabulary), theta (shares of all topics).
    pandas.read_parquet("OUT/topics") opens it. Uses the pool in OUT or --pool, and the topics
    in OUT or in --topics-of. If it is killed, the same command resumes with the missing shards.
    torchrun --nproc_per_node N -m dana studies topics assign shares the work and writes the same
    bytes.

      dana studies topics assign --topics-of runs/pool --pool other/ --out runs/other
    """
    from dana.core.remake import call_remaking
    from dana.stages.recipe import begin_recipe
    from dana.studies.topics.stage import run_topic_assign

    settings = settings_from(args)
    topics_of = args.topics_of or Path(settings.out)
    is_named = "pool" in args.explicit
    artifact = call_remaking(lambda: run_topic_assign(settings, topics_of, is_named), args.remake)
    begin_recipe(settings, Path(settings.out))
    print(f"written: {artifact.path} ({artifact.manifest['counts']['units']:,} documents)")
