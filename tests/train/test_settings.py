"""Where the range of each setting ends: the last value that is taken, and the first that is not."""

import pytest

from dana.core.errors import ConfigError
from dana.train.objectives.masked import MaskedTokens
from dana.train.settings import Execution, HeadWarmup, TrainSettings

EDGES = [
    (TrainSettings, "steps", [1, None], [0]),
    (TrainSettings, "tokens", [1, None], [0]),
    (TrainSettings, "epochs", [1e-9, None], [0.0, -1.0]),
    (TrainSettings, "batch_size", [1], [0]),
    (TrainSettings, "batch_tokens", [256, None], [255]),
    (TrainSettings, "max_tokens", [3, 8192], [2, 8193]),
    (TrainSettings, "learning_rate", [1e-12], [0.0]),
    (TrainSettings, "warmup", [0.0, 0.999], [-1e-9, 1.0]),
    (TrainSettings, "warmup_steps", [0, None], [-1]),
    (TrainSettings, "floor", [0.0, 1.0], [-1e-9, 1 + 1e-9]),
    (TrainSettings, "cooldown", [1e-9, 1.0], [0.0, 1 + 1e-9]),
    (TrainSettings, "weight_decay", [0.0], [-1e-9]),
    (TrainSettings, "betas", [[0.0, 0.999]], [[0.9], [0.9, 0.9, 0.9], [-1e-9, 0.9], [0.9, 1.0]]),
    (TrainSettings, "eps", [1e-30], [0.0]),
    (TrainSettings, "clip", [1e-9], [0.0]),
    (MaskedTokens, "mask_rate", [1e-9, 0.999], [0.0, 1.0, 1.5]),
    (TrainSettings, "replay", [0.0, 0.999], [-1e-9, 1.0, 1.5]),
    (TrainSettings, "evaluations", [0], [-1]),
    (TrainSettings, "eval_every", [1, None], [0]),
    (TrainSettings, "evaluation_tokens", [1], [0]),
    (Execution, "micro_batch_tokens", [1], [0]),
    (Execution, "save_every", [0], [-1]),
    (Execution, "export_every", [0], [-1]),
    (HeadWarmup, "steps", [0], [-1]),
    (HeadWarmup, "batch_size", [1], [0]),
    (HeadWarmup, "learning_rate", [1e-12], [0.0]),
]


@pytest.mark.parametrize(("kind", "key", "taken", "refused"), EDGES, ids=lambda value: str(value)[:20])
def test_a_range_ends_where_it_says(kind, key, taken, refused):
    for value in taken:
        assert getattr(kind(**{key: value}), key) == value
    for value in refused:
        with pytest.raises(ConfigError, match=f"{key}="):
            kind(**{key: value})


@pytest.mark.parametrize(
    ("taken", "refused"),
    [
        ({"schedule": "wsd", "warmup_steps": 0}, {"schedule": "linear", "warmup_steps": 0}),
        ({"schedule": "constant", "warmup": 0.0}, {"schedule": "constant", "warmup": 0.01}),
        ({"schedule": "constant", "warmup_steps": 5}, {"schedule": "cosine", "warmup_steps": 5}),
    ],
)
def test_what_can_be_extended_does_not_know_its_end(taken, refused):
    for execution in (Execution(extendable=True), Execution(extend="model")):
        TrainSettings(**taken, execution=execution)
        with pytest.raises(ConfigError, match="with exten"):
            TrainSettings(**refused, execution=execution)
    TrainSettings(**refused)
    TrainSettings(**taken, final="best", execution=Execution(extendable=True))
    with pytest.raises(ConfigError, match="last with extend"):
        TrainSettings(**taken, final="best", execution=Execution(extend="model"))


def test_execution_is_no_part_of_the_fingerprint():
    plain = TrainSettings().decisive()
    assert plain == TrainSettings(execution=Execution(layout="padded")).decisive()
    assert "execution" not in plain
    assert TrainSettings(replay=0.1).decisive() == {**plain, "replay": 0.1}
    assert TrainSettings(weight_decay=0.0).decisive() == {**plain, "weight_decay": 0.0}


def test_steps_that_longer_runs_share_by_hand():
    wsd = TrainSettings(schedule="wsd", warmup_steps=2, cooldown=0.2)
    assert wsd.shared_steps(10) == 8, "the last fifth falls"
    assert TrainSettings(schedule="constant", warmup_steps=2).shared_steps(10) == 9, "the last may be short"
