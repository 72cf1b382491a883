import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch.utils.flop_counter import FlopCounterMode

from dana.models.heads import SelectedLogits
from dana.train.layout import BatchLayout
from dana.train.loop import prepare, train
from dana.train.plan import Plan
from dana.train.records import EvaluationRecord, Meter, StepRecord, Work, in_words, summary, to_line
from dana.train.settings import Execution, TrainSettings
from tests.train.conftest import held_out

SETTINGS = TrainSettings(
    max_tokens=16, batch_size=8, steps=4, evaluations=1, execution=Execution(micro_batch_tokens=64)
)


def test_the_operations_of_a_step_are_those_that_torch_counts(tiny_model, collator, examples):
    model = tiny_model()
    model.set_attn_implementation("eager")
    same = replace(examples, sizes=np.full(len(examples), 10), starts=np.arange(len(examples)))
    batch = collator.step_batch(same.take(np.arange(8)), 0, "batch")
    micro = batch.micro([np.array([row]) for row in range(8)], BatchLayout())
    with FlopCounterMode(display=False) as counter:
        micro.losses(SelectedLogits(model)).sum().backward()
    expected = Work.of(model).of_step(np.diff(batch.examples.offsets), int(batch.counts.sum()))
    assert expected == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_an_answer_costs_the_heads_layer_and_the_vocabulary(tiny_model):
    assert Work.of(tiny_model()).answer == 2 * (16 * 16 + 16 * 60)


def test_padding_is_the_share_of_places_without_text(run, examples):
    lengths = examples.lengths[Plan(examples.lengths, examples.ids, SETTINGS)[0].rows]
    _, records = run(examples, steps=1)
    (step,) = [record for record in records if isinstance(record, StepRecord)]
    assert step.padding == pytest.approx(1 - lengths.sum() / (8 * lengths.max()), abs=1e-4)
    _, unpadded = run(examples, steps=1, budget=16, layout="packed")
    assert unpadded[1].padding < step.padding


def test_the_time_of_evaluations_and_of_saving_is_not_that_of_a_step(tiny_model, collator, examples, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("dana.train.records.time.monotonic", lambda: now[0])
    prepared = prepare(tiny_model(), SETTINGS, Accelerator(cpu=True), BatchLayout(budget=512))

    def compute(module, *_):
        now[0] += 0.5 if module.training else 60

    prepared.module.register_forward_hook(compute)
    taken = []
    for record in train(prepared, examples, collator, SETTINGS, held_out(examples, examples)):
        now[0] += 1000  # whoever reads the records saves
        taken.append(record)
    before, rates = 0, []
    for record in taken:
        if isinstance(record, StepRecord):
            rates.append(record.tokens_per_second)
            assert record.tokens_per_second == pytest.approx((record.tokens - before) / 0.5)
            before = record.tokens
    assert len(rates) == 4
    assert sum(isinstance(record, EvaluationRecord) for record in taken) == 3
    assert summary(taken)["tokens_per_second"] == pytest.approx(np.median(rates))
    assert json.loads(to_line(taken[1]))["peak_memory"] > 50e6, "this process with torch in it"


def test_the_share_of_the_peak_is_of_all_devices(monkeypatch, examples):
    monkeypatch.setattr("dana.train.records.device_peak", lambda device: 1e9)
    now = [0.0]
    monkeypatch.setattr("dana.train.records.time.monotonic", lambda: now[0])
    meter = Meter(Work(token=1e6, pair=0.0, answer=0.0), torch.device("cpu"), processes=2)
    batch = examples.take(np.arange(4))
    meter.start()
    meter.saw(100, 50)
    now[0] += 2.0
    speed = SimpleNamespace(**meter.stop(np.diff(batch.offsets), 3))
    assert speed.tflops == pytest.approx(3 * 1e6 * batch.tokens.size / 2 / 1e12, rel=1e-3)
    assert speed.mfu == pytest.approx(speed.tflops * 1e12 / (2 * 1e9), rel=1e-3)
    assert speed.padding == 0.5
    said = in_words(summary([StepRecord(1, 1, 1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, **vars(speed))]))
    assert f"{speed.tokens_per_second:,.0f} tokens/s" in said
    assert "50% padding" in said
    assert "of the device's peak" in said


def test_a_step_that_computed_nothing_has_no_speed(run, make_examples):
    _, records = run(make_examples(24, weights=np.zeros(24)), steps=1)
    assert summary(records) == {}
    assert "tokens_per_second" not in to_line(records[1])
    assert in_words({}) == "not measured: no step computed anything"


def test_a_summary_is_of_medians_and_the_most_memory_by_hand():
    step = StepRecord(1, 1, 1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    measured = [
        replace(step, tokens_per_second=2000.0, padding=0.1, tflops=1.0, peak_memory=1_000_000_000),
        replace(step, tokens_per_second=9000.0, padding=0.3, tflops=3.0, peak_memory=5_000_000_000),
        replace(step, tokens_per_second=4000.0, padding=0.2, tflops=1.5, peak_memory=None),
    ]
    found = summary([step, *measured])
    assert found == {"tokens_per_second": 4000.0, "padding": 0.2, "tflops": 1.5, "peak_memory": 5_000_000_000}
    assert in_words(found) == (
        "4,000 tokens/s without evaluations and saving, 20% padding, at most 5.0 GB, 1.5 TFLOP/s"
    )
