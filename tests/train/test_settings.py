"""Settings of a run: ranges, schedules of the learning rate, extension, fingerprint."""

import math
import re

import pytest

from dana.core.config import load
from dana.core.errors import ConfigError
from dana.stages.settings import RunSettings
from dana.train.loop import evaluation_steps
from dana.train.schedule import SCHEDULES, learning_rate_at, rate_at
from dana.train.settings import AdaptSettings, Execution, TrainSettings
from tests.train.conftest import run, steps

EDGES = """
steps=1 tokens=1 epochs=1e-9 batch_size=1 batch_tokens=256 max_tokens=3 max_tokens=8192 learning_rate=1e-12
warmup=0.0 warmup=0.999 warmup_steps=0 schedule=wsd schedule=cosine schedule=constant floor=0.0 floor=1.0
cooldown=1e-9 cooldown=1.0 weight_decay=0.0 betas=[0.0,0.999] eps=1e-30 clip=1e-9 replay=0.0 replay=0.999
denominator=token_count evaluations=0 eval_every=1 evaluation_tokens=1 final=best dropout=0.0 dropout=0.999
objective=masked:mask_rate=1e-9 objective=masked:mask_rate=0.999 execution.layout=padded execution.layout=unpadded
execution.micro_batch_tokens=256 execution.resume=never execution.save_every=0 execution.export_every=0
head_warmup.steps=0 head_warmup.batch_size=1 head_warmup.learning_rate=1e-12
"""
BEYOND = """
steps=0 tokens=0 epochs=0.0 epochs=-1.0 batch_size=0 batch_tokens=255 max_tokens=2 max_tokens=8193 learning_rate=0.0
warmup=-1e-9 warmup=1.0 warmup_steps=-1 schedule=wds floor=-1e-9 floor=1.000000001 cooldown=0.0 cooldown=1.000000001
weight_decay=-1e-9 betas=[0.9] betas=[0.9,0.9,0.9] betas=[-1e-9,0.9] betas=[0.9,1.0] eps=0.0 clip=0.0 replay=-1e-9
replay=1.0 denominator=mean evaluations=-1 eval_every=0 evaluation_tokens=0 final=first dropout=-1e-9 dropout=1.0
objective=masked:mask_rate=0.0 objective=masked:mask_rate=1.0 execution.layout=loose execution.micro_batch_tokens=0
execution.resume=always execution.save_every=-1 execution.export_every=-1 head_warmup.steps=-1
head_warmup.batch_size=0 head_warmup.learning_rate=0.0
"""


@pytest.mark.parametrize("setting", EDGES.split())
def test_a_setting_may_have_the_edge_of_its_range(setting):
    load(RunSettings, {}, [f"adapt.{setting}"])


@pytest.mark.parametrize("setting", BEYOND.split())
def test_a_setting_beyond_its_range_is_refused_by_its_key(setting):
    key = re.split(r"[.=:]", setting.rpartition("=")[0])[-1]
    with pytest.raises(ConfigError, match=f"{key}="):
        load(RunSettings, {}, [f"adapt.{setting}"])


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"steps": 5, "tokens": 5}, "steps=5: .* tokens"),
        ({"epochs": 2.0, "steps": 5}, "steps=5: .* epochs"),
        ({"epochs": 2.0, "tokens": 5}, "tokens=5: .* epochs"),
        ({"epochs": math.inf}, "epochs=inf"),
        ({"learning_rate": math.inf}, "learning_rate=inf"),
        ({"execution": Execution(micro_batch_tokens=100)}, "micro_batch_tokens=100: .*max_tokens=256"),
        ({"objective": "next_sentence", "execution": Execution(layout="unpadded")}, "layout='unpadded': .*next_sent"),
    ],
)
def test_settings_that_contradict_each_other_or_never_end_are_refused(settings, key):
    with pytest.raises(ConfigError, match=key):
        TrainSettings(**settings)


@pytest.mark.parametrize(
    ("valid", "invalid"),
    [
        ({"schedule": "wsd", "warmup_steps": 0}, {"schedule": "linear", "warmup_steps": 0}),
        ({"schedule": "constant", "warmup": 0.0}, {"schedule": "constant", "warmup": 0.01}),
        ({"schedule": "constant", "warmup_steps": 5}, {"schedule": "cosine", "warmup_steps": 5}),
    ],
)
def test_an_extendable_run_does_not_depend_on_its_length(valid, invalid):
    for execution in (Execution(extendable=True), Execution(extend="model")):
        TrainSettings(**valid, execution=execution)
        with pytest.raises(ConfigError, match="with exten"):
            TrainSettings(**invalid, execution=execution)
    TrainSettings(**invalid)
    TrainSettings(**valid, final="best", execution=Execution(extendable=True))
    with pytest.raises(ConfigError, match=r"final='best': .* extend"):
        TrainSettings(**valid, final="best", execution=Execution(extend="model"))


def test_steps_shared_with_longer_runs_and_those_of_evaluations_by_hand():
    wsd = TrainSettings(schedule="wsd", warmup_steps=2, cooldown=0.2)
    assert wsd.shared_steps(10) == 8, "the last fifth decays"
    assert TrainSettings(schedule="constant", warmup_steps=2).shared_steps(10) == 9, "the last may be smaller"
    assert sorted(evaluation_steps(TrainSettings(eval_every=4), 10)) == [0, 4, 8, 10]
    assert sorted(evaluation_steps(TrainSettings(evaluations=1), 10)) == [0, 5, 10]


def test_the_fingerprint_has_every_setting_but_those_of_the_execution():
    decisive = TrainSettings().decisive()
    assert set(decisive) == set(vars(TrainSettings())) - {"execution"}
    assert decisive == TrainSettings(execution=Execution(layout="padded")).decisive()
    for change in ({"schedule": "wsd"}, {"replay": 0.1}, {"weight_decay": 0.0}):
        assert TrainSettings(**change).decisive() == decisive | change
    assert AdaptSettings(dropout=0.0).decisive() == AdaptSettings().decisive() | {"dropout": 0.0}


LINEAR = {"warmup": 0.2}
WSD = {"warmup": 0.2, "schedule": "wsd", "cooldown": 0.4}


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        (LINEAR, [0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]),
        ({"warmup": 0.0, "schedule": "cosine"}, [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2]),
        ({"warmup": 0.25, "schedule": "constant"}, [1, 1, 1, 1]),
        (WSD, [0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25]),
        ({**WSD, "floor": 0.5}, [0.5, 1, 1, 1, 1, 1, 1, 0.875, 0.75, 0.625]),
        ({"warmup_steps": 2, "schedule": "wsd", "cooldown": 1.0}, [0.5, 1, 1, 0.5]),
        ({"warmup": 0.0, "floor": 0.2}, [1, 0.8, 0.6, 0.4]),
        *(({"warmup_steps": 8, "schedule": schedule}, [1 / 8, 2 / 8, 3 / 8]) for schedule in SCHEDULES),
    ],
)
def test_rates_by_hand(settings, rates):
    training, steps = TrainSettings(learning_rate=1.0, **settings), len(rates)
    assert [training.rate_at(step, steps) for step in range(steps)] == pytest.approx(rates)
    if settings is LINEAR:
        assert [learning_rate_at(step, steps, 1.0, 0.2) for step in range(steps)] == pytest.approx(rates)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("steps", [1, 2, 7, 100])
def test_rates_are_above_0_fall_after_the_warmup_and_reach_the_floor(schedule, steps):
    warmup = round(0.1 * steps)
    values = [rate_at(step, steps, 2.0, warmup, schedule, 0.0, 1.0) for step in range(steps)]
    assert 0 < min(values) <= max(values) <= 2
    assert values[warmup:] == sorted(values[warmup:], reverse=True)
    if schedule != "constant":
        assert rate_at(999, 1000, 2.0, 0, schedule, 0.1) == pytest.approx(0.2, abs=1e-2)


def test_a_run_uses_its_schedule_betas_and_eps(examples):
    settings = {"schedule": "wsd", "cooldown": 0.5, "warmup_steps": 1, "learning_rate": 1e-3, "floor": 0.5}
    state, records = run(examples, steps=4, betas=[0.8, 0.95], eps=1e-6, **settings)
    assert [record.lr for record in steps(records)] == pytest.approx([1e-3, 1e-3, 1e-3, 0.75e-3])
    assert {(group["betas"], group["eps"]) for group in state.optimizer.param_groups} == {((0.8, 0.95), 1e-6)}
