"""``dana files convert``: make a folder that dana opens of a checkpoint that it refuses.

It rewrites pickled weights as safetensors, folders in the layout of sentence-transformers before
version 1, and adapters with their base, and gives a model rows for tokens that it has none for.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dana.core.artifacts import Artifact, Draft, make, read_json, write_json
from dana.core.errors import ArtifactError, nearest_path
from dana.core.files import explain_write_errors, file_digest
from dana.core.logging import get_logger
from dana.models.adapters import CONFIG as ADAPTER_CONFIG
from dana.models.adapters import WEIGHTS as ADAPTER_WEIGHTS
from dana.models.convertible import (
    MODULES,
    SUFFIXES,
    folders_of_modules,
    no_weights,
    pickled_files,
    transformer_folder,
)
from dana.models.embeddings import resize_embeddings, rows_of, token_range
from dana.models.folder import (
    MODEL_FILES,
    TOKENIZER_FILES,
    lacks_head,
    load_config,
    load_own_tokenizer,
    load_with_head,
    loading,
    note_weights,
    own_class,
    resolve_model,
)
from dana.models.head_file import FILE as HEAD_FILE
from dana.models.head_file import head_architecture
from dana.models.known_text import FILE as KNOWN_TEXT
from dana.models.pickled import expected_names, plain_names, read_tensors
from dana.models.pooling import OTHER_FILES, read_pooling
from dana.models.saving import WEIGHTS
from dana.stages.fold import write_folded, write_network

log = get_logger(__name__)

VERSION = 1  # of what is written for a given checkpoint
# What sentence-transformers called its transformers before version 1.
TRANSFORMERS = (
    "Transformer",
    "BERT",
    "RoBERTa",
    "XLMRoBERTa",
    "DistilBERT",
    "ALBERT",
    "CamemBERT",
    "T5",
    "XLNet",
)
CARDS = ("README.md", "LICENSE", "LICENSE.txt", "NOTICE")


def convert_stage(model: str, out: Path, resize: bool = False) -> Artifact:
    """Write a checkpoint as a folder with safetensors that dana and transformers open.

    Args:
        model: Folder, file of weights in it, or Hub name. Its weights may be pickled; no code of
            theirs runs. A folder of adapters becomes their base with the adapters added.
        out: Folder for the model.
        resize: Give tokens that the model has no rows for the mean of their pieces' rows.

    Raises:
        ArtifactError: If there is nothing to convert, the weights cannot be read without code, or
            they are not those of the model in ``config.json``.
    """
    folder, files = _find_checkpoint(model)
    _require_work(model, folder, files, resize)
    depends_on = {"convert": VERSION, "resize": resize, "files": _digests(folder, files)}
    if (folder / ADAPTER_CONFIG).is_file():
        base, files_of_base = _find_checkpoint(_name_of_base(folder))
        depends_on["base"] = _digests(base, files_of_base)

    def write(draft: Draft) -> None:
        plain = draft.path.with_name("plain")
        plain.mkdir()
        with explain_write_errors(out), _naming(model, plain.parent):
            if (folder / ADAPTER_CONFIG).is_file():
                _merge_adapter(folder, plain, draft.path.with_name("base"))
            else:
                draft.counts["tensors"] = _write_plain(folder, files, plain)
            if resize:
                draft.counts["new_rows"] = _write_resized(plain, draft.path)
            else:
                for entry in plain.iterdir():
                    entry.rename(draft.path / entry.name)
            _check(draft.path)
        for name in (*CARDS, KNOWN_TEXT):
            if (folder / name).is_file():
                shutil.copyfile(folder / name, draft.path / name)
        note_weights(draft)

    return make(out, "model", depends_on, write)


def resized_model(model: str, out: Path) -> str:
    """Return a model that has a row for each of its tokens: the model itself, or a copy with new rows.

    Args:
        model: Folder with safetensors, or Hub name.
        out: Folder for the copy.

    Raises:
        ArtifactError: If the model cannot be used.
    """
    rows = getattr(load_config(model), "vocab_size", None)
    if rows is None or token_range(load_own_tokenizer(model)) <= rows:
        log.info("convert   %s has a row for each of its tokens", model)
        return model
    return str(convert_stage(model, out, resize=True).path)


def _find_checkpoint(model: str) -> tuple[Path, list[Path]]:
    """Return the folder of a checkpoint, and the file of weights if one was named."""
    path = Path(resolve_model(model))
    if path.is_file():
        return path.parent, [path]
    if path.is_dir():
        return path, []
    if path.is_absolute() or model.startswith(".") or model.count("/") > 1:
        raise ArtifactError(f"{model}: no such folder{nearest_path(model)}")
    return _download(model), []


def _download(name: str) -> Path:
    """Fetch a model of the Hub, and return its folder."""
    from huggingface_hub import snapshot_download

    patterns = [*MODEL_FILES, *CARDS, *OTHER_FILES, MODULES, "*/config.json"]
    patterns += ["pytorch_model*.bin", "pytorch_model.bin.index.json"]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except Exception as error:  # the library raises many kinds
        reason = str(error).partition("\n")[0]
        raise ArtifactError(
            f"{name}: no such folder, and not on the Hub: {reason}; copy the model's folder here"
        ) from error


def _require_work(model: str, folder: Path, files: list[Path], resize: bool) -> None:
    """Refuse a folder that dana opens as it is, or in which there are no weights.

    Raises:
        ArtifactError: Names the next command.
    """
    if (folder / ADAPTER_CONFIG).is_file():
        return
    inner = transformer_folder(folder)
    if not (inner / "config.json").is_file():
        raise ArtifactError(
            f"{model}: not the folder of a model: {inner / 'config.json'} is missing; copy it from "
            "where the weights are from"
        )
    has_safetensors = any(inner.glob("*.safetensors"))
    if has_safetensors and inner == folder and not (files or resize):
        raise ArtifactError(
            f"{model}: there is nothing to convert, dana opens it as it is: "
            f"dana adapt DIR --model {model}"
        )
    if not (has_safetensors or files or pickled_files(inner)):
        raise ArtifactError(f"{model}: {no_weights(inner)}")


def _digests(folder: Path, files: list[Path]) -> dict[str, str]:
    """Digest all that decides what is written, by name in the folder."""
    inner = transformer_folder(folder)
    found = {*files, *(file for pattern in MODEL_FILES for file in inner.glob(pattern))}
    found |= {file for file in inner.iterdir() if file.suffix in SUFFIXES}
    found |= {file for file in folder.glob("*.json")} | {*folder.glob("*/config.json")}
    return {file.relative_to(folder).as_posix(): file_digest(file) for file in sorted(found)}


@contextmanager
def _naming(model: str, workspace: Path) -> Iterator[None]:
    """Put the name of a checkpoint into errors that name a temporary folder."""
    try:
        yield
    except ArtifactError as error:
        message = str(error)
        for place in ("plain", "new", "base/adapter", "base"):
            message = message.replace(str(workspace / place), model)
        raise ArtifactError(message) from error


def _write_plain(folder: Path, files: list[Path], target: Path) -> int:
    """Write a checkpoint into a folder that dana opens; return the number of its tensors."""
    from safetensors.torch import load_file, save_file

    inner = transformer_folder(folder)
    _copy_files(folder, target)
    if (inner / HEAD_FILE).is_file():
        shutil.copyfile(inner / HEAD_FILE, target / HEAD_FILE)
    sources = files or sorted({*inner.glob("*.safetensors")} - {inner / HEAD_FILE})
    if not files and not sources:
        sources = pickled_files(inner)
    tensors: dict[str, Any] = {}
    for file in sources:
        is_safe = file.suffix == ".safetensors"
        tensors |= load_file(file) if is_safe else read_tensors(file)
    if not all(file.suffix == ".safetensors" for file in sources):
        _name_type(target, tensors)
        tensors = plain_names(tensors, _expected_names(target), str(sources[0]))
    save_file(tensors, target / WEIGHTS, metadata={"format": "pt"})
    return len(tensors)


def _expected_names(folder: Path) -> set[str]:
    """Return the names of the parameters of the model of a folder's config.json."""
    from transformers import AutoConfig, AutoModel

    with loading(str(folder)):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        return expected_names(lambda: AutoModel.from_config(config))


def _copy_files(folder: Path, target: Path) -> None:
    """Copy what transformers and sentence-transformers read of a checkpoint, its weights left out."""
    inner = transformer_folder(folder)
    patterns = [pattern for pattern in MODEL_FILES if "safetensors" not in pattern]
    for place in (folder, inner):
        names = {file for pattern in [*patterns, *OTHER_FILES] for file in place.glob(pattern)}
        for file in sorted(names):
            if file.is_file():
                shutil.copyfile(file, target / file.name)
    if (folder / MODULES).is_file():
        _copy_modules(folder, target)


def _copy_modules(folder: Path, target: Path) -> None:
    """Copy the modules of sentence-transformers behind the transformer, in today's layout."""
    rows = read_json(folder / MODULES)
    if not (isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)):
        raise ArtifactError(
            f"{folder / MODULES}: must be a list of modules; copy it again, or remove it to use the "
            "transformer alone, pooled by the mean"
        )
    for place in folders_of_modules(rows):
        (target / place).mkdir()
        if (folder / place / "config.json").is_file():
            shutil.copyfile(folder / place / "config.json", target / place / "config.json")
    library, _, kind = str(rows[0].get("type")).rpartition(".")
    if kind in TRANSFORMERS:
        rows[0] |= {"path": "", "type": f"{library}.Transformer"}
    write_json(target / MODULES, rows)


def _name_type(folder: Path, tensors: dict[str, Any]) -> None:
    """Write the type of a model into its config.json, which old ones lack, by the names of its tensors."""
    from transformers import CONFIG_MAPPING

    file = folder / "config.json"
    config = read_json(file)
    if not isinstance(config, dict):
        raise ArtifactError(
            f"{file}: must be a mapping; copy it again from where the weights are from"
        )
    if "model_type" in config:
        return
    firsts = {part for name in tensors for part in name.split(".")[:3]}
    kinds = sorted(firsts & {*CONFIG_MAPPING.keys()})
    if len(kinds) != 1:
        raise ArtifactError(
            f'{file}: names no model_type; add it, for example "model_type": "bert", '
            "and run the command again"
        )
    log.info("convert   config.json named no model_type: by its tensors it is %s", kinds[0])
    write_json(file, config | {"model_type": kinds[0]})


def _merge_adapter(folder: Path, target: Path, workspace: Path) -> None:
    """Write the base of adapters with the adapters added to its weights."""
    from safetensors.torch import save_file

    config = read_json(folder / ADAPTER_CONFIG)
    base, files = _find_checkpoint(_name_of_base(folder))
    workspace.mkdir()
    if base != transformer_folder(base) or not any(base.glob("*.safetensors")):
        _write_plain(base, files, workspace)
        base = workspace
    adapter = workspace / "adapter"
    adapter.mkdir()
    write_json(adapter / ADAPTER_CONFIG, config | {"base_model_name_or_path": str(base)})
    weights = folder / ADAPTER_WEIGHTS
    if weights.is_file():
        shutil.copyfile(weights, adapter / ADAPTER_WEIGHTS)
    else:
        pickle = folder / "adapter_model.bin"
        if not pickle.is_file():
            raise ArtifactError(
                f"{folder}: has neither {ADAPTER_WEIGHTS} nor {pickle.name}; copy it"
            )
        tensors = {key: value.contiguous().clone() for key, value in read_tensors(pickle).items()}
        save_file(tensors, adapter / ADAPTER_WEIGHTS)
    tokenizers = folder if list(folder.glob("tokenizer*")) else base
    for pattern in TOKENIZER_FILES:
        for file in tokenizers.glob(pattern):
            shutil.copyfile(file, adapter / file.name)
    write_folded(str(adapter), target)


def _name_of_base(folder: Path) -> str:
    """Return the name of the base of a folder of adapters.

    Raises:
        ArtifactError: If the folder names none.
    """
    config = read_json(folder / ADAPTER_CONFIG)
    name = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    if not isinstance(name, str) or not name:
        raise ArtifactError(
            f"{folder / ADAPTER_CONFIG}: names no base; set base_model_name_or_path to its folder"
        )
    return name


def _write_resized(origin: Path, target: Path) -> int:
    """Write a model with a row for each token; return the number of new rows."""
    tokenizer = load_own_tokenizer(str(origin))
    network, _ = load_with_head(_fullest_class(str(origin)), str(origin))
    before = rows_of(network)
    count = resize_embeddings(network, tokenizer)
    if not count:
        raise ArtifactError(
            f"{origin}: there is nothing to resize: its {before:,} rows are enough for the "
            f"{token_range(tokenizer):,} ids of its tokenizer"
        )
    log.info(
        "convert   %s new rows, the mean of the rows of their pieces: %s rows before",
        f"{count:,}",
        f"{before:,}",
    )
    write_network(network, tokenizer, target)
    return count


def _fullest_class(model: str) -> Any:
    """Return the class of transformers with which most weights of a checkpoint are loaded."""
    import transformers

    if load_config(model).architectures or head_architecture(model):
        return own_class(model)
    for name in ("AutoModelForPreTraining", "AutoModelForMaskedLM", "AutoModelForCausalLM"):
        auto_class = getattr(transformers, name)
        try:
            if not lacks_head(auto_class, model):
                return auto_class
        except ArtifactError:  # there is no such class for the architecture
            continue
    return transformers.AutoModel


def _check(folder: Path) -> None:
    """Refuse a folder that was written and that dana could not open.

    Raises:
        ArtifactError: Names what is wrong with the checkpoint.
    """
    from transformers import AutoModel

    read_pooling(str(folder))
    load_with_head(AutoModel, str(folder))
