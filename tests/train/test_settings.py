"""Settings of a run: ranges, schedules of the learning rate, extension, fingerprint."""

import math

import pytest

from dana.core.errors import ConfigError
from dana.train import LAYOUTS
from dana.train.loop import evaluation_steps
from dana.train.objectives.masked import MaskedTokens
from dana.train.schedule import SCHEDULES, learning_rate_at, rate_at
from dana.train.settings import AdaptSettings, Execution, HeadWarmup, TrainSettings
from tests.train.conftest import run, steps

EDGES = [
    (TrainSettings, "steps", [1, None], [0]),
    (TrainSettings, "tokens", [1, None], [0]),
    (TrainSettings, "epochs", [1e-9, None], [0.0, -1.0, math.inf]),
    (TrainSettings, "batch_size", [1], [0]),
    (TrainSettings, "batch_tokens", [256, None], [255]),
    (TrainSettings, "max_tokens", [3, 8192], [2, 8193]),
    (TrainSettings, "learning_rate", [1e-12], [0.0, math.inf]),
    (TrainSettings, "warmup", [0.0, 0.999], [-1e-9, 1.0]),
    (TrainSettings, "warmup_steps", [0, None], [-1]),
    (TrainSettings, "schedule", SCHEDULES, ["wds"]),
    (TrainSettings, "floor", [0.0, 1.0], [-1e-9, 1 + 1e-9]),
    (TrainSettings, "cooldown", [1e-9, 1.0], [0.0, 1 + 1e-9]),
    (TrainSettings, "weight_decay", [0.0], [-1e-9]),
    (TrainSettings, "betas", [[0.0, 0.999]], [[0.9], [0.9, 0.9, 0.9], [-1e-9, 0.9], [0.9, 1.0]]),
    (TrainSettings, "eps", [1e-30], [0.0]),
    (TrainSettings, "clip", [1e-9], [0.0]),
    (MaskedTokens, "mask_rate", [1e-9, 0.999], [0.0, 1.0, 1.5]),
    (TrainSettings, "replay", [0.0, 0.999], [-1e-9, 1.0, 1.5]),
    (TrainSettings, "denominator", ["token_count"], ["mean"]),
    (TrainSettings, "evaluations", [0], [-1]),
    (TrainSettings, "eval_every", [1, None], [0]),
    (TrainSettings, "evaluation_tokens", [1], [0]),
    (TrainSettings, "final", ["best"], ["first"]),
    (AdaptSettings, "dropout", [0.0, None], [-1e-9, 1.0]),
    (Execution, "micro_batch_tokens", [1], [0]),
    (Execution, "layout", ["auto", *LAYOUTS], ["loose"]),
    (Execution, "resume", ["never"], ["always"]),
    (Execution, "save_every", [0], [-1]),
    (Execution, "export_every", [0], [-1]),
    (HeadWarmup, "steps", [0], [-1]),
    (HeadWarmup, "batch_size", [1], [0]),
    (HeadWarmup, "learning_rate", [1e-12], [0.0]),
]


@pytest.mark.parametrize(("kind", "key", "valid", "invalid"), EDGES, ids=lambda value: str(value)[:20])
def test_a_setting_has_its_range(kind, key, valid, invalid):
    for value in valid:
        assert getattr(kind(**{key: value}), key) == value
    for value in invalid:
        with pytest.raises(ConfigError, match=f"{key}="):
            kind(**{key: value})


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"steps": 5, "tokens": 5}, "steps=5: .* tokens"),
        ({"epochs": 2.0, "steps": 5}, "steps=5: .* epochs"),
        ({"epochs": 2.0, "tokens": 5}, "tokens=5: .* epochs"),
        ({"execution": Execution(micro_batch_tokens=100)}, "micro_batch_tokens=100: .*max_tokens=256"),
        ({"objective": "next_sentence", "execution": Execution(layout="unpadded")}, "layout='unpadded': .*next_sent"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, key):
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
