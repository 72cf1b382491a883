"""Parameters of which each rank holds a part: saved whole, put back in parts, and the same model in the end.

Run by a launcher on two CPU processes, this file trains, saves and goes on with parameters cut up
by torch's fully_shard, and writes to FOLDER. Accelerate refuses FSDP on CPUs, so the model is cut
up here; all else is what a run does.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoModelForMaskedLM

from dana.models.heads import SelectedLogits
from dana.train.checkpoints import CheckpointPolicy, Checkpoints
from dana.train.execution import make_accelerator
from dana.train.layout import BatchLayout
from dana.train.loop import train
from dana.train.settings import Execution, TrainSettings
from dana.train.state import read_state, save_model
from dana.train.supervised import make_optimizer
from dana.train.training_state import TrainingState
from tests.train.conftest import MASKED, TEXTS, bert, random_examples, run

REPOSITORY = Path(__file__).parents[2]
SETTINGS = TrainSettings(
    steps=6, max_tokens=16, batch_size=8, evaluations=0, execution=Execution(micro_batch_tokens=64)
)


class NoTokenizer:
    """Stands in for a tokenizer, which is not what is tested."""

    def save_pretrained(self, folder):
        pass


def sharded(accelerator):
    model = bert()
    module = SelectedLogits(model)
    fully_shard(module)
    assert all(isinstance(value, DTensor) for value in module.parameters())
    return TrainingState(
        module, make_optimizer(module, 1e-4, 0.01), accelerator, BatchLayout(budget=64)
    )


def train_until(state, until, before=()):
    records = list(before)
    for record in train(state, random_examples(), [MASKED], SETTINGS, TEXTS, tuple(before)):
        records.append(record)
        if record.kind == "step" and record.step == until:
            break
    return records


def main(folder):
    accelerator = make_accelerator()
    first = accelerator.is_main_process
    first_state = sharded(accelerator)
    records = train_until(first_state, until=3)
    policy = CheckpointPolicy(Checkpoints(folder / "half", {}), SETTINGS, {}, records)
    policy.save(first_state)
    second_state = sharded(accelerator)
    checkpoint = policy.checkpoints.newest()
    policy.resume(second_state, checkpoint)
    if first:
        save_file(read_state(second_state), folder / "again.safetensors")
    else:
        read_state(second_state)
    records = train_until(second_state, until=6, before=policy.records)
    end = CheckpointPolicy(Checkpoints(folder / "end", {}), SETTINGS, {}, records)
    end.save(second_state)
    save_model(second_state, NoTokenizer(), folder / "model" if first else None)
    accelerator.wait_for_everyone()
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_saved_on_two_ranks_and_taken_up_again_it_is_what_one_process_makes(examples, tmp_path):
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
    ]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [*launcher, "-m", "tests.train.test_sharded", tmp_path]
    process = subprocess.run(
        command, capture_output=True, text=True, cwd=REPOSITORY, timeout=120, env=environment
    )
    assert process.returncode == 0, process.stderr
    reference, _ = run(examples, steps=6, budget=64)
    tensors = load_file(tmp_path / "end" / "last.safetensors")
    for name, value in reference.module.model.named_parameters():
        torch.testing.assert_close(
            tensors[f"parameter.model.{name}"], value.detach(), atol=1e-6, rtol=0
        )
    moments = reference.optimizer.state_dict()["state"]
    assert len(moments) * 2 == sum(name.startswith("exp_avg") for name in tensors)
    assert {float(value) for name, value in tensors.items() if name.startswith("step.")} == {6.0}

    before = load_file(tmp_path / "half" / "last.safetensors")
    after = load_file(tmp_path / "again.safetensors")
    assert before.keys() == {*after, "records"}
    assert all(torch.equal(value, before[name]) for name, value in after.items())

    model, report = AutoModelForMaskedLM.from_pretrained(
        tmp_path / "model", output_loading_info=True
    )
    assert not report["missing_keys"]
    for name, value in model.named_parameters():
        assert torch.equal(value, tensors[f"parameter.model.{name}"]), name


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stderr.flush()
    # Without Python's own end, in which a thread of torch's that still runs may abort the process:
    # seen once.
    os._exit(0)
