"""Frozen dataclasses of tensors and plain values, on disk: tensors as safetensors, the rest as JSON."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from dana.artifacts import write_json
from dana.errors import ArtifactError

T = TypeVar("T")


def save(value: Any, folder: Path, name: str, **about: Any) -> None:
    """Write ``name.safetensors`` and ``name.json``; equal values give equal bytes.

    Args:
        value: A dataclass whose fields are tensors or JSON values; those with ``saved: False`` in their metadata
            are left out.
        folder: Where; made if missing.
        name: File stem.
        about: Further JSON values, such as the registered name.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    saved = [field.name for field in fields(value) if field.metadata.get("saved", True)]
    parts = {key: getattr(value, key) for key in saved}
    tensors = {key: part.detach().cpu().contiguous() for key, part in parts.items() if isinstance(part, Tensor)}
    save_file(tensors, folder / f"{name}.safetensors")
    write_json(folder / f"{name}.json", {**about, "parameters": {k: v for k, v in parts.items() if k not in tensors}})


def load(cls: type[T], folder: Path, name: str) -> T:
    """Read what :func:`save` wrote.

    Raises:
        ArtifactError: If a file is missing.
    """
    from safetensors.torch import load_file

    parameters = read_about(folder, name)["parameters"]
    return cls(**parameters, **load_file(folder / f"{name}.safetensors"))


def read_about(folder: Path, name: str) -> dict[str, Any]:
    """The JSON beside the tensors.

    Raises:
        ArtifactError: If it is missing.
    """
    path = folder / f"{name}.json"
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file")
    return json.loads(path.read_text(encoding="utf-8"))


def to_device(value: T, device: torch.device | str) -> T:
    """The same dataclass with its tensors on a device; itself if they are there."""
    moved = {}
    for field in fields(value):  # type: ignore[arg-type]
        part = getattr(value, field.name)
        if isinstance(part, Tensor) and part.device != torch.device(device):
            moved[field.name] = part.to(device)
    return replace(value, **moved) if moved else value  # type: ignore[type-var]
