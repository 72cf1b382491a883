"""Try a model in the precision of its run on a few padded rows, before the work begins.

That a device computes in bfloat16 does not say that a model does: the attention masks of DeBERTa's
first version overflow in it, and X-MOD's adapters mix it with float32.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dana.core.errors import ArtifactError, DanaError
from dana.core.launch import PRECISION_VARIABLE
from dana.core.logging import get_logger
from dana.core.rng import torch_seed
from dana.models.folder import lacks_memory
from dana.train.execution import Precision

log = get_logger(__name__)

NAMES = {"no": "float32", "bf16": "bfloat16", "fp16": "float16"}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def try_precision(
    precision: Precision,
    module: torch.nn.Module,
    forward: Callable[[], Tensor],
    trains: bool = True,
) -> Precision:
    """Return the precision in which a model runs: that of the run, or float32 where it fails in that.

    The model, its gradients and the random generators are afterwards as before.

    Args:
        precision: Precision of the run.
        module: The model, on its device.
        forward: Computes logits, losses or vectors of a few padded rows.
        trains: Whether the backward pass is tried, too.

    Raises:
        ArtifactError: If it fails in float32, or in a precision that the launch set: a launch may
            compute more than this model, and is not changed behind its back.
    """
    if precision.name == "no" and not trains:
        return precision  # there is nothing to fall back to: the first batch is the trial
    failure = _failure(precision, module, forward, trains)
    if not failure:
        return precision
    if precision.name == "no":
        raise ArtifactError(failure)
    in_float32 = replace(precision, name="no", from_launcher=False)
    if precision.from_launcher:
        raise ArtifactError(
            f"{failure}; the launch set this precision: set {PRECISION_VARIABLE}=no to compute in float32"
        )
    log.warning("precision float32, as %s", failure)
    failure = _failure(in_float32, module, forward, trains)
    if failure:
        raise ArtifactError(failure)
    return in_float32


def _failure(
    precision: Precision, module: torch.nn.Module, forward: Callable[[], Tensor], trains: bool
) -> str:
    """Return why a model does not run in a precision; empty if it does, or memory is too short to tell."""
    try:
        with trying(module, precision, trains) as autocast:
            with autocast:
                outputs = forward()
            if trains:
                outputs.float().sum().backward()
            is_finite = bool(outputs.isfinite().all())
    except ArtifactError as error:
        return str(error)
    except DanaError:
        raise
    except Exception as error:  # a library's, of any kind
        if lacks_memory(error):  # the first step says it, with the setting to change
            return ""
        reason = str(error).strip().partition("\n")[0]
        work = "be trained" if trains else "run"
        return (
            f"{_name_of(module)}: the model cannot {work} in {NAMES[precision.name]}: "
            f"{type(error).__name__}: {reason}"
        )
    if is_finite or precision.name == "no":  # in float32 the run says which step it was
        return ""
    return f"{_name_of(module)}: what the model computes in {NAMES[precision.name]} is not finite"


@contextmanager
def trying(
    module: torch.nn.Module, precision: Precision, trains: bool = True
) -> Iterator[AbstractContextManager[Any]]:
    """Hold a model for a trial; its mode, its gradients and the random generators come back.

    Args:
        module: The model, on its device.
        precision: Precision of the trial.
        trains: Whether it has dropout and gradients.

    Yields:
        The context in which the forward pass has that precision.
    """
    device = precision.device
    dtype = DTYPES.get(precision.name)
    was_training = module.training
    module.train(trains)
    try:
        with torch_seed(0, device), torch.set_grad_enabled(trains):
            yield torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None)
    finally:
        module.train(was_training)
        module.zero_grad(set_to_none=True)


def _name_of(module: torch.nn.Module) -> str:
    """Return the folder or Hub name of a wrapped model."""
    model: Any = getattr(module, "model", module)
    config = model.config
    return str(config.name_or_path or config.model_type)
