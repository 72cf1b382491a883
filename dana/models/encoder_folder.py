"""Write an encoder of texts as a folder that sentence-transformers opens by itself, and read a static one."""

from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from dana.core.artifacts import read_json, write_json
from dana.core.errors import ArtifactError
from dana.models.convertible import MODULES, STATIC
from dana.models.folder import load_own_tokenizer, load_with_head, loading, quiet_transformers
from dana.models.heads import positions_of
from dana.models.pooling import OLD_KEYS, POOLING_CONFIG, Pooling, read_pooling
from dana.models.saving import WEIGHTS

# Names that every version of sentence-transformers reads.
TYPE = "sentence_transformers.models.{}"
PLACE_OF_POOLING = "1_Pooling"
PLACE_OF_NORMALIZE = "2_Normalize"
SETTINGS = "sentence_bert_config.json"
STATIC_WEIGHTS = "embedding.weight"
TOKENIZER = "tokenizer.json"


def save_encoder(model: str, folder: Path, max_tokens: int) -> None:
    """Write an encoder as a folder that sentence-transformers opens, in float32.

    It pools as its checkpoint says (:func:`dana.models.pooling.read_pooling`). Of a pooler that the
    checkpoint lacks, and on which no vector depends, zeros are written: where it is missing,
    transformers warns and draws it anew.

    Args:
        model: A checkpoint, folder or name; of adapters, the base with the adapters added.
        folder: Target folder; must exist.
        max_tokens: Length to which texts are cut, special tokens included.

    Raises:
        ArtifactError: If the checkpoint cannot be used.
    """
    import torch
    from transformers import AutoModel

    pooling = read_pooling(model)
    network, new = load_with_head(AutoModel, model)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name in new:
                parameter.zero_()
    tokenizer = load_own_tokenizer(model)
    if tokenizer.is_fast:  # it remembers its last call
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
    with quiet_transformers():
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    longest = min(max_tokens, positions_of(network.config))
    _write_modules(folder, pooling, network.config.hidden_size, longest)


def save_static_encoder(vectors: np.ndarray, tokenizer: Any, folder: Path) -> None:
    """Write a static model as a folder that sentence-transformers opens.

    Args:
        vectors: float32 of shape (ids, width), a vector for each token.
        tokenizer: A fast tokenizer.
        folder: Target folder; must exist.

    Raises:
        ArtifactError: If the tokenizer is not fast.
    """
    from safetensors.numpy import save_file

    if not tokenizer.is_fast:
        raise ArtifactError("a static model needs a fast tokenizer (tokenizer.json)")
    words = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    words.no_truncation()
    words.no_padding()
    words.save(str(folder / TOKENIZER))
    save_file({STATIC_WEIGHTS: vectors}, folder / WEIGHTS, {"format": "pt"})
    module_type = TYPE.format(STATIC)
    write_json(folder / MODULES, [{"idx": 0, "name": "0", "path": "", "type": module_type}])


def static_model_files(folder: Path) -> tuple[Path, Path]:
    """Return the files with the vectors and the tokenizer of a static model.

    Raises:
        ArtifactError: If ``modules.json`` does not say where they are, or one is missing.
    """
    # sentence-transformers puts the files of a module into the folder that modules.json names.
    path = read_json(folder / MODULES)[0].get("path")
    if not isinstance(path, str):
        raise ArtifactError(
            f"{folder / MODULES}: path={path!r}: must be the name of a folder, or empty; "
            "save the model again"
        )
    files = (folder / path / WEIGHTS, folder / path / TOKENIZER)
    for file in files:
        if not file.is_file():
            raise ArtifactError(f"{file}: no such file; copy the folder of the model again, whole")
    return files


def read_static_model(folder: Path) -> tuple[np.ndarray, Tokenizer]:
    """Read a static model.

    Args:
        folder: Folder for which :func:`dana.models.convertible.is_static_model` holds.

    Returns:
        Its vectors, of shape (ids, width), and its tokenizer.

    Raises:
        ArtifactError: If a file is missing or damaged, or the vectors are no finite numbers.
    """
    from safetensors.numpy import load_file

    weights_file, tokenizer_file = static_model_files(folder)
    with loading(str(weights_file)):
        weights = load_file(weights_file)
    with loading(str(tokenizer_file)):
        words = Tokenizer.from_file(str(tokenizer_file))
    if STATIC_WEIGHTS not in weights:
        found = ", ".join(weights)
        raise ArtifactError(f"{weights_file}: has {found}, and not {STATIC_WEIGHTS}")
    vectors = weights[STATIC_WEIGHTS]
    is_table = vectors.ndim == 2 and np.issubdtype(vectors.dtype, np.floating)
    if not is_table or not np.isfinite(vectors).all():
        raise ArtifactError(
            f"{weights_file}: {STATIC_WEIGHTS} must be a table of finite floating-point numbers, "
            f"and is {vectors.dtype} of shape {vectors.shape}, or holds NaN or infinity; "
            "save the model again"
        )
    words.no_truncation()
    words.no_padding()
    return vectors, words


def _write_modules(folder: Path, pooling: Pooling, width: int, max_tokens: int) -> None:
    """Write the files by which sentence-transformers knows how to pool."""
    places = {"Transformer": "", "Pooling": PLACE_OF_POOLING}
    if pooling.normalize:
        places["Normalize"] = PLACE_OF_NORMALIZE
    modules = []
    for number, (kind, place) in enumerate(places.items()):
        module_type = TYPE.format(kind)
        modules.append({"idx": number, "name": str(number), "path": place, "type": module_type})
    write_json(folder / MODULES, modules)
    write_json(folder / SETTINGS, {"max_seq_length": max_tokens, "do_lower_case": False})
    modes = {key: mode == pooling.mode for key, mode in OLD_KEYS.items()}
    for place in places.values():
        (folder / place).mkdir(exist_ok=True)
    config = {"word_embedding_dimension": width, **modes}
    write_json(folder / PLACE_OF_POOLING / POOLING_CONFIG, config)
