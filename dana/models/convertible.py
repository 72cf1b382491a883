"""Tell the forms of a model's folder: static models, and what ``dana files convert`` opens, as pickled weights."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

from dana.core.artifacts import read_json
from dana.core.errors import ArtifactError

MODULES = "modules.json"  # of sentence-transformers
STATIC = "StaticEmbedding"  # a type of its modules
INDEX = "pytorch_model.bin.index.json"
USUAL = "pytorch_model.bin"
SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
# What trainers keep beside the weights.
OTHER_FILES = re.compile(r"(training_args|optimizer|scheduler|scaler|rng_state|random_states).*")
FOREIGN = {
    ".h5": "TensorFlow",
    ".msgpack": "Flax",
    ".ot": "Rust",
    ".onnx": "ONNX",
    ".gguf": "llama.cpp",
}


def convert_command(model: str, *flags: str) -> str:
    """Return the command that converts a checkpoint."""
    stem = Path(model).name or "model"
    if Path(model).is_file():
        stem = stem.partition(".")[0]
    return shlex.join(["dana", "files", "convert", model, *flags, "--out", f"{stem}-converted"])


def is_static_model(model: str) -> bool:
    """Return whether a model is a folder with a static model, as sentence-transformers writes it, and nothing else."""
    modules = Path(model) / MODULES
    if not modules.is_file():
        return False
    content = read_json(modules)
    is_list = isinstance(content, list)
    if not is_list or not all(isinstance(module, dict) for module in content):
        return False  # the reader of pooling says what is wrong
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in content]
    return kinds == [STATIC]


def transformer_folder(folder: Path) -> Path:
    """Return the folder with the transformer of a checkpoint, which old layouts have inside it.

    Before its version 1, sentence-transformers wrote ``0_Transformer/`` (``0_BERT/`` and the like)
    beside ``modules.json``; since then the transformer lies beside that file.
    """
    if (folder / "config.json").is_file() or not (folder / MODULES).is_file():
        return folder
    try:
        rows = json.loads((folder / MODULES).read_text("utf-8"))
        place = str(rows[0]["path"])
    except (OSError, ValueError, TypeError, KeyError, IndexError):  # it is said where it is read
        return folder
    is_name = place != "" and Path(place).name == place
    if is_name and (folder / place).is_dir():
        return folder / place
    return folder


def folders_of_modules(rows: Any) -> list[str]:
    """Return the folders of the modules behind the transformer, as ``modules.json`` names them."""
    paths = [row.get("path") for row in rows[1:] if isinstance(row, dict)]
    return [path for path in paths if isinstance(path, str) and Path(path).name == path != ""]


def no_weights(folder: Path) -> str:
    """Say that a folder has no weights that dana could read, and what to do."""
    foreign = [file for file in sorted(folder.iterdir()) if file.suffix in FOREIGN]
    wanted = "copy model.safetensors or pytorch_model.bin of the model into it"
    if not foreign:
        return f"has no weights; {wanted}"
    kinds = ", ".join(f"{file.name} ({FOREIGN[file.suffix]})" for file in foreign)
    return f"has weights of another library alone, {kinds}; {wanted}"


def pickled_files(folder: Path) -> list[Path]:
    """Find the files of a folder that hold its pickled weights.

    Raises:
        ArtifactError: If an index names a file that is not there, or several files could be meant.
    """
    index = folder / INDEX
    if index.is_file():
        return _files_of_index(index)
    if (folder / USUAL).is_file():
        return [folder / USUAL]
    files = []
    for file in sorted(folder.iterdir()):
        if file.suffix in SUFFIXES and not OTHER_FILES.fullmatch(file.name):
            files.append(file)
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise ArtifactError(
            f"{folder}: holds {names}, of which each could be the weights; "
            f"name one: dana files convert {files[0]} --out NEW_FOLDER"
        )
    return files


def _files_of_index(index: Path) -> list[Path]:
    """List the files that an index of shards names."""
    remedy = "copy the folder again, whole"
    try:
        names = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArtifactError(f"{index}: has no weight_map; {remedy}") from error
    files = []
    for name in sorted(map(str, names)):
        file = index.with_name(Path(name).name)
        if name != file.name or not file.is_file():
            raise ArtifactError(f"{index}: {name}: no such file beside it; {remedy}")
        files.append(file)
    if not files:
        raise ArtifactError(f"{index}: names no file; {remedy}")
    return files
