"""Model folders and Hub names: backbone and tokenizer from safetensors, identity, refusal of what is no model."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dana.core.errors import ArtifactError, DanaError, nearest_path
from dana.core.files import file_digest
from dana.models.shipped import located


def load_backbone(model: str) -> Any:
    """The ``AutoModel`` of a folder or a Hub name, in float32 whatever it was saved in.

    Args:
        model: A folder with ``config.json`` and safetensors, a Hub name, or a model that ships with dana.

    Raises:
        ArtifactError: If there is no such model, or its weights are pickled.
    """
    import torch
    from transformers import AutoModel

    check_checkpoint(model)
    with loading(model):
        return AutoModel.from_pretrained(located(model), use_safetensors=True, dtype=torch.float32)


def load_own_tokenizer(model: str) -> Any:
    """The ``AutoTokenizer`` of a folder or a Hub name.

    Raises:
        ArtifactError: If it cannot be read.
    """
    from transformers import AutoTokenizer

    with loading(f"{model}: its tokenizer"):
        return AutoTokenizer.from_pretrained(located(model))


def model_identity(model: str) -> dict[str, Any]:
    """What decides a model's answers: digests of a folder's weights, tokenizer and config, or a Hub name's commit.

    Raises:
        ArtifactError: If there is no such model.
    """
    check_checkpoint(model)
    folder = Path(located(model))
    if folder.is_dir():
        files = [*folder.glob("*.safetensors"), *folder.glob("tokenizer.json"), folder / "config.json"]
        return {file.name: file_digest(file) for file in sorted(files)}
    from transformers import AutoConfig

    with loading(model):
        return {"name": model, "commit": getattr(AutoConfig.from_pretrained(model), "_commit_hash", None)}


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Let transformers and safetensors read without output, and turn what they raise into one line.

    A damaged file makes them raise nearly anything: OSError, ValueError, KeyError, RuntimeError, their own.

    Args:
        what: The model.

    Raises:
        ArtifactError: For whatever is raised inside, but for dana's own errors.
    """
    try:
        with quiet_transformers():
            yield
    except DanaError:
        raise
    except Exception as error:
        said = (str(error).splitlines() or [""])[0]
        if "ignore_mismatched_sizes" in said:  # their hint means a report that we hold back
            said = "its weights have other shapes than its config.json says"
        plain = isinstance(error, OSError | ValueError | RuntimeError) and said
        raise ArtifactError(
            f"{what}: cannot be loaded: {said if plain else f'{type(error).__name__}: {said}'}"
        ) from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hold back transformers' loading bar and its table of missing weights; the callers check what is missing."""
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
    path = Path(located(model))
    if path.is_file():
        raise ArtifactError(f"{model}: a file, not a model; dana loads folders with config.json and *.safetensors")
    if not path.is_dir():
        if path.is_absolute() or model.startswith(".") or model.count("/") > 1:
            raise ArtifactError(f"{model}: no such folder{nearest_path(model)}")
        return  # a Hub name
    if not (path / "config.json").is_file():
        raise ArtifactError(f"{model}: no config.json, so not a model folder")
    if not list(path.glob("*.safetensors")):
        pickled = sorted(file.name for file in [*path.glob("*.bin"), *path.glob("*.pt"), *path.glob("*.pkl")])
        found = f"found {', '.join(pickled)}: pickles run code when opened and are refused" if pickled else "found none"
        raise ArtifactError(f"{model}: needs weights as *.safetensors; {found}")
