"""Records of steps: lines of ``training.jsonl``, speed, trackers, the model card."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from accelerate import Accelerator

from dana.core.errors import ConfigError
from dana.train.card import model_card
from dana.train.layout import BatchLayout
from dana.train.loop import prepare, train
from dana.train.records import EvaluationRecord, StepRecord, from_line, speed_of, to_line
from dana.train.run import check_trackers, start_trackers, track
from dana.train.settings import AdaptSettings, Execution, TrainSettings
from tests.train.conftest import held_out

STEP = StepRecord(3, 100, 8, 1.5, 2.5, 1e-4, 0.7, 6.0, 0.25)
PAIRS = replace(STEP, other_losses={"next_sentence": 0.5})
EVALUATION = EvaluationRecord(3, 100, 1.0, 0.1, 2.0, 0.2)
LINE = (
    '{"step": 3, "tokens": 100, "examples": 8, "loss": 1.5, "plain_loss": 2.5, "lr": 0.0001, "grad_norm": 0.7, '
    '"effective_sample_size": 6.0, "seconds": 0.25, "kind": "step"}\n'
)


def strict(line):
    """Read JSON as other languages do, without NaN and Infinity."""
    return json.loads(line, parse_constant=lambda constant: pytest.fail(constant))


def test_lines_are_json_and_read_back():
    assert to_line(STEP) == LINE
    for record in (STEP, PAIRS, EVALUATION, replace(STEP, skipped=True, tokens_per_second=2.0, peak_memory=7)):
        assert from_line(to_line(record)) == record
    assert strict(to_line(PAIRS))["next_sentence_loss"] == 0.5
    assert strict(to_line(replace(STEP, skipped=True)))["skipped"] is True
    line = strict(to_line(replace(STEP, loss=math.inf, plain_loss=math.nan, grad_norm=math.nan)))
    assert (line["loss"], line["plain_loss"], line["grad_norm"]) == (None, None, None)


def test_a_run_without_weight_has_null_losses_and_no_speed(run, make_examples):
    _, records = run(make_examples(24, weights=np.zeros(24)), steps=2)
    lines = [strict(to_line(record)) for record in records]
    assert [line["plain_loss"] for line in lines if line["kind"] == "step"] == [None, None]
    assert not any("tokens_per_second" in line for line in lines)
    assert speed_of(records) == {}


def test_records_reach_the_trackers_by_group():
    logged = []
    accelerator = SimpleNamespace(log=lambda values, step: logged.append((step, values)))
    for record in (STEP, PAIRS, EVALUATION):
        track(accelerator, record)
    assert [step for step, _ in logged] == [3, 3, 3]
    assert (logged[0][1]["train/loss"], logged[2][1]["held_out/task_loss"]) == (1.5, 1.0)
    assert [values.get("train/next_sentence_loss") for _, values in logged] == [None, 0.5, None]


def test_trackers_are_checked_and_configured_with_flat_settings():
    for name in ("tensorbored", "all", "comet_ml"):
        with pytest.raises(ConfigError, match=f"trackers='{name}': .*tensorboard"):
            check_trackers([name])
    check_trackers(["tensorboard"])
    logged = {}
    accelerator = SimpleNamespace(init_trackers=lambda name, config: logged.update(config, run=name))
    start_trackers(accelerator, "adapted", AdaptSettings(seed=7))
    assert logged.items() >= {"run": "adapted", "seed": 7, "execution.layout": "auto", "head_warmup.steps": 100}.items()
    assert "tokens" not in logged, "unset"


def test_the_speed_is_that_of_steps_without_evaluations_and_saving(tiny_model, collator, examples, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("dana.train.loop.time.monotonic", lambda: now[0])
    execution = Execution(micro_batch_tokens=64)
    settings = TrainSettings(max_tokens=16, batch_size=8, steps=4, evaluations=1, execution=execution)
    state = prepare(tiny_model(), settings, Accelerator(cpu=True), BatchLayout(budget=512))

    def compute(module, *_):
        now[0] += 0.5 if module.training else 60

    state.module.register_forward_hook(compute)
    records = []
    for record in train(state, examples, collator, settings, held_out(examples, examples)):
        now[0] += 1000  # the reader of the records saves
        records.append(record)
    steps = [record for record in records if isinstance(record, StepRecord)]
    assert len(records) - len(steps) == 3
    totals = np.diff([0, *(record.tokens for record in steps)])
    rates = [record.tokens_per_second for record in steps]
    assert rates == pytest.approx(totals / 0.5)
    assert speed_of(records) == {"tokens_per_second": pytest.approx(np.median(rates))}


def test_speed_is_a_median_and_memory_a_maximum():
    pairs = [(2000.0, 1), (9000.0, 5), (4000.0, None), (None, None)]
    records = [replace(STEP, tokens_per_second=rate, peak_memory=peak) for rate, peak in pairs]
    assert speed_of(records) == {"tokens_per_second": 4000.0, "peak_memory": 5}


def test_text_without_a_token_to_mask_is_not_measured(tiny_model, collator, make_examples, examples, heard):
    settings = TrainSettings(steps=1, batch_size=8, max_tokens=16, evaluations=0)
    state = prepare(tiny_model(), settings, Accelerator(cpu=True), BatchLayout(budget=512))
    special = make_examples(3)
    heldout = held_out(replace(special, stream=np.full_like(special.stream, 3)), make_examples(1, 5))
    with heard.at_level("INFO", logger="dana"):
        records = list(train(state, examples, collator, settings, heldout))
    assert "task nothing to measure, general" in heard.text
    before = strict(to_line(records[0]))
    assert (before["task_loss"], before["task_loss_se"], before["general_loss_se"]) == (None, None, None)
    assert before["general_loss"] > 3
    evaluations = [record for record in records if isinstance(record, EvaluationRecord)]
    counts, notes = {"examples": 1, "steps": 1, "tokens_seen": 1}, {"effective_sample_size": 1, "epochs": 1}
    card = model_card("b", {"weighting": "w"}, settings, evaluations, counts, {**notes, "warnings": []})
    assert "| task | nothing to measure" in card
    assert "nan" not in card.lower()
