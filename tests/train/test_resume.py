"""A run that is killed, at any moment and however often, ends with the bytes of one that was not."""

import os
import random
import signal
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file

from dana.core.errors import ConfigError, Preemption
from dana.train import loop
from dana.train.checkpoints import CheckpointPolicy, Checkpoints, find_checkpoint
from dana.train.layout import BatchLayout
from dana.train.objectives.batch import MicroBatch
from dana.train.records import EvaluationRecord, StepRecord
from dana.train.settings import Execution, TrainSettings
from tests.train.conftest import PAIRS as PAIR_COLLATOR
from tests.train.conftest import held_out

SETTINGS = TrainSettings(
    steps=12, batch_size=8, max_tokens=16, evaluations=3, execution=Execution(save_every=2, micro_batch_tokens=64)
)


@pytest.fixture
def train(tiny_model, collator, weighted, paired, make_examples, tmp_path):
    """Runs to the end, or until something stops it; called again, it goes on."""

    def go(name="run", settings=SETTINGS, at_record=lambda record: None, dropout=0.1):
        pairs = settings.objective == "next_sentence"
        prepared = loop.prepare(tiny_model(dropout, pairs), settings, Accelerator(cpu=True), BatchLayout(budget=64))
        policy = CheckpointPolicy(Checkpoints(tmp_path / name, {"name": name}), settings, {})
        saved = policy.checkpoints.newest()
        if saved:
            policy.resume(prepared, saved)
        examples = paired if pairs else replace(weighted, replay_count=10 if settings.replay else 0)
        heldout = held_out(make_examples(6, 11), make_examples(6, 12))
        asks = PAIR_COLLATOR if pairs else collator
        records = loop.train(prepared, examples, asks, settings, heldout, policy.records)
        for record in policy.watch(prepared, records):
            at_record(record)
        policy.finish(prepared)
        return torch.cat([value.detach().flatten() for value in prepared.module.parameters()]), policy.records

    return go


def without_seconds(records):
    measured = {"seconds": 0.0, "tokens_per_second": None, "peak_memory": None}
    return [replace(record, **measured) if isinstance(record, StepRecord) else record for record in records]


PAIRS = replace(SETTINGS, objective="next_sentence")
REPLAY = replace(SETTINGS, replay=0.3, schedule="cosine")


@pytest.mark.parametrize(
    ("stop_at", "settings"), [*((stop, SETTINGS) for stop in (1, 3, 4, 7, 12)), (5, PAIRS), (5, REPLAY)]
)
def test_stopped_by_a_signal_it_goes_on_bit_for_bit(train, stop_at, settings):
    weights, records = train("whole", settings)

    def stop(record):
        if isinstance(record, StepRecord) and record.step == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Preemption, match=f"told to stop .*after step {stop_at}.*; saved") as told:
        train("stopped", settings, at_record=stop)
    assert told.value.exit_code == 75
    resumed, again = train("stopped", settings)
    assert torch.equal(resumed, weights)
    assert without_seconds(again) == without_seconds(records)


def test_a_signal_during_an_evaluation_ends_it_and_it_is_repeated(train, monkeypatch):
    weights, records = train("whole")
    original, calls = MicroBatch.losses, []

    def interrupt(micro, module):
        calls.extend([1] * (not module.training))
        if len(calls) == 9 and not module.training:
            os.kill(os.getpid(), signal.SIGUSR1)
        return original(micro, module)

    monkeypatch.setattr(MicroBatch, "losses", interrupt)
    with pytest.raises(Preemption, match="while evaluating after step"):
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
    long = replace(SETTINGS, steps=80, execution=Execution(save_every=1, micro_batch_tokens=64))
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
        time.sleep(chance.uniform(0.0, takes / 10))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        alive += os.WIFSIGNALED(status)
    resumed, again = train("killed", long)
    assert alive >= 10, "most children should die at work"
    assert torch.equal(resumed, weights)
    assert without_seconds(again) == without_seconds(records)


def test_the_best_weights_are_put_back_at_the_end(train, tiny_model, tmp_path):
    settings = replace(SETTINGS, final="best", learning_rate=0.3, execution=replace(SETTINGS.execution, save_every=0))
    weights, records = train("best", settings)
    losses = {record.step: record.task_loss for record in records if isinstance(record, EvaluationRecord)}
    best = min(losses, key=lambda step: (losses[step], -step))
    assert best < 12, "so high a rate makes it worse"
    assert Checkpoints(tmp_path / "best", {"name": "best"}).newest("best").manifest["step"] == best
    saved = load_file(tmp_path / "best" / f"best-{best:08d}" / "state.safetensors")
    names = [f"parameter.{name}" for name, _ in tiny_model().named_parameters()]
    assert torch.equal(weights, torch.cat([saved[name].flatten() for name in names]))


def test_a_changed_setting_is_refused(train, tmp_path):
    from dana.core.errors import ArtifactError

    def stop(record):
        if isinstance(record, StepRecord) and record.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Preemption):
        train("run", at_record=stop)
    with pytest.raises(ArtifactError, match='name: "run" there, "other" now'):
        Checkpoints(tmp_path / "run", {"name": "other"}).newest()


@pytest.mark.parametrize(
    ("launch", "before", "refused"), [("no", "no", False), (None, "no", True), ("bf16", "bf16", False)]
)
def test_a_run_goes_on_in_the_precision_it_began_in_or_is_told_how(launch, before, refused, monkeypatch, tmp_path):
    saved = SimpleNamespace(path=tmp_path, manifest={"notes": {"execution": {"precision": before}}})
    checkpoints = SimpleNamespace(newest=lambda: saved)
    monkeypatch.setattr("dana.train.execution.has_bf16", lambda device: True)
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    if launch:
        monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", launch)
    accelerator = SimpleNamespace(device=torch.device("cpu"), mixed_precision=launch or "no")
    if refused:
        with pytest.raises(ConfigError, match=r"mixed_precision=no.*ACCELERATE_MIXED_"):
            find_checkpoint(checkpoints, Execution(), accelerator)
    else:
        assert find_checkpoint(checkpoints, Execution(), accelerator) is saved
