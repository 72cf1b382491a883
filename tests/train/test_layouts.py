"""Layouts change speed, never what is learnt; an architecture that they would change is refused."""

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from transformers import AutoModelForMaskedLM, DebertaV2Config

from dana.errors import ConfigError
from dana.mlm.layout import LAYOUTS
from dana.mlm.masking import Masking
from dana.train.planner import Planner
from dana.train.records import StepRecord
from dana.train.settings import Execution, TrainSettings
from dana.train.wiring import set_compiled
from tests.mlm.test_heads import CONFIGS


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


def planner(model, make_examples, **execution):
    settings = TrainSettings(steps=2, batch_size=8, max_tokens=16, execution=Execution(**execution))
    masking = Masking(4, np.arange(60) < 5, seed=0)
    return Planner(model, make_examples(40), masking, settings, Accelerator(cpu=True, mixed_precision="no"))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
@pytest.mark.parametrize("layout", ["packed", "unpadded"])
def test_each_architecture_is_unchanged_or_refused(config, layout, make_examples):
    torch.manual_seed(0)
    found = planner(AutoModelForMaskedLM.from_config(config), make_examples)
    if problem := found._problem(layout):
        with pytest.raises(ConfigError, match=f"layout={layout} is not for {config.model_type}: .*padded always is"):
            planner(AutoModelForMaskedLM.from_config(config), make_examples, layout=layout).choose()
        assert config.model_type in {"modernbert", "mpnet", "distilbert"}, problem
    else:
        assert found.difference(layout) < 1e-4


def test_an_architecture_that_reads_positions_from_distances_is_refused(make_examples):
    config = DebertaV2Config(
        vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    config.relative_attention, config.pos_att_type = True, ["c2p", "p2c"]
    model = AutoModelForMaskedLM.from_config(config)
    for layout in ("packed", "unpadded"):
        with pytest.raises(ConfigError, match=f"layout={layout} is not for deberta-v2"):
            planner(model, make_examples, layout=layout).choose()


def test_a_short_run_is_not_measured(tiny_model, make_examples):
    choice = planner(tiny_model(), make_examples).choose()
    assert (choice.shape.layout, choice.compiled) == ("padded", False)
    assert "too short to measure" in choice.reasons[1]
    assert choice.reasons[0].startswith("batch     8 examples a step = 1 rank(s) x 1 micro-batch(es)")


def test_a_long_run_takes_the_fastest_and_says_why(tiny_model, make_examples, monkeypatch):
    speeds = {"padded": 100.0, "packed": 104.0, "unpadded": 120.0}
    monkeypatch.setattr(Planner, "_speed", lambda self, shape: speeds[shape.layout] * (1.1 if shape.bf16 else 1.0))
    monkeypatch.setattr("dana.train.planner.SHORT", 0)
    model = tiny_model()
    choice = planner(model, make_examples).choose()
    assert choice.shape.layout == "unpadded"
    assert model.config._attn_implementation == "dana_varlen"
    assert "unpadded 120 tokens/s (100% text)" in choice.reasons[1]
    assert choice.reasons[2:] == [
        "precision fp32: bf16 132 tokens/s against 120",
        "compile   off: about 0 minutes to train",
    ]
    speeds["unpadded"] = 104.0
    assert planner(tiny_model(), make_examples).choose().shape.layout == "padded", "4 % is not worth it"


@pytest.mark.parametrize(("gain", "expected"), [(2.0, True), (0.4, False)])
def test_bf16_is_taken_where_it_pays(tiny_model, make_examples, monkeypatch, gain, expected):
    monkeypatch.setattr("dana.train.planner.SHORT", 0)
    monkeypatch.setattr(Planner, "_speed", lambda self, shape: 100.0 * (gain if shape.bf16 else 1.0))
    assert planner(tiny_model(), make_examples).choose().shape.bf16 is expected
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


def test_compiling_is_tried_where_the_run_is_long_and_dropped_where_it_does_not_pay(
    tiny_model, make_examples, monkeypatch
):
    monkeypatch.setattr("dana.train.planner.SHORT", 0)
    monkeypatch.setattr("dana.train.planner.COMPILE_FROM", 0.0)
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
def test_compiled_rows_of_one_shape_learn_the_same(tiny_model, masking, weighted, run):
    from dana.train.batch import Shape
    from dana.train.loop import adapt, prepare

    settings = TrainSettings(
        steps=3, batch_size=8, max_tokens=16, evaluations=0, execution=Execution(micro_batch_tokens=48)
    )
    padded, _ = run(weighted, steps=3)
    model = tiny_model()
    set_compiled(model, True)
    prepared = prepare(model, settings, Accelerator(cpu=True), Shape("packed", 48, 16, static=True))
    list(adapt(prepared, weighted, masking, settings, {"task": weighted, "general": weighted}))
    torch.testing.assert_close(parameters(prepared), parameters(padded), atol=1e-6, rtol=0)


def test_out_of_memory_halves_the_micro_batch_and_not_the_batch(run, weighted, monkeypatch):
    whole, records = run(weighted, steps=3)
    from dana.mlm.heads import MaskedLogits

    forward, sizes = MaskedLogits.forward, []

    def small_memory(self, input_ids, where, **attention):
        if self.training:
            sizes.append(input_ids.numel())
            if input_ids.numel() > 40:
                raise torch.OutOfMemoryError("not enough")
        return forward(self, input_ids, where, **attention)

    monkeypatch.setattr(MaskedLogits, "forward", small_memory)
    cut, cut_records = run(weighted, steps=3)
    assert cut.pieces > 1
    assert max(sizes) > 40 >= sizes[-1]
    torch.testing.assert_close(parameters(cut), parameters(whole), atol=1e-6, rtol=0)
    assert [r.loss for r in records[1:4]] == pytest.approx([r.loss for r in cut_records[1:4]], abs=1e-6)


def test_memory_for_not_even_one_example_is_an_error_that_says_what_to_set(run, weighted, monkeypatch):
    from dana.errors import DanaError
    from dana.mlm.heads import MaskedLogits

    forward = MaskedLogits.forward

    def no_memory(self, *inputs, **attention):
        if self.training:
            raise torch.OutOfMemoryError("none")
        return forward(self, *inputs, **attention)

    monkeypatch.setattr(MaskedLogits, "forward", no_memory)
    with pytest.raises(DanaError, match=r"out of memory with execution\.micro_batch_tokens=\d+: set it lower"):
        run(weighted, steps=1)
