"""Pool the hidden states of a text into one vector, in the way that a checkpoint's own files say.

sentence-transformers describes a checkpoint by ``modules.json``: a transformer, a pooling and
perhaps a normalisation. A checkpoint without that file is pooled by the mean over its tokens.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.core.config import require
from dana.core.errors import ArtifactError
from dana.models.folder import resolve_model

if TYPE_CHECKING:
    from torch import Tensor

MODULES = "modules.json"
POOLINGS = ("mean", "cls", "max")
# Keys of a pooling's config.json for which a value of true chooses the pooling.
KEYS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}


@dataclass(frozen=True)
class Pooling:
    """How a text's hidden states become its vector.

    Attributes:
        mode: ``mean`` over all tokens, special ones included; ``cls``, the first token; or ``max``
            over all tokens.
        normalize: Whether the vector is divided by its norm afterwards.
    """

    mode: str = "mean"
    normalize: bool = False

    def __post_init__(self) -> None:
        require(self.mode in POOLINGS, "pooling", self.mode, f"one of {', '.join(POOLINGS)}")

    def pool(self, states: "Tensor", text: "Tensor", texts: int) -> "Tensor":
        """Pool the hidden states of texts, before any normalisation.

        Args:
            states: Shape (tokens, width), the states of all texts end to end, without padding.
            text: int64 of shape (tokens,), ascending, index of the text of each token.
            texts: Number of texts, each of at least one token.

        Returns:
            float32 of shape (texts, width).
        """
        import torch

        states = states.float()  # sums in bfloat16 would lose precision
        counts = torch.bincount(text, minlength=texts)
        if self.mode == "cls":
            firsts = counts.cumsum(0) - counts
            return states[firsts]
        shape = (texts, states.shape[1])
        if self.mode == "max":
            rows = text[:, None].expand_as(states)
            lowest = states.new_full(shape, -torch.inf)
            return lowest.scatter_reduce(0, rows, states, "amax")
        sums = states.new_zeros(shape).index_add(0, text, states)
        return sums / counts[:, None]


def read_pooling(model: str) -> Pooling:
    """Read how a checkpoint pools from its ``modules.json``; the mean if it has none.

    Args:
        model: Folder with safetensors, or a model that ships with dana.

    Raises:
        ArtifactError: If it has a module that is not supported, or its files are damaged.
    """
    folder = Path(resolve_model(model))
    file = folder / MODULES
    if not file.is_file():
        return Pooling()
    mode = "mean"
    normalize = False
    for module in _read_json(file):
        kind = str(module["type"]).rpartition(".")[2]
        if kind == "Pooling":
            mode = _read_mode(folder / module["path"] / "config.json")
        elif kind == "Normalize":
            normalize = True
        elif kind != "Transformer":
            raise ArtifactError(
                f"{file}: module {module['type']} is not supported; "
                "supported are Transformer, Pooling and Normalize"
            )
    return Pooling(mode, normalize)


def _read_mode(file: Path) -> str:
    """Read the mode of a pooling's config.json."""
    config = _read_json(file)
    chosen = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
    if len(chosen) != 1 or chosen[0] not in KEYS:
        raise ArtifactError(
            f"{file}: pools by {', '.join(chosen)}; supported is one of {', '.join(KEYS)}"
        )
    return KEYS[chosen[0]]


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{file}: cannot be read ({error})") from error
