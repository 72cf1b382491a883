"""Save dataclasses of tensors as safetensors and JSON; write and memory-map large arrays."""

import json
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from dana.core.artifacts import read_json, write_json
from dana.core.errors import ArtifactError
from dana.core.files import sync

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


def save_tensors(value: Any, folder: Path, name: str, **extra: Any) -> None:
    """Write ``name.safetensors`` and ``name.json``; equal values give equal bytes.

    Args:
        value: A dataclass whose fields are tensors or JSON values; those with ``saved: False`` in
            their metadata are left out.
        folder: Target folder, created if missing.
        name: File stem.
        extra: Further JSON values, such as the registered name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, np.ndarray] = {}
    parameters: dict[str, Any] = {}
    for field in fields(value):
        if not field.metadata.get("saved", True):
            continue
        part = getattr(value, field.name)
        if hasattr(part, "detach"):
            tensors[field.name] = part.detach().cpu().contiguous().numpy()
        else:
            parameters[field.name] = part
    save_file(tensors, folder / f"{name}.safetensors")
    write_json(folder / f"{name}.json", {**extra, "parameters": parameters})


def load_tensors(cls: type[T], folder: Path, name: str) -> T:
    """Read what :func:`save_tensors` wrote.

    Raises:
        ArtifactError: If a file is missing or damaged.
    """
    content = read_json(folder / f"{name}.json")
    file = folder / f"{name}.safetensors"
    try:
        tensors = {key: _tensor(array) for key, array in load_file(file).items()}
        return cls(**content["parameters"], **tensors)
    except (OSError, SafetensorError) as error:
        raise ArtifactError(f"{file}: damaged: {error}") from error
    except (KeyError, TypeError) as error:
        raise ArtifactError(
            f"{folder / name}.json: damaged: not the parameters of {cls.__name__}: {error}"
        ) from error


def _tensor(array: np.ndarray) -> "torch.Tensor":
    import torch  # dataclasses without tensors need no torch

    return torch.from_numpy(array)


def to_device(value: T, device: "torch.device | str") -> T:
    """Move the tensors of a dataclass to a device.

    Returns:
        The moved dataclass; the same object if its tensors are there already.
    """
    import torch

    tensors = {}
    for field in fields(value):  # type: ignore[arg-type]
        part = getattr(value, field.name)
        if isinstance(part, torch.Tensor) and part.device != torch.device(device):
            tensors[field.name] = part.to(device)
    if not tensors:
        return value
    return replace(value, **tensors)  # type: ignore[type-var]


class ArrayWriter:
    """Append to named one-dimensional arrays on disk, and join them into one safetensors file.

    Args:
        path: The file to write.
        dtypes: Name and numpy type of each array: integers or floats.
    """

    def __init__(self, path: Path, dtypes: dict[str, str]) -> None:
        self._path = path
        self._dtypes = {name: np.dtype(dtype) for name, dtype in dtypes.items()}
        self._raw = {name: path.with_name(f".{path.name}.{name}.raw") for name in dtypes}
        self._streams = {name: raw.open("wb") for name, raw in self._raw.items()}

    def append(self, **arrays: np.ndarray) -> None:
        """Append rows to every array."""
        for name, array in arrays.items():
            self._streams[name].write(np.ascontiguousarray(array, dtype=self._dtypes[name]).data)

    def close(self) -> None:
        """Write the file, header first, and remove the temporary files."""
        header = {}
        end = 0
        for name, stream in self._streams.items():
            stream.close()
            size = self._raw[name].stat().st_size
            dtype = self._dtypes[name]
            kind = f"{dtype.kind.upper()}{8 * dtype.itemsize}"  # safetensors' name of the type
            header[name] = {
                "dtype": kind,
                "shape": [size // dtype.itemsize],
                "data_offsets": [end, end + size],
            }
            end += size
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)  # the format aligns data to 8 bytes
        with self._path.open("wb") as out:
            out.write(len(text).to_bytes(8, "little"))
            out.write(text)
            for raw in self._raw.values():
                with raw.open("rb") as piece:
                    shutil.copyfileobj(piece, out, 1 << 20)
                raw.unlink()
        sync(self._path)


def map_arrays(path: Path) -> dict[str, np.ndarray]:
    """Memory-map the arrays of a file of :class:`ArrayWriter`, read-only.

    Raises:
        ArtifactError: If the file is missing, or its header is damaged or does not match its size.
    """
    remedy = f"remove {path.parent} and run its command again"
    try:
        data = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
        begin = 8 + int(data[:8].view("<u8")[0])  # end of the header
        end = begin
        arrays = {}
        for name, entry in json.loads(data[8:begin].tobytes()).items():
            first_offset, end_offset = entry["data_offsets"]
            end = begin + end_offset
            kind = entry["dtype"][0].lower()
            bits = int(entry["dtype"][1:])
            values = data[begin + first_offset : end].view(f"<{kind}{bits // 8}")
            arrays[name] = values.reshape(entry["shape"])
        if end != len(data):
            raise ValueError(f"{len(data):,} bytes, expected {end:,} by its header")
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}; {remedy}") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        reason = f"damaged: not a safetensors file ({error})"
        raise ArtifactError(f"{path}: {reason}; {remedy}") from error
    return arrays
