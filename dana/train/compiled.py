"""Compile the layers of a model by ``torch.compile``, where a run is long enough for it to pay.

One layer is compiled, for rows of any length, and its code serves all layers: many small operators
become a few, which is what bounds a model on a GPU that is not busy. What it saves is unmeasured on
GPUs; what it costs is printed.

References:
    PyTorch documentation, "Reducing torch.compile cold start compilation time with regional
    compilation".
"""

import time
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from dana.core.launch import on_rank_0
from dana.core.logging import get_logger
from dana.train.half_weights import HalfWeights, saves_casts
from dana.train.layout import BatchLayout
from dana.train.operations import OperationCount, peak_of
from dana.train.passes import Trial
from dana.train.plan import Plan

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


def pays(trial: Trial) -> bool:
    """Return whether a run on a GPU is so long that compiling saves more than it costs."""
    settings = trial.settings
    peak = peak_of(trial.accelerator.device)
    count = OperationCount.of_model(trial.model, settings.make_objective().has_own_head)
    if peak is None or count is None:
        return False
    plan = Plan.from_settings(trial.examples, settings)
    lengths = trial.examples.lengths_in(0)[plan[0].rows]
    operations = count.of_step(lengths, int(lengths.sum())) * len(plan)
    seconds: float = operations / (UTILISATION * peak * trial.accelerator.num_processes)
    return GAIN * seconds > COST


def is_wanted(trial: Trial) -> bool:
    """Return whether the layers of a run are to be compiled."""
    execution = trial.settings.execution
    if trial.accelerator.distributed_type.value not in WHOLE:
        return False
    if isinstance(execution.compile, bool):
        return execution.compile
    return not execution.gradient_checkpointing and pays(trial)


def compile_layers(trial: Trial, shape: BatchLayout) -> str:
    """Compile the layers of a model where that is wanted, and run one pass. Collective.

    Weights, gradients and random generators are afterwards as before. Where it fails, on any rank,
    the layers are not compiled.

    Returns:
        A line that says how long it took, or why it was given up; empty where it is not wanted.
    """
    if not on_rank_0(lambda: is_wanted(trial)):  # the GPUs of a launch may differ
        return ""
    start_time = time.monotonic()
    layers = layers_of(trial.model)
    for layer in layers:
        layer.compile(dynamic=True)
    failure = _failure(trial, shape)
    if _fails_anywhere(failure, trial.accelerator):
        for layer in layers:
            layer._compiled_call_impl = None
        line = f"compiled  no: {failure or 'it fails on another rank'}"
        log.warning("%s", line)
        return line
    return f"compiled  {len(layers)} layers in {time.monotonic() - start_time:.0f} s"


def _failure(trial: Trial, shape: BatchLayout) -> str:
    """Return why a pass through compiled layers fails; empty if it does not."""
    half = None
    if saves_casts(trial.model, trial.accelerator, shape.bf16):
        half = HalfWeights(trial.model)
    try:
        with half.in_place() if half is not None else nullcontext():
            trial.run_pass(trial.longest_step(), shape)
    except Exception as error:  # of a compiler, of any kind
        reason = str(error).strip().partition("\n")[0]
        return f"{type(error).__name__}: {reason}"
    return ""


def _fails_anywhere(failure: str, accelerator: Any) -> bool:
    """Return whether any rank has a failure."""
    if accelerator.num_processes == 1:
        return bool(failure)
    own = torch.tensor([int(bool(failure))], device=accelerator.device)
    return bool(accelerator.gather(own).max())
