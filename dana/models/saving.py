"""Write a model as a folder that transformers opens.

sentence-transformers opens it, too, where it opens the model's base.
"""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.models.adapters import adapted_base
from dana.models.folder import resolve_model
from dana.models.head_file import save_head
from dana.models.pooling import copy_modules, folder_of_modules

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS = "model.safetensors"


def without_copies(network: Any, weights: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """Keep one name of each tensor that a model has under several; see :func:`written_names`."""
    written = set(written_names(network).values())
    return {name: value for name, value in weights.items() if name in written}


def written_names(network: Any) -> dict[str, str]:
    """Return the name under which each parameter and buffer of a model is written.

    Of tied ones it is that in the backbone: a model without the head finds no other. XLM-R's class
    names its head first.
    """
    backbone = f"{network.base_model_prefix}."
    named_tensors = [
        *network.named_parameters(remove_duplicate=False),
        *network.named_buffers(remove_duplicate=False),
    ]
    chosen: dict[int, str] = {}
    for name, value in named_tensors:
        before = chosen.setdefault(id(value), name)
        if name.startswith(backbone) and not before.startswith(backbone):
            chosen[id(value)] = name
    return {name: chosen[id(value)] for name, value in named_tensors}


def save_network(
    network: Any, weights: "Mapping[str, Tensor]", folder: Path, with_deepspeed: bool = False
) -> None:
    """Write a model as a folder, with the modules of its base if that has some.

    The weights are then those of the encoder alone, as in the base; a head for language modelling
    is in a file of its own (:mod:`dana.models.head_file`).

    Args:
        network: A transformers model.
        weights: Its tensors by name in float32, each once.
        folder: Target folder.
        with_deepspeed: Whether the model is one of DeepSpeed.
    """
    base = network.config.name_or_path  # empty for a model from scratch
    origin = folder_of_modules(base) if base else None
    if origin is None or network.base_model is network:
        _save_whole(network, weights, folder, with_deepspeed)
    else:
        checkpoint = adapted_base(str(origin)) or str(origin)  # adapters have no pooler
        _save_apart(network, weights, folder, Path(resolve_model(checkpoint)))
    if origin is not None:
        copy_modules(base, folder)


def _save_whole(
    network: Any, weights: "Mapping[str, Tensor]", folder: Path, with_deepspeed: bool
) -> None:
    """Write a model to one file."""
    # Under ZeRO-3 transformers mistakes any model for one of 2018, and would rename its norms.
    network.save_pretrained(folder, state_dict=weights, save_original_format=not with_deepspeed)
    if with_deepspeed:
        # Or from_pretrained would round the weights to the dtype of the forward pass.
        network.config.dtype = "float32"
        network.config.save_pretrained(folder)


def _save_apart(network: Any, weights: "Mapping[str, Tensor]", folder: Path, origin: Path) -> None:
    """Write the encoder of a model and its head, each to a file."""
    from safetensors.torch import save_file

    prefix = f"{network.base_model_prefix}."
    encoder: dict[str, Tensor] = {}
    head: dict[str, Tensor] = {}
    for name, value in weights.items():
        if name.startswith(prefix):
            encoder[name.removeprefix(prefix)] = value.contiguous()
        else:
            head[name] = value
    # A model for masked tokens has no pooler, which an encoder without a head misses.
    encoder = _pooler(origin, prefix) | encoder
    save_file(encoder, folder / WEIGHTS, metadata={"format": "pt"})
    save_head(head, type(network).__name__, folder)
    config = copy.deepcopy(network.config)
    config.architectures = [type(network.base_model).__name__]
    config.dtype = "float32"
    config.save_pretrained(folder)


def _pooler(folder: Path, prefix: str) -> "dict[str, Tensor]":
    """Read the pooler of a checkpoint, in float32; empty if it has none."""
    from safetensors import safe_open

    pooler = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118, no mapping
                stem = name.removeprefix(prefix)
                if stem.startswith("pooler."):
                    pooler[stem] = tensors.get_tensor(name).float()
    return pooler
