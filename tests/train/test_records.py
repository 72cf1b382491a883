"""Lines of ``training.jsonl`` are JSON whatever happened, and say what was not there to measure."""

import json
import math

import numpy as np
import pytest
from accelerate import Accelerator

from dana.models.heads import SelectedLogits
from dana.train.card import model_card
from dana.train.evaluation import HeldoutLoss, measure_loss
from dana.train.layout import BatchLayout
from dana.train.plan import Plan
from dana.train.records import EvaluationRecord, StepRecord, from_line, to_line
from dana.train.settings import TrainSettings
from tests.train.conftest import held_out


def strict(line):
    """Read JSON as other languages do: NaN and Infinity are no numbers."""

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(line, parse_constant=refuse)


def test_a_step_that_learns_nothing_is_null_in_a_line_of_json(run, make_examples):
    _, records = run(make_examples(24, weights=np.zeros(24)), steps=2)
    lines = [strict(to_line(record)) for record in records]
    assert [line["plain_loss"] for line in lines if line["kind"] == "step"] == [None, None]
    assert [from_line(to_line(record)) for record in records] == records


def test_no_number_of_a_record_can_break_the_line():
    record = StepRecord(1, 10, 2, math.inf, math.nan, 1e-4, math.nan, 2.0, 0.1)
    assert strict(to_line(record)) | {"loss": None, "plain_loss": None, "grad_norm": None} == strict(to_line(record))


@pytest.mark.parametrize("tokens", [100, 118, 120, 150, 300])
def test_no_step_of_a_plan_by_tokens_is_empty(tokens):
    lengths = np.array([30, 30, 30, 30])  # 4 start before token 118, the last at 90: a step of 60 would be the third
    plan = Plan(lengths, np.arange(4, dtype=np.uint64), TrainSettings(max_tokens=30, batch_tokens=60, tokens=tokens))
    assert all(step.rows.size for step in plan)
    assert sum(int(lengths[step.rows].sum()) for step in plan) == plan.tokens >= tokens


def test_the_last_step_of_any_plan_by_tokens_has_something_to_learn(collator, make_examples, run):
    for budget in range(60, 160, 7):
        _, records = run(make_examples(), tokens=budget, batch_tokens=20)
        assert all(record.plain_loss is not None for record in records if isinstance(record, StepRecord))


def only_special(examples):
    return type(examples)(np.full_like(examples.stream, 3), *(getattr(examples, name) for name in FIELDS))


FIELDS = ("starts", "sizes", "ids", "weights", "special_tokens")


def test_text_without_a_token_to_hide_is_not_measured(tiny_model, collator, make_examples):
    found = measure_loss(
        SelectedLogits(tiny_model()), only_special(make_examples(4)), collator, BatchLayout(), Accelerator(cpu=True)
    )
    assert found == HeldoutLoss(None, None)
    assert str(found) == "nothing to measure"
    assert str(HeldoutLoss(1.25, None)) == "1.2500 nats"


def test_a_run_says_that_there_is_nothing_to_measure(tiny_model, collator, make_examples, examples, heard):
    from dana.train.loop import prepare, train

    settings = TrainSettings(steps=1, batch_size=8, max_tokens=16, evaluations=0)
    prepared = prepare(tiny_model(), settings, Accelerator(cpu=True), BatchLayout(budget=512))
    heldout = held_out(only_special(make_examples(3)), make_examples(1, 5))
    with heard.at_level("INFO", logger="dana"):
        records = list(train(prepared, examples, collator, settings, heldout))
    assert "held-out loss: task nothing to measure, general" in heard.text
    assert "0.0000" not in heard.text
    before = strict(to_line(records[0]))
    assert (before["task_loss"], before["task_loss_se"], before["general_loss_se"]) == (None, None, None)
    assert before["general_loss"] > 3
    evaluations = [record for record in records if isinstance(record, EvaluationRecord)]
    counts, notes = {"examples": 1, "steps": 1, "tokens_seen": 1}, {"effective_sample_size": 1, "epochs": 1}
    card = model_card("b", {"weighting": "w"}, settings, evaluations, counts, {**notes, "warnings": []})
    assert "| task | nothing to measure" in card
    assert "nan" not in card.lower()
