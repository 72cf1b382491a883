"""Execution planner: model, text and device in; layout, precision and size of micro-batches out, with a reason each.

What it chooses changes speed and memory; the step's loss is the same to rounding. Each choice is printed, is kept in
the manifest, and has an override in :class:`dana.train.settings.Execution`.
"""

from dataclasses import dataclass, replace
from typing import Any

from dana.core.errors import ConfigError
from dana.core.launch import first
from dana.core.logging import get_logger
from dana.models.varlen import NAME, has_kernel, register
from dana.train.examples import Examples
from dana.train.execution import Precision
from dana.train.layout import BatchLayout, micro_batches
from dana.train.memory import largest_micro_batch
from dana.train.objectives.base import Collator
from dana.train.plan import Plan
from dana.train.settings import TrainSettings

log = get_logger(__name__)


@dataclass(frozen=True)
class Choice:
    """How the run will be executed.

    Attributes:
        shape: Layout and size of micro-batches.
        reasons: One line for each decision.
    """

    shape: BatchLayout
    reasons: list[str]


def choose_execution(
    model: Any, examples: Examples, collator: Collator, settings: TrainSettings, accelerator: Any
) -> Choice:
    """Decide layout, precision and size, and set the model up for it; every rank decides what rank 0 does.

    Args:
        model: A model with the objective's heads, not wrapped yet.
        examples: What it will be trained on.
        collator: Makes training batches.
        settings: The run.
        accelerator: Device, precision and ranks.

    Raises:
        ConfigError: If a layout was asked for that the model cannot have.
        DanaError: If memory does not hold one example.
    """
    model, precision, asked = model.to(accelerator.device), Precision.of(accelerator), settings.execution
    layout, why = first(lambda: _layout(model, settings, precision))
    shape = settings.batch_layout(model.config, layout, static=asked.compile)
    shape = replace(shape, bf16=precision.is_ours)
    set_up(model, shape)
    plan = Plan.of(examples, settings)
    lengths, world = examples.lengths[plan[0].rows], accelerator.num_processes
    cut = micro_batches(lengths, shape.budget, 0, world, layout, shape.width)
    reasons = [
        f"batch     {lengths.size} examples a step = {world} rank(s) x {len(cut)} micro-batch(es) of at most "
        f"{shape.budget} tokens, {len(plan)} steps",
        f"precision {precision.name}: {precision.reason}",
        f"layout    {layout}{', compiled' if shape.static else ''}: {why}",
    ]
    module = settings.make_objective().module(model, shape.bf16)
    shape = largest_micro_batch(module, examples, collator, settings, accelerator, shape)
    if shape.budget < asked.micro_batch_tokens:
        whole = f"{asked.micro_batch_tokens} do not fit on every rank"
        reasons.append(f"memory    micro-batches of {shape.budget} tokens: {whole}")
    for line in reasons:
        log.info("%s", line)
    return Choice(shape, reasons)


def _layout(model: Any, settings: TrainSettings, precision: Precision) -> tuple[str, str]:
    """The layout of a run, and why it is that one.

    Packed and unpadded rows keep examples apart by position ids and by the attention implementation; which
    architectures leave both to their caller, transformers says by the support of flash attention. Not MPNet and
    DeBERTa, whose attention computes distances.

    Raises:
        ConfigError: If one was asked for that the model cannot have.
    """
    execution, layouts = settings.execution, settings.make_objective().layouts
    able = getattr(model, "_supports_flash_attn", False)
    layout = "packed" if execution.compile else execution.layout
    if layout == "auto":
        if "unpadded" not in layouts:
            return layouts[0], f"the first of objective {settings.objective}"
        if not able:
            return "padded", f"the only one for {model.config.model_type}"
        if precision.name != "no" and has_kernel(precision.device):
            return "unpadded", "this device has an attention kernel for rows without padding"
        return "padded", "this device has no attention kernel for rows without padding"
    if layout != "padded" and not able:
        raise ConfigError(
            f"execution.layout={layout} is not for {model.config.model_type}: its attention cannot be told where an "
            "example begins; execution.layout=padded always is"
        )
    return layout, "as asked"


def set_up(model: Any, shape: BatchLayout) -> None:
    """Switch a model's attention to what a layout needs, and compile its encoder for rows of one shape.

    In place, because a wrapper would rename every parameter in what is saved. The head stays as it is: how many
    tokens are predicted differs from batch to batch.
    """
    if shape.layout == "unpadded":
        register()
        model.set_attn_implementation(NAME)
    if shape.static:
        model.base_model.compile(dynamic=False)


def checkpoint_gradients(model: Any) -> None:
    """Make a model compute its layers again in the backward pass, with the same dropout: the same gradients.

    Raises:
        ConfigError: If it cannot.
    """
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)  # its later name
    try:
        enable({"use_reentrant": False})
    except ValueError as error:
        raise ConfigError(f"execution.gradient_checkpointing=true: {model.config.model_type} cannot") from error
