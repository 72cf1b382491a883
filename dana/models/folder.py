"""Load, identify and check models in folders, on the Hub or shipped with dana. Weights are safetensors only."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from dana.core.artifacts import fingerprint
from dana.core.errors import ArtifactError, ConfigError, DanaError, nearest_path
from dana.core.files import file_digest

# Name of the model, and of its folder beside this file, to the sha256 of its model.safetensors.
SHIPPED = {"dana-mini": "2eaeca1aa55e447e9e158fd29c67982ec2081010e793a2b0193064c1eadb386d"}


def resolve_model(model: str) -> str:
    """Return the folder of a model that ships with dana; any other folder or Hub name unchanged.

    A folder of that name in the working directory has precedence.

    Raises:
        ArtifactError: If the weights are not the published ones.
    """
    return str(_shipped_folder(model)) if model in SHIPPED and not Path(model).exists() else model


@cache
def _shipped_folder(name: str) -> Path:
    folder = Path(__file__).parent / name
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise ArtifactError(f"{weights}: missing; install dana again")
    digest = sha256(weights.read_bytes()).hexdigest()
    if digest != SHIPPED[name]:
        raise ArtifactError(f"{weights}: expected sha256 {SHIPPED[name]}, got {digest}; install dana again")
    return folder


def load_backbone(model: str) -> Any:
    """Load the ``AutoModel`` of a folder or Hub name, in float32 whatever its own precision.

    Args:
        model: A folder with ``config.json`` and safetensors, a Hub name, or a model that ships with dana.

    Raises:
        ArtifactError: If there is no such model, or its weights are pickled.
    """
    from transformers import AutoModel

    return load_transformer(AutoModel, model)


def load_transformer(auto_class: Any, model: str, **options: Any) -> Any:
    """Load a model of a folder or Hub name from safetensors, in float32 whatever its own precision.

    Args:
        auto_class: Class of transformers to load.
        model: See :func:`load_backbone`.
        options: Further arguments of ``from_pretrained``.

    Raises:
        ArtifactError: If there is no such model, or its weights are pickled.
    """
    import torch

    check_checkpoint(model)
    with loading(model):
        return auto_class.from_pretrained(resolve_model(model), use_safetensors=True, dtype=torch.float32, **options)


def load_own_tokenizer(model: str) -> Any:
    """Load the ``AutoTokenizer`` of a folder or Hub name.

    Raises:
        ArtifactError: If it cannot be loaded.
    """
    from transformers import AutoTokenizer

    with loading(f"{model}: its tokenizer"):
        return AutoTokenizer.from_pretrained(resolve_model(model))


def load_tokenizer(model: str) -> tuple[Any, Any]:
    """Load a checkpoint's configuration and tokenizer.

    Args:
        model: Folder with safetensors, or Hub name.

    Raises:
        ArtifactError: If there is no such model, or it has no tokenizer.
    """
    from transformers import AutoConfig

    check_checkpoint(model)
    with loading(model):
        config = AutoConfig.from_pretrained(resolve_model(model))
    tokenizer = load_own_tokenizer(model)
    # For a folder without tokenizer, transformers makes up one that has only special tokens.
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ArtifactError(f"{model}: has no tokenizer; save one to the folder")
    if len(tokenizer) > config.vocab_size:
        raise ArtifactError(f"{model}: the tokenizer has {len(tokenizer)} tokens, the model only {config.vocab_size}")
    return config, tokenizer


def model_identity(model: str) -> dict[str, Any]:
    """Identify a model by digests of a folder's weights, tokenizer and config, or by the commit of a Hub name.

    Raises:
        ArtifactError: If there is no such model.
    """
    check_checkpoint(model)
    folder = Path(resolve_model(model))
    if folder.is_dir():
        files = [*folder.glob("*.safetensors"), *folder.glob("tokenizer.json"), folder / "config.json"]
        return {file.name: file_digest(file) for file in sorted(files)}
    from transformers import AutoConfig

    with loading(model):
        return {"name": model, "commit": getattr(AutoConfig.from_pretrained(model), "_commit_hash", None)}


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Silence transformers and safetensors, and turn their errors into an ArtifactError of one line.

    With a damaged file they raise OSError, ValueError, KeyError, RuntimeError or errors of their own.

    Args:
        what: The model, for the message.

    Raises:
        ArtifactError: For any error inside but dana's own.
    """
    try:
        with quiet_transformers():
            yield
    except DanaError:
        raise
    except Exception as error:
        message = (str(error).splitlines() or [""])[0]
        if "ignore_mismatched_sizes" in message:  # refers to a table that is silenced
            message = "its weights have other shapes than in its config.json"
        if not message or not isinstance(error, OSError | ValueError | RuntimeError):
            message = f"{type(error).__name__}: {message}"
        raise ArtifactError(f"{what}: cannot be loaded: {message}") from error


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' progress bar and table of missing weights, which the callers check themselves."""
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
    """Check, before any work, that a local path is a folder of a checkpoint with safetensors weights.

    Raises:
        ArtifactError: If it is not.
    """
    path = Path(resolve_model(model))
    if path.is_file():
        raise ArtifactError(f"{model}: expected a folder with config.json and *.safetensors, got a file")
    if not path.is_dir():
        if path.is_absolute() or model.startswith(".") or model.count("/") > 1:
            raise ArtifactError(f"{model}: no such folder{nearest_path(model)}")
        return  # a Hub name
    if not (path / "config.json").is_file():
        raise ArtifactError(f"{model}: not the folder of a model: config.json is missing")
    if not list(path.glob("*.safetensors")):
        pickles = sorted(file.name for file in [*path.glob("*.bin"), *path.glob("*.pt"), *path.glob("*.pkl")])
        reason = f"; {', '.join(pickles)}: pickles run code when opened and are refused" if pickles else ", found none"
        raise ArtifactError(f"{model}: needs weights as *.safetensors{reason}")


def tokenizer_identity(tokenizer: Any, special_tokens: str) -> str:
    """Hash the content of a tokenizer, on which the tokens of a text depend, to a hex digest.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
        special_tokens: How the caller treats special tokens such as "[MASK]" in a text, in words.

    Raises:
        ConfigError: If the tokenizer is slow.
    """
    return fingerprint({"tokenizer": uncut(tokenizer).to_str(), "special tokens": special_tokens})


def uncut(tokenizer: Any) -> Any:
    """Copy a tokenizer's core (``tokenizers.Tokenizer``) without truncation, padding and special tokens in the text.

    In a text, "[MASK]" becomes a bracket, a word and a bracket, never the special token.

    Raises:
        ConfigError: If the tokenizer is slow, and so lacks the offsets of tokens.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ConfigError(f"tokenizer {type(tokenizer).__name__}: has no character offsets; use a fast tokenizer")
    from tokenizers import Tokenizer

    state = json.loads(tokenizer.backend_tokenizer.to_str())
    if state["model"]["type"] == "Unigram":  # it matches the pieces of special tokens in the text: rename them
        special = {token["content"] for token in state["added_tokens"] if token["special"]}
        vocabulary = state["model"]["vocab"]
        state["model"]["vocab"] = [
            ["\uffff" + piece if piece in special else piece, odds] for piece, odds in vocabulary
        ]
    copy = Tokenizer.from_str(json.dumps(state, ensure_ascii=False))
    copy.encode_special_tokens = True
    copy.no_truncation()
    copy.no_padding()
    return copy
