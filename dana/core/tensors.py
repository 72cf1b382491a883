"""Frozen dataclasses of tensors and plain values, on disk: tensors as safetensors, the rest as JSON."""

import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

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
    saved = [field.name for field in fields(value) if field.metadata.get("saved", True)]
    parts = {key: getattr(value, key) for key in saved}
    tensors = {key: part.detach().cpu().contiguous() for key, part in parts.items() if _is_tensor(part)}
    _write_tensors(tensors, folder / f"{name}.safetensors")
    write_json(folder / f"{name}.json", {**about, "parameters": {k: v for k, v in parts.items() if k not in tensors}})


def load_tensors(cls: type[T], folder: Path, name: str) -> T:
    """Read what :func:`save_tensors` wrote.

    Raises:
        ArtifactError: If a file is missing or damaged.
    """
    from safetensors import SafetensorError

    about = read_about(folder, name)
    file = folder / f"{name}.safetensors"
    try:
        return cls(**about["parameters"], **_read_tensors(file))
    except (OSError, SafetensorError) as error:
        raise ArtifactError(f"{file}: damaged: {error}") from error
    except (KeyError, TypeError) as error:
        raise ArtifactError(f"{folder / name}.json: damaged: not the parameters of {cls.__name__}: {error}") from error


def _is_tensor(part: Any) -> bool:
    """Whether a value is a tensor; where nothing has imported torch none is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(part, torch.Tensor)


def _write_tensors(parts: "dict[str, torch.Tensor]", file: Path) -> None:
    """A file of tensors; one without any is written without torch."""
    if parts:
        from safetensors.torch import save_file

        save_file(parts, file)
    else:
        from safetensors.numpy import save_file as save_none  # the same bytes

        save_none({}, file)


def _read_tensors(file: Path) -> "dict[str, torch.Tensor]":
    """Name to tensor; a file without any is read without torch."""
    from safetensors import safe_open

    with safe_open(file, "numpy") as opened:
        if not opened.keys():
            return {}
    from safetensors.torch import load_file

    return load_file(file)


def read_about(folder: Path, name: str) -> dict[str, Any]:
    """The JSON object beside the tensors.

    Raises:
        ArtifactError: If it is missing or damaged.
    """
    path = folder / f"{name}.json"
    about = read_json(path)
    if not isinstance(about, dict):
        raise ArtifactError(f"{path}: holds a {type(about).__name__}, not an object")
    return about


def to_device(value: T, device: "torch.device | str") -> T:
    """The same dataclass with its tensors on a device; itself if they are there."""
    import torch

    moved = {}
    for field in fields(value):  # type: ignore[arg-type]
        part = getattr(value, field.name)
        if isinstance(part, torch.Tensor) and part.device != torch.device(device):
            moved[field.name] = part.to(device)
    return replace(value, **moved) if moved else value  # type: ignore[type-var]
