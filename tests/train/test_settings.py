"""Settings of a run: ranges, schedules of the learning rate, extension, fingerprint; the examples of each step."""

import json
import math
import re
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from dana.core.errors import ConfigError
from dana.core.settings import load
from dana.stages.settings import RunSettings
from dana.train.examples import Examples, SpecialTokens
from dana.train.loop import evaluation_steps
from dana.train.plan import Phase, Plan, epoch_order
from dana.train.schedule import SCHEDULES, learning_rate_at, rate_at
from dana.train.settings import AdaptSettings, Execution, TrainSettings
from tests.train.conftest import run, steps

EDGES = """
steps=1 tokens=1 epochs=1e-9 batch_size=1 batch_tokens=256 max_tokens=3 max_tokens=8192 learning_rate=1e-12
warmup=0.0 warmup=0.999 warmup_steps=0 schedule=wsd schedule=cosine schedule=constant floor=0.0 floor=1.0
cooldown=1e-9 cooldown=1.0 weight_decay=0.0 betas=[0.0,0.999] eps=1e-30 clip=1e-9
denominator=token_count evaluations=0 eval_every=1 evaluation_tokens=1 final=best dropout=0.0 dropout=0.999
objective=masked:mask_rate=1e-9 objective=masked:mask_rate=0.999 execution.layout=padded execution.layout=unpadded
execution.micro_batch_tokens=256 execution.resume=never execution.save_every=0 execution.export_every=0
head_warmup.steps=0 head_warmup.batch_size=1 head_warmup.learning_rate=1e-12
"""
BEYOND = """
steps=0 steps=2000000000000000 tokens=0 epochs=0.0 epochs=1e7 epochs=-1.0 batch_tokens=255 max_tokens=2
learning_rate=0.0 batch_size=0 batch_size=2000000000000000 warmup=-1e-9 warmup=1.0 warmup_steps=-1 schedule=wds
floor=-1e-9 floor=1.000000001 cooldown=0.0 cooldown=1.000000001 weight_decay=-1e-9 betas=[0.9] betas=[0.9,0.9,0.9]
betas=[-1e-9,0.9] betas=[0.9,1.0] eps=0.0 clip=0.0 denominator=mean evaluations=-1 eval_every=0
evaluation_tokens=0 final=first dropout=-1e-9 dropout=1.0 objective=masked:mask_rate=0.0 objective=masked:mask_rate=1.0
execution.layout=loose execution.micro_batch_tokens=0 execution.resume=always execution.save_every=-1
execution.export_every=-1 head_warmup.steps=-1 head_warmup.batch_size=0 head_warmup.learning_rate=0.0
"""


@pytest.mark.parametrize("setting", EDGES.split())
def test_a_setting_may_have_the_edge_of_its_range(setting):
    load(RunSettings, {}, [f"adapt.{setting}"])


@pytest.mark.parametrize("setting", BEYOND.split())
def test_a_setting_beyond_its_range_is_refused_by_its_key(setting):
    key = re.split(r"[.=:]", setting.rpartition("=")[0])[-1]
    whole = setting.partition("=")[0] if setting.count("=") == 1 else ""
    with pytest.raises(ConfigError, match=f"adapt.{whole}=" if whole else f"{key}="):
        load(RunSettings, {}, [f"adapt.{setting}"])


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"steps": 5, "tokens": 5}, "steps=5: .* tokens"),
        ({"epochs": 2.0, "steps": 5}, "steps=5: .* epochs"),
        ({"epochs": 2.0, "tokens": 5}, "tokens=5: .* epochs"),
        ({"epochs": math.inf}, "epochs=inf"),
        ({"learning_rate": math.inf}, "learning_rate=inf"),
        (
            {"execution": Execution(micro_batch_tokens=100)},
            "micro_batch_tokens=100: .*max_tokens=256",
        ),
        (
            {"objective": "next_sentence", "execution": Execution(layout="unpadded")},
            "layout='unpadded': .*next_sent",
        ),
    ],
)
def test_settings_that_contradict_each_other_or_never_end_are_refused(settings, key):
    with pytest.raises(ConfigError, match=key):
        TrainSettings(**settings)


def test_the_steps_of_evaluations_by_hand():
    assert sorted(evaluation_steps(TrainSettings(eval_every=4), 10)) == [0, 4, 8, 10]
    assert sorted(evaluation_steps(TrainSettings(evaluations=1), 10)) == [0, 5, 10]


def test_the_fingerprint_has_every_setting_but_those_of_the_execution():
    decisive = TrainSettings().decisive()
    assert set(decisive) == set(vars(TrainSettings())) - {"execution"}
    assert decisive == TrainSettings(execution=Execution(layout="padded")).decisive()
    for change in ({"schedule": "wsd"}, {"clip": 0.5}, {"weight_decay": 0.0}):
        assert TrainSettings(**change).decisive() == decisive | change
    assert AdaptSettings(
        dropout=0.0, mix={"task": 1.0}
    ).decisive() == AdaptSettings().decisive() | {"dropout": 0.0}


LINEAR = {"warmup": 0.2}
WSD = {"warmup": 0.2, "schedule": "wsd", "cooldown": 0.4}


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        (LINEAR, [0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]),
        (
            {"warmup": 0.0, "schedule": "cosine"},
            [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2],
        ),
        ({"warmup": 0.0, "schedule": "1-sqrt"}, [1, 0.5, 1 - math.sqrt(0.5), 1 - math.sqrt(0.75)]),
        ({"warmup": 0.25, "schedule": "constant"}, [1, 1, 1, 1]),
        (
            {"warmup_steps": 2, "schedule": "inverse-sqrt"},
            [0.5, 1, math.sqrt(2 / 3), math.sqrt(0.5), math.sqrt(0.4)],
        ),
        (
            {"warmup_steps": 0, "schedule": "inverse-sqrt", "floor": 0.5},
            [1, 0.5 + math.sqrt(0.125)],
        ),
        (WSD, [0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25]),
        ({**WSD, "floor": 0.5}, [0.5, 1, 1, 1, 1, 1, 1, 0.875, 0.75, 0.625]),
        ({"warmup_steps": 2, "schedule": "wsd", "cooldown": 1.0}, [0.5, 1, 1, 0.5]),
        ({"warmup": 0.0, "floor": 0.2}, [1, 0.8, 0.6, 0.4]),
        *(
            ({"warmup_steps": 8, "schedule": schedule}, [1 / 8, 2 / 8, 3 / 8])
            for schedule in SCHEDULES
        ),
    ],
)
def test_rates_by_hand(settings, rates):
    training, steps = TrainSettings(learning_rate=1.0, **settings), len(rates)
    assert [training.rate_at(step, steps) for step in range(steps)] == pytest.approx(rates)
    if settings is LINEAR:
        assert [learning_rate_at(step, steps, 1.0, 0.2) for step in range(steps)] == pytest.approx(
            rates
        )


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("steps", [1, 2, 7, 100])
def test_rates_are_above_0_fall_after_the_warmup_and_reach_the_baseline(schedule, steps):
    warmup = round(0.1 * steps)
    values = [rate_at(step, steps, 2.0, warmup, schedule, 0.0, 1.0) for step in range(steps)]
    assert 0 < min(values) <= max(values) <= 2
    assert values[warmup:] == sorted(values[warmup:], reverse=True)
    if schedule not in ("constant", "inverse-sqrt"):
        assert rate_at(999, 1000, 2.0, 0, schedule, 0.1) == pytest.approx(0.2, abs=1e-2)


def test_a_run_uses_its_schedule_betas_and_eps(examples):
    settings = {
        "schedule": "wsd",
        "cooldown": 0.5,
        "warmup_steps": 1,
        "learning_rate": 1e-3,
        "floor": 0.5,
    }
    state, records = run(examples, steps=4, betas=[0.8, 0.95], eps=1e-6, **settings)
    assert [record.lr for record in steps(records)] == pytest.approx([1e-3, 1e-3, 1e-3, 0.75e-3])
    assert {(group["betas"], group["eps"]) for group in state.optimizer.param_groups} == {
        ((0.8, 0.95), 1e-6)
    }


GENERATOR = np.random.default_rng(0)
LENGTHS = GENERATOR.integers(3, 20, 37)
IDS = GENERATOR.integers(0, 2**63, 37).astype(np.uint64)
FRAME = SpecialTokens(np.array([1]), np.array([2]))


def windows(lengths, ids):
    """Examples of so many tokens each, special ones included."""
    sizes = np.asarray(lengths) - FRAME.size
    starts = np.cumsum(sizes) - sizes
    return Examples(np.zeros(sizes.sum(), int), starts, sizes, ids, np.ones(sizes.size), FRAME)


SELECTED, POOL = 12, 25  # the parts of a mixture

by_size = pytest.mark.parametrize("size", [{"batch_size": 8}, {"batch_tokens": 50}])


def plan(share=None, **settings):
    parts = () if share is None else ((SELECTED, 1 - Fraction(share)), (POOL, Fraction(share)))
    return Phase(windows(LENGTHS, IDS), TrainSettings(max_tokens=20, **settings), parts)


def stream(steps):
    return [
        (int(epoch), int(row))
        for step in steps
        for epoch, row in zip(step.epochs, step.rows, strict=True)
    ]


def test_the_default_is_one_epoch():
    steps = list(plan(batch_size=8))
    assert [step.rows.size for step in steps] == [8, 8, 8, 8, 5]
    assert sorted(row for _, row in stream(steps)) == list(range(37))
    with pytest.raises(IndexError):
        plan(steps=3)[3]


def test_epochs_follow_each_other_each_in_its_own_order():
    orders = [epoch_order(IDS, 0, epoch).tolist() for epoch in range(3)]
    rows = [(epoch, row) for epoch, order in enumerate(orders) for row in order]
    assert stream(plan(batch_size=8, steps=10)) == rows[:80]
    assert orders[0] != orders[1]
    assert orders[0] != epoch_order(IDS, 1, 0).tolist(), "the order depends on the seed"
    assert [row for _, row in stream(plan(steps=4, batch_size=8, seed=1))] == epoch_order(
        IDS, 1, 0
    )[:32].tolist()
    assert stream(Phase(windows([5], IDS[:1]), TrainSettings(steps=3, batch_size=2))) == [
        (at, 0) for at in range(6)
    ]
    subset = np.array([30, 2, 17, 5, 9, 11])
    part = IDS[subset][epoch_order(IDS[subset], 4, 1)]
    both = [key for key in IDS[epoch_order(IDS, 4, 1)] if key in set(part)]
    assert both == part.tolist(), "common examples have the same order in two arms"


@by_size
@pytest.mark.parametrize("share", [None, "0.3"])
def test_a_token_budget_is_met_to_within_one_example(size, share):
    for tokens in (60, 300, 1000):
        steps = plan(share, tokens=tokens, **size)
        total = sum(int(LENGTHS[step.rows].sum()) for step in steps)
        assert tokens <= total < tokens + LENGTHS.max()
        assert steps.tokens == total


@pytest.mark.parametrize("tokens", [100, 118, 120, 150, 300])
def test_no_step_of_a_token_budget_is_empty(tokens):
    lengths = np.array(
        [30, 30, 30, 30]
    )  # 4 start before token 118, the last at 90: a step of 60 would be the third
    steps = Phase(
        windows(lengths, np.arange(4, dtype=np.uint64)),
        TrainSettings(max_tokens=30, batch_tokens=60, tokens=tokens),
    )
    assert all(step.rows.size for step in steps)
    assert sum(int(lengths[step.rows].sum()) for step in steps) == steps.tokens >= tokens


def test_steps_of_equal_tokens_differ_by_at_most_one_example():
    sizes = [int(LENGTHS[step.rows].sum()) for step in plan(batch_tokens=50, steps=30)]
    assert all(50 - LENGTHS.max() < size < 50 + LENGTHS.max() for size in sizes)
    assert sum(sizes) == pytest.approx(30 * 50, abs=int(LENGTHS.max()))


def test_epochs_are_passes_over_the_selected_examples():
    for epochs, count in ((1, 37), (3, 111), (0.5, 18), (0.7, 26), (2.5, 92)):
        steps = plan(batch_size=8, epochs=float(epochs))
        assert len(stream(steps)) == count
        assert steps.epochs == pytest.approx(epochs, abs=0.02)
    assert plan(batch_size=8, steps=37).epochs == 8
    assert len(stream(plan(batch_size=8, epochs=1e-9))) == 1
    assert len(stream(plan(batch_tokens=50, epochs=2.0))) == 74
    mixture = plan("0.25", epochs=2.0, batch_size=8)
    assert sum(row < SELECTED for _, row in stream(mixture)) == 24
    assert mixture.epochs == 2
    assert plan("0.999999", epochs=1 / 20).epochs >= 1 / 20


@by_size
@pytest.mark.parametrize("share", ["0.1", "0.25", "0.5", "0.9"])
def test_a_part_has_its_share_of_every_step_and_of_every_beginning(share, size):
    examples = of_part = 0
    steps = list(plan(share, steps=40, **size))
    for step in steps:
        count = int((step.rows >= SELECTED).sum())
        assert abs(count - float(share) * step.rows.size) < 1
        examples, of_part = examples + step.rows.size, of_part + count
        assert of_part == int(Fraction(share) * examples)
    fresh = plan(share, steps=40, **size)
    for index in (17, 3, 39, 0):  # any step can be computed alone
        np.testing.assert_array_equal(fresh[index].rows, steps[index].rows)
        np.testing.assert_array_equal(fresh[index].epochs, steps[index].epochs)


def test_every_part_of_three_has_its_share_of_every_beginning():
    parts = ((5, Fraction(1, 2)), (7, Fraction(1, 5)), (25, Fraction(3, 10)))
    rows = [
        row
        for _, row in stream(
            Phase(
                windows(LENGTHS, IDS), TrainSettings(steps=30, batch_size=8, max_tokens=20), parts
            )
        )
    ]
    for first, end, share in ((0, 5, 0.5), (5, 12, 0.2), (12, 37, 0.3)):
        count = np.cumsum([first <= row < end for row in rows])
        assert np.abs(count - share * np.arange(1, 241)).max() < 2


def test_the_parts_of_a_mixture_have_their_shares_of_the_tokens_of_text_and_keep_their_text():
    parts = {}
    for name, token, count, size in (
        ("selected", 7, 90, 10),
        ("task", 8, 15, 40),
        ("pool", 9, 300, 3),
    ):
        text, starts, ids = (
            np.full(900, token),
            np.arange(count) * size,
            np.arange(count, dtype=np.uint64),
        )
        parts[name] = Examples(text, starts, np.full(count, size), ids, np.ones(count), FRAME)
    examples = Examples.mixture(parts, {"selected": 0.5, "task": 0.3, "pool": 0.2})
    assert Examples.mixture({"task": parts["task"]}, {"task": 1.0}) is parts["task"]
    assert examples.first_part.ids.tolist() == parts["selected"].ids.tolist()
    plan = Plan.from_settings(examples, TrainSettings(tokens=30_000, batch_size=64, max_tokens=64))
    tokens = sum(np.bincount(examples.take(step.rows).tokens, minlength=10) for step in plan)
    assert tokens[7:] / tokens[7:].sum() == pytest.approx([0.5, 0.3, 0.2], abs=0.005)


TWO = {"phases": [{"tokens": 4}, {"tokens": 6}]}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"phases": [{"tokens": 4}, {"mix": {"taks": 1}, "tokens": 4}]},
            r"adapt\.phases\[1\]\.mix=.*shares above 0 of",
        ),
        ({"phases": [{"tokens": 0}]}, r"adapt\.phases\[0\]\.tokens=0: must be from 1 to"),
        ({"phases": [{"tokens": 1.5}]}, r"adapt\.phases\[0\]\.tokens=1\.5: must be a whole number"),
        ({"phases": [{"tokens": 4}, {}]}, r"the key 'adapt\.phases\[1\]\.tokens' is missing"),
        (
            {"phases": [{"tokens": 4, "mask_rate": 1.0}]},
            r"adapt\.phases\[0\]\.mask_rate=1\.0: must be in \(0, 1\)",
        ),
        (
            {"phases": [{"tokens": 4, "learning_rate": 0}]},
            r"adapt\.phases\[0\]\.learning_rate=0: must be above 0",
        ),
        (
            {"phases": [{"tokens": 4, "schedule": "sqrt"}]},
            r"adapt\.phases\[0\]\.schedule='sqrt': .*linear, cosine, 1-",
        ),
        (
            {"phases": [{"tokens": 4, "optimizer": "new"}]},
            r"adapt\.phases\[0\]\.optimizer='new': .*carry, reset",
        ),
        ({"phases": [{"tokens": 4, "rate": 1}]}, r"unknown key 'adapt\.phases\[0\]\.rate'"),
        ({"phases": [4]}, r"adapt\.phases\[0\]=4: must be a mapping"),
        ({"phases": None}, r"adapt\.phases=null: must be a list"),
        ({**TWO, "tokens": 9}, r"adapt\.tokens=9: must be null, or the 10 of all phases"),
        ({**TWO, "steps": 9}, r"adapt\.steps=9: must be null with phases"),
        ({**TWO, "epochs": 9}, r"adapt\.epochs=9\.0: must be null with phases"),
    ],
)
def test_a_wrong_phase_is_named_by_its_key(settings, message):
    settings = {"schedule": "constant", "warmup": 0.0, **settings}
    with pytest.raises(ConfigError, match=message):
        load(RunSettings, {"adapt": settings})
    with pytest.raises(ConfigError, match=message):
        load(
            RunSettings, {}, [f"adapt.{key}={json.dumps(value)}" for key, value in settings.items()]
        )


def test_a_phase_is_the_run_with_its_own_settings(monkeypatch):
    phases = [
        {"tokens": 30, "mix": {"selected": 1.0}, "mask_rate": 0.3},
        {"tokens": 10, "learning_rate": 1e-5, "schedule": "1-sqrt"},
        {"tokens": 40, "mix": {"selected": 0.5, "pool": 0.5}, "optimizer": "reset"},
    ]
    usual = {
        "objective": "masked:mask_rate=0.2,whole_word=true",
        "warmup_steps": 2,
        "mix": {"task": 1.0},
    }
    settings = load(AdaptSettings, {**usual, "phases": phases})
    one = load(AdaptSettings, usual)
    of_phases = [
        {
            "tokens": 30,
            "mix": {"selected": 1.0},
            "objective": "masked:whole_word=true,mask_rate=0.3",
        },
        {
            "tokens": 10,
            "learning_rate": 1e-5,
            "schedule": "1-sqrt",
            "warmup": 0.0,
            "warmup_steps": None,
        },
        {"tokens": 40, "mix": {"selected": 0.5, "pool": 0.5}},
    ]
    assert settings.by_phase() == [replace(one, **changes) for changes in of_phases]
    assert (settings.tokens, one.by_phase(), one.total_mix) == (80, [one], {"task": 1.0})
    assert settings.total_mix == {"selected": 50 / 80, "task": 10 / 80, "pool": 20 / 80}
    assert [phase.tokens for phase in settings.without_first(35).phases] == [5, 40]
    assert settings.without_first(35).tokens == 45
    assert load(AdaptSettings, {**usual, "tokens": 80, "phases": phases}) == settings, (
        "the sum may be given"
    )
    assert "phases" not in one.decisive(), "the models of before have the same fingerprint"
    changes = [
        {"tokens": 31},
        {"mix": {"task": 1.0}},
        {"mask_rate": 0.4},
        {"schedule": "wsd"},
        {"optimizer": "reset"},
    ]
    others = [
        load(AdaptSettings, {**usual, "phases": [{**phases[0], **change}, *phases[1:]]})
        for change in changes
    ]
    assert len({json.dumps(other.decisive()) for other in (settings, *others)}) == 6
    monkeypatch.setattr(
        AdaptSettings, "make_objective", lambda settings: SimpleNamespace(layouts=["padded"])
    )
    with pytest.raises(
        ConfigError,
        match=r"phases\[0\]\.mask_rate=0.3: must be null: objective=masked:.* has no mask rate",
    ):
        replace(settings)


def test_a_phase_reads_each_text_on_from_where_it_stopped():
    text = Examples(np.zeros(400), np.cumsum(LENGTHS), LENGTHS - 2, IDS, np.ones(37), FRAME)
    parts = {
        "selected": text.rows(np.arange(SELECTED)),
        "pool": text.rows(np.arange(SELECTED, 37)),
    }
    mixes = [{"selected": 1.0}, {"pool": 1.0}, {"selected": 0.5, "pool": 0.5}]
    phases = [
        {"tokens": size, "mix": mix} for size, mix in zip((200, 300, 900), mixes, strict=True)
    ]
    settings = load(AdaptSettings, {"phases": phases, "batch_size": 8, "max_tokens": 20})
    settings = settings.for_width(256)
    examples = Examples.mixture(parts, *mixes)
    plan = Plan.from_settings(examples, settings)
    assert plan.phase_bounds[-1] == len(plan) == sum(map(len, plan.phases))
    rows = stream(plan)
    ends = np.cumsum([len(stream(phase)) for phase in plan.phases])
    assert {row < SELECTED for _, row in rows[: ends[0]]} == {True}
    assert {row < SELECTED for _, row in rows[ends[0] : ends[1]]} == {False}
    lengths = (
        (examples.lengths[:SELECTED], IDS[:SELECTED]),
        (examples.lengths[SELECTED:], IDS[SELECTED:]),
    )
    for (size, ids), first in zip(lengths, (0, SELECTED), strict=True):
        own = [(epoch, row - first) for epoch, row in rows if (row < SELECTED) == (first == 0)]
        assert (
            own
            == stream(
                Phase(windows(size, ids), TrainSettings(steps=99, batch_size=8, max_tokens=20))
            )[: len(own)]
        )
    for phase, wanted in zip(plan.phases, (200, 300, 900), strict=True):
        tokens = [int(examples.lengths[row]) for _, row in stream(phase)]
        assert sum(tokens) == phase.tokens >= wanted > sum(tokens[:-1]), (
            "it ends with the example that reaches it"
        )
    assert plan.epochs == sum(row < SELECTED for _, row in rows) / SELECTED
    rates = [plan.rate_at(step) for step in range(len(plan))]
    assert rates == [
        phase.settings.rate_at(at, len(phase)) for phase in plan.phases for at in range(len(phase))
    ]
    with pytest.raises(IndexError):
        plan[len(plan)]


def test_the_parts_have_their_own_epochs():
    rows = stream(plan("0.5", batch_size=8, steps=20))
    selection, pool = (
        [pair for pair in rows if pair[1] < SELECTED],
        [pair for pair in rows if pair[1] >= SELECTED],
    )
    for pairs, size in ((selection, SELECTED), (pool, POOL)):
        assert [epoch for epoch, _ in pairs] == [at // size for at in range(80)]
        assert sorted(row for epoch, row in pairs if epoch == 0) == sorted(
            {row for _, row in pairs}
        )
    alone = TrainSettings(max_tokens=20, batch_size=8, steps=10)
    assert selection == stream(Phase(windows(LENGTHS[:SELECTED], IDS[:SELECTED]), alone))
