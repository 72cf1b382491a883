"""Train the vectors of texts: the module that pools hidden states, and what its forward passes read."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from dana.core.config import require
from dana.models.folder import running
from dana.models.pooling import Pooling, read_pooling
from dana.models.varlen import NAME
from dana.train.execution import gathered
from dana.train.layout import BatchLayout, lay_out

HEAD_RATE = 10.0  # learning rate of a new head, as a multiple of the model's
TRIAL_TOKENS = 4  # read once to find out which parameters the vectors depend on


class TextVectors(nn.Module):
    """A model that returns the vectors of texts, pooled as its checkpoint says, before any normalisation.

    Parameters that the vectors do not depend on, such as those of a head for language modelling,
    are not trained: they stay as they are.

    Args:
        model: A transformers encoder.
        bf16: Compute hidden states in bfloat16 by autocast.

    Attributes:
        rate_factors: Multiples of the learning rate, by the prefix of a parameter's name.
    """

    rate_factors: ClassVar[Mapping[str, float]] = {}

    def __init__(self, model: Any, bf16: bool = False) -> None:
        super().__init__()
        self.model = model
        self.bf16 = bf16
        self.config = model.config  # DeepSpeed reads the hidden size here
        # and FSDP the layers that it cuts at
        self._no_split_modules = getattr(model, "_no_split_modules", None)
        origin = model.config.name_or_path  # empty for a model from scratch
        self.pooling = read_pooling(origin) if origin else Pooling()
        self._freeze_others()

    def forward(
        self, input_ids: Tensor, where: Tensor, text: Tensor, texts: int, **attention: Any
    ) -> Tensor:
        """Compute vectors, float32 of shape (texts, width); see :func:`text_inputs`."""
        autocast: AbstractContextManager[Any] = nullcontext()
        if self.bf16:
            autocast = torch.autocast(input_ids.device.type, torch.bfloat16)
        with running(self.model), autocast:
            states = self.model.base_model(input_ids=input_ids, **attention)[0]
        return self.pooling.pool(states.flatten(0, 1)[where], text, texts)

    def _freeze_others(self) -> None:
        """Stop training parameters that the vectors do not depend on, found by reading a few tokens."""
        model = self.model
        parameters = [value for value in model.parameters() if value.requires_grad]
        was_training = model.training
        is_unpadded = model.config._attn_implementation == NAME
        layout = "unpadded" if is_unpadded else "padded"
        shape = BatchLayout.from_config(model.config, TRIAL_TOKENS, layout)
        words = model.get_input_embeddings().weight.shape[0]
        # Special tokens stand at the ends of a vocabulary.
        tokens = np.arange(TRIAL_TOKENS) + words // 2
        inputs = text_inputs(tokens, np.array([0, TRIAL_TOKENS]), np.array([0]), shape)
        for name, value in inputs.items():
            if isinstance(value, Tensor):
                inputs[name] = value.to(model.device)
        model.eval()
        with gathered(parameters), torch.enable_grad():
            vectors = TextVectors.forward(self, **inputs)
            gradients = torch.autograd.grad(vectors.sum(), parameters, allow_unused=True)
        model.train(was_training)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.requires_grad_(gradient is not None)


def text_inputs(
    tokens: np.ndarray, offsets: np.ndarray, rows: np.ndarray, layout: BatchLayout
) -> dict[str, Any]:
    """Lay texts out for a forward pass of :class:`TextVectors`.

    Args:
        tokens: Shape (tokens,), all texts of the step end to end.
        offsets: Shape (texts of the step + 1,), where each begins.
        rows: Indices of the texts of this pass, at least one.
        layout: How they are laid out.
    """
    positions, attention = lay_out(rows, offsets, layout)
    is_token = positions >= 0
    ids = np.where(is_token, tokens[np.maximum(positions, 0)], layout.pad).astype(np.int64)
    text = np.repeat(np.arange(rows.size), np.diff(offsets)[rows])
    return {
        "input_ids": torch.from_numpy(ids),
        "where": torch.from_numpy(np.flatnonzero(is_token)),
        "text": torch.from_numpy(text),
        "texts": rows.size,
        **attention,
    }


def encoder_class(config: Any, objective: str) -> Any:
    """Return the class of transformers of an encoder's checkpoint, with the heads that it has.

    Args:
        config: Configuration of the model.
        objective: Name of the objective, for the error.

    Raises:
        ConfigError: If the model is a decoder, or no text encoder.
    """
    import transformers
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_MASKED_LM_MAPPING_NAMES as ENCODERS,
    )

    kind = config.model_type
    is_encoder = kind in ENCODERS and not getattr(config, "is_decoder", False)
    hint = f"causal for a model of type {kind}: only encoders have vectors of texts to train"
    require(is_encoder, "objective", objective, hint)
    names = config.architectures or []
    return getattr(transformers, names[0]) if names else transformers.AutoModel
