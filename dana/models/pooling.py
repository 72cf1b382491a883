"""Pool the hidden states of a text into one vector, in the way that a checkpoint's own files say.

sentence-transformers describes a checkpoint by ``modules.json``: a transformer, a pooling and
perhaps a normalisation. A checkpoint without that file is pooled by the mean over its tokens. What
is made from a checkpoint with these files gets copies of them.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.core.config import require
from dana.core.errors import ArtifactError
from dana.models.adapters import adapted_base
from dana.models.convertible import MODULES, convert_command
from dana.models.folder import resolve_model

if TYPE_CHECKING:
    from torch import Tensor

POOLING_CONFIG = "config.json"
# The other files that sentence-transformers reads of such a folder; a checkpoint may lack them.
OTHER_FILES = ("config_sentence_transformers.json", "sentence_bert_config.json")
LIBRARY = "sentence_transformers."  # before the type of a module
SUPPORTED = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
POOLINGS = ("mean", "cls", "max")
# Up to version 5 of sentence-transformers, a value of true chose the pooling.
OLD_KEYS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}
KEY = "pooling_mode"  # since then


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
        # Not bincount, for which the CPU waits for a GPU.
        counts = text.new_zeros(texts).index_add(0, text, torch.ones_like(text))
        if self.mode == "cls":
            firsts = counts.cumsum(0) - counts
            return states.index_select(0, firsts)
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
        model: Folder with safetensors, or a model that ships with dana. Adapters without the file
            pool as their base does.

    Raises:
        ArtifactError: If it has a module that is not supported, or its files are damaged.
    """
    folder = folder_of_modules(model)
    if folder is None:
        return Pooling()
    modules = _read_modules(folder / MODULES)
    kinds = [kind for kind, _ in modules]
    mode = _read_mode(folder / modules[1][1] / POOLING_CONFIG)
    return Pooling(mode, normalize="Normalize" in kinds)


def copy_modules(model: str, folder: Path) -> None:
    """Copy what sentence-transformers reads of a checkpoint's modules; nothing if it has none.

    Args:
        model: The checkpoint, as for :func:`read_pooling`.
        folder: Folder of a model that was made from it.

    Raises:
        ArtifactError: As for :func:`read_pooling`.
    """
    read_pooling(model)
    origin = folder_of_modules(model)
    if origin is None:
        return
    shutil.copyfile(origin / MODULES, folder / MODULES)
    for name in OTHER_FILES:
        if (origin / name).is_file():
            shutil.copyfile(origin / name, folder / name)
    for kind, path in _read_modules(origin / MODULES)[1:]:
        (folder / path).mkdir(exist_ok=True)
        config = Path(path) / POOLING_CONFIG
        if kind == "Pooling" or (origin / config).is_file():
            shutil.copyfile(origin / config, folder / config)


def folder_of_modules(model: str) -> Path | None:
    """Return the folder with the modules of a checkpoint, or of the base of adapters."""
    folder = resolve_model(model)
    while not (Path(folder) / MODULES).is_file():
        base = adapted_base(folder)
        if base is None:
            return None
        folder = resolve_model(base)
    return Path(folder)


def _read_modules(file: Path) -> list[tuple[str, str]]:
    """Read the kind and the path of each module; refuse what is not supported."""
    rows = _read_json(file)
    form = 'must be a list of modules, each with "type" and "path"; save the model again'
    if not isinstance(rows, list):
        raise ArtifactError(f"{file}: {form}")
    modules = []
    for row in rows:
        is_module = isinstance(row, dict)
        if not is_module or not all(isinstance(row.get(key), str) for key in ("type", "path")):
            raise ArtifactError(f"{file}: {form}")
        library, _, kind = row["type"].rpartition(".")
        is_known = f"{library}.".startswith(LIBRARY) and kind in SUPPORTED[1]
        if not is_known:
            raise ArtifactError(
                f"{file}: module {row['type']} is not supported; "
                "supported are Transformer, Pooling and Normalize; "
                f"remove {MODULES} to use its transformer alone, pooled by the mean"
            )
        modules.append((kind, row["path"]))
    kinds = [kind for kind, _ in modules]
    if kinds not in SUPPORTED:
        raise ArtifactError(
            f"{file}: has the modules {', '.join(kinds) or 'none'}; "
            "supported are a Transformer, a Pooling and, if any, a Normalize, in this order; "
            f"remove {MODULES} to use its transformer alone, pooled by the mean"
        )
    for kind, path in modules:
        _check_place(file, kind, path)
    return modules


def _check_place(file: Path, kind: str, path: str) -> None:
    """Check that a transformer is beside the file of modules, and any other module in a folder."""
    if kind == "Transformer":
        is_allowed = path == ""
        allowed = "empty"
        remedy = f"an old layout becomes today's by: {convert_command(str(file.parent))}"
    else:
        is_allowed = path != "" and Path(path).name == path
        allowed = "the name of a folder beside the file"
        remedy = "save the model again"
    if not is_allowed:
        raise ArtifactError(f"{file}: path={path!r} of its {kind} must be {allowed}; {remedy}")


def _read_mode(file: Path) -> str:
    """Read the mode of a pooling's config.json, in the spelling of any version."""
    config = _read_json(file)
    if not isinstance(config, dict):
        raise ArtifactError(f"{file}: must be a mapping; save the model again")
    if KEY in config:
        given = config[KEY]
        names = given if isinstance(given, list) else [given]
    else:
        prefix = f"{KEY}_"
        chosen = [key for key, value in config.items() if key.startswith(prefix) and value is True]
        names = [OLD_KEYS.get(key, key) for key in chosen]
    if len(names) != 1 or names[0] not in POOLINGS:
        found = ", ".join(map(str, names)) or "nothing"
        raise ArtifactError(
            f"{file}: pools by {found}; supported is one of {', '.join(POOLINGS)}; "
            f"remove {MODULES} to pool by the mean"
        )
    return str(names[0])


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{file}: cannot be read ({error}); save the model again") from error
