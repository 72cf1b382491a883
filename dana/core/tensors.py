"""Frozen dataclasses of tensors and plain values, on disk: tensors as safetensors, the rest as JSON."""

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from dana.core.artifacts import read_json, write_json
from dana.core.errors import ArtifactError

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


def save_tensors(value: Any, folder: Path, name: str, **about: Any) -> None:
    """Write ``name.safetensors`` and ``name.json``; equal values give equal bytes.

    Args:
        value: A dataclass whose fields are tensors or JSON values; those with ``saved: False`` in their metadata
            are left out.
        folder: Where; made if missing.
        name: File stem.
        about: Further JSON values, such as the registered name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = {field.name: getattr(value, field.name) for field in fields(value) if field.metadata.get("saved", True)}
    tensors = {key: part.detach().cpu().contiguous().numpy() for key, part in parts.items() if hasattr(part, "detach")}
    save_file(tensors, folder / f"{name}.safetensors")
    write_json(folder / f"{name}.json", {**about, "parameters": {k: v for k, v in parts.items() if k not in tensors}})


def load_tensors(cls: type[T], folder: Path, name: str) -> T:
    """Read what :func:`save_tensors` wrote.

    Raises:
        ArtifactError: If a file is missing or damaged.
    """
    about = read_json(folder / f"{name}.json")
    file = folder / f"{name}.safetensors"
    try:
        tensors = {key: _tensor(array) for key, array in load_file(file).items()}
        return cls(**about["parameters"], **tensors)
    except (OSError, SafetensorError) as error:
        raise ArtifactError(f"{file}: damaged: {error}") from error
    except (KeyError, TypeError) as error:
        raise ArtifactError(f"{folder / name}.json: damaged: not the parameters of {cls.__name__}: {error}") from error


def _tensor(array: np.ndarray) -> "torch.Tensor":
    import torch  # not at the top: what has no tensors is saved and loaded without it

    return torch.from_numpy(array)


def to_device(value: T, device: "torch.device | str") -> T:
    """The same dataclass with its tensors on a device; itself if they are there."""
    import torch

    moved = {}
    for field in fields(value):  # type: ignore[arg-type]
        part = getattr(value, field.name)
        if isinstance(part, torch.Tensor) and part.device != torch.device(device):
            moved[field.name] = part.to(device)
    return replace(value, **moved) if moved else value  # type: ignore[type-var]
