"""Model folders, Hub names, shipped models: checkpoint and tokenizer from safetensors, identity, refusal of others."""

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

# Name, which is that of its folder beside this file, and sha256 of model.safetensors.
SHIPPED = {"dana-mini": "2eaeca1aa55e447e9e158fd29c67982ec2081010e793a2b0193064c1eadb386d"}


def located(model: str) -> str:
    """The folder of a model that ships with dana; any other folder or Hub name as it is.

    A folder of that name in the working directory goes first.

    Raises:
        ArtifactError: If the weights are not the published ones.
    """
    return str(_verified(model)) if model in SHIPPED and not Path(model).exists() else model


@cache
def _verified(name: str) -> Path:
    folder = Path(__file__).parent / name
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise ArtifactError(f"{weights}: missing; install dana again")
    found = sha256(weights.read_bytes()).hexdigest()
    if found != SHIPPED[name]:
        raise ArtifactError(f"{weights}: sha256 is {found}, not the published {SHIPPED[name]}; install dana again")
    return folder


def load_backbone(model: str) -> Any:
    """The ``AutoModel`` of a folder or a Hub name, in float32 whatever it was saved in.

    Args:
        model: A folder with ``config.json`` and safetensors, a Hub name, or a model that ships with dana.

    Raises:
        ArtifactError: If there is no such model, or its weights are pickled.
    """
    from transformers import AutoModel

    return load_transformer(AutoModel, model)


def load_transformer(auto_class: Any, model: str, **options: Any) -> Any:
    """A model of a folder or a Hub name, in float32 whatever it was saved in, from safetensors alone.

    Args:
        auto_class: The class of transformers that opens it.
        model: See :func:`load_backbone`.
        options: Of its ``from_pretrained``.

    Raises:
        ArtifactError: If there is no such model, or its weights are pickled.
    """
    import torch

    check_checkpoint(model)
    with loading(model):
        return auto_class.from_pretrained(located(model), use_safetensors=True, dtype=torch.float32, **options)


def load_own_tokenizer(model: str) -> Any:
    """The ``AutoTokenizer`` of a folder or a Hub name.

    Raises:
        ArtifactError: If it cannot be read.
    """
    from transformers import AutoTokenizer

    with loading(f"{model}: its tokenizer"):
        return AutoTokenizer.from_pretrained(located(model))


def load_tokenizer(model: str) -> tuple[Any, Any]:
    """A checkpoint's configuration and tokenizer.

    Args:
        model: Folder with safetensors, or Hub name.

    Raises:
        ArtifactError: If there is no such model, or no tokenizer of its own.
    """
    from transformers import AutoConfig

    check_checkpoint(model)
    with loading(model):
        config = AutoConfig.from_pretrained(located(model))
    tokenizer = load_own_tokenizer(model)
    # Where a folder has no tokenizer, transformers makes one up that knows only its special tokens.
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ArtifactError(f"{model}: has no tokenizer")
    if len(tokenizer) > config.vocab_size:
        raise ArtifactError(f"{model}: the tokenizer knows {len(tokenizer)} tokens, the model only {config.vocab_size}")
    return config, tokenizer


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


def tokenizer_identity(tokenizer: Any, special_tokens: str) -> str:
    """Hex digest of what decides the tokens of a text: the content of a tokenizer, wherever it was loaded from.

    Args:
        tokenizer: A fast Hugging Face tokenizer.
        special_tokens: What the caller takes "[MASK]" in a text for, in words.

    Raises:
        ConfigError: If the tokenizer is slow.
    """
    return fingerprint({"tokenizer": uncut(tokenizer).to_str(), "special tokens": special_tokens})


def uncut(tokenizer: Any) -> Any:
    """A copy of a tokenizer's core (``tokenizers.Tokenizer``) that neither cuts nor pads, and takes all text as text.

    Who writes "[MASK]" gets a bracket, a word and a bracket, never the special token: it is no word of the text.

    Raises:
        ConfigError: If the tokenizer is slow: it does not know where its tokens end.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise ConfigError(f"tokenizer {type(tokenizer).__name__} has no character offsets; a fast one is needed")
    from tokenizers import Tokenizer

    state = json.loads(tokenizer.backend_tokenizer.to_str())
    if state["model"]["type"] == "Unigram":  # its pieces are looked up in the text, special ones too: rename those
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
