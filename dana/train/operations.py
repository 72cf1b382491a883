"""Count the floating-point operations of a training step, for the share of a GPU's peak that a run reaches.

Counted is what the mathematics needs, whatever is computed: no padding, no recomputation, the head
at predicted tokens only. A matrix costs 2 operations for each entry and token in the forward pass, as
many for the gradient of its input and for its own. Attention costs 4 for each pair of tokens and
dimension forward, and twice that backward; that of decoders is counted in full.

References:
    Chowdhery et al. 2022, PaLM, appendix B (model FLOPs utilization).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dana.models.head_file import is_cut

# Dense products in bfloat16, in operations a second, from the vendors' data sheets, by words of
# the device's name; the first that fits.
PEAKS = {
    "B200": 2250e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H200": 989e12,
    "GH200": 989e12,
    "A100": 312e12,
    "A10G": 70e12,
    "A10": 125e12,
    "L40S": 362e12,
    "L4": 121e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
}
FORWARD = 2  # operations of a matrix for each entry and token
BACKWARD_INPUT = 2
BACKWARD_WEIGHT = 2
ATTENTION = 12  # forward and backward, for each pair of tokens and dimension


@dataclass(frozen=True)
class OperationCount:
    """What a training step of a model costs.

    Attributes:
        per_token: Operations of the layers' matrices for a token.
        per_label: Those of the language-model head for a predicted token.
        width: Width of the hidden states.
        windows: For each layer the most tokens that a token attends to; None for all of its text.
    """

    per_token: int
    per_label: int
    width: int
    windows: tuple[int | None, ...]

    @classmethod
    def of_model(cls, model: Any, has_own_head: bool = False) -> "OperationCount | None":
        """Count for a model, or return None where not every matrix is used for every token.

        None, too, for a model that ZeRO-3 has cut up.

        Args:
            model: A model of transformers, on one device.
            has_own_head: Whether the objective leaves the model's own head out.
        """
        config = model.config
        if is_cut(model.parameters()):
            return None
        has_experts = getattr(config, "num_experts", getattr(config, "num_local_experts", None))
        if config.is_encoder_decoder or has_experts:
            return None
        backbone = model.base_model
        tables = {
            id(module.weight)
            for module in backbone.modules()
            if isinstance(module, torch.nn.Embedding)
        }
        layers = {id(value) for value in backbone.parameters()}
        per_token = 0
        per_label = 0
        for value in model.parameters():
            if value.ndim < 2 or id(value) in tables:
                continue
            if id(value) in layers:
                per_token += _operations_of(value)
            elif not has_own_head:
                per_label += _operations_of(value)
        output = model.get_output_embeddings()
        is_tied = output is not None and id(output.weight) in tables
        if is_tied and not has_own_head:
            per_label += _operations_of(output.weight)
        return cls(per_token, per_label, config.hidden_size, _windows(config))

    def of_step(self, lengths: np.ndarray, labels: int) -> float:
        """Count the operations of a step.

        Args:
            lengths: Shape (texts,), tokens of each text.
            labels: Number of predicted tokens.
        """
        pairs = 0
        for window in self.windows:
            seen = lengths if window is None else np.minimum(lengths, window)
            pairs += int((lengths * seen).sum())
        matrices = self.per_token * int(lengths.sum()) + self.per_label * labels
        return float(matrices + ATTENTION * self.width * pairs)


def _operations_of(value: torch.nn.Parameter) -> int:
    """Count the operations of a matrix for a token, with the gradients that are computed of it."""
    is_trained = BACKWARD_WEIGHT if value.requires_grad else 0
    return value.numel() * (FORWARD + BACKWARD_INPUT + is_trained)


def _windows(config: Any) -> tuple[int | None, ...]:
    """Return the most tokens that a token of each layer attends to, None for all."""
    layers = config.num_hidden_layers
    window = getattr(config, "local_attention", None) or getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * layers
    return tuple(window if "sliding" in kind else None for kind in kinds)


def peak_of(device: torch.device) -> float | None:
    """Return a GPU's operations a second in bfloat16; None for other devices, and for GPUs not in :data:`PEAKS`."""
    if device.type != "cuda":
        return None
    words = set(torch.cuda.get_device_name(device).replace("-", " ").split())
    return next((peak for name, peak in PEAKS.items() if words >= set(name.split())), None)
