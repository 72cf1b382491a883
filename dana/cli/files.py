"""The commands of files and of the machine: ``dana files verify``, ``pack`` and ``env``."""

import argparse
from typing import Any

from dana.cli.flags import AddCommand, Flag, add_command, add_group, local_folder
from dana.cli.settings import next_command, settings_from

PACK = [Flag("--model", "model", "checkpoint of the tokenizer: a folder or a Hub name")]


def add_files(add: AddCommand) -> None:
    """Add the commands.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    files = add_group(
        add, "files", "check a run's files, tokenise its corpus, describe this machine: verify, pack, env"
    )
    verify = add_command(files, "verify", _verify, settings=False, json=True)
    verify.add_argument("folder", type=local_folder, metavar="DIR", help="a run's folder, or a part of one")
    add_command(files, "pack", _pack, PACK, folder="corpus/")
    add_command(files, "env", _env, settings=False)


def _verify(args: argparse.Namespace) -> dict[str, Any]:
    """Check every byte that dana wrote in a folder; name each file that is damaged, missing or unknown."""
    from dana.stages.verify import verify

    folders = 0
    for line in verify(args.folder):
        print(line)
        folders += 1
    return {"folder": args.folder, "intact": folders}


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


def _env(args: argparse.Namespace) -> None:
    """Print versions, device and encoders of this machine, to paste where somebody asks what you run on."""
    import platform

    import torch

    from dana.core.errors import DanaError
    from dana.core.launch import cores
    from dana.core.registry import ENCODERS, package_versions

    print(platform.platform())
    print("\n".join(f"{name} {number}" for name, number in package_versions().items()))
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ", no GPU"
    print(f"cores {cores()}{gpu}")
    for name in ("static", "minilm"):
        try:
            ENCODERS.create(name).identity()
            print(f"encoder {name}: here")
        except DanaError as error:
            print(f"encoder {name}: {error}")
