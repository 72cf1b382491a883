"""Choose layout, precision and size of micro-batches for a model, its text and a device, each with a reason.

The choice changes speed and memory; the step's loss is the same to rounding. Each choice is logged,
recorded in the manifest, and has an override in :class:`dana.train.settings.Execution`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from accelerate.utils import send_to_device

from dana.core.device import full_float32
from dana.core.errors import ArtifactError, ConfigError, DanaError
from dana.core.launch import on_rank_0
from dana.core.logging import get_logger
from dana.models.folder import lacks_memory, running
from dana.models.head_file import is_cut
from dana.models.language_model import ordinary_tokens
from dana.models.varlen import NAME, calls, has_kernel, register
from dana.train.compiled import compile_layers
from dana.train.examples import ExampleSet
from dana.train.execution import Precision, bf16_by_launch
from dana.train.layout import BatchLayout, lay_out, micro_batches
from dana.train.objectives.base import Collator
from dana.train.passes import Trial, choose_tokens, default_tokens, trial_module
from dana.train.plan import Plan
from dana.train.settings import TrainSettings
from dana.train.trial import try_precision, trying

log = get_logger(__name__)

KERNEL_RUNS = "torch's attention kernel for rows without padding ran in every layer of a trial"
TRIAL_OFFSETS = np.array([0, 5, 8])  # of two texts of a trial in one row


def choose_execution(
    model: Any,
    examples: ExampleSet,
    settings: TrainSettings,
    accelerator: Any,
    collator: Collator | None = None,
    known: int | None = None,
) -> tuple[BatchLayout, list[str]]:
    """Choose layout, precision and size of passes, and set the model's attention up for it; all ranks follow rank 0.

    Args:
        model: A model with the objective's heads, not wrapped yet.
        examples: Training examples.
        settings: Settings of the run.
        accelerator: Device, precision and ranks.
        collator: Makes training batches: with it the model is tried in the precision of the run
            (:func:`dana.train.trial.try_precision`), and passes of several sizes on a GPU
            (:func:`dana.train.passes.choose_tokens`). None takes the defaults of the device.
        known: Tokens of a pass of a run that is resumed; None for a new one.

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
    budget = default_tokens(settings)
    shape = BatchLayout.from_config(model.config, budget, layout, bf16).on(accelerator.device.type)
    if layout == "unpadded":
        register()
        model.set_attn_implementation(NAME)
    size = "by default"
    compiled = ""
    if collator is not None:
        trial = Trial(model, examples, settings, accelerator, precision, collator)
        budget, size = choose_tokens(trial, shape, known)
        shape = replace(shape, budget=budget)
        compiled = compile_layers(trial, shape)
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
        f"micro-batch(es) of at most {shape.budget} tokens ({size}), {len(plan)} steps",
        f"precision {precision.name}: {source}",
        f"layout    {layout}: {why}",
    ]
    if compiled:
        reasons.append(compiled)
    for line in reasons:
        log.info("%s", line)
    return shape, reasons


def before_wrapping(shape: BatchLayout, accelerator: Any) -> BatchLayout:
    """Return the shape of passes of a model that Accelerate has not wrapped yet.

    Accelerate applies the precision of a launch to what it wraps; before that the module has to.
    """
    return replace(shape, bf16=shape.bf16 or bf16_by_launch(accelerator))


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
    shape = BatchLayout.from_config(model.config, default_tokens(settings))
    micro = step.micro(rows, shape).to(precision.device)
    module = trial_module(model, settings, False, precision.device)

    def forward() -> torch.Tensor:
        return step.outputs(module, micro)

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
            return layout, f"set by execution.layout; {_attention_of(model, precision)}"
        raise ConfigError(
            f"execution.layout={layout} does not work with {kind}, whose attention cannot keep "
            "examples of one row apart; use execution.layout=padded"
        )
    layouts = settings.make_objective().layouts
    if "unpadded" not in layouts:
        return layouts[0], f"the first layout of objective {settings.objective}"
    if not takes_positions:
        return "padded", f"the only layout that {kind} supports"
    failure = no_kernel(precision)
    if not failure and is_cut(model.parameters()):
        failure = "ZeRO-3 has cut the model up, so nothing can be tried"
    if not failure and not keeps_apart(model):
        failure = f"tried without padding, {kind} mixes the examples of a row"
    failure = failure or kernel_failure(model, precision)
    if failure:
        return "padded", failure
    return "unpadded", KERNEL_RUNS


def _attention_of(model: Any, precision: Precision) -> str:
    """Say by what a model attends over rows without padding that the settings ask for.

    Raises:
        ConfigError: If the device has the kernel, and it does not run in the model.
    """
    missing = no_kernel(precision)
    if missing:
        return f"attention by a padded product, as {missing}"
    failure = kernel_failure(model, precision)
    if failure:
        raise ConfigError(f"execution.layout=unpadded: {failure}; use execution.layout=padded")
    return KERNEL_RUNS


def no_kernel(precision: Precision) -> str:
    """Return why no model can use the kernel on a device in a precision; empty if one may."""
    if not has_kernel(precision.device):
        return "this device has no attention kernel for rows without padding"
    if precision.name == "no":
        return "the attention kernel for rows without padding has no float32"
    return ""


def kernel_failure(model: Any, precision: Precision) -> str:
    """Return why the kernel does not run in training a model; empty if it does.

    A few tokens are tried in the run's precision, with their gradients. The model, its gradients and
    the random generators are afterwards as before.
    """
    failure = no_kernel(precision)
    if failure:
        return failure
    kind = model.config.model_type
    inputs = _two_texts_in_a_row(model, precision.device)
    before = calls.copy()
    try:
        with _without_padding(model), trying(model, precision) as autocast:
            with autocast:
                states = model.base_model(**inputs)[0]
            states.float().sum().backward()
    except Exception as error:  # a library's, of any kind
        reason = str(error).strip().partition("\n")[0]
        what = f"tried in {precision.name}, {kind} fails without padding"
        return f"{what}: {type(error).__name__}: {reason}"
    taken = calls - before
    if not taken["kernel"] or taken["product"]:
        return f"tried in {precision.name}, the attention of {kind} does not take the kernel"
    return ""


@contextmanager
def _without_padding(model: Any) -> Iterator[None]:
    """Give a model the attention for rows without padding; its own comes back."""
    implementation = model.config._attn_implementation
    register()
    try:
        model.set_attn_implementation(NAME)
        yield
    finally:
        model.set_attn_implementation(implementation)


def _two_texts_in_a_row(model: Any, device: torch.device) -> dict[str, Any]:
    """Make the inputs of a pass over two short texts in one row without padding."""
    shape = BatchLayout.from_config(model.config, TRIAL_OFFSETS[-1], "unpadded")
    ids = torch.from_numpy(ordinary_tokens(model, shape.budget))[None]
    _, attention = lay_out(np.arange(2), TRIAL_OFFSETS, shape)
    inputs: dict[str, Any] = send_to_device({"input_ids": ids, **attention}, device)
    return inputs


def keeps_apart(model: Any) -> bool:
    """Return whether a model reads two texts in one row without padding as it reads each alone, tried on a few tokens.

    Its attention implementation stays as it was.
    """
    inputs = _two_texts_in_a_row(model, model.device)
    texts = inputs["input_ids"].split(np.diff(TRIAL_OFFSETS).tolist(), 1)
    network = model.base_model
    in_float32 = Precision(model.device, "no", from_launcher=False)
    try:
        with trying(model, in_float32, trains=False), running(model), full_float32():
            alone = torch.cat([network(input_ids=text)[0] for text in texts], 1)
            with _without_padding(model):
                joint = network(**inputs)[0]
    except ArtifactError:  # it does not take these arguments
        return False
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
    """Turn an error of lack of memory into one line that names the setting to change.

    Raises:
        DanaError: On the rank that ran out of memory; the launcher ends the others.
    """
    try:
        yield
    except Exception as error:
        if not lacks_memory(error):
            raise
        raise DanaError(
            f"{what}: out of memory with execution.micro_batch_tokens={budget}; set it lower, such "
            f"as {max(1, budget // 2)}, and run the command again: it resumes from the last checkpoint"
        ) from error
