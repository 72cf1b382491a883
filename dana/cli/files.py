"""The groups ``dana plugins`` (list, check) and ``dana files`` (pack, average, fold, convert, env)."""

import argparse
from importlib import import_module
from typing import Any

from dana.cli.flags import AddCommand, Flag, add_command, add_group, add_remake, local_folder
from dana.cli.settings import next_command, settings_from
from dana.core.text_table import tabulate

KINDS = ("detector", "selector", "encoder", "objective")
PACK = [Flag("--model", "model", "checkpoint of the tokenizer: a folder or a Hub name")]


def add_plugins(add: AddCommand) -> None:
    """Add the commands of components.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    group = add_group(
        add,
        "plugins",
        "detectors, selectors, encoders and objectives, own and installed: list, check",
    )
    listing = add_command(group, "list", _list, settings=False, json=True)
    listing.add_argument(
        "kind", nargs="?", choices=KINDS, help=f"{', '.join(KINDS)} (default: all)"
    )
    check = add_command(group, "check", _check, settings=False)
    check.add_argument("kind", choices=KINDS, help=", ".join(KINDS))
    check.add_argument("name", help="a name or spec, for example knn or knn:k=10")


def _list(args: argparse.Namespace) -> dict[str, Any]:
    """List kind, name, package and description of each component, one per line."""
    from dana.core.errors import PluginError
    from dana.core.registry import Registry, is_importable

    rows = []
    kinds = [args.kind] if args.kind else KINDS
    for kind in kinds:
        registry = Registry(f"dana.{kind}s")
        for name, claims in registry.entries().items():
            try:
                description = (registry.load(name).__doc__ or "").strip().partition("\n")[0]
            except PluginError as error:
                description = f"broken: {error}"
                absent = [claim.module for claim in claims if not is_importable(claim.module)]
                if absent:
                    description = f"missing: no module {absent[0]}"
            package = claims[0].dist.name if claims[0].dist else "?"
            rows.append(
                {"kind": kind, "name": name, "package": package, "description": description}
            )
    print(tabulate(rows))
    return {"plugins": rows}


def _check(args: argparse.Namespace) -> None:
    """Check one against the contract of its kind; print one line per check."""
    from dana.core.errors import PluginError

    room = "train" if args.kind == "objective" else "selectors"
    checks = import_module(f"dana.{room}.checks")
    check = getattr(checks, f"check_{args.kind}")
    results = check(args.name)
    print("\n".join(map(str, results)))
    failures = sum(not result.passed for result in results)
    if failures:
        raise PluginError(f"{args.name} breaks {failures} of {len(results)} checks")


def add_files(add: AddCommand) -> None:
    """Add the commands of files and of the machine.

    Args:
        add: ``add_parser`` of the command line's subparsers.
    """
    text = "a run's tokens, models, this machine: pack, average, fold, convert, env"
    files = add_group(add, "files", text)
    add_remake(add_command(files, "pack", _pack, PACK, folder="pool/"))
    average = add_command(files, "average", _average, settings=False, json=True)
    add_remake(average)
    average.add_argument(
        "models", nargs=2, metavar="MODEL", help="two models of one base: folders or Hub names"
    )
    average.add_argument(
        "--alpha", required=True, help="share of the first model, from 0 to 1; or auto"
    )
    average.add_argument(
        "--on",
        nargs="+",
        type=local_folder,
        default=[],
        metavar="RUN",
        help="runs' folders, for auto",
    )
    average.add_argument(
        "--out", required=True, type=local_folder, help="folder of the averaged model"
    )
    fold = add_command(files, "fold", _fold, settings=False, json=True)
    add_remake(fold)
    fold.add_argument(
        "adapter",
        type=local_folder,
        metavar="ADAPTER",
        help="folder of adapters, as dana adapt writes it",
    )
    fold.add_argument("--out", required=True, type=local_folder, help="folder of the model")
    convert = add_command(files, "convert", _convert, settings=False, json=True)
    add_remake(convert)
    convert.add_argument(
        "model",
        metavar="MODEL",
        help="a checkpoint that dana refuses: a folder, a file of weights in it, or a Hub name",
    )
    convert.add_argument("--out", required=True, type=local_folder, help="folder of the model")
    convert.add_argument(
        "--resize-embeddings",
        action="store_true",
        help="give tokens that the model has no rows for the mean of their pieces' rows",
    )
    add_command(files, "env", _env, settings=False)


def _pack(args: argparse.Namespace) -> None:
    """Tokenise DIR/pool with a checkpoint's tokenizer, into DIR/tokens.

    `dana adapt` does this if it was not done; done ahead, it keeps no GPU waiting.
    """
    from dana.core.config import require
    from dana.core.remake import call_remaking
    from dana.stages.pack import pack_for

    settings = settings_from(args)
    form = "the checkpoint of the tokenizer: a folder or a Hub name"
    require(bool(settings.model), "--model", settings.model, form)
    model = str(settings.model)
    artifact = call_remaking(lambda: pack_for(model, args.folder / "pool"), args.remake)
    counts = artifact.manifest["counts"]
    size = f"{counts['tokens']:,} tokens of {counts['documents']:,} documents"
    print(f"written: {artifact.path} ({size})")
    print(next_command("adapt", args.folder, "--model", settings.model))


def _average(args: argparse.Namespace) -> dict[str, Any]:
    """Average the weights of two models: alpha of the first, 1 - alpha of the second.

    --alpha auto takes that of 0, 0.1, ..., 1 with the lowest mean loss on held-out target text and
    held-out pool text of the runs of --on. That loss is the lowest of eleven, so measure the
    model on other text.
    """
    from dana.core.config import parse_yaml
    from dana.core.remake import call_remaking
    from dana.stages.average import average_stage

    first, second = args.models
    alpha = parse_yaml(args.alpha, "--alpha")
    artifact = call_remaking(
        lambda: average_stage(first, second, alpha, args.on, args.out), args.remake
    )
    print(f"written: {artifact.path} (alpha {artifact.manifest['alpha']:g})")
    return {"folder": artifact.path, "alpha": artifact.manifest["alpha"]}


def _fold(args: argparse.Namespace) -> dict[str, Any]:
    """Add the adapters of a folder to the weights of their base: a model that transformers opens by itself."""
    from dana.core.remake import call_remaking
    from dana.stages.fold import fold_stage

    artifact = call_remaking(lambda: fold_stage(args.adapter, args.out), args.remake)
    print(f"written: {artifact.path}")
    return {"folder": artifact.path}


def _convert(args: argparse.Namespace) -> dict[str, Any]:
    """Write a checkpoint as a folder that dana opens: of pickled weights, an old layout or adapters.

    Pickled weights (pytorch_model.bin) are read without running code of theirs, and written as
    safetensors under the names that transformers knows. Layouts of sentence-transformers before
    version 1 become today's, and adapters are added to the weights of their base.
    --resize-embeddings gives tokens that were added to the tokenizer rows in the model.
    """
    from dana.core.remake import call_remaking
    from dana.stages.convert import convert_stage

    artifact = call_remaking(
        lambda: convert_stage(args.model, args.out, args.resize_embeddings), args.remake
    )
    counts = artifact.manifest["counts"]
    what = [f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items()]
    listed = f" ({', '.join(what)})" if what else ""
    print(f"written: {artifact.path}{listed}")
    return {"folder": artifact.path, **counts}


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
