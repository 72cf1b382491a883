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
    parts = {
        field.name: getattr(value, field.name)
        for field in fields(value)
        if field.metadata.get("saved", True)
    }
    tensors = {
        key: part.detach().cpu().contiguous().numpy()
        for key, part in parts.items()
        if hasattr(part, "detach")
    }
    save_file(tensors, folder / f"{name}.safetensors")
    write_json(
        folder / f"{name}.json",
        {**extra, "parameters": {k: v for k, v in parts.items() if k not in tensors}},
    )


def load_tensors(cls: type[T], folder: Path, name: str) -> T:
    """Read what :func:`save_tensors` wrote.

    Raises:
        ArtifactError: If a file is missing or damaged.
    """
    content, file = read_json(folder / f"{name}.json"), folder / f"{name}.safetensors"
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
    """Move the tensors of a dataclass to a device; returns the same object if they are there already."""
    import torch

    tensors = {}
    for field in fields(value):  # type: ignore[arg-type]
        part = getattr(value, field.name)
        if isinstance(part, torch.Tensor) and part.device != torch.device(device):
            tensors[field.name] = part.to(device)
    return replace(value, **tensors) if tensors else value  # type: ignore[type-var]


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
        header, end = {}, 0
        for name, stream in self._streams.items():
            stream.close()
            size, dtype = self._raw[name].stat().st_size, self._dtypes[name]
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
            out.write(len(text).to_bytes(8, "little") + text)
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
    try:
        data = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
        begin = end = 8 + int(data[:8].view("<u8")[0])
        arrays = {}
        for name, entry in json.loads(data[8:begin].tobytes()).items():
            first, end = (begin + offset for offset in entry["data_offsets"])
            dtype = f"<{entry['dtype'][0].lower()}{int(entry['dtype'][1:]) // 8}"
            arrays[name] = data[first:end].view(dtype).reshape(entry["shape"])
        if end != len(data):
            raise ValueError(f"{len(data):,} bytes, expected {end:,} by its header")
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ArtifactError(f"{path}: damaged: not a safetensors file ({error})") from error
    return arrays
