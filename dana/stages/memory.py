"""Count the bytes that each process of a training holds, from a model's configuration and a launch, without weights.

Weights are kept in float32, or by DeepSpeed in the precision of the forward pass with a float32
copy of those that are trained; AdamW has two moments of each. What is trained is cut up as the
engine says: ZeRO 1 to 3 (Rajbhandari et al. 2020, section 5), or torch's fully_shard.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dana.core.config import read_yaml
from dana.core.errors import ConfigError
from dana.models.adapters import add_adapter
from dana.models.folder import loading, resolve_model
from dana.models.heads import CHUNK
from dana.train.settings import AdaptSettings

LIVE, BUCKET = (
    10**9,
    5 * 10**8,
)  # DeepSpeed: most parameters gathered at a time; gradients of a reduction
FLOAT32, MOMENTS = 4, 2
PER_TOKEN, KEPT = (
    17,
    1,
)  # hidden states a layer and a token: in full (Korthikanti et al. 2022, eq. 2); recomputed


@dataclass(frozen=True)
class Launch:
    """What a launch says about memory.

    Attributes:
        engine: ``NO``, ``MULTI_GPU``, ``DEEPSPEED`` or ``FSDP``.
        stage: ZeRO's; 0 without DeepSpeed.
        processes: Number of processes.
        width: Bytes of a number in the forward pass.
        by_layer: Whether FSDP gathers one layer at a time.
    """

    engine: str = "NO"
    stage: int = 0
    processes: int = 1
    width: int = FLOAT32
    by_layer: bool = False

    @classmethod
    def of(cls, file: Path) -> "Launch":
        """Read a configuration of ``accelerate launch``.

        Raises:
            ConfigError: If the file is none, or leaves ZeRO's stage to another file.
        """
        values = read_yaml(file)
        engine, size = values.get("distributed_type", ""), values.get("num_processes", 0)
        parts = (values.get("deepspeed_config"), values.get("fsdp_config"))
        zero_config, fsdp_config = (part if isinstance(part, dict) else {} for part in parts)
        stage = zero_config.get("zero_stage", -1) if engine == "DEEPSPEED" else 0
        engines = ("NO", "MULTI_GPU", "DEEPSPEED", "FSDP")
        if engine not in engines or size not in range(1, 9999) or stage not in range(4):
            raise ConfigError(
                f"{file}: configures no accelerate launch (distributed_type, num_processes, zero_stage)"
            )
        width = 2 if values.get("mixed_precision") in ("bf16", "fp16") else FLOAT32
        return cls(
            engine,
            stage,
            size,
            width,
            fsdp_config.get("fsdp_auto_wrap_policy") == "TRANSFORMER_BASED_WRAP",
        )


@dataclass(frozen=True)
class Memory:
    """Bytes that one process holds.

    Attributes:
        weights: Its part of the weights, with copies in float32.
        gradients: Its part of the gradients.
        moments: Its part of AdamW's moments.
        buffers: Weights of others that it gathers at a time, and ZeRO's bucket of gradients.
        activations: Estimate for one micro-batch: hidden states of all layers, and a chunk of
            logits.
        parameters: Number of parameters of the model.
        learnable: Number of those that are trained.
    """

    weights: int
    gradients: int
    moments: int
    buffers: int
    activations: int
    parameters: int
    learnable: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.moments + self.buffers + self.activations


def count_memory(model: str, settings: AdaptSettings, launch: Launch) -> Memory:
    """Count the bytes of a process in an adaptation.

    Args:
        model: Folder with at least ``config.json``, or Hub name.
        settings: Objective, adapter, micro-batch and gradient checkpointing are used.
        launch: From :meth:`Launch.of`.

    Raises:
        ArtifactError: If there is no such configuration.
        ConfigError: If the objective does not support it.
    """
    from transformers import AutoConfig

    with loading(model):
        config = AutoConfig.from_pretrained(resolve_model(model), trust_remote_code=False)
    kind = settings.make_objective().auto_class(config)
    with loading(model), torch.device("meta"):
        network = kind.from_config(config, dtype=torch.float32)
    if settings.adapter is not None:
        add_adapter(network, None, settings.adapter, model, settings.seed)
    every = sum(part.numel() for part in network.parameters())
    learnable = sum(part.numel() for part in network.parameters() if part.requires_grad)
    weights, gradients, moments, buffers = _states(network, every, learnable, launch)
    execution, inner = settings.execution, config.get_text_config()
    states = inner.num_hidden_layers * (KEPT if execution.gradient_checkpointing else PER_TOKEN)
    states += (
        PER_TOKEN if execution.gradient_checkpointing else 0
    )  # of the layer that is computed again
    size = (
        execution.micro_batch_tokens * inner.hidden_size * launch.width * states
        + 2 * CHUNK * FLOAT32
    )
    return Memory(weights, gradients, moments, buffers, size, every, learnable)


def _states(network: Any, every: int, learnable: int, launch: Launch) -> tuple[int, int, int, int]:
    """Count the bytes of weights, gradients, moments and buffers."""
    parts, width = launch.processes, launch.width
    moments = MOMENTS * FLOAT32 * learnable
    if launch.engine == "FSDP":
        block = max((_size(one) for one in network.modules() if _is_block(network, one)), default=0)
        rest = every - sum(_size(one) for one in network.modules() if _is_block(network, one))
        unit = max(block, rest) if launch.by_layer else every
        return (
            FLOAT32 * every // parts,
            FLOAT32 * learnable // parts,
            moments // parts,
            width * unit,
        )
    if launch.stage == 0:
        return FLOAT32 * every, FLOAT32 * learnable, moments, 0
    copy = FLOAT32 * learnable // parts
    weights = width * every // (parts if launch.stage == 3 else 1)
    gradients = width * learnable // (parts if launch.stage > 1 else 1)
    buffers = (BUCKET if launch.stage > 1 else 0) + (min(every, LIVE) if launch.stage == 3 else 0)
    return weights + copy, gradients, moments // parts, width * buffers


def _is_block(network: Any, module: Any) -> bool:
    return type(module).__name__ in (getattr(network, "_no_split_modules", None) or ())


def _size(module: Any) -> int:
    return sum(part.numel() for part in module.parameters())
