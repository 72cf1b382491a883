"""A run that is stopped or killed, at any moment and however often, ends with the bytes of one that was not."""

import os
import random
import signal
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from dana.core.errors import ConfigError, Preemption
from dana.train import loop
from dana.train.checkpoints import CheckpointPolicy, Checkpoints, find_checkpoint
from dana.train.objectives.batch import MicroBatch
from dana.train.records import EvaluationRecord, StepRecord
from dana.train.settings import Execution, TrainSettings
from tests.train.conftest import MASKED, PAIRS, TEXTS, bert, new_state, parameters

EXECUTION = Execution(save_every=2, micro_batch_tokens=64)
SETTINGS = TrainSettings(steps=12, batch_size=8, max_tokens=16, evaluations=3, execution=EXECUTION)


@pytest.fixture
def train(weighted_examples, pair_examples, tmp_path):
    """Runs to the end, or until something stops it; called again, it resumes."""

    def call(name="run", settings=SETTINGS, at_record=lambda record: None):
        pairs = settings.objective == "next_sentence"
        state = new_state(bert(0.1, pairs), settings, budget=64)
        policy = CheckpointPolicy(Checkpoints(tmp_path / name, {"name": name}), settings, {})
        if checkpoint := policy.checkpoints.newest():
            policy.resume(state, checkpoint)
        examples = pair_examples if pairs else replace(weighted_examples, replay_count=10 if settings.replay else 0)
        records = loop.train(state, examples, PAIRS if pairs else MASKED, settings, TEXTS, policy.records)
        for record in policy.watch(state, records):
            at_record(record)
        policy.finish(state)
        clock = {"seconds": 0.0, "tokens_per_second": None, "peak_memory": None}
        records = [replace(one, **clock) if isinstance(one, StepRecord) else one for one in policy.records]
        return parameters(state.module), records

    return call


def same(one, other):
    return torch.equal(one[0], other[0]) and one[1] == other[1]


@pytest.mark.parametrize(
    ("change", "stops"),
    [({}, [1, 4, 12]), ({"objective": "next_sentence"}, [5]), ({"replay": 0.3, "schedule": "cosine"}, [5])],
)
def test_stopped_by_a_signal_it_resumes_bit_for_bit(train, change, stops):
    settings = replace(SETTINGS, **change)
    for stop in stops:

        def interrupt(record, stop=stop):
            if isinstance(record, StepRecord) and record.step == stop:
                os.kill(os.getpid(), signal.SIGTERM)

        with pytest.raises(Preemption, match=rf"after step {stop}\b.*; saved") as error:
            train("stopped", settings, interrupt)
        assert error.value.exit_code == 75
    assert same(train("stopped", settings), train("straight", settings))


def test_an_evaluation_that_is_stopped_is_repeated(train, monkeypatch):
    original, calls = MicroBatch.losses, []

    def interrupt(micro, module):
        calls.extend([1] * (not module.training))
        if len(calls) == 9 and not module.training:
            os.kill(os.getpid(), signal.SIGUSR1)
        return original(micro, module)

    with monkeypatch.context() as context:
        context.setattr(MicroBatch, "losses", interrupt)
        with pytest.raises(Preemption, match="while evaluating after step"):
            train("stopped")
    assert same(train("stopped"), train("straight"))


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # a forked child has no others, and two threads round sums differently
    yield
    torch.set_num_threads(before)


def test_killed_at_twenty_random_moments_the_weights_are_the_same(train, one_thread):
    long = replace(SETTINGS, steps=40, execution=Execution(save_every=1, micro_batch_tokens=64))
    start = time.monotonic()
    straight = train("straight", long)
    seconds = time.monotonic() - start
    chance, kills = random.Random(0), 0
    for _ in range(20):
        child = os.fork()
        if child == 0:  # pragma: no cover
            code = 1
            try:
                train("killed", long)
                code = 0
            finally:
                os._exit(code)
        time.sleep(chance.uniform(0.0, seconds / 10))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        kills += os.WIFSIGNALED(status)
    assert kills >= 10, "most children should be killed at work"
    assert same(train("killed", long), straight)


def test_the_best_weights_are_restored_at_the_end(train, tmp_path):
    settings = replace(SETTINGS, final="best", learning_rate=0.3, execution=replace(EXECUTION, save_every=0))
    weights, records = train("best", settings)
    losses = {record.step: record.task_loss for record in records if isinstance(record, EvaluationRecord)}
    best = min(losses, key=lambda step: (losses[step], -step))
    assert best < 12, "so high a rate makes it worse"
    assert Checkpoints(tmp_path / "best", {"name": "best"}).newest("best").manifest["step"] == best
    state = load_file(tmp_path / "best" / f"best-{best:08d}" / "state.safetensors")
    assert torch.equal(
        weights, torch.cat([state[f"parameter.{name}"].flatten() for name, _ in bert().named_parameters()])
    )


@pytest.mark.parametrize(
    ("launch", "before", "valid"), [("no", "no", True), (None, "no", False), ("bf16", "bf16", True)]
)
def test_a_run_resumes_in_its_precision_or_is_refused(launch, before, valid, monkeypatch, tmp_path):
    checkpoint = SimpleNamespace(path=tmp_path, manifest={"notes": {"execution": {"precision": before}}})
    monkeypatch.setattr("dana.train.execution.has_bf16", lambda device: True)
    monkeypatch.setattr(os, "environ", {"ACCELERATE_MIXED_PRECISION": launch} if launch else {})
    accelerator = SimpleNamespace(device=torch.device("cpu"), mixed_precision=launch or "no")
    arguments = (SimpleNamespace(newest=lambda: checkpoint), Execution(), accelerator)
    if valid:
        assert find_checkpoint(*arguments) is checkpoint
    else:
        with pytest.raises(ConfigError, match=r"mixed_precision=no.*ACCELERATE_MIXED_PRECISION=no"):
            find_checkpoint(*arguments)
