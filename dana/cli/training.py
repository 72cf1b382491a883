"""The command that trains language models: ``dana adapt``."""

import argparse
from pathlib import Path
from typing import Any

from dana.cli.flags import MANY, AddCommand, Flag, add_command, add_dry_run, local_folder, plain_flags
from dana.cli.settings import next_command, save_settings, settings_from
from dana.core.errors import ConfigError
from dana.core.logging import is_main_process

SIZES = "train a tokenizer and an encoder of this size instead: tiny, mini, small, medium, base"
ADAPT = [
    Flag("--model", "model", "checkpoint to adapt: a folder or a Hub name"),
    Flag("--from-scratch", "size", SIZES),
    *plain_flags("steps tokens epochs schedule", "adapt."),
    Flag("--mix", "adapt.mix", "shares of the text by kind, such as '{selected: 0.7, general: 0.3}'; also task"),
    Flag("--objective", "adapt.objective", "masked or next_sentence, with parameters as masked:mask_rate=0.3"),
    *plain_flags("batch_size max_tokens learning_rate", "adapt."),
    Flag("--denominator", "adapt.denominator", "batch, weight_sum or token_count: docs/design.md, Loss"),
    *plain_flags("seed", "adapt."),
    *plain_flags("extend resume", "adapt.execution."),
    Flag("--layout", "adapt.execution.layout", "padded or unpadded; auto: by the device"),
    Flag("--track", "adapt.execution.trackers", "log to trackers: tensorboard, wandb", MANY),
]


def add_training(add: AddCommand) -> None:
    """Add the command.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    folder = "corpus/, weights/ and task/"
    adapt = add_command(add, "adapt", _adapt, ADAPT, folder=folder, reads=["pretrain"], json=True)
    adapt.set_defaults(processes=True)
    add_dry_run(adapt)
    adapt.add_argument("--weights", type=local_folder, help="folder of the weights (default: DIR/weights)")
    adapt.add_argument("--unweighted", action="store_true", help="train on the whole corpus with weight 1")
    out = "folder of the model (default: DIR/adapted, or DIR/base with --from-scratch)"
    adapt.add_argument("--out", dest="to", metavar="OUT", type=local_folder, help=out)
    adapt.add_argument("--push-to-hub", metavar="NAME", help="also upload the folder, privately, as organisation/name")


def _adapt(args: argparse.Namespace) -> dict[str, Any]:
    """Continue pretraining a masked language model on the weighted text.

    After a stop or kill the same command resumes from the newest checkpoint; SIGTERM and SIGUSR1 save first and end
    with exit code 75. Several processes: accelerate launch --config_file accelerate_configs/X.yaml recipes/adapt.py.

    Writes DIR/adapted, a Hugging Face folder that from_pretrained opens without dana, with training.jsonl: the loss
    on held-out task text and on held-out general text before, during and after training.

    --from-scratch SIZE trains a WordPiece tokenizer and a new encoder on DIR/corpus by the same loop, into DIR/base.
    Its settings are those of the section pretrain; flags such as --steps fill them.
    """
    from dana.core.config import require
    from dana.stages.texts import held_out_folders
    from dana.stages.training import adapt_stage, pretrain_stage

    folder, is_new = args.folder, args.size is not None
    if args.unweighted and args.weights:
        raise ConfigError("--weights has no effect with --unweighted; remove one of them")
    settings = settings_from(args)
    usual = folder / ("base" if is_new else "adapted")
    out, texts = args.to or usual, held_out_folders(folder)
    if is_new:
        artifact = pretrain_stage(settings.size, folder / "corpus", *texts, settings.pretrain, out)
    else:
        require(bool(settings.model), "--model", settings.model, "the checkpoint to adapt: a folder or a Hub name")
        weights = None if args.unweighted else args.weights or folder / "weights"
        artifact = adapt_stage(str(settings.model), folder / "corpus", weights, *texts, settings.adapt, out)
    if out == usual:
        save_settings(settings, folder)
    print(f"written: {artifact.path}")
    answer = {"model": artifact.path, "counts": artifact.manifest["counts"]}
    answer |= publish(artifact.path, args.push_to_hub, "model")
    if is_new:
        print(next_command("adapt", folder, "--model", artifact.path))
    else:
        print(next_command("report", folder, note="or, with labelled data, dana finetune: docs/guide/finetuning.md"))
    return answer


def publish(folder: Path, name: str | None, kind: str) -> dict[str, str]:
    """Upload a model to the Hub if a name is set, on the first process; returns its URL as ``hub``."""
    if not name or not is_main_process():
        return {}
    from dana.stages.training import publish_stage

    url = publish_stage(folder, name, kind)
    print(f"uploaded: {url}")
    return {"hub": url}
