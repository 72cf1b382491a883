"""Fine-tuning that is killed, stopped or asked for more seeds: finished ones are never run again."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dana.core.errors import ArtifactError, Preemption
from dana.finetuning.loop import run_seed
from dana.stages import finetune
from dana.stages.finetune import FinetuneSettings, finetune_stage

BRIEF = FinetuneSettings(preset="quick", epochs=2, seeds=4)


def outcome(folder):
    """All that is written, but how long it took."""
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    rows = [{**row, "seconds": 0} for row in metrics["seeds"]]
    return {**metrics, "seeds": rows}, (folder / "predictions.parquet").read_bytes()


def seeds_folder(out):
    return out.with_name(f"{out.name}-seeds")


DIES_IN_SEED_2 = """
import os, signal, sys
sys.path.insert(0, sys.argv[4])
from pathlib import Path
from dana.stages import finetune
original = finetune.run_seed
def run_seed(*arguments):
    if arguments[4] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*arguments)
finetune.run_seed = run_seed
settings = finetune.FinetuneSettings(preset="quick", epochs=2, seeds=4)
finetune.finetune_stage(sys.argv[1], sys.argv[2], settings, Path(sys.argv[3]))
"""


def test_killed_in_seed_2_the_rerun_runs_2_and_3_and_writes_the_same(checkpoint, card, tmp_path, ran):
    out, repository = tmp_path / "out", str(Path(__file__).parent.parent.parent)
    command = [sys.executable, "-c", DIES_IN_SEED_2, checkpoint, card, str(out), repository]
    assert subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode == -signal.SIGKILL
    assert not out.exists()
    finetune_stage(checkpoint, card, BRIEF, out)
    assert ran == [2, 3]
    finetune_stage(checkpoint, card, BRIEF, tmp_path / "whole")
    assert outcome(out) == outcome(tmp_path / "whole")
    assert not seeds_folder(out).exists()
    assert [path.name for path in tmp_path.glob(".*")] == []


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("where", ["learning_rate_at", "predict"])
def test_told_to_stop_it_leaves_at_the_next_step_and_keeps_what_is_finished(
    checkpoint, card, tmp_path, ran, monkeypatch, told, where
):
    """In the training of seed 1, or in its evaluation."""
    from dana.finetuning import loop

    original, calls = getattr(loop, where), []

    def interrupt(*arguments):
        if ran[-1] == 1:
            calls.append(1)
            os.kill(os.getpid(), told)
        return original(*arguments)

    monkeypatch.setattr(loop, where, interrupt)
    with pytest.raises(Preemption, match="in seed 1; 1 finished") as stopped:
        finetune_stage(checkpoint, card, BRIEF, tmp_path / "out")
    assert stopped.value.exit_code == 75
    assert len(calls) == 1
    assert [path.name for path in seeds_folder(tmp_path / "out").iterdir()] == ["seed-0"]
    monkeypatch.setattr(loop, where, original)
    finetune_stage(checkpoint, card, BRIEF, tmp_path / "out")
    assert ran == [0, 1, 1, 2, 3]


@pytest.fixture
def interrupted(checkpoint, card, tmp_path, monkeypatch):
    """A folder for results, beside which seed 0 is finished."""

    def leave(*arguments):
        if arguments[4] == 1:
            raise KeyboardInterrupt
        return run_seed(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(finetune, "run_seed", leave)
        with pytest.raises(KeyboardInterrupt):
            finetune_stage(checkpoint, card, BRIEF, tmp_path / "out")
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"epochs": 1}, r"out-seeds was made from other settings \(preset.epochs: 2 there, 1 now\)"),
        ({"max_train": 20}, r"max_train: null there, 20 now"),
    ],
)
def test_a_finished_seed_of_other_settings_is_refused(checkpoint, card, interrupted, ran, changed, says):
    with pytest.raises(ArtifactError, match=says):
        finetune_stage(checkpoint, card, replace(BRIEF, **changed), interrupted)
    assert ran == []
    assert (seeds_folder(interrupted) / "seed-0").exists()


@pytest.mark.parametrize("file", ["result.json", "probabilities.npy", "manifest"])
def test_a_damaged_seed_is_run_again(checkpoint, card, interrupted, ran, file):
    (found,) = (seeds_folder(interrupted) / "seed-0").rglob(f"*{file}*")
    found.write_bytes(found.read_bytes()[:-3] + b"xyz")
    finetune_stage(checkpoint, card, BRIEF, interrupted)
    assert ran == [0, 1, 2, 3]


def test_another_number_of_seeds_takes_up_what_is_finished(checkpoint, card, interrupted, ran):
    finetune_stage(checkpoint, card, replace(BRIEF, seeds=[3, 0]), interrupted)
    assert ran == [3]
    assert [row["seed"] for row in outcome(interrupted)[0]["seeds"]] == [3, 0]


def test_a_finished_result_is_extended_by_more_seeds(checkpoint, card, tmp_path, ran):
    out = tmp_path / "out"
    finetune_stage(checkpoint, card, replace(BRIEF, seeds=2), out)
    finetune_stage(checkpoint, card, BRIEF, out)
    assert ran == [0, 1, 2, 3]
    finetune_stage(checkpoint, card, BRIEF, tmp_path / "whole")
    assert outcome(out) == outcome(tmp_path / "whole")
    assert pq.read_table(out / "predictions.parquet").num_rows == 4 * 60
    assert not seeds_folder(out).exists()


def test_a_result_is_there_until_the_longer_one_is_whole(checkpoint, card, tmp_path, monkeypatch):
    out, fewer = tmp_path / "out", replace(BRIEF, seeds=1)
    finetune_stage(checkpoint, card, fewer, out)
    before = outcome(out)

    def die(*arguments):
        assert outcome(out) == before
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(finetune, "run_seed", die)
        with pytest.raises(KeyboardInterrupt):
            finetune_stage(checkpoint, card, BRIEF, out)
    assert outcome(out) == before
    finetune_stage(checkpoint, card, fewer, out)  # as it was: nothing to do


@pytest.mark.parametrize("renames", [0, 1])
def test_killed_while_the_longer_result_takes_its_place_nothing_is_run_again(
    checkpoint, card, tmp_path, ran, monkeypatch, renames
):
    out = tmp_path / "out"
    finetune_stage(checkpoint, card, replace(BRIEF, seeds=1), out)
    original, done = Path.rename, []

    def die(self, target):
        if self == out or target == out:
            if len(done) == renames:
                raise KeyboardInterrupt
            done.append(1)
        return original(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", die)
        with pytest.raises(KeyboardInterrupt):
            finetune_stage(checkpoint, card, replace(BRIEF, seeds=2), out)
    finetune_stage(checkpoint, card, replace(BRIEF, seeds=2), out)
    assert ran == [0, 1]
    assert outcome(out)[0]["n"] == 2
    assert not seeds_folder(out).exists()


def test_fewer_seeds_than_there_are_is_refused(checkpoint, card, tmp_path):
    finetune_stage(checkpoint, card, replace(BRIEF, seeds=2), tmp_path / "out")
    with pytest.raises(ArtifactError, match=r"preset\.seeds: \[0, 1\] there, \[0\] now"):
        finetune_stage(checkpoint, card, replace(BRIEF, seeds=1), tmp_path / "out")


@pytest.mark.slow
def test_two_processes_extend_what_one_began(checkpoint, card, tmp_path, ran):
    finetune_stage(checkpoint, card, replace(BRIEF, seeds=1), tmp_path / "out")
    recipe = str(Path(__file__).parent.parent.parent / "recipes" / "finetune.py")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", recipe]
    arguments = ["--model", checkpoint, "--task-card", card, "--preset", "quick", "--out", str(tmp_path / "out")]
    arguments += ["--set", "finetune.epochs=2", "--seeds", "4"]
    done = subprocess.run(
        [*launch, *arguments], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert "seed 0  " not in done.stderr
    finetune_stage(checkpoint, card, BRIEF, tmp_path / "whole")
    assert outcome(tmp_path / "out") == outcome(tmp_path / "whole")
