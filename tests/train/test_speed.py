from dataclasses import replace

import numpy as np
import pytest
from accelerate import Accelerator

from dana.train.layout import BatchLayout
from dana.train.loop import prepare, train
from dana.train.records import EvaluationRecord, StepRecord, speed_of, to_line
from dana.train.settings import Execution, TrainSettings
from tests.train.conftest import held_out

SETTINGS = TrainSettings(
    max_tokens=16, batch_size=8, steps=4, evaluations=1, execution=Execution(micro_batch_tokens=64)
)


def test_the_time_of_evaluations_and_of_saving_is_not_that_of_a_step(tiny_model, collator, examples, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("dana.train.loop.time.monotonic", lambda: now[0])
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
    assert speed_of(taken) == {"tokens_per_second": pytest.approx(np.median(rates))}


def test_a_step_that_computed_nothing_has_no_speed(run, make_examples):
    _, records = run(make_examples(24, weights=np.zeros(24)), steps=1)
    assert speed_of(records) == {}
    assert "tokens_per_second" not in to_line(records[1])


def test_the_speed_of_a_run_is_a_median_and_its_memory_the_most_by_hand():
    step = StepRecord(1, 1, 1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    measured = [
        replace(step, tokens_per_second=2000.0, peak_memory=1_000_000_000),
        replace(step, tokens_per_second=9000.0, peak_memory=5_000_000_000),
        replace(step, tokens_per_second=4000.0, peak_memory=None),
    ]
    assert speed_of([step, *measured]) == {"tokens_per_second": 4000.0, "peak_memory": 5_000_000_000}
