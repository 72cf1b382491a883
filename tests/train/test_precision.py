from types import SimpleNamespace

import pytest
import torch

from dana.core.device import bf16_speedup, has_bf16
from dana.core.errors import ConfigError
from dana.train.execution import Precision, make_accelerator

CPU = torch.device("cpu")


@pytest.fixture
def launched_by_nobody(monkeypatch):
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)


def of(mixed_precision="no"):
    return Precision.of(SimpleNamespace(device=CPU, mixed_precision=mixed_precision))


@pytest.mark.parametrize(("has", "name"), [(True, "bf16"), (False, "no")])
def test_without_a_launch_it_is_what_the_device_has(has, name, launched_by_nobody, monkeypatch):
    monkeypatch.setattr("dana.train.execution.has_bf16", lambda device: has)
    assert of() == Precision(CPU, name, from_launcher=False)
    with of().autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == (torch.bfloat16 if has else torch.float32)


def test_what_the_launch_says_holds(monkeypatch):
    monkeypatch.setattr("dana.train.execution.has_bf16", lambda device: True)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    assert of() == Precision(CPU, "no", from_launcher=True)
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION")
    assert of("fp16") == Precision(CPU, "fp16", from_launcher=True)


def test_what_only_accelerate_can_do_is_refused_elsewhere():
    assert Precision(CPU, "bf16", True).without_accelerate().name == "bf16"
    assert Precision(CPU, "no", False).without_accelerate().name == "no"
    with pytest.raises(ConfigError, match="mixed_precision='fp16': must be no or bf16"):
        Precision(CPU, "fp16", True).without_accelerate()


def test_a_precision_that_dana_does_not_know_is_refused_by_name(monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp8")
    with pytest.raises(ConfigError, match="ACCELERATE_MIXED_PRECISION=fp8: must be one of no, bf16, fp16"):
        make_accelerator()


def cpu_with(monkeypatch, avx512=False, amx=False, speed=None):
    """Whether a CPU of such instructions and speed computes in bfloat16; without a speed it must not be timed."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr("dana.core.device.bf16_speedup", lambda: pytest.fail("timed") if speed is None else speed)
    return has_bf16(CPU)


def test_a_cpu_has_it_if_it_has_instructions_that_are_faster(monkeypatch):
    """Seen: AVX512-BF16 without AMX at half the speed of float32, and at 1.8 times."""
    assert not cpu_with(monkeypatch)
    assert cpu_with(monkeypatch, amx=True, speed=4.7)
    assert cpu_with(monkeypatch, avx512=True, speed=1.8)
    assert not cpu_with(monkeypatch, avx512=True, speed=0.55)
    assert not cpu_with(monkeypatch, avx512=True, amx=True, speed=1.0)
    assert not has_bf16(torch.device("meta"))


def test_the_speed_is_that_of_the_fastest_turns(monkeypatch):
    """A clock of our own: float32 takes 3 and bfloat16 2, but for a first turn that is slow in both."""
    taken = {torch.float32: iter([50, *[3] * 20]), torch.bfloat16: iter([90, *[2] * 20])}
    now = [0.0]

    def linear(rows, weights):
        assert rows.dtype == weights.dtype
        now[0] += next(taken[rows.dtype])

    monkeypatch.setattr(torch.nn.functional, "linear", linear)
    monkeypatch.setattr("dana.core.device.time.perf_counter", lambda: now[0])
    assert bf16_speedup.__wrapped__() == 3 / 2
