"""Checkpoints of masked language models: read with their tokenizer, written as plain Hugging Face folders."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dana.artifacts import file_digest
from dana.config import require
from dana.encoders.checkpoint import check_checkpoint, quiet_transformers
from dana.errors import ArtifactError
from dana.logging import get_logger
from dana.mlm.heads import RESERVED_POSITIONS
from dana.rng import derive_seed
from dana.train.loop import Prepared
from dana.train.torch_seed import seeded

log = get_logger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A model with its tokenizer.

    Attributes:
        model: A ``...ForMaskedLM`` model.
        tokenizer: Its fast tokenizer.
        new: Parameters of the language-model head that the checkpoint did not hold, to be warmed up; or none.
    """

    model: Any
    tokenizer: Any
    new: frozenset[str] = frozenset()


def load_checkpoint(model: str, seed: int, next_sentence: bool = False) -> Checkpoint:
    """A masked language model from a folder or Hub name; a backbone alone gets a head tied to its embeddings.

    Args:
        model: Folder with safetensors, or Hub name.
        seed: Decides the weights of a new head.
        next_sentence: With a next-sentence head too, new where the checkpoint has none.

    Raises:
        ConfigError: If a next-sentence head is asked of anything but a BERT.
        ArtifactError: If there is no such model, its weights are pickled, or part of its backbone is missing.
    """
    from transformers import AutoTokenizer

    check_checkpoint(model)
    try:
        with quiet_transformers(), seeded(derive_seed(seed, "head")):
            loaded, report = _architecture(model, next_sentence).from_pretrained(
                model, use_safetensors=True, dtype=torch.float32, output_loading_info=True
            )
            tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{model}: cannot be loaded: {str(error).splitlines()[0]}") from error
    missing = frozenset(report["missing_keys"])
    relation = {name for name in missing if "pooler" in name or "seq_relationship" in name}
    if next_sentence and relation:
        log.info("%s: its next-sentence head is new: %s", model, ", ".join(sorted(relation)))
    new = missing - relation
    lost = sorted(name for name in new if name.startswith(f"{loaded.base_model_prefix}."))
    if lost and loaded.base_model is not loaded:
        raise ArtifactError(f"{model}: {len(lost)} weights of its backbone are missing, for example {lost[0]}")
    if len(tokenizer) > loaded.config.vocab_size:
        raise ArtifactError(
            f"{model}: the tokenizer knows {len(tokenizer)} tokens, the model only {loaded.config.vocab_size}"
        )
    return Checkpoint(loaded, tokenizer, new)


def _architecture(model: str, next_sentence: bool) -> Any:
    """The class that has the heads asked for."""
    from transformers import AutoConfig, AutoModelForMaskedLM, BertForPreTraining

    if not next_sentence:
        return AutoModelForMaskedLM
    kind = AutoConfig.from_pretrained(model).model_type
    require(kind == "bert", "next_sentence", True, f"false for a model of type {kind}: only bert has the head")
    return BertForPreTraining


def check_length(config: Any, max_tokens: int) -> None:
    """Refuse examples longer than the model has positions.

    Raises:
        ConfigError: Naming both numbers.
    """
    positions = getattr(config, "max_position_embeddings", max_tokens)
    most = positions - RESERVED_POSITIONS.get(config.model_type, 0)
    require(max_tokens <= most, "max_tokens", max_tokens, f"at most {most} for this model")


def model_identity(model: str) -> dict[str, Any]:
    """What a result depends on: digests of a folder's weights, tokenizer and config, or a Hub name."""
    folder = Path(model)
    if not folder.is_dir():
        return {"name": model}
    files = [*folder.glob("*.safetensors"), *folder.glob("tokenizer.json"), folder / "config.json"]
    return {file.name: file_digest(file) for file in sorted(files) if file.is_file()}


def save_model(prepared: Prepared, tokenizer: Any, folder: Path | None) -> None:
    """Write a Hugging Face folder; every rank must call it, the one with a folder writes.

    Args:
        prepared: The trained model.
        tokenizer: Its tokenizer.
        folder: Where, or None on ranks that only take part in gathering the weights.
    """
    weights = _gathered(prepared)
    if folder is None:
        return
    model = prepared.accelerator.unwrap_model(prepared.module).model
    # Once each: gathering copies tied weights, and they would be written twice.
    own = {name for name, _ in [*model.named_parameters(), *model.named_buffers()]}
    weights = {name: value for name, value in weights.items() if name in own}
    # Under ZeRO-3 transformers takes any model for one of 2018 and would write its norms as gamma and beta.
    with quiet_transformers():
        model.save_pretrained(folder, state_dict=weights, save_original_format=not _is_deepspeed(prepared))
    tokenizer.save_pretrained(folder)


def _gathered(prepared: Prepared) -> dict[str, Any]:
    """All weights, whole, under the model's own names; a collective operation."""
    if _is_deepspeed(prepared):
        # Its own gathering returns views of freed buffers where there is no GPU to copy from.
        from deepspeed.runtime.zero import GatheredParameters

        with GatheredParameters(list(prepared.module.parameters())):
            state = {
                name: value.clone()
                for name, value in prepared.accelerator.unwrap_model(prepared.module).state_dict().items()
            }
    else:
        state = prepared.accelerator.get_state_dict(prepared.module)
    return {name.removeprefix("model."): value for name, value in state.items()}


def _is_deepspeed(prepared: Prepared) -> bool:
    return prepared.accelerator.distributed_type.value == "DEEPSPEED"
