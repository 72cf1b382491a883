from types import SimpleNamespace

import pytest
import torch

from dana.core.device import has_bf16
from dana.core.errors import ConfigError
from dana.execution.accelerator import make_accelerator
from dana.execution.precision import Precision

CPU = torch.device("cpu")


@pytest.fixture
def launched_by_nobody(monkeypatch):
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)


def of(mixed_precision="no"):
    return Precision.of(SimpleNamespace(device=CPU, mixed_precision=mixed_precision))


@pytest.mark.parametrize(("has", "name"), [(True, "bf16"), (False, "no")])
def test_without_a_launch_it_is_what_the_device_has(has, name, launched_by_nobody, monkeypatch):
    monkeypatch.setattr("dana.execution.precision.has_bf16", lambda device: has)
    assert of() == Precision(CPU, name, launched=False)
    assert of().reason == "what this cpu device has"
    with of().autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == (torch.bfloat16 if has else torch.float32)


def test_what_the_launch_says_holds(monkeypatch):
    monkeypatch.setattr("dana.execution.precision.has_bf16", lambda device: True)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    assert of() == Precision(CPU, "no", launched=True)
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION")
    assert of("fp16") == Precision(CPU, "fp16", launched=True)
    assert of("bf16").reason == "as the launch says (no = fp32)"


def test_what_only_accelerate_can_do_is_refused_elsewhere():
    assert Precision(CPU, "bf16", True).for_own_passes().name == "bf16"
    assert Precision(CPU, "no", False).for_own_passes().name == "no"
    with pytest.raises(ConfigError, match="mixed_precision='fp16': must be no or bf16 here"):
        Precision(CPU, "fp16", True).for_own_passes()


def test_a_precision_that_dana_does_not_know_is_refused_by_name(monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp8")
    with pytest.raises(ConfigError, match="ACCELERATE_MIXED_PRECISION=fp8: must be one of no, bf16, fp16"):
        make_accelerator()


def test_a_cpu_has_it_by_its_instructions(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert not has_bf16(CPU)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    assert has_bf16(CPU)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    assert has_bf16(CPU)
    assert not has_bf16(torch.device("meta"))
