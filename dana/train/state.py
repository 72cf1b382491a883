"""Tensors of a run as one safetensors file, each parameter whole with its moments of Adam, or as a Hugging Face folder.

The same file whatever the launch was (one process, data parallel, FSDP, ZeRO 1-3), so that a run may be resumed on
another number of ranks or under another engine. Nothing else has a state: order, masks and dropout are
functions of the seed and the step.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dana.core.errors import ArtifactError, DanaError
from dana.models.folder import quiet_transformers
from dana.train.execution import is_deepspeed, parted, whole
from dana.train.loop import Prepared

MOMENTS = ("exp_avg", "exp_avg_sq")
STEPS = "steps_taken"


def save_state(prepared: Prepared, path: Path | None) -> None:
    """Write the state; every rank must call it, the one with a path writes.

    Raises:
        DanaError: If a weight or a moment is not finite: going on from it would spoil every rerun.
    """
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    if is_deepspeed(prepared.accelerator):
        _link_moments(prepared)
    for name, parameter in prepared.model.named_parameters():  # tied ones once
        value, moments, steps = _read(prepared, parameter)
        if path is not None:
            mine = {f"parameter.{name}": value, **{f"{key}.{name}": moment for key, moment in moments.items()}}
            tensors |= {key: part.detach().cpu().contiguous() for key, part in mine.items()}
            tensors.setdefault(STEPS, steps)
    if path is not None:
        check_finite(tensors)
        save_file(tensors, path)


def check_finite(tensors: dict[str, Tensor]) -> None:
    """Refuse tensors with a value that is not finite.

    Raises:
        DanaError: Naming the first tensor that holds a value that is not finite.
    """
    for name, value in tensors.items():
        if not torch.isfinite(value).all():
            raise DanaError(f"{name} is not finite, nothing was saved; try a lower learning_rate")


def load_state(prepared: Prepared, path: Path) -> None:
    """Put a saved state back, on every rank, into a model prepared in the same or another way.

    Raises:
        ArtifactError: If the file is of another model.
    """
    from safetensors import safe_open

    if is_deepspeed(prepared.accelerator):
        _link_moments(prepared)
    with safe_open(path, "pt") as saved:
        names = set(saved.keys())
        for name, parameter in prepared.model.named_parameters():
            if f"parameter.{name}" not in names:
                raise ArtifactError(f"{path}: no parameter {name}; it was saved from another model")
            # Copies: what safetensors gives out shares the mapped file's memory, and Adam counts in place.
            moments = {key: saved.get_tensor(f"{key}.{name}").clone() for key in MOMENTS if f"{key}.{name}" in names}
            steps = saved.get_tensor(STEPS).clone()
            _write(prepared, parameter, saved.get_tensor(f"parameter.{name}"), moments, steps)


def _inner_optimizer(prepared: Prepared) -> Any:
    """The AdamW inside Accelerate's, or DeepSpeed's, wrapper."""
    optimizer = prepared.optimizer
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def _read(prepared: Prepared, parameter: torch.nn.Parameter) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """A parameter in float32, its moments, and the optimizer steps taken; collective under ZeRO and FSDP."""
    state = _inner_optimizer(prepared).state
    if is_deepspeed(prepared.accelerator):
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        value = safe_get_full_fp32_param(parameter)
        moments = {key: safe_get_full_optimizer_state(parameter, key) for key in MOMENTS}
        value, moments = value.clone(), {key: moment.clone() for key, moment in moments.items()}
        steps = next(iter(state.values()))["step"]
    else:
        own = state.get(parameter, {})
        value, moments = whole(parameter), {key: whole(own[key]) for key in MOMENTS if key in own}
        steps = whole(own["step"]) if "step" in own else 0
    return value, moments, torch.as_tensor(steps, dtype=torch.float32).detach().cpu()


def _write(
    prepared: Prepared, parameter: torch.nn.Parameter, value: Tensor, moments: dict[str, Tensor], steps: Tensor
) -> None:
    optimizer = _inner_optimizer(prepared)
    if is_deepspeed(prepared.accelerator):
        from deepspeed.runtime.zero import GatheredParameters
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

        where = parameter.device
        safe_set_full_fp32_param(parameter, value.to(where))
        with GatheredParameters([parameter], modifier_rank=0), torch.no_grad():
            parameter.copy_(value)  # what the next forward pass reads; ZeRO's own copy is the one above
        for key, moment in moments.items():
            safe_set_full_optimizer_state(parameter, moment.to(where), key)
        for own in optimizer.state.values():
            own["step"] = steps.clone() if isinstance(own.get("step"), Tensor) else int(steps)
        return
    where = parameter.device
    with torch.no_grad():
        parameter.copy_(parted(value, parameter))
    if moments:
        own = {key: parted(moment, parameter) for key, moment in moments.items()}
        fused = any(group.get("fused") for group in optimizer.param_groups)
        optimizer.state[parameter] = {"step": steps.to(where if fused else "cpu"), **own}


def _link_moments(prepared: Prepared) -> None:
    """Make ZeRO's moments reachable by parameter; before the first step it has none, and no public way to say so."""
    from deepspeed.utils import lazy_init_hp_params_optimizer_state

    engine: Any = prepared.module
    zero, optimizer = engine.optimizer, _inner_optimizer(prepared)
    one_or_two = getattr(zero, "single_partition_of_fp32_groups", None)
    for partition in one_or_two or zero.fp32_partitioned_groups_flat:
        if "exp_avg" not in optimizer.state[partition]:
            zeros = {key: torch.zeros_like(partition) for key in MOMENTS}
            optimizer.state[partition] |= {"step": torch.zeros((), device=partition.device), **zeros}
    if one_or_two:  # stage 3 looks them up by itself
        for group, partition in zip(zero.bit16_groups, one_or_two, strict=True):
            lazy_init_hp_params_optimizer_state(group, partition, optimizer.state)


@contextmanager
def written_whole(path: Path) -> Iterator[None]:
    """Turn what a full disk or a folder that cannot be written raises into one line.

    Raises:
        ArtifactError: Naming the path and the reason.
    """
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0]
        raise ArtifactError(
            f"{path}: cannot be written ({reason}); make room and run the same command, it goes on from the last "
            "checkpoint"
        ) from error


def save_model(prepared: Prepared, tokenizer: Any, folder: Path | None) -> None:
    """Write a Hugging Face folder; every rank must call it, the one with a folder writes.

    Args:
        prepared: The trained model.
        tokenizer: Its tokenizer.
        folder: Where, or None on ranks that only take part in gathering the weights.

    Raises:
        ArtifactError: If the disk does not take it.
        DanaError: If a weight is not finite: there is no model.
    """
    model = prepared.model
    weights = {name: whole(value) for name, value in model.state_dict().items()}
    sharded = is_deepspeed(prepared.accelerator)
    if sharded:  # what the forward pass reads may be half precision, or in parts: the master is neither
        from deepspeed.utils import safe_get_full_fp32_param

        weights |= {name: safe_get_full_fp32_param(value).clone() for name, value in model.named_parameters()}
    if folder is None:
        return
    # Once each: gathering copies tied weights, and they would be written twice.
    own = {name for name, _ in [*model.named_parameters(), *model.named_buffers()]}
    weights = {name: value.detach().cpu() for name, value in weights.items() if name in own}
    check_finite(weights)
    # Under ZeRO-3 transformers takes any model for one of 2018 and would write its norms as gamma and beta.
    with written_whole(folder), quiet_transformers():
        model.save_pretrained(folder, state_dict=weights, save_original_format=not sharded)
        if sharded:  # the dtype says what the forward pass reads, and from_pretrained would round to that
            model.config.dtype = torch.float32
            model.config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
