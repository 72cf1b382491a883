"""Language models with their tokenizers, loaded from safetensors with the head that an objective needs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dana.core.config import require
from dana.core.errors import ArtifactError
from dana.core.rng import derive_seed
from dana.core.torch_seed import seeded
from dana.models.folder import check_checkpoint, load_own_tokenizer, loading
from dana.models.shipped import located


@dataclass(frozen=True)
class LanguageModel:
    """A model with its tokenizer.

    Attributes:
        model: A transformers model with a language-model head.
        tokenizer: Its fast tokenizer.
        new: Parameters of heads that the checkpoint did not hold, to be warmed up; or none.
    """

    model: Any
    tokenizer: Any
    new: frozenset[str] = frozenset()


def load_language_model(
    model: str, auto_class: Callable[[Any], Any], seed: int, dropout: float | None = None
) -> LanguageModel:
    """A model from a folder or Hub name, in float32; what its checkpoint lacks of the heads is new.

    Args:
        model: Folder with safetensors, or Hub name.
        auto_class: The transformers class that loads a model of a configuration, with the heads that are needed.
        seed: Decides the weights of new heads.
        dropout: Of every layer while it is trained; None leaves the model's own. What is saved has the model's own.

    Raises:
        ArtifactError: If there is no such model, its weights are pickled, or part of its backbone is missing.
        ConfigError: If a dropout is asked for of a model without any.
    """
    import torch
    from transformers import AutoConfig

    check_checkpoint(model)
    tokenizer = load_own_tokenizer(model)
    with loading(model), seeded(derive_seed(seed, "head")):
        config = AutoConfig.from_pretrained(located(model))
        own = {} if dropout is None else dropouts(config)
        require(
            not dropout or bool(own), "dropout", dropout, f"null for a model of type {config.model_type}: it has none"
        )
        for name in own:
            setattr(config, name, dropout)
        loaded, report = auto_class(config).from_pretrained(
            located(model), config=config, use_safetensors=True, dtype=torch.float32, output_loading_info=True
        )
        for name, value in own.items():  # the layers have read them
            setattr(loaded.config, name, value)
    new = frozenset(report["missing_keys"])
    lost = sorted(name for name in new if name.startswith(f"{loaded.base_model_prefix}.") and "pooler" not in name)
    if lost and loaded.base_model is not loaded:
        raise ArtifactError(f"{model}: {len(lost)} weights of its backbone are missing, for example {lost[0]}")
    if len(tokenizer) > loaded.config.vocab_size:
        raise ArtifactError(
            f"{model}: the tokenizer knows {len(tokenizer)} tokens, the model only {loaded.config.vocab_size}"
        )
    return LanguageModel(loaded, tokenizer, new)


def dropouts(config: Any) -> dict[str, float]:
    """The dropout probabilities of a model's encoder, by their names in its config; those of other heads are not."""
    heads = ("classif", "summary", "pooler")
    return {
        name: value
        for name, value in config.to_dict().items()
        if ("dropout" in name or name.endswith("_pdrop"))  # as GPT-2 calls them
        and isinstance(value, int | float)
        and not any(head in name for head in heads)
    }


def check_length(config: Any, max_tokens: int) -> None:
    """Refuse examples longer than the model has positions.

    Raises:
        ConfigError: Naming both numbers.
    """
    from dana.models.heads import positions_of

    most = positions_of(config)
    require(max_tokens <= most, "max_tokens", max_tokens, f"at most {most} for this model")
