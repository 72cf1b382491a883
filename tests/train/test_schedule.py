import math

import pytest

from dana.core.errors import ConfigError
from dana.train.loop import evaluation_steps
from dana.train.schedule import SCHEDULES, rate_at
from dana.train.settings import TrainSettings


def rates(steps=10, **settings):
    chosen = TrainSettings(learning_rate=1.0, **settings)
    return [chosen.rate_at(step, steps) for step in range(steps)]


def test_linear_is_what_it_always_was():
    assert rates(warmup=0.2) == pytest.approx([0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8])


def test_every_schedule_by_hand():
    assert rates(4, warmup=0.0, schedule="cosine") == pytest.approx(
        [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2]
    )
    assert rates(4, warmup=0.25, schedule="constant") == [1, 1, 1, 1]
    assert rates(warmup=0.2, schedule="wsd", cooldown=0.4) == pytest.approx([0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25])


def test_a_cooldown_never_begins_before_the_rise_is_over():
    chosen = {"warmup_steps": 2, "schedule": "wsd", "cooldown": 1.0}
    assert rates(4, **chosen) == pytest.approx([0.5, 1, 1, 0.5])


def test_the_floor_is_where_a_rate_falls_to():
    assert rates(4, warmup=0.0, floor=0.2) == pytest.approx([1, 0.8, 0.6, 0.4])
    assert rates(warmup=0.2, schedule="wsd", cooldown=0.4, floor=0.5)[-1] == pytest.approx(0.5 + 0.5 * 0.25)
    assert rates(1000, warmup=0.0, floor=0.1, schedule="cosine")[-1] == pytest.approx(0.1, abs=1e-4)


def test_a_warmup_in_steps_is_that_many_whatever_the_length():
    assert rates(10, warmup_steps=4, schedule="constant")[:5] == rates(1000, warmup_steps=4, schedule="constant")[:5]
    assert rates(10, warmup_steps=4)[:4] == pytest.approx([0.25, 0.5, 0.75, 1])
    for schedule in SCHEDULES:
        all_rising = rates(3, warmup_steps=8, schedule=schedule)
        assert all_rising == pytest.approx([1 / 8, 2 / 8, 3 / 8]), "a run that is all warm-up"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("steps", [1, 2, 7, 100])
def test_no_step_is_taken_at_0_and_none_above_the_peak(schedule, steps):
    found = [rate_at(step, steps, 2.0, round(0.1 * steps), schedule, 0.0, 1.0) for step in range(steps)]
    assert 0 < min(found) <= max(found) <= 2
    after = found[round(0.1 * steps) :]
    assert after == sorted(after, reverse=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": "wds"}, "schedule='wds': must be one of linear, cosine, constant, wsd"),
        ({"floor": 1.5}, r"floor=1\.5: must be in \[0, 1\]"),
        ({"cooldown": 0.0}, r"cooldown=0\.0: must be in \(0, 1\]"),
        ({"warmup": 1.5}, r"warmup=1\.5: must be in \[0, 1\)"),
        ({"warmup_steps": -1}, "warmup_steps=-1: must be at least 0, or null"),
        ({"betas": [0.9]}, r"betas=\[0\.9\]: must be two numbers"),
        ({"betas": [0.9, 1.0]}, "must be two numbers in"),
        ({"eps": 0.0}, "eps=0.0: must be above 0"),
        ({"epochs": 0.0}, "epochs=0.0: must be above 0 and finite, or null"),
        ({"epochs": math.inf}, "epochs=inf: must be above 0 and finite, or null"),
        ({"learning_rate": math.inf}, "learning_rate=inf: must be above 0 and finite"),
        ({"epochs": 2.0, "steps": 5}, "steps=5: must be null when epochs is given"),
        ({"epochs": 2.0, "tokens": 5}, "tokens=5: must be null when epochs is given"),
        ({"replay": 1.0}, r"replay=1\.0: must be in \[0, 1\)"),
        ({"eval_every": 0}, "eval_every=0: must be at least 1, or null"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=message):
        TrainSettings(**settings)


def test_a_run_takes_its_schedule_betas_and_eps(run, examples):
    settings = {"schedule": "wsd", "cooldown": 0.5, "warmup_steps": 1, "learning_rate": 1e-3, "floor": 0.5}
    prepared, records = run(examples, steps=4, betas=[0.8, 0.95], eps=1e-6, **settings)
    taken = [record.lr for record in records if record.kind == "step"]
    assert taken == pytest.approx([1e-3, 1e-3, 1e-3, 0.75e-3])
    for group in prepared.optimizer.param_groups:
        assert (group["betas"], group["eps"]) == ((0.8, 0.95), 1e-6)


def test_evaluations_come_after_every_so_many_steps():
    assert sorted(evaluation_steps(TrainSettings(eval_every=4), 10)) == [0, 4, 8, 10]
    assert sorted(evaluation_steps(TrainSettings(evaluations=1), 10)) == [0, 5, 10]


def test_every_setting_but_those_of_the_execution_is_part_of_the_fingerprint():
    decisive = TrainSettings().decisive()
    assert set(decisive) == set(vars(TrainSettings())) - {"execution"}
    assert TrainSettings(schedule="wsd", replay=0.1).decisive() == decisive | {"schedule": "wsd", "replay": 0.1}
