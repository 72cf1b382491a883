"""A run that is stopped or killed ends with the bytes of one that was not; other launches, full disks."""

import os
import random
import resource
import shutil
import signal
import time
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from dana.core.errors import ArtifactError, Preemption
from dana.train import loop
from dana.train.checkpoints import CheckpointPolicy, Checkpoints, find_checkpoint
from dana.train.objectives.batch import MicroBatch
from dana.train.records import EvaluationRecord, StepRecord
from dana.train.settings import AdaptSettings, Execution, PhaseSettings, TrainSettings
from tests.train.conftest import MASKED, PAIRS, TEXTS, bert, new_state, parameters

EXECUTION = Execution(save_every=2, micro_batch_tokens=64)
SETTINGS = TrainSettings(steps=12, batch_size=8, max_tokens=16, evaluations=3, execution=EXECUTION)


def phased(*optimizers):
    """Three phases of three steps, each but the first with its optimizer."""
    changes = {"learning_rate": 1e-3}, {"schedule": "1-sqrt"}
    later = [
        PhaseSettings(200, optimizer=name, **more)
        for name, more in zip(optimizers, changes, strict=True)
    ]
    return [PhaseSettings(200), *later]


PHASED = AdaptSettings(**{**vars(SETTINGS), "steps": None, "phases": phased("carry", "reset")})


@pytest.fixture
def train(weighted_examples, pair_examples, tmp_path):
    """Runs to the end, or until something stops it; called again, it resumes."""

    def call(name="run", settings=SETTINGS, at_record=lambda record: None):
        pairs = settings.objective == "next_sentence"
        state = new_state(bert(0.1, pairs), settings, budget=64)
        policy = CheckpointPolicy(Checkpoints(tmp_path / name, {"name": name}), settings, {})
        if checkpoint := policy.checkpoints.newest():
            policy.resume(state, checkpoint)
        examples = pair_examples if pairs else weighted_examples
        if settings.schedule == "cosine":
            shares = ((Fraction("0.7"), Fraction("0.3")),)
            examples = replace(examples, parts=(len(examples) - 10, 10), shares=shares)
        if len(settings.by_phase()) > 1:
            parts = (
                (Fraction(1), Fraction(0)),
                (Fraction(0), Fraction(1)),
                (Fraction("0.5"), Fraction("0.5")),
            )
            examples = replace(examples, parts=(len(examples) - 10, 10), shares=parts)
        more = replace(MASKED, masking=replace(MASKED.masking, rate=0.5))
        records = loop.train(
            state,
            examples,
            [PAIRS if pairs else MASKED, more, MASKED],
            settings,
            TEXTS,
            policy.records,
        )
        for record in policy.watch(state, records):
            at_record(record)
        policy.finish(state)
        clock = {"seconds": 0.0, "tokens_per_second": None, "peak_memory": None, "waiting": None}
        records = [
            replace(one, **clock) if isinstance(one, StepRecord) else one for one in policy.records
        ]
        return parameters(state.module), records

    return call


def same(one, other):
    return torch.equal(one[0], other[0]) and one[1] == other[1]


@pytest.mark.parametrize(
    ("change", "stops"),
    [
        ({}, [1, 4, 12]),
        ({"objective": "next_sentence"}, [5]),
        ({"schedule": "cosine"}, [5]),
        ({"phases": phased("carry", "carry")}, [2, 3, 6]),
        ({"phases": phased("reset", "carry")}, [3, 4, 6, 7]),
    ],
)
def test_stopped_by_a_signal_it_resumes_bit_for_bit(train, change, stops):
    settings = replace(SETTINGS, **change) if "phases" not in change else replace(PHASED, **change)
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


def test_killed_at_twenty_random_moments_the_weights_are_the_same(train, one_thread, tmp_path):
    execution = Execution(save_every=1, micro_batch_tokens=64)
    phases = [replace(one, tokens=900) for one in PHASED.phases]
    long = replace(PHASED, tokens=None, phases=phases, final="best", execution=execution)
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
        if not os.WIFSIGNALED(status):  # it had finished: the next begins anew
            shutil.rmtree(tmp_path / "killed")
    assert kills >= 10, "most children should be killed at work"
    assert same(train("killed", long), straight)


def test_what_a_phase_changes_is_in_every_record_and_a_reset_forgets_the_moments(
    train, monkeypatch
):
    moments, shares, original = [], [], loop.take_step

    def look(state, *arguments):
        entries = list(state.optimizer.state.values())
        moments.append(
            (
                sum(float(one["exp_avg_sq"].sum()) for one in entries),
                {float(one["step"]) for one in entries},
            )
        )
        shares.append(arguments[0].loss_counts["tokens"] / arguments[0].examples.tokens.size)
        return original(state, *arguments)

    monkeypatch.setattr(loop, "take_step", look)
    weights, records = train("phases", PHASED)
    steps = [one for one in records if isinstance(one, StepRecord)]
    evaluations = {one.step: one.phase for one in records if isinstance(one, EvaluationRecord)}
    first, second = ([one.phase for one in steps].index(phase) for phase in (1, 2))
    assert [one.phase for one in steps] == [0] * first + [1] * (second - first) + [2] * (
        len(steps) - second
    )
    assert {0: 0, first: 0, second: 1, len(steps): 2}.items() <= evaluations.items()
    assert max(shares[:first] + shares[second:]) < 0.3 < min(shares[first:second]), (
        "of half of the tokens"
    )
    assert moments[first][0] > 0
    assert moments[first][1] == {first}
    assert (moments[second], moments[second + 1][1]) == ((0, {0}), {1}), "as if new"
    assert steps[first].lr == 1e-3, "what is carried needs no warm-up"
    assert not torch.equal(
        train("carry", replace(PHASED, phases=phased("carry", "carry")))[0], weights
    )
    one = replace(PHASED, tokens=None, phases=[PhaseSettings(400)])
    assert same(train("one", one), train("none", replace(one, tokens=400, phases=[]))), (
        "one phase is a run"
    )


def test_the_best_weights_are_restored_at_the_end(train, tmp_path):
    settings = replace(
        SETTINGS, final="best", learning_rate=0.3, execution=replace(EXECUTION, save_every=0)
    )
    weights, records = train("best", settings)
    losses = {
        record.step: record.target_loss
        for record in records
        if isinstance(record, EvaluationRecord)
    }
    best = min(losses, key=lambda step: (losses[step], -step))
    assert best < 12, "so high a rate makes it worse"
    assert Checkpoints(tmp_path / "best", {"name": "best"}).open("best").step == best
    state = load_file(tmp_path / "best" / "best.safetensors")
    names = [name for name, _ in bert().named_parameters()]
    assert torch.equal(
        weights, torch.cat([state[f"parameter.model.{name}"].flatten() for name in names])
    )


ACCELERATOR = {
    "is_main_process": True,
    "distributed_type": SimpleNamespace(value="NO"),
    "wait_for_everyone": lambda: None,
}
LAUNCH = {"dana": "1.0", "processes": 2, "kind": "MULTI_CPU", "precision": "no"}
DEPENDS_ON = {"pool": "a", "settings": {"seed": 0}, "launch": LAUNCH}
TENSORS = {"parameter.a": torch.zeros(4)}


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "c", DEPENDS_ON)


def save(checkpoints, step, name="last", tensors=TENSORS):
    checkpoints.write(name, tensors, [EvaluationRecord(step, 8, 1.0, 0.1, 2.0, 0.2)], {"a": step})


def names(checkpoints):
    return sorted(path.name for path in checkpoints.folder.iterdir())


def test_the_last_and_the_best_are_kept_and_the_latest_of_them_is_resumed(checkpoints):
    assert checkpoints.newest() is None
    for step in (5, 10):
        save(checkpoints, step)
    save(checkpoints, 5, "best")
    assert names(checkpoints) == ["best.safetensors", "last.safetensors"]
    newest = checkpoints.newest()
    assert (newest.step, newest.notes) == (10, {"a": 10})
    assert checkpoints.open("best").step == 5
    save(checkpoints, 15, "best")
    assert checkpoints.newest().path.name == "best.safetensors"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pool": "b"}, r'another run \(pool: "a" there, "b" now'),
        ({"launch": {**LAUNCH, "processes": 1}}, r"launch\.processes: 2 there, 1 now"),
        (
            {"launch": {**LAUNCH, "kind": "DEEPSPEED", "zero_stage": 2}},
            r'launch\.kind: "MULTI_CPU" there, "DEEPSPEED" now; launch\.zero_stage: null there, 2',
        ),
        (
            {"launch": {**LAUNCH, "precision": "bf16"}},
            r'launch\.precision: "no" there, "bf16" now.*ACCELERATE_MIXED_PRECISION',
        ),
        ({"launch": {**LAUNCH, "dana": "1.1"}}, r'launch\.dana: "1\.0" there, "1\.1" now'),
    ],
)
def test_a_checkpoint_of_another_run_or_launch_is_refused_with_the_difference(
    checkpoints, change, message
):
    save(checkpoints, 5)
    other = replace(checkpoints, depends_on={**DEPENDS_ON, **change})
    with pytest.raises(
        ArtifactError, match=f"last.safetensors: .*{message}.*resume=never"
    ) as error:
        other.newest()
    assert "\n" not in str(error.value)
    assert find_checkpoint(other, "never") is None
    assert not other.folder.exists()


@pytest.mark.parametrize("content", [b"", b"half of a file", None])
def test_a_file_that_is_no_checkpoint_is_refused(checkpoints, content):
    save(checkpoints, 5)
    file = checkpoints.folder / "last.safetensors"
    file.write_bytes(file.read_bytes()[:-20] if content is None else content)
    with pytest.raises(ArtifactError, match=r"last.safetensors: is no checkpoint.*resume=never"):
        checkpoints.newest()


@pytest.mark.parametrize("word", [b"depends_on", b"notes", b'"kind"', b'"step"'])
def test_a_checkpoint_with_a_changed_byte_in_its_settings_or_records_is_refused(checkpoints, word):
    save(checkpoints, 5)
    file = checkpoints.folder / "last.safetensors"
    content = file.read_bytes()
    assert word in content
    file.write_bytes(content.replace(word, b"#" + word[1:], 1))
    with pytest.raises(ArtifactError, match=r"last.safetensors: is no checkpoint.*resume=never"):
        checkpoints.newest()


@contextmanager
def small_disk():
    """Refuses files of more than 4,000 bytes, also to code that is not Python's, as a full disk does.

    Not a fixture: pytest writes its report before it tears fixtures down.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_one_line_and_leaves_the_older_checkpoint(checkpoints):
    save(checkpoints, 5)
    with (
        small_disk(),
        pytest.raises(ArtifactError, match=r"last\.safetensors: cannot be written") as error,
    ):
        save(checkpoints, 10, tensors={"parameter.a": torch.zeros(10_000)})
    assert "\n" not in str(error.value)
    assert names(checkpoints) == ["last.safetensors"]
    assert checkpoints.newest().step == 5


def test_removing_the_checkpoints_leaves_the_files_of_others(checkpoints):
    save(checkpoints, 5)
    (checkpoints.folder / "thesis.txt").write_text("x")
    checkpoints.remove()
    assert names(checkpoints) == ["thesis.txt"]
    (checkpoints.folder / "thesis.txt").unlink()
    checkpoints.remove()
    assert not checkpoints.folder.exists()


def test_a_save_that_is_killed_leaves_the_older_checkpoint(checkpoints, monkeypatch):
    save(checkpoints, 5)
    child = os.fork()
    if child == 0:
        monkeypatch.setattr("dana.core.files.sync", lambda path: os._exit(9))
        save(checkpoints, 10)
    os.waitpid(child, 0)
    assert any(".tmp-" in name for name in names(checkpoints))
    assert checkpoints.newest().step == 5
    save(checkpoints, 10)
    assert names(checkpoints) == ["last.safetensors"]
    assert checkpoints.newest().step == 10


def test_the_scale_of_fp16_goes_on_where_it_was(examples, checkpoints):
    states = [new_state(bert()) for _ in range(2)]
    scalers = [torch.amp.GradScaler("cpu", init_scale=scale) for scale in (8.0, 2.0)]
    for state, scaler in zip(states, scalers, strict=True):
        # all states share one accelerator
        state.accelerator = SimpleNamespace(**ACCELERATOR, scaler=scaler, unwrap_model=lambda m: m)
    policy = CheckpointPolicy(checkpoints, SETTINGS, {}, [EvaluationRecord(1, 8, *[None] * 4)])
    policy.save(states[0])
    checkpoints.newest().restore(states[1])
    assert scalers[1].get_scale() == 8.0
