"""Round a model's weights to 8 bits, and make an ordinary model's folder of them again.

A matrix becomes whole numbers from -127 to 127 and a scale for each row, its largest size divided by
127. So a weight moves by at most half the scale of its row. Vectors, such as biases, stay as they are.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

LARGEST = 127
SCALE = ".scale"  # end of the name of a matrix's scales
WEIGHTS = "model.safetensors"
ROUNDED = "rounded.safetensors"
DESCRIPTION = "weights at 8 bits, a scale a row"
# Files of a checkpoint that no program needs to open it.
NOT_NEEDED = ("README.md", "data_config.json", ".gitattributes")


def round_weights(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return every matrix as int8 and its scales, float32 of shape (rows, 1), and all else unchanged."""
    rounded = {}
    for name, values in weights.items():
        is_matrix = values.ndim == 2 and np.issubdtype(values.dtype, np.floating)
        if not is_matrix:
            rounded[name] = values
            continue
        sizes = np.abs(values).max(axis=1, keepdims=True)
        scales = np.where(sizes > 0, sizes / LARGEST, 1).astype(np.float32)
        rounded[name] = np.round(values / scales).astype(np.int8)
        rounded[name + SCALE] = scales
    return rounded


def restore_weights(rounded: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights of which :func:`round_weights` made these, matrices as float32 and rounded."""
    weights = {}
    for name, values in rounded.items():
        if name + SCALE in rounded:
            weights[name] = values.astype(np.float32) * rounded[name + SCALE]
        elif not name.endswith(SCALE):
            weights[name] = values
    return weights


def pack_model(model: Path, folder: Path) -> None:
    """Copy a model's folder with its weights rounded.

    Args:
        model: Folder of a checkpoint whose weights are in one file of safetensors.
        folder: New folder, which no program opens before :func:`unpack_model`.
    """
    without = shutil.ignore_patterns(WEIGHTS, *NOT_NEEDED)
    shutil.copytree(model, folder, ignore=without)
    save_file(round_weights(load_file(model / WEIGHTS)), folder / ROUNDED)


def unpack_model(folder: Path) -> None:
    """Write the rounded weights of a folder as those of an ordinary checkpoint."""
    weights = restore_weights(load_file(folder / ROUNDED))
    # Without it transformers refuses the file.
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / ROUNDED).unlink()
