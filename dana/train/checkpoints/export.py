"""Write a trained model, gathered from all ranks, as a plain Hugging Face folder."""

import shutil
from pathlib import Path
from typing import Any

import torch

from dana.core.files import aside
from dana.core.logging import get_logger
from dana.models.folder import quiet_transformers
from dana.train.checkpoints.folders import written_whole
from dana.train.checkpoints.state import check_finite
from dana.train.execution.accelerator import is_deepspeed
from dana.train.execution.sharded import whole
from dana.train.loop import Prepared

log = get_logger(__name__)


def export_model(prepared: Prepared, tokenizer: Any, folder: Path) -> None:
    """Write a Hugging Face folder that is whole or not there, in the middle of a run; every rank must call it."""
    if not prepared.accelerator.is_main_process:
        save_model(prepared, tokenizer, None)
    else:
        with written_whole(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with aside(folder) as draft:
                save_model(prepared, tokenizer, draft)
                shutil.rmtree(folder, ignore_errors=True)
                draft.rename(folder)
        log.info("exported %s", folder)
    prepared.accelerator.wait_for_everyone()


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
    weights = _gathered(prepared)
    if folder is None:
        return
    check_finite(weights)
    model = prepared.accelerator.unwrap_model(prepared.module).model
    # Once each: gathering copies tied weights, and they would be written twice.
    own = {name for name, _ in [*model.named_parameters(), *model.named_buffers()]}
    weights = {name: value for name, value in weights.items() if name in own}
    # Under ZeRO-3 transformers takes any model for one of 2018 and would write its norms as gamma and beta.
    with written_whole(folder), quiet_transformers():
        sharded = is_deepspeed(prepared.accelerator)
        model.save_pretrained(folder, state_dict=weights, save_original_format=not sharded)
        if sharded:  # the dtype says what the forward pass reads, and from_pretrained would round to that
            model.config.dtype = torch.float32
            model.config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _gathered(prepared: Prepared) -> dict[str, Any]:
    """All weights, whole, under the model's own names; a collective operation."""
    model = prepared.accelerator.unwrap_model(prepared.module).model
    state = {name: whole(value) for name, value in model.state_dict().items()}
    # What the forward pass reads may be half precision, or in parts: the master is neither.
    if is_deepspeed(prepared.accelerator):
        from deepspeed.utils import safe_get_full_fp32_param

        state |= {name: safe_get_full_fp32_param(value).clone() for name, value in model.named_parameters()}
    return {name: value.detach().cpu() for name, value in state.items()}
