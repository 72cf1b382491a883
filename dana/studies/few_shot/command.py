"""The command of the few-shot study with a chat model: ``dana few-shot``."""

import argparse
from pathlib import Path

from dana.cli.flags import AddCommand, Flag, add_command
from dana.cli.given import keep, settings_from
from dana.studies.topic_gap.command import FLAGS as GAP_FLAGS

OF_GAP = (
    "--topics-of --topics --topics-k --general --labels --test --window --short --draw"
    " --text-field --label-field --id-field --data --task-path"
)
FLAGS = [
    Flag("--chat", "few_shot.chat"),
    Flag("--items", "few_shot.items"),
    Flag("--shots", "few_shot.shots"),
    Flag("--n", "few_shot.n"),
    *(flag for flag in GAP_FLAGS if flag.name in OF_GAP.split()),
    Flag("--seed", "selection.seed", "root seed of windows, topics, items and conversations (default: 0)"),
    Flag("--out", "out"),
]


def add_few_shot(add: AddCommand) -> None:
    """Add the command.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    reads = ("few_shot", "topic_gap", "topics", "inputs", "on_bad_record", "finetune")
    few_shot = add_command(add, "few-shot", _few_shot, FLAGS, reads=reads)
    few_shot.add_argument("card", metavar="CARD", help="a task card's name or YAML file")


def _few_shot(parsed: argparse.Namespace) -> None:
    """Ask a chat model which of two labels a text has, with examples of the text's topic and of others.

    Items are drawn from CARD: a topic, two labels, a text about the topic of either with equal chance, and --shots
    examples of both, on the topic and off it (the sets are those of dana topic-gap). A conversation an item and
    arm, of five turns: examples of both labels, which go by Class A and Class B, and the question what sets them apart;
    three criteria applied to the text, one at a time; and the decision. Abstentions and answers that cannot be parsed
    are counted apart, and count as wrong. Writes OUT/few-shot: few_shot.md (the answer in words), summary.csv (a row an
    arm, exact 95 % intervals), paired.csv (exact McNemar test of on against off topic), results.csv, transcripts.jsonl
    and items.jsonl.

    --chat is local:MODEL (transformers, with the tokenizer's chat template), scripted:FILE (replies as JSONL), or
    http:BASE_URL,model=NAME for any OpenAI-compatible endpoint; its key is read from the environment variable that
    key_env names, and written nowhere. Killed or cut off, the same command goes on with the next conversation.

      dana few-shot genre_mix --short keep --chat http:http://localhost:8000/v1,model=NAME --out runs/few-shot
      dana few-shot genre_mix --short keep --chat local:MODEL --out runs/other-model
    """
    from dana.studies.few_shot.stage import TEXT, run_few_shot

    settings = settings_from(parsed)
    artifact = run_few_shot(settings, parsed.card)
    keep(settings, Path(settings.out))
    print((artifact.path / TEXT).read_text(encoding="utf-8"))
    print(f"written: {artifact.path}")
