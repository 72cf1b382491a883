"""Records of steps: lines of ``training.jsonl``, speed, trackers, the model card."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dana.core.errors import ConfigError
from dana.train.card import model_card
from dana.train.evaluation import HeldOut
from dana.train.loop import train
from dana.train.records import (
    EvaluationRecord,
    StepRecord,
    from_line,
    speed_line,
    speed_of,
    to_line,
)
from dana.train.run import check_trackers, start_trackers, track
from dana.train.settings import AdaptSettings, PhaseSettings, TrainSettings
from tests.train.conftest import HELDOUT, MASKED, bert, new_state, random_examples, steps

STEP = StepRecord(3, 100, 8, 1.5, 2.5, 1e-4, 0.7, 6.0, 0.25)
PAIRS = replace(STEP, other_losses={"next_sentence": 0.5})
EVALUATION = EvaluationRecord(3, 100, 1.0, 0.1, 2.0, 0.2)
LINE = (
    '{"step": 3, "tokens": 100, "examples": 8, "loss": 1.5, "plain_loss": 2.5, "lr": 0.0001, "grad_norm": 0.7, '
    '"effective_sample_size": 6.0, "seconds": 0.25, "kind": "step"}\n'
)


def strict(record):
    """Reads a record's line as other languages do, without NaN and Infinity."""
    return json.loads(to_line(record), parse_constant=lambda constant: pytest.fail(constant))


def test_lines_are_json_and_read_back():
    assert to_line(STEP) == LINE
    for record in (
        STEP,
        PAIRS,
        EVALUATION,
        replace(STEP, skipped=True, tokens_per_second=2.0, peak_memory=7, passes=2, mfu=0.3),
    ):
        assert from_line(to_line(record)) == record
    assert strict(PAIRS)["next_sentence_loss"] == 0.5
    assert strict(replace(STEP, skipped=True))["skipped"] is True
    line = strict(replace(STEP, loss=math.inf, plain_loss=math.nan, grad_norm=math.nan))
    assert (line["loss"], line["plain_loss"], line["grad_norm"]) == (None, None, None)


def test_records_reach_the_trackers_by_group():
    calls = []
    accelerator = SimpleNamespace(log=lambda values, step: calls.append((step, values)))
    for record in (STEP, PAIRS, replace(EVALUATION, phase=0)):
        track(accelerator, record)
    assert [step for step, _ in calls] == [3, 3, 3]
    assert (calls[0][1]["train/loss"], calls[2][1]["held_out/target_loss"]) == (1.5, 1.0)
    assert [values.get("held_out/phase") for _, values in calls] == [None, None, 0]
    assert [values.get("train/next_sentence_loss") for _, values in calls] == [None, 0.5, None]


def test_trackers_are_checked_and_configured_with_flat_settings():
    for name in ("tensorbored", "all", "comet_ml"):
        with pytest.raises(ConfigError, match=f"trackers='{name}': .*tensorboard"):
            check_trackers([name])
    check_trackers(["tensorboard"])
    values = {}
    accelerator = SimpleNamespace(
        init_trackers=lambda name, config, init_kwargs: values.update(config, run=name)
    )
    start_trackers(
        accelerator, "adapted", AdaptSettings(seed=7, phases=[PhaseSettings(5, {"task": 1.0})])
    )
    assert (
        values.items()
        >= {
            "run": "adapted",
            "seed": 7,
            "execution.layout": "auto",
            "head_warmup.steps": 1000,
            "head_warmup.margin": 0.3,
        }.items()
    )
    assert (values["tokens"], values["phases.0.tokens"]) == (5, 5)
    assert "steps" not in values, "unset"


def test_the_speed_is_that_of_steps_without_evaluations_and_saving(examples, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("dana.train.loop.time.monotonic", lambda: now[0])
    settings = TrainSettings(max_tokens=16, batch_size=8, steps=4, evaluations=1)
    state = new_state(bert(), settings)

    def compute(module, *_):
        now[0] += 0.5 if module.training else 60

    state.module.register_forward_hook(compute)
    records = []
    for record in train(
        state,
        examples,
        [MASKED],
        settings,
        HeldOut({"target": examples, "pool": examples}, HELDOUT),
    ):
        now[0] += 1000  # the reader of the records saves
        records.append(record)
    assert len(records) - len(steps(records)) == 3
    totals = np.diff([0, *(record.tokens for record in steps(records))])
    rates = [record.tokens_per_second for record in steps(records)]
    assert rates == pytest.approx(totals / 0.5)
    speed = speed_of(records)
    assert speed == {
        "tokens_per_second": pytest.approx(np.median(rates)),
        "passes": 1,
        "waiting": 0,
    }
    line = "16 tokens/s without evaluations and saving, 1 pass(es) a step, 0% of the time waiting"
    assert speed_line(speed | {"tokens_per_second": 16.3}).startswith(line)
    pairs = [(2000.0, 1), (9000.0, 5), (4000.0, None), (None, None)]
    records = [replace(STEP, tokens_per_second=rate, peak_memory=peak) for rate, peak in pairs]
    assert speed_of(records) == {"tokens_per_second": 4000.0, "peak_memory": 5}
    on_a_gpu = {"tokens_per_second": 4e6, "peak_memory": 2.04e9, "mfu": 0.412}
    assert speed_line(on_a_gpu) == (
        "4,000,000 tokens/s without evaluations and saving, at most 2.0 GB, 41.2% of the GPU's peak"
    )
    assert speed_line({}) == "not measured: no step computed anything"


def test_without_a_token_to_mask_or_a_weight_there_is_nothing_to_measure(heard):
    settings = TrainSettings(steps=1, batch_size=8, max_tokens=16, evaluations=0)
    special = random_examples(3)
    texts = {
        "target": replace(special, stream=np.full_like(special.stream, 3)),
        "pool": random_examples(1, 5),
    }
    examples = random_examples(weights=np.zeros(24))
    with heard.at_level("INFO", logger="dana"):
        records = list(
            train(
                new_state(bert(), settings), examples, [MASKED], settings, HeldOut(texts, HELDOUT)
            )
        )
    assert "target nothing to measure, pool" in heard.text
    before, step, _ = map(strict, records)
    assert (before["target_loss"], before["target_loss_se"], before["pool_loss_se"]) == (
        None,
        None,
        None,
    )
    assert before["pool_loss"] > 3
    assert step["plain_loss"] is None
    assert "tokens_per_second" not in step
    assert speed_of(records) == {}
    counts, notes = (
        {"examples": 1, "steps": 1, "tokens_seen": 1},
        {"effective_sample_size": 1, "epochs": 1},
    )
    card = model_card(
        "b", {"weighting": "w"}, settings, records[::2], counts, {**notes, "warnings": []}
    )
    assert "| target | nothing to measure" in card
    assert "nan" not in card.lower()
