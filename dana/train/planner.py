"""Choose layout and precision of micro-batches for a model, its text and a device, each with a reason.

The choice changes speed and memory; the step's loss is the same to rounding. Each choice is logged,
recorded in the manifest, and has an override in :class:`dana.train.settings.Execution`.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from dana.core.errors import ArtifactError, ConfigError, DanaError
from dana.core.launch import on_rank_0
from dana.core.logging import get_logger, messages
from dana.core.rng import torch_seed
from dana.models.folder import running
from dana.models.language_model import ordinary_tokens
from dana.models.varlen import NAME, has_kernel, register
from dana.train.examples import ExampleSet
from dana.train.execution import Precision
from dana.train.layout import BatchLayout, lay_out, micro_batches
from dana.train.objectives.base import Collator
from dana.train.objectives.batch import JointBatch, move_tensors
from dana.train.plan import Plan
from dana.train.settings import TrainSettings
from dana.train.trial import try_precision

log = get_logger(__name__)


def choose_execution(
    model: Any,
    examples: ExampleSet,
    settings: TrainSettings,
    accelerator: Any,
    collator: Collator | None = None,
) -> tuple[BatchLayout, list[str]]:
    """Choose layout and precision, and set the model's attention up for it; all ranks follow rank 0.

    Args:
        model: A model with the objective's heads, not wrapped yet.
        examples: Training examples.
        settings: Settings of the run.
        accelerator: Device, precision and ranks.
        collator: Makes training batches: with it the model is tried in the precision of the run
            (:func:`dana.train.trial.try_precision`). None takes the precision of the device.

    Returns:
        Layout and size of micro-batches, and a line of text for each decision.

    Raises:
        ConfigError: If the model does not support the layout in the settings.
        ArtifactError: If the model does not run.
    """
    model = model.to(accelerator.device)
    asked = Precision.from_accelerator(accelerator)
    precision = asked
    if collator is not None:
        examined = collator
        precision = on_rank_0(
            lambda: _tried_precision(model, examples, settings, accelerator, examined)
        )
    layout, why = on_rank_0(lambda: _layout(model, settings, precision))
    # The launcher's precision is applied by Accelerate.
    bf16 = precision.name == "bf16" and not precision.from_launcher
    budget = settings.execution.micro_batch_tokens
    shape = BatchLayout.from_config(model.config, budget, layout, bf16)
    if layout == "unpadded":
        register()
        model.set_attn_implementation(NAME)
    plan = Plan.from_settings(examples, settings)
    first_step = plan[0]
    lengths = np.diff(examples.take(first_step.rows, first_step.epochs).offsets)
    ranks = accelerator.num_processes
    passes = len(micro_batches(lengths, shape, 0, ranks))
    source = f"default of {precision.device.type}"
    if precision.from_launcher:
        source = "set by the launch (no = fp32)"
    elif precision != asked:
        source = f"tried in {asked.name}, {model.config.model_type} fails"
    reasons = [
        f"batch     {first_step.rows.size} examples a step = {ranks} rank(s) x {passes} "
        f"micro-batch(es) of at most {shape.budget} tokens, {len(plan)} steps",
        f"precision {precision.name}: {source}",
        f"layout    {layout}: {why}",
    ]
    for line in reasons:
        log.info("%s", line)
    return shape, reasons


def _tried_precision(
    model: Any,
    examples: ExampleSet,
    settings: TrainSettings,
    accelerator: Any,
    collator: Collator,
) -> Precision:
    """Return the precision in which the longest and the shortest row of the first step run.

    DeepSpeed and FSDP cut the model up and have precisions of their own: nothing is tried then.
    """
    precision = Precision.from_accelerator(accelerator)
    kind = accelerator.distributed_type.value
    if kind in ("DEEPSPEED", "FSDP"):
        return precision
    first_step = Plan.from_settings(examples, settings)[0]
    batch = examples.take(first_step.rows, first_step.epochs)
    step = collator.step_batch(batch, first_step.epochs, settings.denominator)
    rows = np.unique([step.lengths.argmax(), step.lengths.argmin()])
    shape = BatchLayout.from_config(model.config, settings.execution.micro_batch_tokens)
    micro = step.micro(rows, shape).to(precision.device)
    with messages(quiet=True), torch_seed(0):  # a new head, which is not that of the run
        module = settings.make_objective().module(model).to(precision.device)

    def forward() -> torch.Tensor:
        if isinstance(step, JointBatch):
            return module(**micro.inputs)
        return micro.losses(module)

    return try_precision(precision, module, forward)


def _layout(model: Any, settings: TrainSettings, precision: Precision) -> tuple[str, str]:
    """Choose the layout of a run, with the reason.

    Unpadded rows keep examples apart by position ids and the attention implementation.
    Architectures that let the caller set both are those with flash attention in transformers; not
    MPNet and DeBERTa, whose attention computes relative distances itself. Each model is tried
    before it is trained so.

    Raises:
        ConfigError: If the model does not support the layout in the settings.
    """
    layout = settings.execution.layout
    kind = model.config.model_type
    takes_positions = getattr(model, "_supports_flash_attn", False)
    if layout == "padded":
        return layout, "set by execution.layout"
    if layout != "auto":
        if takes_positions and keeps_apart(model):
            return layout, "set by execution.layout"
        raise ConfigError(
            f"execution.layout={layout} does not work with {kind}, whose attention cannot keep "
            "examples of one row apart; use execution.layout=padded"
        )
    layouts = settings.make_objective().layouts
    if "unpadded" not in layouts:
        return layouts[0], f"the first layout of objective {settings.objective}"
    if not takes_positions:
        return "padded", f"the only layout that {kind} supports"
    if precision.name == "no" or not has_kernel(precision.device):
        return "padded", "this device has no attention kernel for rows without padding"
    if not keeps_apart(model):
        return "padded", f"tried without padding, {kind} mixes the examples of a row"
    return "unpadded", "this device has an attention kernel for rows without padding"


def keeps_apart(model: Any) -> bool:
    """Return whether a model reads two texts in one row without padding as it reads each alone, tried on a few tokens.

    Its attention implementation stays as it was.
    """
    ids = torch.from_numpy(ordinary_tokens(model, 8)).to(model.device)[None]
    lengths = [5, 3]
    shape = BatchLayout.from_config(model.config, 8, "unpadded")
    _, attention = lay_out(np.arange(2), np.array([0, 5, 8]), shape)
    attention = move_tensors(attention, model.device)
    network = model.base_model
    was_training = model.training
    implementation = model.config._attn_implementation
    register()
    model.eval()
    try:
        with torch.no_grad(), running(model):
            texts = ids.split(lengths, 1)
            alone = torch.cat([network(input_ids=text)[0] for text in texts], 1)
            model.set_attn_implementation(NAME)
            joint = network(input_ids=ids, **attention)[0]
    except ArtifactError:  # it does not take these arguments
        return False
    finally:
        model.set_attn_implementation(implementation)
        model.train(was_training)
    return torch.allclose(joint, alone, rtol=1e-3, atol=1e-4 * float(alone.abs().max()))


def checkpoint_gradients(model: Any) -> None:
    """Turn on gradient checkpointing; dropout, and so the gradients, stay the same.

    Raises:
        ConfigError: If the model does not support it.
    """
    # transformers renames it.
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    try:
        enable({"use_reentrant": False})
    except ValueError as error:
        raise ConfigError(
            f"execution.gradient_checkpointing=true: {model.config.model_type} cannot do it"
        ) from error


@contextmanager
def explain_out_of_memory(what: str, budget: int) -> Iterator[None]:
    """Turn an out-of-memory error of CUDA, cuBLAS or Metal into one line that names the setting to change.

    Raises:
        DanaError: On the rank that ran out of memory; the launcher ends the others.
    """
    try:
        yield
    except RuntimeError as error:
        is_named = re.search("out of memory|ALLOC_FAILED", str(error))
        if not isinstance(error, torch.OutOfMemoryError) and not is_named:
            raise
        raise DanaError(
            f"{what}: out of memory with execution.micro_batch_tokens={budget}; set it lower, "
            "and run the command again: it resumes from the last checkpoint"
        ) from error
