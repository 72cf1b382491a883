"""Loading a backbone: safetensors only, a missing model explained."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dana.artifacts import file_digest
from dana.errors import ArtifactError


def load_backbone(model: str) -> Any:
    """The ``AutoModel`` of a folder or a Hub name.

    Args:
        model: A folder with ``config.json`` and safetensors, or a Hub name.

    Raises:
        ArtifactError: If there is no such model, or its weights are pickled.
    """
    from transformers import AutoModel

    check_checkpoint(model)
    try:
        with quiet_transformers():
            return AutoModel.from_pretrained(model, use_safetensors=True)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{model}: cannot be loaded: {str(error).splitlines()[0]}") from error


def checkpoint_identity(model: str) -> dict[str, Any]:
    """What decides a checkpoint's vectors: digests of a folder's weights and tokenizer, a Hub name's commit."""
    folder = Path(model)
    if folder.is_dir():
        files = sorted([*folder.glob("*.safetensors"), *folder.glob("tokenizer.json")])
        return {file.name: file_digest(file) for file in files}
    from transformers import AutoConfig

    check_checkpoint(model)
    try:
        return {"name": model, "commit": getattr(AutoConfig.from_pretrained(model), "_commit_hash", None)}
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{model}: cannot be loaded: {str(error).splitlines()[0]}") from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hold back transformers' loading bar and its table of missing weights; what matters we say ourselves."""
    from transformers import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def check_checkpoint(model: str) -> None:
    """Refuse, before any work, a local path that is not a safetensors checkpoint folder.

    Raises:
        ArtifactError: Saying what was found and what is allowed.
    """
    path = Path(model)
    if path.is_file():
        raise ArtifactError(f"{model}: a file, not a model; dana loads folders with config.json and *.safetensors")
    if not path.is_dir():
        if path.is_absolute() or model.startswith(".") or model.count("/") > 1:
            raise ArtifactError(f"{model}: no such folder")
        return  # a Hub name
    if not (path / "config.json").is_file():
        raise ArtifactError(f"{model}: no config.json, so not a model folder")
    if not list(path.glob("*.safetensors")):
        pickled = sorted(file.name for file in [*path.glob("*.bin"), *path.glob("*.pt"), *path.glob("*.pkl")])
        found = f"found {', '.join(pickled)}: pickles run code when opened and are refused" if pickled else "found none"
        raise ArtifactError(f"{model}: needs weights as *.safetensors; {found}")
