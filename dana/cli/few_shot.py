"""The command of the few-shot study with a chat model: ``dana few-shot``."""

import argparse
from pathlib import Path

from dana.cli.flags import AddCommand, Flag, add_command
from dana.cli.given import keep, settings_from

FLAGS = [
    Flag("--chat", "few_shot.chat"),
    Flag("--arms", "few_shot.arms", options={"nargs": "+"}),
    Flag("--script", "few_shot.script"),
    Flag("--seed", "selection.seed"),
    Flag("--out", "out"),
]


def add_few_shot(add: AddCommand) -> None:
    """Add the command.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    few_shot = add_command(add, "few-shot", _few_shot, FLAGS)
    few_shot.add_argument("--items-from", type=Path, required=True, metavar="FILE", help="JSONL with the items")


def _few_shot(parsed: argparse.Namespace) -> None:
    """Ask a chat model which of two labels a text has, with examples of the text's topic and of others.

    A conversation an item and arm, of five turns: examples of both labels, which go by Class A and Class B, and the
    question what sets them apart; three criteria applied to the text, one at a time; and the decision. Abstentions and
    answers that cannot be parsed are counted apart, and count as wrong. Writes OUT/few-shot: few_shot.md (the answer in
    words), summary.csv (a row an arm, exact 95 % intervals), paired.csv (exact McNemar test of on against off topic),
    results.csv, criteria.csv and transcripts.jsonl.

    --chat is local:MODEL (transformers, with the tokenizer's chat template), scripted:FILE (replies as JSONL), or
    http:BASE_URL,model=NAME for any OpenAI-compatible endpoint; its key is read from the environment variable that
    key_env names, and written nowhere. Killed or cut off, the same command goes on with the next conversation.

      dana few-shot --items-from items.jsonl --chat http:http://localhost:8000/v1,model=NAME --out runs/few-shot
    """
    from dana.stages.few_shot import TEXT, run_few_shot

    settings = settings_from(parsed)
    artifact = run_few_shot(settings, parsed.items_from)
    keep(settings, Path(settings.out))
    print((artifact.path / TEXT).read_text(encoding="utf-8"))
    print(f"written: {artifact.path}")
