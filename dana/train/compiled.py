"""Compile the layers of a model by ``torch.compile``, where a run is long enough for it to pay.

One layer is compiled, for rows of any length, and its code serves all layers: many small operators
become a few, which is what bounds a model on a GPU that is not busy. What it saves is unmeasured on
GPUs; what it costs is printed.

References:
    PyTorch documentation, "Reducing torch.compile cold start compilation time with regional
    compilation".
"""

import time
from typing import Any

from torch import nn

from dana.core.logging import get_logger
from dana.train.examples import ExampleSet
from dana.train.loop import backward
from dana.train.objectives.base import Collator
from dana.train.operations import OperationCount, peak_of
from dana.train.plan import Plan
from dana.train.settings import TrainSettings
from dana.train.training_state import TrainingState

log = get_logger(__name__)

COST = 60.0  # seconds of a compilation
GAIN = 0.15  # share of the time that it saves at least
UTILISATION = 0.3  # share of the GPU's peak that a run reaches without
WHOLE = ("NO", "MULTI_GPU", "MULTI_CPU")  # launches that do not cut the model up


def layers_of(model: Any) -> list[nn.Module]:
    """Return the layers of a model: its longest list of modules of one class."""
    found: list[nn.Module] = []
    for module in model.base_model.modules():
        if not isinstance(module, nn.ModuleList):
            continue
        layers = list(module)
        if len({type(layer) for layer in layers}) == 1 and len(layers) > len(found):
            found = layers
    return found


def pays(state: TrainingState, examples: ExampleSet, settings: TrainSettings) -> bool:
    """Return whether a run on a GPU is so long that compiling saves more than it costs."""
    peak = peak_of(state.accelerator.device)
    count = OperationCount.of_model(state.model, settings.make_objective().has_own_head)
    if peak is None or count is None:
        return False
    plan = Plan.from_settings(examples, settings)
    lengths = examples.lengths_in(0)[plan[0].rows]
    operations = count.of_step(lengths, int(lengths.sum())) * len(plan)
    seconds = operations / (UTILISATION * peak * state.accelerator.num_processes)
    return GAIN * seconds > COST


def is_wanted(state: TrainingState, examples: ExampleSet, settings: TrainSettings) -> bool:
    """Return whether the layers of a run are to be compiled."""
    execution = settings.execution
    is_whole = state.accelerator.distributed_type.value in WHOLE
    if isinstance(execution.compile, bool):
        return execution.compile
    can = is_whole and not execution.gradient_checkpointing
    return can and pays(state, examples, settings)


def compile_layers(
    state: TrainingState, examples: ExampleSet, collator: Collator, settings: TrainSettings
) -> str:
    """Compile the layers of a model, and run the passes of the first step once.

    Weights, gradients and random generators are afterwards as before. Where it fails, the layers
    are not compiled. Every rank must call it.

    Returns:
        A line that says how long it took, or why it was given up.
    """
    start_time = time.monotonic()
    layers = layers_of(state.model)
    step = Plan.from_settings(examples, settings)[0]
    batch = collator.step_batch(
        examples.take(step.rows, step.epochs), step.epochs, settings.denominator
    )
    if not layers or batch.scale.total == 0:
        return "compiled  no: the model has no list of layers, or the first step no loss"
    for layer in layers:
        layer.compile(dynamic=True)
    try:
        backward(state, batch, 0, settings)
    except Exception as error:  # of a compiler, of any kind
        for layer in layers:
            layer._compiled_call_impl = None
        reason = str(error).strip().partition("\n")[0]
        line = f"compiled  no: {type(error).__name__}: {reason}"
        log.warning("%s", line)
        return line
    finally:
        state.optimizer.zero_grad()
    seconds = time.monotonic() - start_time
    line = f"compiled  {len(layers)} layers in {seconds:.0f} s"
    log.info("%s", line)
    return line
