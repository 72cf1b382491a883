"""Keep the keys of the documents that a model was trained on beside its weights."""

from pathlib import Path

import numpy as np

from dana.core.errors import ArtifactError
from dana.models.folder import loading, resolve_model

FILE = "documents.npy"


def read_known_text(model: str) -> np.ndarray | None:
    """Read the keys of the documents that a model was trained on.

    Args:
        model: Folder or Hub name.

    Returns:
        uint64 of shape (documents,), each from :func:`dana.core.files.text_key`; None of a model
        that does not say.

    Raises:
        ArtifactError: If the file is damaged.
    """
    file = Path(resolve_model(model)) / FILE
    if not file.is_file():
        return None
    with loading(str(file)):
        keys: np.ndarray = np.load(file, allow_pickle=False)
    if keys.dtype != np.uint64 or keys.ndim != 1:
        raise ArtifactError(
            f"{file}: must hold one row of unsigned 64-bit integers, got {keys.dtype} "
            f"{keys.shape}; copy the model again, or remove the file: what the model has read is "
            "then unknown"
        )
    return keys
