"""Layouts change speed, never what is learnt; an architecture that they would change is refused."""

import copy

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from transformers import AutoModelForMaskedLM, DebertaV2Config, ModernBertConfig

from dana.core.errors import ConfigError
from dana.models.heads import SelectedLogits
from dana.train import LAYOUTS
from dana.train.layout import BatchLayout, micro_batches
from dana.train.planner import choose_execution
from dana.train.records import StepRecord
from dana.train.settings import Execution, TrainSettings
from tests.models.test_heads import CONFIGS, SHAPE
from tests.train.conftest import MASKED, use_varlen


def parameters(prepared):
    return torch.cat([value.detach().flatten() for value in prepared.module.parameters()])


@pytest.mark.parametrize("budget", [32, 100])
def test_a_layout_changes_nothing_that_is_learnt(run, weighted, budget):
    padded, records = run(weighted, steps=4)
    other, other_records = run(weighted, steps=4, layout="unpadded", budget=budget)
    torch.testing.assert_close(parameters(other), parameters(padded), atol=1e-6, rtol=0)
    for one, two in zip(records, other_records, strict=True):
        if isinstance(one, StepRecord):
            assert two.loss == pytest.approx(one.loss, abs=1e-6)
        else:
            assert two.task_loss == pytest.approx(one.task_loss, abs=1e-6)


def choose(model, make_examples, precision="no", objective="masked", **execution):
    AcceleratorState._reset_state(reset_partial_state=True)
    settings = TrainSettings(
        steps=2, batch_size=8, max_tokens=16, objective=objective, execution=Execution(**execution)
    )
    accelerator = Accelerator(cpu=True, mixed_precision=precision)
    return choose_execution(model, make_examples(40), settings, accelerator)


DEBERTA = DebertaV2Config(
    vocab_size=60,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    relative_attention=True,
    pos_att_type=["c2p", "p2c"],
)
WINDOWS = ModernBertConfig(**{**SHAPE, "num_hidden_layers": 4}, pad_token_id=0, local_attention=6)
UNCHANGED = [config for config in CONFIGS if config.model_type != "mpnet"] + [WINDOWS]
CHANGED = [DEBERTA, *(config for config in CONFIGS if config.model_type == "mpnet")]
OTHERS = [layout for layout in LAYOUTS if layout != "padded"]


def model_of(config, scale=1.0):
    """An untrained model; a scale above 1 gives it attention that is far from even."""
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(copy.deepcopy(config))
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(scale if value.ndim > 1 else 1.0)
    return model


def difference(config, layout, make_examples):
    """The largest difference to padded rows of any logit of eight examples, as a share of the largest logit."""
    examples = make_examples(40)
    by_length = np.argsort(examples.lengths, kind="stable")
    batch = MASKED.step_batch(examples.take(by_length[np.linspace(0, 39, 8).astype(int)]), 0, "token_count")

    def logits(layout, rows):
        model = model_of(config, scale=10)
        if layout == "unpadded":
            use_varlen(model)
        micro = batch.micro(rows, BatchLayout.of(config, 1 << 30, layout))
        with torch.no_grad():
            return SelectedLogits(model).eval()(**micro.inputs)[torch.argsort(micro.owners, stable=True)]

    expected = logits("padded", np.arange(8))
    (rows,) = micro_batches(batch.lengths, BatchLayout(layout, 1 << 30))
    return float((logits(layout, rows) - expected).abs().max() / expected.abs().max())


def names(config):
    return f"{config.model_type}-{getattr(config, 'sliding_window', 0)}"


@pytest.mark.parametrize("config", UNCHANGED, ids=names)
@pytest.mark.parametrize("layout", OTHERS)
def test_an_architecture_that_may_have_a_layout_answers_as_on_padded_rows(config, layout, make_examples):
    assert choose(model_of(config), make_examples, layout=layout)[0].layout == layout
    assert difference(config, layout, make_examples) < 1e-6


@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize("config", CHANGED, ids=names)
@pytest.mark.parametrize("layout", OTHERS)
def test_one_whose_answers_it_would_change_is_refused_in_any_precision(config, layout, precision, make_examples):
    with pytest.raises(ConfigError, match=f"layout={layout} does not work with {config.model_type}"):
        choose(model_of(config), make_examples, precision=precision, layout=layout)


def test_rows_are_padded_where_the_device_has_no_attention_kernel_for_others(tiny_model, make_examples):
    model = tiny_model()
    shape, reasons = choose(model, make_examples)
    assert shape.layout == "padded"
    assert reasons[0].startswith("batch     8 examples a step = 1 rank(s) x 1 micro-batch(es)")
    assert reasons[2] == "layout    padded: this device has no attention kernel for rows without padding"
    assert model.config._attn_implementation == "sdpa"


def test_rows_are_unpadded_in_half_precision_where_the_device_has_the_kernel(tiny_model, make_examples, monkeypatch):
    monkeypatch.setattr("dana.train.planner.has_kernel", lambda device: True)
    model = tiny_model()
    shape, reasons = choose(model, make_examples, precision="bf16")
    assert shape.layout == "unpadded"
    assert model.config._attn_implementation == "dana_varlen"
    assert reasons[2] == "layout    unpadded: this device has an attention kernel for rows without padding"
    assert choose(tiny_model(), make_examples)[0].layout == "padded", "the kernel takes no float32"
    assert choose(model_of(DEBERTA), make_examples, precision="bf16")[0].layout == "padded"


@pytest.mark.parametrize("has", [True, False])
def test_bf16_is_taken_where_the_device_has_it(has, tiny_model, make_examples, monkeypatch):
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    monkeypatch.setattr("dana.train.execution.has_bf16", lambda device: has)
    shape, reasons = choose(tiny_model(), make_examples)
    assert shape.bf16 is has
    assert f"precision {'bf16' if has else 'no'}: default of cpu" in reasons
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    shape, reasons = choose(tiny_model(), make_examples)
    assert not shape.bf16
    assert "precision no: set by the launch (no = fp32)" in reasons
