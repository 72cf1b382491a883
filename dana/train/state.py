"""Save and load the state of a run as one safetensors file, and save its model as a Hugging Face folder.

The file holds every trained parameter unsharded, with its Adam moments; not the base of adapters.
It is the same for every launch (one process, data parallel, FSDP, ZeRO 1-3), so a run can resume on
another number of ranks or under another engine. Nothing else has a state: order, masks and dropout
are functions of the seed and the step.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dana.core.errors import ArtifactError, DanaError
from dana.core.files import write_errno
from dana.models.adapters import has_adapter, write_adapter
from dana.models.folder import quiet_transformers
from dana.train.execution import gather_tensor, is_deepspeed, shard_like
from dana.train.loop import TrainingState

MOMENTS = ("exp_avg", "exp_avg_sq")
STEPS = "steps_taken"


def save_state(state: TrainingState, path: Path | None) -> None:
    """Write the training state; every rank must call it, the one with a path writes.

    Raises:
        DanaError: If a weight or a moment is not finite: every rerun would resume from it.
    """
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    if is_deepspeed(state.accelerator):
        _link_moments(state)
    for name, parameter in trained_parameters(state.model):
        value, moments, steps = _read(state, parameter)
        if path is not None:
            parts = {
                f"parameter.{name}": value,
                **{f"{key}.{name}": moment for key, moment in moments.items()},
            }
            tensors |= {key: part.detach().cpu().contiguous() for key, part in parts.items()}
            tensors.setdefault(STEPS, steps)
    if path is not None:
        check_finite(tensors)
        save_file(tensors, path)


def trained_parameters(model: Any) -> list[tuple[str, torch.nn.Parameter]]:
    """List the parameters that are trained, with their names; tied ones once."""
    return [
        (name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad
    ]


def check_finite(tensors: dict[str, Tensor]) -> None:
    """Refuse tensors with a value that is not finite.

    Raises:
        DanaError: Names the first such tensor.
    """
    for name, value in tensors.items():
        if not torch.isfinite(value).all():
            raise DanaError(
                f"{name} has values that are not finite, so nothing was saved; lower learning_rate"
            )


def load_state(state: TrainingState, path: Path) -> None:
    """Load a saved state into a model and its optimizer, on every rank, under any launch.

    Raises:
        ArtifactError: If the file is of another model.
    """
    from safetensors import safe_open

    if is_deepspeed(state.accelerator):
        _link_moments(state)
    with safe_open(path, "pt") as file:
        names = set(file.keys())
        for name, parameter in trained_parameters(state.model):
            if f"parameter.{name}" not in names:
                raise ArtifactError(f"{path}: no parameter {name}; it was saved from another model")
            # Copies, because safetensors shares the mapped file's memory and Adam updates its state
            # in place.
            moments = {
                key: file.get_tensor(f"{key}.{name}").clone()
                for key in MOMENTS
                if f"{key}.{name}" in names
            }
            steps = file.get_tensor(STEPS).clone()
            _write(state, parameter, file.get_tensor(f"parameter.{name}"), moments, steps)


def _inner_optimizer(state: TrainingState) -> Any:
    optimizer = state.optimizer
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def _read(
    state: TrainingState, parameter: torch.nn.Parameter
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Gather a parameter in float32, its moments, and the number of optimizer steps. Collective under ZeRO and FSDP."""
    optimizer_state = _inner_optimizer(state).state
    if is_deepspeed(state.accelerator):
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        value = safe_get_full_fp32_param(parameter)
        moments = {key: safe_get_full_optimizer_state(parameter, key) for key in MOMENTS}
        value, moments = value.clone(), {key: moment.clone() for key, moment in moments.items()}
        steps = next(iter(optimizer_state.values()))["step"]
    else:
        entry = optimizer_state.get(parameter, {})
        value, moments = (
            gather_tensor(parameter),
            {key: gather_tensor(entry[key]) for key in MOMENTS if key in entry},
        )
        steps = gather_tensor(entry["step"]) if "step" in entry else 0
    return value, moments, torch.as_tensor(steps, dtype=torch.float32).detach().cpu()


def _write(
    state: TrainingState,
    parameter: torch.nn.Parameter,
    value: Tensor,
    moments: dict[str, Tensor],
    steps: Tensor,
) -> None:
    optimizer = _inner_optimizer(state)
    if is_deepspeed(state.accelerator):
        from deepspeed.runtime.zero import GatheredParameters
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

        where = parameter.device
        safe_set_full_fp32_param(parameter, value.to(where))
        with GatheredParameters([parameter], modifier_rank=0), torch.no_grad():
            parameter.copy_(
                value
            )  # the copy that the forward pass reads; the line above sets ZeRO's master copy
        for key, moment in moments.items():
            safe_set_full_optimizer_state(parameter, moment.to(where), key)
        for entry in optimizer.state.values():
            entry["step"] = steps.clone() if isinstance(entry.get("step"), Tensor) else int(steps)
        return
    where = parameter.device
    with torch.no_grad():
        parameter.copy_(shard_like(value, parameter))
    if moments:
        shards = {key: shard_like(moment, parameter) for key, moment in moments.items()}
        is_fused = any(group.get("fused") for group in optimizer.param_groups)
        optimizer.state[parameter] = {"step": steps.to(where if is_fused else "cpu"), **shards}


def _link_moments(state: TrainingState) -> None:
    """Make ZeRO's moments accessible by parameter; before its first step it has no moments, and no API to make them."""
    from deepspeed.utils import lazy_init_hp_params_optimizer_state

    engine: Any = state.module
    zero, optimizer = engine.optimizer, _inner_optimizer(state)
    one_or_two = getattr(zero, "single_partition_of_fp32_groups", None)
    for partition in one_or_two or zero.fp32_partitioned_groups_flat:
        if "exp_avg" not in optimizer.state[partition]:
            zeros = {key: torch.zeros_like(partition) for key in MOMENTS}
            optimizer.state[partition] |= {
                "step": torch.zeros((), device=partition.device),
                **zeros,
            }
    if one_or_two:  # stage 3 does this by itself
        for group, partition in zip(zero.bit16_groups, one_or_two, strict=True):
            lazy_init_hp_params_optimizer_state(group, partition, optimizer.state)


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn the error of a full disk or a read-only folder into one line.

    Raises:
        ArtifactError: Names the path and the reason.
    """
    try:
        yield
    except Exception as error:
        code = write_errno(error)
        if code is None and not isinstance(error, OSError):
            raise
        reason = str(error).partition("\n")[0] if code is None else os.strerror(code)
        remedy = "free some space and run the command again: it resumes from the last checkpoint"
        raise ArtifactError(f"{path}: cannot be written ({reason}); {remedy}") from error


def save_model(state: TrainingState, tokenizer: Any, folder: Path | None) -> None:
    """Write a Hugging Face folder, of a model with adapters these alone; every rank must call it, one writes.

    Args:
        state: The trained model.
        tokenizer: Its tokenizer.
        folder: Target folder, or None on ranks that only take part in gathering the weights.

    Raises:
        ArtifactError: If it cannot be written.
        DanaError: If a weight is not finite.
    """
    model, learnable = state.model, dict(trained_parameters(state.model))
    names = learnable.keys() if has_adapter(model) else model.state_dict().keys()
    weights = {
        name: gather_tensor(value) for name, value in model.state_dict().items() if name in names
    }
    with_deepspeed = is_deepspeed(state.accelerator)
    if (
        with_deepspeed
    ):  # the forward pass may read half-precision or sharded copies; the master copy is neither
        from deepspeed.utils import safe_get_full_fp32_param

        weights |= {
            name: safe_get_full_fp32_param(value).clone() for name, value in learnable.items()
        }
    if folder is None:
        return
    # Gathering copies tied weights, which would then be written twice: keep one name of each.
    originals = {name for name, _ in [*model.named_parameters(), *model.named_buffers()]}
    weights = {name: value.detach().cpu() for name, value in weights.items() if name in originals}
    check_finite(weights)
    with explain_write_errors(folder), quiet_transformers():
        if has_adapter(model):
            write_adapter(model, weights, folder)
        else:
            # Under ZeRO-3 transformers mistakes any model for one of 2018, and would rename its
            # norms.
            model.save_pretrained(
                folder, state_dict=weights, save_original_format=not with_deepspeed
            )
            if (
                with_deepspeed
            ):  # or from_pretrained would round the weights to the dtype of the forward pass
                model.config.dtype = torch.float32
                model.config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
