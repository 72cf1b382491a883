"""``dana files fold``: add the adapters of a folder to the weights of its base, and commit the result as a model."""

import shutil
from pathlib import Path
from typing import Any

from dana.core.artifacts import Artifact, Draft, make, write_text
from dana.core.config import require
from dana.core.files import explain_write_errors
from dana.models.adapters import adapted_base
from dana.models.folder import (
    check_checkpoint,
    licence_line,
    model_identity,
    model_name,
    note_weights,
    quiet_transformers,
)
from dana.models.known_text import FILE
from dana.models.saving import save_network, without_copies
from dana.train.hf_trainer import load_model

CARD = "---\n{licence}library_name: transformers\n---\n\n# {base}, with the adapters of {name} in its weights\n"


def fold_stage(adapter: Path, out: Path) -> Artifact:
    """Write a model, in float32, that computes what the base computes with its adapters: W + alpha / r · B A.

    Args:
        adapter: Folder of adapters, from ``dana adapt`` or peft.
        out: Folder for the model, which transformers opens without peft.

    Raises:
        ConfigError: If the folder has no adapters.
        ArtifactError: If its base is missing or has changed, or the adapters are not of it.
    """
    name = str(adapter)
    check_checkpoint(name)
    base = adapted_base(name)
    require(
        base is not None,
        "ADAPTER",
        name,
        "a folder with adapter_config.json, from dana adapt --set adapt.adapter",
    )

    def write(draft: Draft) -> None:
        with explain_write_errors(out):
            write_folded(name, draft.path)
        if (adapter / FILE).is_file():
            shutil.copyfile(adapter / FILE, draft.path / FILE)
        names = {"base": model_name(str(base)), "name": model_name(name)}
        write_text(draft.path / "README.md", CARD.format(licence=licence_line(name), **names))
        note_weights(draft)

    return make(out, "model", {"model": model_identity(name)}, write)


def write_folded(adapter: str, folder: Path) -> None:
    """Write the base of a folder of adapters with the adapters added to its weights."""
    network, tokenizer = load_model(adapter)
    write_network(network, tokenizer, folder)


def write_network(network: Any, tokenizer: Any, folder: Path) -> None:
    """Write a model with its tokenizer."""
    with quiet_transformers():
        save_network(network, without_copies(network, network.state_dict()), folder)
        tokenizer.save_pretrained(folder)
