"""The commands that train language models: ``dana adapt``, ``dana pack`` and ``dana pretrain``."""

import argparse

from dana.cli.flags import AddCommand, Flag, add_command, local_folder
from dana.cli.settings import next_command, save_settings, settings_from
from dana.core.errors import ConfigError
from dana.core.logging import is_main_process

ADAPT = [
    Flag("--model", "model", "checkpoint to adapt: a folder or a Hub name"),
    Flag("--steps", "adapt.steps"),
    Flag("--tokens", "adapt.tokens"),
    Flag("--epochs", "adapt.epochs"),
    Flag("--schedule", "adapt.schedule"),
    Flag("--replay", "adapt.replay"),
    Flag("--objective", "adapt.objective", "masked or next_sentence, with parameters as masked:mask_rate=0.3"),
    Flag("--batch-size", "adapt.batch_size"),
    Flag("--max-tokens", "adapt.max_tokens"),
    Flag("--learning-rate", "adapt.learning_rate"),
    Flag("--denominator", "adapt.denominator", "batch, weight_sum or token_count: docs/design.md, Loss"),
    Flag("--seed", "adapt.seed"),
    Flag("--extend", "adapt.execution.extend"),
    Flag("--resume", "adapt.execution.resume"),
    Flag("--layout", "adapt.execution.layout", "padded or unpadded; auto: by the device"),
]
PACK = [Flag("--model", "model", "checkpoint of the tokenizer: a folder or a Hub name")]
PRETRAIN = [Flag("--size", "size")]


def add_training(add: AddCommand) -> None:
    """Add the commands.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    adapt = add_command(add, "adapt", _adapt, ADAPT, folder="corpus/, weights/ and task/")
    adapt.set_defaults(processes=True)
    adapt.add_argument("--weights", type=local_folder, help="folder of the weights (default: DIR/weights)")
    adapt.add_argument("--unweighted", action="store_true", help="train on the whole corpus with weight 1")
    adapt.add_argument("--to", type=local_folder, help="folder of the model (default: DIR/adapted)")
    adapt.add_argument("--push-to-hub", metavar="NAME", help="also upload the folder, privately, as organisation/name")
    add_command(add, "pack", _pack, PACK, folder="corpus/")
    pretrain = add_command(add, "pretrain", _pretrain, PRETRAIN, folder="corpus/ and task/", reads=("pretrain",))
    pretrain.set_defaults(processes=True)
    pretrain.add_argument("--to", type=local_folder, help="folder of the model (default: DIR/base)")


def _adapt(args: argparse.Namespace) -> None:
    """Continue pretraining a masked language model on the weighted text.

    After a stop or kill the same command resumes from the newest checkpoint; SIGTERM and SIGUSR1 save first and end
    with exit code 75. Several processes: accelerate launch --config_file accelerate_configs/X.yaml recipes/adapt.py.

    Writes DIR/adapted, a Hugging Face folder that from_pretrained opens without dana, with training.jsonl: the loss
    on held-out task text and on held-out general text before, during and after training.
    """
    from dana.core.config import require
    from dana.stages.texts import held_out_folders
    from dana.stages.training import adapt_stage

    folder = args.folder
    if args.unweighted and args.weights:
        raise ConfigError("--weights has no effect with --unweighted; remove one of them")
    settings = settings_from(args)
    require(bool(settings.model), "--model", settings.model, "the checkpoint to adapt: a folder or a Hub name")
    weights = None if args.unweighted else args.weights or folder / "weights"
    out = args.to or folder / "adapted"
    artifact = adapt_stage(
        str(settings.model),
        folder / "corpus",
        weights,
        *held_out_folders(folder),
        settings.adapt,
        out,
    )
    if out == folder / "adapted":
        save_settings(settings, folder)
    print(f"written: {artifact.path}")
    if args.push_to_hub and is_main_process():
        from dana.stages.training import publish_stage

        print(f"uploaded: {publish_stage(artifact.path, args.push_to_hub)}")
    print(next_command("report", folder, note="or, with labelled data, dana finetune: docs/guide/finetuning.md"))


def _pack(args: argparse.Namespace) -> None:
    """Tokenise DIR/corpus with a checkpoint's tokenizer, into DIR/tokens.

    `dana adapt` does this if it was not done; done ahead, it keeps no GPU waiting.
    """
    from dana.core.config import require
    from dana.stages.pack import pack_for

    settings = settings_from(args)
    require(bool(settings.model), "--model", settings.model, "the checkpoint of the tokenizer: a folder or a Hub name")
    artifact = pack_for(str(settings.model), args.folder / "corpus")
    counts = artifact.manifest["counts"]
    print(f"written: {artifact.path} ({counts['tokens']:,} tokens of {counts['documents']:,} documents)")
    print(next_command("adapt", args.folder, "--model", settings.model))


def _pretrain(args: argparse.Namespace) -> None:
    """Train a WordPiece tokenizer and a BERT of a size name on the general text, by the loop of `dana adapt`."""
    from dana.stages.texts import held_out_folders
    from dana.stages.training import pretrain_stage

    folder = args.folder
    settings = settings_from(args)
    out = args.to or folder / "base"
    artifact = pretrain_stage(settings.size, folder / "corpus", *held_out_folders(folder), settings.pretrain, out)
    if out == folder / "base":
        save_settings(settings, folder)
    print(f"written: {artifact.path}")
    print(next_command("adapt", folder, "--model", artifact.path))
