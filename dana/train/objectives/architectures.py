"""Tell which objective trains an architecture, so that a refusal names one that works."""

from typing import Any, NoReturn

from dana.core.errors import ConfigError


def is_masked_model(config: Any) -> bool:
    """Return whether transformers has a head for masked tokens for a model."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    return config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES


def is_decoder(config: Any) -> bool:
    """Return whether a model predicts the next token and sees nothing behind it.

    transformers also makes decoders of encoders such as BERT, and of halves of others.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    kind = config.model_type
    may_be_encoder = is_masked_model(config) or kind in ("bert-generation", "xlnet")
    is_encoder = may_be_encoder and not getattr(config, "is_decoder", False)
    return (
        kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        and not is_encoder
        and not config.is_encoder_decoder
    )


def reads_two_texts(config: Any) -> bool:
    """Return whether a model has a decoder that wants a text of its own beside that of the encoder, as T5.

    Encoders with a decoder that have a head for masked tokens, such as BART, give one text to both.
    """
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    )

    has_decoder = config.model_type in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    return has_decoder and not is_masked_model(config)


def refuse_architecture(objective: str, config: Any, reason: str) -> NoReturn:
    """Refuse to train an architecture by an objective, and name what does work with it.

    Args:
        objective: Name of the objective.
        config: Configuration of the model.
        reason: Why it does not work, of "a model of type X".

    Raises:
        ConfigError: Always.
    """
    kind = config.model_type
    raise ConfigError(
        f"objective={objective!r}: a model of type {kind} {reason}; {_remedy(objective, config)}"
    )


def _remedy(objective: str, config: Any) -> str:
    """Say what trains a model, or what else can be done with it."""
    if is_masked_model(config) and objective != "masked":
        return "adapt it with --objective masked"
    if is_decoder(config) and objective != "causal":
        return "adapt it with --objective causal"
    others = "to adapt, take an encoder, such as dana-mini, or a decoder, such as smollm2"
    if not _has_classifier(config):
        return f"no objective of dana for plain text adapts it: {others}"
    return (
        "no objective of dana for plain text adapts it, but it can be fine-tuned as it is: "
        f"dana finetune --model MODEL --task CARD; {others}"
    )


def _has_classifier(config: Any) -> bool:
    """Return whether transformers has a classifier of texts for a model."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    )

    return config.model_type in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
