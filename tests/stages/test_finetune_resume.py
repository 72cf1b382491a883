"""Fine-tuning that is killed, stopped or extended: finished seeds are never run again."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import toy_task

from dana.core.errors import ArtifactError, Preemption
from dana.finetuning import loop
from dana.finetuning.loop import run_seed
from dana.stages import finetune_seed
from dana.stages.finetune import FinetuneSettings, finetune_stage

REPOSITORY = Path(__file__).parent.parent.parent
BRIEF = FinetuneSettings(preset="quick", epochs=1, seeds=4)
TWO = replace(BRIEF, seeds=2)
ONE = replace(BRIEF, seeds=1)


def outcome(folder):
    """Read everything that is written but the seconds."""
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    rows = [{**row, "seconds": 0} for row in metrics["seeds"]]
    return {**metrics, "seeds": rows}, (folder / "predictions.parquet").read_bytes()


def seed_folders(out):
    return sorted(path.name for path in out.with_name(f"{out.name}-seeds").glob("0/seed-*"))


@pytest.fixture(scope="module")
def four_seeds(checkpoint, tmp_path_factory):
    """Read the outcome of four seeds in one go."""
    folder = tmp_path_factory.mktemp("four_seeds")
    finetune_stage(checkpoint, str(toy_task.write_task(folder / "tasks")), BRIEF, folder / "out")
    return outcome(folder / "out")


DIES_IN_SEED_2 = """
import os, signal, sys
sys.path.insert(0, sys.argv[4])
from pathlib import Path
from dana.stages import finetune, finetune_seed
original = finetune_seed.run_seed
def run_seed(*arguments):
    if arguments[4] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*arguments)
finetune_seed.run_seed = run_seed
settings = finetune.FinetuneSettings(preset="quick", epochs=1, seeds=4)
finetune.finetune_stage(sys.argv[1], sys.argv[2], settings, Path(sys.argv[3]))
"""


def test_killed_in_seed_2_the_rerun_runs_2_and_3_and_writes_the_same(
    four_seeds, checkpoint, card, tmp_path, ran
):
    out = tmp_path / "out"
    command = [sys.executable, "-c", DIES_IN_SEED_2, checkpoint, card, str(out), str(REPOSITORY)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    assert not out.exists()
    finetune_stage(checkpoint, card, BRIEF, out)
    assert ran == [2, 3]
    assert outcome(out) == four_seeds


@pytest.mark.parametrize(
    ("number", "step"), [(signal.SIGTERM, "learning_rate_at"), (signal.SIGUSR1, "predict")]
)
def test_told_to_stop_it_keeps_what_is_finished(
    checkpoint, card, tmp_path, ran, monkeypatch, number, step
):
    """In the training of seed 1, or in its evaluation."""
    original = getattr(loop, step)
    calls = []
    out = tmp_path / "out"

    def interrupt(*arguments, **settings):
        if ran[-1] == 1:
            calls.append(1)
            os.kill(os.getpid(), number)
        return original(*arguments, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(loop, step, interrupt)
        with pytest.raises(Preemption, match="in seed 1; finished seeds are kept") as stop:
            finetune_stage(checkpoint, card, TWO, out)
    assert stop.value.exit_code == 75
    assert len(calls) == 1
    assert seed_folders(out) == ["seed-0"]
    finetune_stage(checkpoint, card, TWO, out)
    assert ran == [0, 1, 1]


@pytest.fixture
def half_done(checkpoint, card, tmp_path, monkeypatch):
    """Leave a folder for results, beside which seed 0 is finished."""

    def leave(*arguments):
        if arguments[4] == 1:
            raise KeyboardInterrupt
        return run_seed(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(finetune_seed, "run_seed", leave)
        with pytest.raises(KeyboardInterrupt):
            finetune_stage(checkpoint, card, TWO, tmp_path / "out")
    return tmp_path / "out"


def test_a_finished_seed_is_of_any_number_of_seeds_but_not_of_other_settings(
    checkpoint, card, half_done, ran
):
    for changes, difference in (
        ({"epochs": 2}, "preset.epochs: 1 there, 2"),
        ({"max_train": 9}, "null there, 9 now"),
    ):
        with pytest.raises(ArtifactError, match=f"was made from other settings .*{difference}"):
            finetune_stage(checkpoint, card, replace(ONE, **changes), half_done)
    assert ran == []
    finetune_stage(checkpoint, card, replace(BRIEF, seeds=[3, 0]), half_done)
    assert ran == [3]
    assert [row["seed"] for row in outcome(half_done)[0]["seeds"]] == [3, 0]


def test_a_finished_result_gets_more_seeds_without_running_the_first_again(
    four_seeds, checkpoint, card, tmp_path, ran
):
    out = tmp_path / "out"
    finetune_stage(checkpoint, card, TWO, out)
    finetune_stage(checkpoint, card, BRIEF, out)
    assert ran == [0, 1, 2, 3]
    assert outcome(out) == four_seeds
    finetune_stage(checkpoint, card, ONE, out)
    assert ran == [0, 1, 2, 3]
    assert outcome(out)[0]["n"] == 1


def test_a_result_is_there_until_the_longer_one_is_whole(checkpoint, card, tmp_path, monkeypatch):
    out = tmp_path / "out"
    finetune_stage(checkpoint, card, ONE, out)
    before = outcome(out)

    def die(*arguments):
        assert outcome(out) == before
        raise KeyboardInterrupt

    monkeypatch.setattr(finetune_seed, "run_seed", die)
    with pytest.raises(KeyboardInterrupt):
        finetune_stage(checkpoint, card, TWO, out)
    assert outcome(out) == before
    finetune_stage(checkpoint, card, ONE, out)  # as it was: nothing to do


@pytest.mark.slow
def test_two_processes_extend_what_one_began(four_seeds, checkpoint, card, tmp_path):
    finetune_stage(checkpoint, card, ONE, tmp_path / "out")
    recipe = str(REPOSITORY / "recipes" / "finetune.py")
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
        recipe,
    ]
    arguments = [
        "--model",
        checkpoint,
        "--task",
        card,
        "--preset",
        "quick",
        "--out",
        str(tmp_path / "out"),
    ]
    arguments += ["--set", "finetune.epochs=1", "--seeds", "4"]
    process = subprocess.run([*launch, *arguments], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert "seed 0  " not in process.stderr
    metrics, *tables = outcome(tmp_path / "out")
    assert metrics["baselines"].keys() == {"majority", "tfidf"}, "the command adds them"
    assert (metrics | {"baselines": four_seeds[0]["baselines"]}, *tables) == four_seeds
