"""Layouts change speed, never what is learnt; an architecture that they would change is refused."""

import math

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from transformers import AutoModelForMaskedLM, DebertaV2Config, ModernBertConfig

from dana.core.errors import ConfigError
from dana.models.heads import SelectedLogits, window_of
from dana.train import LAYOUTS
from dana.train.layout_check import LayoutCheck
from dana.train.model_setup import set_compiled
from dana.train.planner import Planner
from dana.train.records import StepRecord
from dana.train.settings import Execution, TrainSettings
from tests.models.test_heads import CONFIGS, SHAPE
from tests.train.conftest import MASKED, held_out


def parameters(prepared):
    return torch.cat([value.detach().flatten() for value in prepared.module.parameters()])


@pytest.mark.parametrize("budget", [32, 100])
@pytest.mark.parametrize("layout", ["packed", "unpadded"])
def test_a_layout_changes_nothing_that_is_learnt(run, weighted, layout, budget):
    padded, records = run(weighted, steps=4)
    other, other_records = run(weighted, steps=4, layout=layout, budget=budget)
    torch.testing.assert_close(parameters(other), parameters(padded), atol=1e-6, rtol=0)
    for one, two in zip(records, other_records, strict=True):
        if isinstance(one, StepRecord):
            assert two.loss == pytest.approx(one.loss, abs=1e-6)
        else:
            assert two.task_loss == pytest.approx(one.task_loss, abs=1e-6)


def planner(model, make_examples, precision="no", **execution):
    AcceleratorState._reset_state(reset_partial_state=True)
    settings = TrainSettings(steps=2, batch_size=8, max_tokens=16, execution=Execution(**execution))
    return Planner(model, make_examples(40), MASKED, settings, Accelerator(cpu=True, mixed_precision=precision))


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
    model = AutoModelForMaskedLM.from_config(config)
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(scale if value.ndim > 1 else 1.0)
    return model


def layout_test(model, make_examples):
    settings = TrainSettings(batch_size=8, max_tokens=16)
    return LayoutCheck(SelectedLogits(model), make_examples(40), MASKED, settings, torch.device("cpu"))


def names(config):
    return f"{config.model_type}-{window_of(config)}"


@pytest.mark.parametrize("config", UNCHANGED, ids=names)
@pytest.mark.parametrize("layout", OTHERS)
def test_an_architecture_that_a_layout_leaves_as_it_is_may_have_it(config, layout, make_examples):
    found = layout_test(model_of(config, scale=10), make_examples)
    assert found.difference(layout) < 1e-6
    assert found.problem(layout) == ""


@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize("config", CHANGED, ids=names)
@pytest.mark.parametrize("layout", OTHERS)
def test_one_that_it_would_change_is_refused_whatever_the_run_computes_in(config, layout, precision, make_examples):
    with pytest.raises(ConfigError, match=f"layout={layout} is not for {config.model_type}: .*padded always is"):
        planner(model_of(config), make_examples, precision=precision, layout=layout).choose()


def test_a_packed_row_without_the_sliding_window_is_refused(make_examples, monkeypatch):
    """One mask for all layers is what ModernBERT would get without a second one."""
    monkeypatch.setattr("dana.models.heads.window_of", lambda config: 0)
    assert "its answers differ by" in layout_test(model_of(WINDOWS, scale=10), make_examples).problem("packed")


def test_a_kernel_that_differs_is_refused_though_the_layout_agrees(make_examples, monkeypatch):
    found = layout_test(model_of(CONFIGS[0]), make_examples)
    monkeypatch.setattr("dana.train.layout_check.kernel_difference", lambda *arguments: 0.5)
    assert found.problem("unpadded") == "the attention kernel differs by 5.0e-01"
    assert found.problem("packed") == ""


def test_a_short_run_is_not_measured(tiny_model, make_examples):
    choice = planner(tiny_model(), make_examples).choose()
    assert (choice.shape.layout, choice.compiled) == ("padded", False)
    assert "too short to measure" in choice.reasons[2]
    assert choice.reasons[0].startswith("batch     8 examples a step = 1 rank(s) x 1 micro-batch(es)")


def test_a_long_run_takes_the_fastest_and_says_why(tiny_model, make_examples, monkeypatch):
    speeds = {"padded": 100.0, "packed": 104.0, "unpadded": 120.0}
    monkeypatch.setattr(Planner, "_speed", lambda self, shape: speeds[shape.layout])
    monkeypatch.setattr("dana.train.planner.SHORT", 0)
    model = tiny_model()
    choice = planner(model, make_examples).choose()
    assert choice.shape.layout == "unpadded"
    assert model.config._attn_implementation == "dana_varlen"
    assert "unpadded 120 tokens/s (100% text)" in choice.reasons[2]
    assert choice.reasons[3:] == ["compile   off: about 0 minutes to train, trying takes about 36 s"]
    speeds["unpadded"] = 104.0
    assert planner(tiny_model(), make_examples).choose().shape.layout == "padded", "4 % is not worth it"


@pytest.mark.parametrize("short", [0, 500])
@pytest.mark.parametrize("has", [True, False])
def test_bf16_is_taken_where_the_device_has_it(short, has, tiny_model, make_examples, monkeypatch):
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    monkeypatch.setattr("dana.train.planner.SHORT", short)
    monkeypatch.setattr("dana.train.execution.has_bf16", lambda device: has)
    found = planner(tiny_model(), make_examples).choose()
    assert found.shape.bf16 is has
    assert f"precision {'bf16' if has else 'no'}: what this cpu device has" in found.reasons
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    asked = planner(tiny_model(), make_examples).choose()
    assert not asked.shape.bf16
    assert "precision no: as the launch says (no = fp32)" in asked.reasons


def test_measuring_leaves_the_model_as_it_was(tiny_model, make_examples, monkeypatch):
    monkeypatch.setattr("dana.train.planner.SHORT", 0)
    model, untouched = tiny_model(), tiny_model()
    choice = planner(model, make_examples).choose()
    assert choice.shape.layout in LAYOUTS
    for one, other in zip(model.parameters(), untouched.parameters(), strict=True):
        assert torch.equal(one, other)
        assert one.grad is None


@pytest.mark.parametrize(("minutes", "tried"), [(10, False), (29, False), (31, True)])
def test_compiling_is_tried_only_where_it_costs_two_percent_at_most(
    tiny_model, make_examples, monkeypatch, caplog, minutes, tried
):
    """36 s for a model of two layers are two percent of half an hour."""
    tokens = planner(tiny_model(), make_examples)._plan.tokens
    monkeypatch.setattr("dana.train.planner.SHORT", 0)
    compiled = []

    def speed(self, shape):
        compiled.append(shape.static)
        return tokens / (60 * minutes)

    monkeypatch.setattr(Planner, "_speed", speed)
    model = tiny_model()
    with caplog.at_level("INFO"):
        choice = planner(model, make_examples).choose()
    assert any(compiled) is tried
    announced = f"planner   tries torch.compile: about 36 s, of about {minutes} minutes to train"
    assert (announced in caplog.text) is tried
    assert tried or choice.reasons[-1] == f"compile   off: about {minutes} minutes to train, trying takes about 36 s"
    set_compiled(model, False)


def test_what_is_tried_is_announced_with_its_time_before_it_begins(tiny_model, make_examples, monkeypatch, caplog):
    monkeypatch.setattr("dana.train.planner.SHORT", 0)
    said_before = []

    def speed(self, shape):
        said_before.append("planner   tries padded, packed, unpadded rows: about" in caplog.text)
        return 1e-3 if len(said_before) == 1 else 100.0

    monkeypatch.setattr(Planner, "_speed", speed)
    with caplog.at_level("INFO"):
        planner(tiny_model(), make_examples, compile="off").choose()
    assert said_before == [False, True, True, True], "first a small pass that tells how fast the model is"


def test_a_machine_without_a_compiler_says_so_in_one_line(tiny_model, make_examples, monkeypatch):
    monkeypatch.setattr("dana.train.planner.SHORT", 0)
    monkeypatch.setattr("dana.train.planner.COMPILE_SECONDS", (0.0, 0.0))

    def speed(self, shape):
        if shape.static:
            raise RuntimeError("no C++\tcompiler\nwas found")
        return 0.1

    monkeypatch.setattr(Planner, "_speed", speed)
    model = tiny_model()
    choice = planner(model, make_examples).choose()
    assert not choice.compiled
    assert choice.reasons[-1] == "compile   off: no C++\tcompiler"
    assert model.base_model._compiled_call_impl is None


def test_compiling_is_tried_where_the_run_is_long_and_dropped_where_it_does_not_pay(
    tiny_model, make_examples, monkeypatch
):
    monkeypatch.setattr("dana.train.planner.SHORT", 0)
    monkeypatch.setattr("dana.train.planner.COMPILE_SECONDS", (0.0, 0.0))
    for compiled_speed, expected in ((200.0, True), (101.0, False)):
        speeds = {False: 0.1, True: compiled_speed / 1e3}
        monkeypatch.setattr(Planner, "_speed", lambda self, shape, speeds=speeds: speeds[shape.static])
        model = tiny_model()
        choice = planner(model, make_examples).choose()
        assert choice.compiled is expected
        assert choice.shape.static is expected
        assert (model.base_model._compiled_call_impl is not None) is expected
        set_compiled(model, False)


@pytest.mark.slow
def test_compiled_rows_of_one_shape_learn_the_same(tiny_model, collator, weighted, run):
    from dana.train.layout import BatchLayout
    from dana.train.loop import prepare, train

    settings = TrainSettings(
        steps=3, batch_size=8, max_tokens=16, evaluations=0, execution=Execution(micro_batch_tokens=48)
    )
    padded, _ = run(weighted, steps=3)
    model = tiny_model()
    set_compiled(model, True)
    prepared = prepare(model, settings, Accelerator(cpu=True), BatchLayout("packed", 48, 16, static=True))
    list(train(prepared, weighted, collator, settings, held_out(weighted, weighted)))
    torch.testing.assert_close(parameters(prepared), parameters(padded), atol=1e-6, rtol=0)


def test_a_layout_whose_answers_are_no_numbers_is_refused(tiny_model, make_examples, monkeypatch):
    monkeypatch.setattr(LayoutCheck, "difference", lambda self, layout: math.nan)
    assert "its answers differ by nan" in layout_test(tiny_model(), make_examples).problem("packed")


def test_layouts_are_tested_in_float32_whatever_is_around(tiny_model, make_examples):
    found = layout_test(tiny_model(), make_examples)
    alone = [np.array([row]) for row in range(8)]
    expected = found._answers("padded", alone)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(found._answers("padded", alone), expected)
