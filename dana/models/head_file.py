"""Keep a head for language modelling in a file beside the weights of a sentence encoder.

sentence-transformers opens such a folder without a warning, as its weights are those of the encoder
alone.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

FILE = "head.safetensors"
ARCHITECTURE = "architecture"  # key of the file's metadata: the class of the model with the head


def save_head(weights: "Mapping[str, Tensor]", architecture: str, folder: Path) -> None:
    """Write a head.

    Args:
        weights: Its tensors, by their names in the model with the head.
        architecture: Class of transformers of that model.
        folder: Folder of the model.
    """
    from safetensors.torch import save_file

    tensors = {name: value.contiguous() for name, value in weights.items()}
    save_file(tensors, folder / FILE, metadata={"format": "pt", ARCHITECTURE: architecture})


def head_architecture(folder: str) -> str | None:
    """Return the class of the model with the head; None if the folder has no such file."""
    file = Path(folder) / FILE
    if not file.is_file():
        return None
    from safetensors import safe_open

    with safe_open(file, "pt") as tensors:
        architecture: str = tensors.metadata()[ARCHITECTURE]
        return architecture


def load_head(network: Any, folder: str, missing: Collection[str]) -> frozenset[str]:
    """Set the parameters of a model that its own weights lack, in place.

    Args:
        network: The model.
        folder: Its folder.
        missing: Names of the parameters that are not in its weights.

    Returns:
        Names of those that have a value now, under each of their names; empty if the folder has no
        such file.
    """
    file = Path(folder) / FILE
    if not missing or not file.is_file():
        return frozenset()
    import torch
    from safetensors.torch import load_file

    tensors = {name: value for name, value in load_file(file).items() if name in missing}
    parameters = {name: network.get_parameter(name) for name in tensors}
    with torch.no_grad(), gathered(list(parameters.values()), modifier_rank=0):
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])
    loaded = set(map(id, parameters.values()))
    all_names = network.named_parameters(remove_duplicate=False)
    return frozenset(name for name, value in all_names if id(value) in loaded)


def is_cut(parameters: "Iterable[Tensor]") -> bool:
    """Return whether ZeRO-3 has cut parameters up, which it does as they are loaded."""
    return any(hasattr(parameter, "ds_id") for parameter in parameters)


def gathered(
    parameters: "Sequence[Tensor]", modifier_rank: int | None = None
) -> AbstractContextManager[Any]:
    """Return a context in which parameters that ZeRO-3 has cut up are whole.

    In it they can be read, or set on one rank.
    """
    if not is_cut(parameters):
        return nullcontext()
    from deepspeed.runtime.zero import GatheredParameters

    context: AbstractContextManager[Any] = GatheredParameters(
        list(parameters), modifier_rank=modifier_rank
    )
    return context
