"""Read and restore the tensors of a training run, and save its model as a Hugging Face folder.

A run's tensors are its trained parameters in float32 (without the base of adapters) and their Adam
moments. They are gathered whole, so that one process writes them. Nothing else of a run has a
state: order, masks and dropout are functions of the seed and the step.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dana.core.errors import DanaError
from dana.core.files import explain_write_errors, sync, sync_folder, temp_dir
from dana.models.adapters import has_adapter, write_adapter
from dana.models.folder import quiet_transformers
from dana.models.pooling import copy_modules
from dana.models.saving import save_network, without_copies, written_names
from dana.train.execution import gather_tensor, is_deepspeed, shard_like
from dana.train.training_state import TrainingState

MOMENTS = ("exp_avg", "exp_avg_sq")


def read_state(state: TrainingState) -> dict[str, Tensor]:
    """Gather the tensors of a run. Every rank must call it.

    Returns:
        ``parameter.NAME`` for each trained parameter, and what its optimizer keeps of it after its
        first step: ``exp_avg.NAME``, ``exp_avg_sq.NAME``, ``step.NAME``. All are on the CPU, and
        all are on the main process; the others return an empty dictionary.

    Raises:
        DanaError: If a value is not finite: every rerun would resume from it.
    """
    if is_deepspeed(state.accelerator):
        _link_moments(state)
    tensors: dict[str, Tensor] = {}
    for name, parameter in trained_parameters(state.inner_module):
        for key, value in _gather(state, parameter).items():
            if state.accelerator.is_main_process:
                tensors[f"{key}.{name}"] = value.detach().cpu().contiguous()
    check_finite(tensors)
    return tensors


def restore_state(state: TrainingState, path: Path) -> None:
    """Put the tensors of :func:`read_state` back from a file. Every rank must call it."""
    from safetensors import safe_open

    restore = _restore_deepspeed if is_deepspeed(state.accelerator) else _restore
    if is_deepspeed(state.accelerator):
        _link_moments(state)
    with safe_open(path, "pt") as file:
        names = set(file.keys())
        for name, parameter in trained_parameters(state.inner_module):
            keys = [key for key in (*MOMENTS, "step") if f"{key}.{name}" in names]
            # Copies: safetensors shares the file's memory, and Adam changes its state in place.
            kept = {key: file.get_tensor(f"{key}.{name}").clone() for key in keys}
            restore(state, parameter, file.get_tensor(f"parameter.{name}"), kept)


def trained_parameters(model: Any) -> list[tuple[str, torch.nn.Parameter]]:
    """List the parameters that are trained, with their names; tied ones once."""
    return [
        (name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad
    ]


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors with a value that is not finite.

    Raises:
        DanaError: Names the first such tensor.
    """
    for name, value in tensors.items():
        if not torch.isfinite(value).all():
            raise DanaError(
                f"{name} has values that are not finite, so nothing was saved; lower learning_rate"
            )


def _gather(state: TrainingState, parameter: torch.nn.Parameter) -> dict[str, Tensor]:
    """Gather a parameter and what the optimizer keeps of it. Collective under ZeRO and FSDP."""
    optimizer = _inner_optimizer(state)
    if not is_deepspeed(state.accelerator):
        kept = optimizer.state.get(parameter, {})
        gathered = {key: gather_tensor(value) for key, value in kept.items()}
        return {"parameter": gather_tensor(parameter), **gathered}
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

    values = {key: safe_get_full_optimizer_state(parameter, key) for key in MOMENTS}
    values["parameter"] = safe_get_full_fp32_param(parameter)
    copies = {key: value.clone() for key, value in values.items()}
    step = next(iter(optimizer.state.values()))["step"]
    return {**copies, "step": torch.tensor(float(step))}  # safetensors refuses a shared one


def _restore(
    state: TrainingState, parameter: torch.nn.Parameter, value: Tensor, kept: dict[str, Tensor]
) -> None:
    with torch.no_grad():
        parameter.copy_(shard_like(value, parameter))
    if not kept:
        return
    optimizer = _inner_optimizer(state)
    is_fused = any(group.get("fused") for group in optimizer.param_groups)
    step_device = parameter.device if is_fused else "cpu"
    moments = {key: shard_like(kept[key], parameter) for key in MOMENTS}
    optimizer.state[parameter] = {"step": kept["step"].to(step_device), **moments}


def _restore_deepspeed(
    state: TrainingState, parameter: torch.nn.Parameter, value: Tensor, kept: dict[str, Tensor]
) -> None:
    from deepspeed.runtime.zero import GatheredParameters
    from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

    device = parameter.device
    safe_set_full_fp32_param(parameter, value.to(device))  # ZeRO's master copy
    with GatheredParameters([parameter], modifier_rank=0), torch.no_grad():
        parameter.copy_(value)  # the copy that the forward pass reads
    for key in MOMENTS:
        safe_set_full_optimizer_state(parameter, kept[key].to(device), key)
    for entry in _inner_optimizer(state).state.values():
        is_tensor = isinstance(entry.get("step"), Tensor)
        entry["step"] = kept["step"].clone() if is_tensor else int(kept["step"])


def _inner_optimizer(state: TrainingState) -> Any:
    optimizer = state.optimizer
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def _link_moments(state: TrainingState) -> None:
    """Make ZeRO's moments accessible by parameter.

    Before its first step ZeRO has no moments, and no public function makes them.
    """
    from deepspeed.utils import lazy_init_hp_params_optimizer_state

    engine: Any = state.module
    zero = engine.optimizer
    optimizer = _inner_optimizer(state)
    one_or_two = getattr(zero, "single_partition_of_fp32_groups", None)
    for partition in one_or_two or zero.fp32_partitioned_groups_flat:
        entry = optimizer.state[partition]
        if "exp_avg" not in entry:
            entry["step"] = torch.zeros((), device=partition.device)
            for key in MOMENTS:
                entry[key] = torch.zeros_like(partition)
    if one_or_two:  # stage 3 does this by itself
        for group, partition in zip(zero.bit16_groups, one_or_two, strict=True):
            lazy_init_hp_params_optimizer_state(group, partition, optimizer.state)


def save_model(state: TrainingState, tokenizer: Any, folder: Path | None) -> None:
    """Write a Hugging Face folder; of a model with adapters only these. Every rank must call it.

    Args:
        state: The trained model.
        tokenizer: Its tokenizer.
        folder: Target folder, or None on ranks that only take part in gathering the weights.

    Raises:
        ArtifactError: If it cannot be written.
        DanaError: If a weight is not finite.
    """
    model = state.model
    learnable = dict(trained_parameters(model))
    names = learnable.keys() if has_adapter(model) else model.state_dict().keys()
    weights = {
        name: gather_tensor(value) for name, value in model.state_dict().items() if name in names
    }
    with_deepspeed = is_deepspeed(state.accelerator)
    if with_deepspeed:
        # The forward pass may read half-precision or sharded copies; the master copy is neither.
        from deepspeed.utils import safe_get_full_fp32_param

        written = written_names(model)
        for name, value in learnable.items():
            weights[written[name]] = safe_get_full_fp32_param(value).clone()
    if folder is None:
        return
    # Gathering copies tied weights, which would then be written twice.
    weights = without_copies(model, weights)
    weights = {name: value.detach().cpu() for name, value in weights.items()}
    check_finite(weights)
    with explain_write_errors(folder), quiet_transformers():
        if has_adapter(model):
            write_adapter(model, weights, folder)
            copy_modules(model.config.name_or_path, folder)
        else:
            save_network(model, weights, folder, with_deepspeed)
        tokenizer.save_pretrained(folder)


def export_model(state: TrainingState, tokenizer: Any, folder: Path) -> None:
    """Write a Hugging Face folder by one rename, in place of an older one. Every rank must call it.

    Raises:
        ArtifactError: If it cannot be written.
    """
    if not state.accelerator.is_main_process:
        save_model(state, tokenizer, None)
    else:
        with explain_write_errors(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with temp_dir(folder) as draft:
                save_model(state, tokenizer, draft)
                sync_folder(draft)
                shutil.rmtree(folder, ignore_errors=True)
                draft.rename(folder)
                sync(folder.parent)
    state.accelerator.wait_for_everyone()
