"""The command ``dana studies few-shot``."""

import argparse
from pathlib import Path

from dana.cli.flags import AddCommand, add_command, add_remake, plain_flags
from dana.cli.settings import settings_from
from dana.studies.topic_gap.command import FLAGS as GAP_FLAGS

OF_GAP = (
    "--topics-of --topics --topics-k --pool --labels --test --window --short --draw"
    " --text-field --label-field --id-field --data --task-path --seed --out"
)
FLAGS = [
    *plain_flags("chat items shots n", "few_shot."),
    *(flag for flag in GAP_FLAGS if flag.name in OF_GAP.split()),
]


def add_few_shot(add: AddCommand) -> None:
    """Add the command to the command line's subparsers."""
    reads = ("few_shot", "topic_gap", "topics", "inputs", "on_bad_record", "finetune")
    few_shot = add_command(add, "few-shot", _few_shot, FLAGS, reads=reads)
    add_remake(few_shot)
    few_shot.add_argument("card", metavar="CARD", help="a task card's name or YAML file")


def _few_shot(args: argparse.Namespace) -> None:
    """Ask a chat model which of two labels a text has, given examples on and off its topic.

    Draws items from CARD: a topic, two labels, a text of one of them about the topic, and --shots
    examples of both, on and off topic (the sets of topic-gap). Each item and arm is a conversation
    of five turns: examples of Class A and Class B, and the question for three criteria that
    separate them; each criterion applied to the text; the decision. Abstentions and answers that
    cannot be parsed count as wrong and are reported separately. Writes OUT/few-shot: few_shot.md
    (the result in words), summary.csv (one row per arm, exact 95 % intervals), paired.csv (exact
    McNemar test of on against off topic), results.csv, transcripts.jsonl and items.jsonl.

    --chat is local:MODEL (transformers, with the tokenizer's chat template; local:smollm2 needs no
    model hub), or http:BASE_URL,model=NAME for any OpenAI-compatible endpoint. An endpoint's key is
    read from the environment variable named by key_env and never written. If it is killed or
    disconnected, the same command resumes with the next conversations.

      dana studies few-shot genre_mix --short keep --chat local:smollm2 --out runs/small-model
      dana studies few-shot mycard --chat http:http://localhost:8000/v1,model=NAME --out runs/few-shot
    """
    from dana.core.remake import call_remaking
    from dana.stages.recipe import begin_recipe
    from dana.studies.few_shot.stage import TEXT, run_few_shot

    settings = settings_from(args)
    artifact = call_remaking(lambda: run_few_shot(settings, args.card), args.remake)
    begin_recipe(settings, Path(settings.out))
    print((artifact.path / TEXT).read_text(encoding="utf-8"))
    print(f"written: {artifact.path}")
