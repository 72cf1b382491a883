import json
from dataclasses import replace

import numpy as np
import pytest
from accelerate import Accelerator

from dana.train.layout import BatchLayout
from dana.train.loop import prepare, train
from dana.train.plan import Plan
from dana.train.records import EvaluationRecord, StepRecord, in_words, summary, to_line
from dana.train.settings import Execution, TrainSettings
from tests.train.conftest import held_out

SETTINGS = TrainSettings(
    max_tokens=16, batch_size=8, steps=4, evaluations=1, execution=Execution(micro_batch_tokens=64)
)


def test_padding_is_the_share_of_places_without_text(run, examples):
    lengths = examples.lengths[Plan(examples.lengths, examples.ids, SETTINGS)[0].rows]
    _, records = run(examples, steps=1)
    (step,) = [record for record in records if isinstance(record, StepRecord)]
    assert step.padding == pytest.approx(1 - lengths.sum() / (8 * lengths.max()), abs=1e-4)
    _, unpadded = run(examples, steps=1, budget=16, layout="unpadded")
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


def test_a_step_that_computed_nothing_has_no_speed(run, make_examples):
    _, records = run(make_examples(24, weights=np.zeros(24)), steps=1)
    assert summary(records) == {}
    assert "tokens_per_second" not in to_line(records[1])
    assert in_words({}) == "not measured: no step computed anything"


def test_a_summary_is_of_medians_and_the_most_memory_by_hand():
    step = StepRecord(1, 1, 1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    measured = [
        replace(step, tokens_per_second=2000.0, padding=0.1, peak_memory=1_000_000_000),
        replace(step, tokens_per_second=9000.0, padding=0.3, peak_memory=5_000_000_000),
        replace(step, tokens_per_second=4000.0, padding=0.2, peak_memory=None),
    ]
    found = summary([step, *measured])
    assert found == {"tokens_per_second": 4000.0, "padding": 0.2, "peak_memory": 5_000_000_000}
    assert in_words(found) == ("4,000 tokens/s without evaluations and saving, 20% padding, at most 5.0 GB")
