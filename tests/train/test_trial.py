"""A model is tried in the precision of its run: float32 with a line where it fails, else one line of refusal."""

import logging

import pytest
import torch

from dana.core.errors import ArtifactError
from dana.train.execution import Precision
from dana.train.trial import try_precision

CPU = torch.device("cpu")
BF16 = Precision(CPU, "bf16", from_launcher=False)
FLOAT32 = Precision(CPU, "no", from_launcher=False)


class Model(torch.nn.Module):
    """A layer, and something that it does to its outputs."""

    def __init__(self, act):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.dropout = torch.nn.Dropout(0.5)
        self.act = act
        self.config = type("Config", (), {"name_or_path": "some/model", "model_type": "some"})

    def forward(self):
        return self.act(self.dropout(self.layer(torch.ones(2, 3))))


class FailsBackward(torch.autograd.Function):
    """Passes its input on, and has no gradient."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise NotImplementedError("no gradient for this layer")


def only_float32(outputs):
    if outputs.dtype != torch.float32:
        raise RuntimeError("value cannot be converted\nto type BFloat16")
    return outputs


def infinite_in_bf16(outputs):
    return outputs if outputs.dtype == torch.float32 else outputs * float("inf")


@pytest.mark.parametrize("act", [only_float32, infinite_in_bf16])
def test_float32_is_taken_where_the_model_fails(act, heard):
    model = Model(act)
    assert try_precision(BF16, model, model) == FLOAT32
    warnings = [record for record in heard.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    line = warnings[0].getMessage()
    assert "\n" not in line
    assert line.startswith("precision float32, as some/model")
    assert "bfloat16" in line


@pytest.mark.parametrize("trains", [False, True])
def test_a_model_that_runs_stays_as_it_is(trains, heard):
    model = Model(lambda outputs: outputs)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    model.eval()
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    assert try_precision(BF16, model, model, trains) is BF16
    assert torch.equal(torch.rand(3), expected)
    assert not model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert not heard.records


def test_a_precision_of_the_launch_is_refused_with_what_to_set():
    model = Model(only_float32)
    launched = Precision(CPU, "bf16", from_launcher=True)
    with pytest.raises(ArtifactError, match=r"bfloat16.*ACCELERATE_MIXED_PRECISION=no") as error:
        try_precision(launched, model, model)
    assert "\n" not in str(error.value)


def test_what_fails_in_float32_too_is_one_line():
    model = Model(FailsBackward.apply)
    line = r"some/model: the model cannot be trained in float32: .*no gradient for this layer"
    for precision in (FLOAT32, BF16):
        with pytest.raises(ArtifactError, match=line):
            try_precision(precision, model, model)
    assert try_precision(FLOAT32, model, model, trains=False) is FLOAT32


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"),
        MemoryError(),
    ],
)
def test_lack_of_memory_is_left_to_the_first_step(error):
    def lack(outputs):
        raise error

    model = Model(lack)
    assert try_precision(BF16, model, model) is BF16
