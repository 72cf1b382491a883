from dataclasses import replace
from types import SimpleNamespace

import pytest

from dana.core.errors import ConfigError
from dana.train.records import EvaluationRecord, StepRecord, from_line, to_line
from dana.train.run import check_trackers, start_trackers, track
from dana.train.settings import AdaptSettings

STEP = StepRecord(3, 100, 8, 1.5, 2.5, 1e-4, 0.7, 6.0, 0.25)
EVALUATION = EvaluationRecord(3, 100, 1.0, 0.1, 2.0, 0.2)


def test_unknown_and_missing_trackers_are_refused_before_any_work():
    with pytest.raises(ConfigError, match=r"trackers='tensorbored': must be .*tensorboard"):
        check_trackers(["tensorbored"])
    for name in ("all", "comet_ml"):
        with pytest.raises(ConfigError, match=f"trackers='{name}': must be .*tensorb"):
            check_trackers([name])
    check_trackers(["tensorboard"])


def test_records_reach_the_trackers_by_group():
    logged = []
    accelerator = SimpleNamespace(log=lambda values, step: logged.append((step, values)))
    track(accelerator, STEP)
    track(accelerator, EVALUATION)
    assert logged[0][0] == 3
    assert logged[0][1]["train/loss"] == 1.5
    assert logged[1][1]["held_out/task_loss"] == 1.0


def test_settings_go_in_flat():
    found = {}
    accelerator = SimpleNamespace(init_trackers=lambda run, config: found.update(config, run=run))
    start_trackers(accelerator, "adapted", AdaptSettings(seed=7))
    assert found.items() >= {"run": "adapted", "seed": 7, "execution.layout": "auto", "head_warmup.steps": 100}.items()
    assert "tokens" not in found, "what is not set"


def test_lines_are_read_back():
    records = [from_line(to_line(record)) for record in (STEP, EVALUATION)]
    assert records == [STEP, EVALUATION]


def test_a_line_tells_of_pairs_only_where_there_were_some():
    line = (
        '{"step": 3, "tokens": 100, "examples": 8, "loss": 1.5, "plain_loss": 2.5, "lr": 0.0001, "grad_norm": 0.7, '
        '"effective_sample_size": 6.0, "seconds": 0.25, "kind": "step"}\n'
    )
    assert to_line(STEP) == line
    assert from_line(line) == STEP
    pairs = replace(STEP, other_losses={"next_sentence": 0.5})
    assert '"next_sentence_loss": 0.5' in to_line(pairs)
    assert from_line(to_line(pairs)) == pairs
    logged = []
    for record in (STEP, pairs):
        track(SimpleNamespace(log=lambda values, step: logged.append(values)), record)
    assert [values.get("train/next_sentence_loss") for values in logged] == [None, 0.5]
    assert "train/next_sentence_loss" not in logged[0]
