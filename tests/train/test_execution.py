"""How a run is executed: launch, precision, dropout of ranks, gradient of a step, memory."""

import os
import re
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dana.core.device import bf16_speedup, has_bf16
from dana.core.errors import ConfigError, DanaError
from dana.models.heads import SelectedLogits
from dana.train import loop
from dana.train.execution import Precision, check_launch, make_accelerator, share_cores
from dana.train.loop import take_step
from dana.train.planner import explain_out_of_memory
from tests.train.conftest import MASKED, SETTINGS, bert, mean_loss, new_state, parameters, run

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("variables", "launch", "problem"),
    [
        ({}, (1, "NO", 1, "DATA"), None),
        ({}, (2, "MULTI_CPU", 2, "DATA"), None),
        ({}, (2, "DEEPSPEED", 2, "DEEPSPEED"), None),
        ({}, (1, "NO", 2, "DATA"), "Accelerate sees 1.*accelerate launch --config_file"),
        ({}, (2, "NO", 2, "DATA"), "would not share gradients"),
        ({}, (2, "MULTI_CPU", 2, "DEEPSPEED"), "DEEPSPEED was requested"),
        ({}, (2, "MULTI_CPU", 2, "FSDP"), "FSDP was requested"),
        ({"ACCELERATE_USE_FSDP": "true"}, None, "FSDP needs a GPU"),
        (
            {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_USE_CPU": "true"},
            None,
            "ACCELERATE_USE_CPU",
        ),
        ({"ACCELERATE_MIXED_PRECISION": "fp8"}, None, "ACCELERATE_MIXED_PRECISION='fp8'"),
    ],
)
def test_a_launch_that_cannot_work_or_that_accelerate_does_not_run_is_refused(
    monkeypatch, variables, launch, problem
):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(os, "environ", variables)
    with pytest.raises(ConfigError, match=problem) if problem else nullcontext():
        check_launch(*launch) if launch else make_accelerator()


@pytest.mark.parametrize(
    ("variables", "threads"),
    [
        ({"LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}, [4]),
        ({"LOCAL_WORLD_SIZE": "16", "OMP_NUM_THREADS": "1"}, [1]),
        ({"ACCELERATE_DYNAMO_BACKEND": "no", "OMP_NUM_THREADS": "1"}, [8]),
        ({"LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "3"}, []),
        ({"OMP_NUM_THREADS": "1"}, []),
    ],
)
def test_each_process_gets_its_share_of_the_cores(monkeypatch, variables, threads):
    calls = []
    monkeypatch.setattr(os, "environ", variables)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8))
    monkeypatch.setattr(torch, "set_num_threads", calls.append)
    share_cores()
    assert calls == threads


@pytest.mark.parametrize("trackers", [[], ["tensorboard"]])
def test_trackers_and_their_folder_reach_accelerate(tmp_path, trackers):
    accelerator = make_accelerator(trackers, tmp_path)
    assert ([str(name) for name in accelerator.log_with], accelerator.logging_dir) == (
        trackers,
        str(tmp_path),
    )
    assert (accelerator.num_processes, accelerator.distributed_type.value) == (1, "NO")


@pytest.mark.parametrize(
    ("device_has", "variables", "accelerate", "precision"),
    [
        (True, {}, "no", Precision(CPU, "bf16", False)),
        (False, {}, "no", Precision(CPU, "no", False)),
        (True, {"ACCELERATE_MIXED_PRECISION": "no"}, "no", Precision(CPU, "no", True)),
        (True, {}, "fp16", Precision(CPU, "fp16", True)),
    ],
)
def test_the_precision_is_that_of_the_launch_or_else_of_the_device(
    monkeypatch, device_has, variables, accelerate, precision
):
    monkeypatch.setattr("dana.train.execution.has_bf16", lambda device: device_has)
    monkeypatch.setattr(os, "environ", variables)
    accelerator = SimpleNamespace(device=CPU, mixed_precision=accelerate)
    assert Precision.from_accelerator(accelerator) == precision
    with precision.autocast():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == (torch.bfloat16 if precision.name == "bf16" else torch.float32)
    fp16 = pytest.raises(ConfigError, match="mixed_precision='fp16'")
    with fp16 if precision.name == "fp16" else nullcontext():
        assert Precision.without_scaler(accelerator) == precision


@pytest.mark.parametrize(
    ("avx512", "amx", "speed", "fast"),
    [
        (False, False, None, False),
        (False, True, 4.7, True),
        (True, False, 1.8, True),
        (True, True, 1.0, False),
    ],
)
def test_a_cpu_has_bf16_if_its_instructions_are_faster(monkeypatch, avx512, amx, speed, fast):
    """AVX512-BF16 without AMX was measured at half the speed of float32, and at 1.8 times."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(
        "dana.core.device.bf16_speedup", lambda: pytest.fail("timed") if speed is None else speed
    )
    assert has_bf16(CPU) is fast
    assert not has_bf16(torch.device("meta"))


def test_the_bf16_speedup_is_that_of_the_fastest_turns(monkeypatch):
    """float32 takes 3 and bfloat16 2 by this clock, after a slow first turn of both."""
    seconds = {torch.float32: iter([50, *[3] * 20]), torch.bfloat16: iter([90, *[2] * 20])}
    now = [0.0]

    def linear(rows, weights):
        assert rows.dtype == weights.dtype
        now[0] += next(seconds[rows.dtype])

    monkeypatch.setattr(torch.nn.functional, "linear", linear)
    monkeypatch.setattr("dana.core.device.time.perf_counter", lambda: now[0])
    assert bf16_speedup.__wrapped__() == 3 / 2


@pytest.fixture
def batch(examples):
    return MASKED.step_batch(examples.take(np.arange(8)), 0, "batch")


@pytest.mark.parametrize(("bf16", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_run_computes_in_the_precision_of_its_layout(examples, batch, bf16, dtype):
    dtypes = []
    model = bert()
    model.bert.encoder.layer[0].intermediate.dense.register_forward_hook(
        lambda *call: dtypes.append(call[2].dtype)
    )
    state = new_state(model, bf16=bf16)
    loss = mean_loss(state.module, examples, MASKED, bf16=bf16)
    take_step(state, batch, 1e-4, 0, SETTINGS)
    assert len(dtypes) >= 2
    assert set(dtypes) == {dtype}
    assert {value.dtype for value in model.parameters()} == {torch.float32}, (
        "weights stay in float32"
    )
    exact = mean_loss(SelectedLogits(bert()), examples, MASKED)
    assert loss == pytest.approx(exact, rel=1e-2)
    assert (loss == exact) is not bf16


def step(model, batch, settings=SETTINGS, rate=1e-3, index=0, sgd=False, rank=None):
    """The loss and norm of a step, and how far it moves the parameters."""
    state = new_state(model, settings)
    if sgd:
        state.optimizer = torch.optim.SGD(state.module.parameters(), lr=rate)
    if rank is not None:  # one of two ranks; nothing is summed over the other
        names = (
            "device",
            "distributed_type",
            "gradient_accumulation_steps",
            "scaler",
            "backward",
            "no_sync",
        )
        values = {name: getattr(state.accelerator, name) for name in (*names, "clip_grad_norm_")}
        ranks = {"process_index": rank, "num_processes": 2, "reduce": lambda tensor: tensor}
        state.accelerator = SimpleNamespace(**values, **ranks)
    before = parameters(state.module)
    outcome = take_step(state, batch, rate, index, settings)
    return outcome, parameters(state.module) - before


def test_dropout_depends_on_step_and_rank(batch, monkeypatch):
    monkeypatch.setattr(loop, "passes_of", lambda state, batch: batch.passes(state.shape))
    calls = [(0, 0), (0, 1), (1, 0), (0, 0)]
    losses = [step(bert(0.3), batch, index=index, rank=rank)[0].loss for index, rank in calls]
    assert losses[0] == losses[3]
    assert len(set(losses)) == 3
    assert len({step(bert(), batch, index=index, rank=rank)[0].loss for index, rank in calls}) == 1


def test_a_gradient_is_clipped_and_the_record_has_the_norm_before(batch):
    (small, short), (large, long) = (
        step(bert(), batch, replace(SETTINGS, clip=clip), rate=1.0, sgd=True)
        for clip in (0.01, 1e6)
    )
    assert small.grad_norm == large.grad_norm > 0.2
    assert float(short.norm()) == pytest.approx(0.01, rel=1e-3)
    assert float(long.norm()) == pytest.approx(large.grad_norm, rel=1e-5)


def test_weight_decay_shrinks_matrices_by_rate_times_decay(batch):
    start = parameters(bert())
    matrix = torch.cat(
        [torch.full((value.numel(),), value.ndim > 1) for value in bert().parameters()]
    )
    plain, decay = (
        step(bert(), batch, replace(SETTINGS, weight_decay=rate))[1] for rate in (0.0, 0.5)
    )
    torch.testing.assert_close(
        (decay - plain)[matrix], -1e-3 * 0.5 * start[matrix], atol=1e-7, rtol=0
    )
    assert torch.equal(decay[~matrix], plain[~matrix])
    assert float(plain.abs().max()) == pytest.approx(1e-3, rel=0.05), (
        "Adam's first step is the rate times the sign"
    )


@pytest.mark.parametrize(
    ("training", "what"), [(True, "step 1"), (False, "evaluation after step 0")]
)
def test_memory_that_runs_out_is_one_line_with_the_setting(
    weighted_examples, monkeypatch, training, what
):
    forward = SelectedLogits.forward

    def small(self, input_ids, where, **attention):
        if self.training is training:
            raise torch.OutOfMemoryError("not enough")
        return forward(self, input_ids, where, **attention)

    monkeypatch.setattr(SelectedLogits, "forward", small)
    with pytest.raises(DanaError, match=rf"{what}: .*execution\.micro_batch_tokens=512"):
        run(weighted_examples, steps=1)


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("[enforce] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (MemoryError("Unable to allocate 8 GiB for an array"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_other_errors_stay_as_they_are(error, is_memory):
    kind, message = (
        (DanaError, "a step: out of memory") if is_memory else (type(error), re.escape(str(error)))
    )
    with pytest.raises(kind, match=message), explain_out_of_memory("a step", 8192):
        raise error
