"""Add low-rank adapters to a model, save them alone, and fold them into its weights.

They are those of Hu et al. 2022, section 4.1. An adapter folder holds what peft reads:
``adapter_config.json``, which names the base, and the trained tensors.
"""

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dana.core.config import require
from dana.core.errors import ArtifactError, ConfigError
from dana.core.extras import install_command
from dana.core.logging import get_logger
from dana.core.registry import build, parse_arguments
from dana.core.rng import derive_seed, torch_seed
from dana.models.convertible import convert_command

if TYPE_CHECKING:
    from torch import Tensor

log = get_logger(__name__)

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."  # of the names of tensors in peft's files
KINDS = ("lora", "dora")


@dataclass(frozen=True)
class Adapter:
    """Shape of a model's adapters.

    Each adapted matrix W becomes W + alpha / r · B A, and W stays as it is.

    Attributes:
        kind: ``lora``, or ``dora``, which also trains the length of each row (Liu et al. 2024).
        r: Rank: rows of A, columns of B, which is 0 at first.
        alpha: Scale of the update.
        dropout: Dropout of the input of A.
        targets: ``all-linear``, or endings of the names of modules, joined by ``+``:
            ``q_proj+v_proj``.
    """

    kind: str
    r: int = 16
    alpha: int = 32
    dropout: float = 0.0
    targets: str = "all-linear"

    def __post_init__(self) -> None:
        require(1 <= self.r <= 4096, "r", self.r, "from 1 to 4096")
        require(self.alpha >= 1, "alpha", self.alpha, "at least 1")
        require(0 <= self.dropout < 1, "dropout", self.dropout, "in [0, 1)")

    @classmethod
    def from_spec(cls, spec: str) -> "Adapter":
        """Read a spec, as in ``lora:r=16,alpha=32``.

        Raises:
            ConfigError: If it cannot be read, or peft is not installed.
        """
        kind, _, arguments = spec.partition(":")
        require(kind in KINDS, "adapter", spec, "lora or dora, as in lora:r=16,alpha=32, or null")
        require(
            find_spec("peft") is not None,
            "adapter",
            spec,
            f"null without peft: {install_command('adapter')}",
        )
        positional, keywords = parse_arguments(arguments, spec)
        adapter: Adapter = build(cls, spec, [kind, *positional], keywords)
        return adapter


def add_adapter(model: Any, tokenizer: Any, spec: str, base: str, seed: int) -> None:
    """Add adapters to a model, in place; only they are trained from now on.

    The rows of words that were added to the tokenizer are trained along, where words are read and
    where they are predicted: nothing else would teach a new row.

    Args:
        model: A transformers model.
        tokenizer: Its tokenizer; None for one without added words.
        spec: Spec of an :class:`Adapter`.
        base: Folder or Hub name of the model, for ``adapter_config.json``.
        seed: Decides the first values of A.

    Raises:
        ConfigError: If the model lacks a target or shares its weights with another layer, or its
            base is an adapter.
    """
    adapter = Adapter.from_spec(spec)
    remedy = f"null for {base}, an adapter, too; fold that first: dana files fold {base}"
    require(adapted_base(base) is None, "adapter", spec, remedy)
    from peft import LoraConfig, inject_adapter_in_model

    rows = _rows_of_added_words(tokenizer)
    targets: list[str] = []
    if adapter.targets != "all-linear":
        targets = adapter.targets.split("+")
    for target in targets:
        remedy = (
            f"without {target}, which {base} lacks, "
            "or which has weights of another layer or of an added word"
        )
        require(_can_adapt(model, target, rows), "adapter", spec, remedy)
    head = model.get_output_embeddings()  # peft will put another module in its place
    config = LoraConfig(
        r=adapter.r,
        lora_alpha=adapter.alpha,
        lora_dropout=adapter.dropout,
        target_modules=targets or "all-linear",
        trainable_token_indices=_trained_rows(model, rows) or None,
        use_dora=adapter.kind == "dora",
        base_model_name_or_path=str(Path(base).resolve()) if Path(base).is_dir() else base,
    )
    try:
        with torch_seed(derive_seed(seed, "adapter")):
            inject_adapter_in_model(config, model)
    except ValueError as error:
        problem = str(error).partition("\n")[0]
        raise ConfigError(
            f"adapter={spec!r}: {problem}; targets=all-linear adapts every linear module"
        ) from error
    _log_size(model, spec, rows)
    if rows and getattr(head, "bias", None) is not None:  # which peft forgets
        model.get_output_embeddings().register_forward_hook(
            lambda layer, _, out: out + layer.original_module.bias
        )


def _rows_of_added_words(tokenizer: Any) -> list[int]:
    """Return the ids of the words that were added to a tokenizer, ascending."""
    if not tokenizer:
        return []
    words = tokenizer.added_tokens_decoder
    return sorted(row for row, token in words.items() if not token.special)


def _is_tied(model: Any) -> bool:
    """Return whether a model's input and output embeddings are one tensor."""
    head = model.get_output_embeddings()
    return model.get_input_embeddings().weight is getattr(head, "weight", None)


def _trained_rows(model: Any, rows: list[int]) -> dict[str, list[int]]:
    """Return the rows to train of each layer of embeddings, by the layer's name."""
    if not rows:
        return {}
    layers = [model.get_input_embeddings()]
    if not _is_tied(model):  # of tied ones peft trains the rows as one
        layers.append(model.get_output_embeddings())
    return {name: rows for name, module in model.named_modules() if module in layers}


def _can_adapt(model: Any, target: str, rows: list[int]) -> bool:
    """Return whether a model has modules for a target, and none of them has other duties.

    Embeddings have other duties where they are tied, or where their rows are trained.
    """
    modules = set()
    for name, module in model.named_modules():
        if f".{name}".endswith(f".{target}"):
            modules.add(module)
    embeddings = {model.get_input_embeddings(), model.get_output_embeddings()}
    has_duties = (rows or _is_tied(model)) and modules & embeddings
    return bool(modules) and not has_duties


def _log_size(model: Any, spec: str, rows: list[int]) -> None:
    """Log how much of a model is trained."""
    trained = 0
    total = 0
    for parameter in model.parameters():
        total += parameter.numel()
        if parameter.requires_grad:
            trained += parameter.numel()
    log.info(
        "adapter   %s: trains %s of %s parameters, %d rows of words",
        spec,
        f"{trained:,}",
        f"{total:,}",
        len(rows),
    )


def has_adapter(model: Any) -> bool:
    """Return whether a model was given adapters by :func:`add_adapter`."""
    return bool(getattr(model, "peft_config", None))


def write_adapter(model: Any, weights: "dict[str, Tensor]", folder: Path) -> None:
    """Write the adapters of a model, and nothing else of it.

    Args:
        model: From :func:`add_adapter`.
        weights: At least its trained parameters, by name.
        folder: Target folder.
    """
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    config = model.peft_config["default"]
    config.inference_mode = True
    # It is a set, whose order differs between processes.
    config.target_modules = sorted(config.target_modules)
    config.save_pretrained(folder)
    state = get_peft_model_state_dict(model, state_dict=weights, save_embedding_layers=False)
    tensors = {f"{PREFIX}{name}": value.contiguous() for name, value in state.items()}
    save_file(tensors, folder / WEIGHTS)


def adapted_base(model: str) -> str | None:
    """Return the base of an adapter folder, a folder or a Hub name; None for any other model.

    Raises:
        ArtifactError: If the folder names no base, or lacks its tensors as safetensors.
    """
    file = Path(model) / CONFIG
    if not file.is_file():
        return None
    try:
        base = json.loads(file.read_text(encoding="utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ArtifactError(
            f"{file}: names no base; set base_model_name_or_path to the base's folder"
        ) from error
    if not (isinstance(base, str) and base) or Path(base).resolve() == Path(model).resolve():
        raise ArtifactError(
            f"{file}: base_model_name_or_path={base!r}: must be the base's folder or Hub name"
        )
    if not (file.parent / WEIGHTS).is_file():
        raise ArtifactError(
            f"{model}: an adapter needs its tensors as {WEIGHTS}; of another file, add them to the "
            f"base: {convert_command(model)}"
        )
    if find_spec("peft") is None:
        raise ArtifactError(
            f"{model}: holds an adapter, which peft opens: {install_command('adapter')}"
        )
    return base


def fold_adapter(network: Any, folder: str) -> Any:
    """Add the adapters of a folder to a model's weights, and return the model without them.

    Raises:
        ArtifactError: If their tensors are not those of such a model.
    """
    from peft import PeftModel, get_peft_model_state_dict
    from safetensors import safe_open

    model = PeftModel.from_pretrained(network, folder)
    with safe_open(Path(folder) / WEIGHTS, "pt") as tensors:
        names = set(tensors.keys())
    if names != set(get_peft_model_state_dict(model, save_embedding_layers=False)):
        raise ArtifactError(
            f"{folder}/{WEIGHTS}: has other tensors than adapters of its base; set "
            f"base_model_name_or_path in {CONFIG} to the model on which it was trained"
        )
    return model.merge_and_unload(safe_merge=True)
