"""Arrays too large for memory, in safetensors files: appended to as they come, read through a memory map."""

import json
import shutil
from pathlib import Path

import numpy as np

from dana.core.errors import ArtifactError
from dana.core.files import sync

# What safetensors calls the types that we store.
NAMES = {"uint8": "U8", "int8": "I8", "uint16": "U16", "int32": "I32", "uint32": "U32", "int64": "I64"}
NAMES |= {"uint64": "U64", "float16": "F16", "float32": "F32"}
DTYPES = {name: np.dtype(dtype) for dtype, name in NAMES.items()}


class ArrayWriter:
    """Appends to named arrays on disk and joins them into one safetensors file at the end.

    Args:
        path: The file to be.
        dtypes: Name to numpy type of each array.
    """

    def __init__(self, path: Path, dtypes: dict[str, str]) -> None:
        self._path, self._dtypes = path, dtypes
        self._raw = {name: path.with_name(f".{path.name}.{name}.raw") for name in dtypes}
        self._streams = {name: raw.open("wb") for name, raw in self._raw.items()}

    def append(self, **arrays: np.ndarray) -> None:
        """Add to the end of every array."""
        for name, array in arrays.items():
            self._streams[name].write(np.ascontiguousarray(array, dtype=self._dtypes[name]).tobytes())

    def close(self) -> None:
        """Write the file, header first, and remove the pieces."""
        header, end = {}, 0
        for name, stream in self._streams.items():
            stream.close()
            size = self._raw[name].stat().st_size
            dtype = np.dtype(self._dtypes[name])
            shape = [size // dtype.itemsize]
            header[name] = {"dtype": NAMES[dtype.name], "shape": shape, "data_offsets": [end, end + size]}
            end += size
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)  # data begin at a multiple of 8, as the format asks
        with self._path.open("wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for raw in self._raw.values():
                with raw.open("rb") as piece:
                    shutil.copyfileobj(piece, out, 1 << 20)
                raw.unlink()
        sync(self._path)


def map_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, read-only, paged in as they are used.

    Raises:
        ArtifactError: If the file is missing, or shorter than its header says.
    """
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file")
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= path.stat().st_size - 8:
            raise ArtifactError(f"{path}: not a safetensors file")
        header = json.loads(stream.read(length))
    found = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        first, last = about["data_offsets"]
        if 8 + length + last > path.stat().st_size:
            raise ArtifactError(f"{path}: cut short: {name} should end at byte {8 + length + last}")
        dtype, shape = DTYPES[about["dtype"]], tuple(about["shape"])
        empty = first == last  # a memory map cannot be empty
        found[name] = (
            np.zeros(shape, dtype)
            if empty
            else np.memmap(path, dtype=dtype, mode="r", offset=8 + length + first, shape=shape)
        )
    return found
