"""A run that is killed, at any moment and however often, ends with the bytes of one that was not."""

import os
import random
import signal
import time
from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file

from dana.train.batch import Shape
from dana.train.checkpoints import Checkpoints
from dana.train.keeper import Keeper
from dana.train.loop import adapt, prepare
from dana.train.records import EvaluationRecord, Progress, StepRecord
from dana.train.settings import Execution, TrainSettings
from dana.train.stop import Preempted

SETTINGS = TrainSettings(
    steps=12, batch_size=8, max_tokens=16, evaluations=3, execution=Execution(save_every=2, micro_batch_tokens=64)
)


@pytest.fixture
def train(tiny_model, masking, weighted, paired, make_examples, tmp_path):
    """Runs to the end, or until something stops it; called again, it goes on."""

    def go(name="run", settings=SETTINGS, at_record=lambda record: None, dropout=0.1):
        prepared = prepare(
            tiny_model(dropout, settings.next_sentence), settings, Accelerator(cpu=True), Shape(budget=64)
        )
        keeper = Keeper(Checkpoints(tmp_path / name, {"name": name}, settings.execution.keep), settings, {})
        saved = keeper.checkpoints.newest()
        done = keeper.resume(prepared, saved) if saved else Progress()
        examples = paired if settings.next_sentence else weighted
        heldout = {"task": make_examples(6, 11), "general": make_examples(6, 12)}
        for record in keeper.watch(prepared, adapt(prepared, examples, masking, settings, heldout, done)):
            at_record(record)
        keeper.finish(prepared)
        return torch.cat([value.detach().flatten() for value in prepared.module.parameters()]), keeper.records

    return go


def without_seconds(records):
    return [replace(record, seconds=0.0) if isinstance(record, StepRecord) else record for record in records]


PAIRS = replace(SETTINGS, next_sentence=True)


@pytest.mark.parametrize(("stop_at", "settings"), [*((stop, SETTINGS) for stop in (1, 3, 4, 7, 12)), (5, PAIRS)])
def test_stopped_by_a_signal_it_goes_on_bit_for_bit(train, stop_at, settings):
    weights, records = train("whole", settings)

    def stop(record):
        if isinstance(record, StepRecord) and record.step == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Preempted, match=f"told to stop .*after step {stop_at}.*; saved") as told:
        train("stopped", settings, at_record=stop)
    assert told.value.exit_code == 75
    resumed, again = train("stopped", settings)
    assert torch.equal(resumed, weights)
    assert without_seconds(again) == without_seconds(records)


def test_a_signal_during_an_evaluation_ends_it_and_it_is_repeated(train, monkeypatch):
    weights, records = train("whole")
    from dana.train import evaluation

    original, calls = evaluation.token_losses, []

    def interrupt(logits, targets):
        calls.append(1)
        if len(calls) == 9:
            os.kill(os.getpid(), signal.SIGUSR1)
        return original(logits, targets)

    monkeypatch.setattr(evaluation, "token_losses", interrupt)
    with pytest.raises(Preempted, match="while evaluating after step"):
        train("stopped")
    resumed, again = train("stopped")
    assert torch.equal(resumed, weights)
    assert without_seconds(again) == without_seconds(records)


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # a forked child has no others, and sums of two threads round otherwise
    yield
    torch.set_num_threads(before)


def test_killed_at_twenty_random_moments_the_weights_are_the_same(train, one_thread):
    long = replace(SETTINGS, steps=80, execution=Execution(save_every=1, micro_batch_tokens=64, keep=3))
    started = time.monotonic()
    weights, records = train("whole", long)
    takes = time.monotonic() - started
    chance, alive = random.Random(0), 0
    for _ in range(20):
        child = os.fork()
        if child == 0:  # pragma: no cover
            code = 1
            try:
                train("killed", long)
                code = 0
            finally:
                os._exit(code)
        time.sleep(chance.uniform(0.0, takes / 6))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        alive += os.WIFSIGNALED(status)
    resumed, again = train("killed", long)
    assert alive >= 10, "most children should die at work"
    assert torch.equal(resumed, weights)
    assert without_seconds(again) == without_seconds(records)


def test_the_best_weights_are_put_back_at_the_end(train, tiny_model, tmp_path):
    settings = replace(SETTINGS, final="best", learning_rate=0.3, execution=replace(SETTINGS.execution, keep=0))
    weights, records = train("best", settings)
    losses = {record.step: record.task_loss for record in records if isinstance(record, EvaluationRecord)}
    best = min(losses, key=lambda step: (losses[step], -step))
    assert best < 12, "so high a rate makes it worse"
    assert Checkpoints(tmp_path / "best", {"name": "best"}, 0).best().manifest["step"] == best
    saved = load_file(tmp_path / "best" / "best" / "state.safetensors")
    names = [f"parameter.{name}" for name, _ in tiny_model().named_parameters()]
    assert torch.equal(weights, torch.cat([saved[name].flatten() for name in names]))


def test_a_changed_setting_is_refused(train, tmp_path):
    from dana.errors import ArtifactError

    def stop(record):
        if isinstance(record, StepRecord) and record.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Preempted):
        train("run", at_record=stop)
    with pytest.raises(ArtifactError, match='name: "run" there, "other" now'):
        Checkpoints(tmp_path / "run", {"name": "other"}, 2).newest()
