"""Trains, saves and goes on with parameters cut up by torch's fully_shard, on two CPU processes: FOLDER is written to.

Accelerate refuses FSDP on CPUs, so the model is cut up here; all else is what a run does.
"""

import os
import sys
from pathlib import Path

import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from dana.models.heads import SelectedLogits
from dana.train.execution import make_accelerator
from dana.train.layout import BatchLayout
from dana.train.loop import TrainingState, train
from dana.train.settings import Execution, TrainSettings
from dana.train.state import load_state, save_model, save_state
from dana.train.supervised import make_optimizer
from tests.train.conftest import MASKED, TEXTS, bert, random_examples

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
    return TrainingState(module, make_optimizer(module, 1e-4, 0.01), accelerator, BatchLayout(budget=64))


def train_until(state, until, before=()):
    records = list(before)
    for record in train(state, random_examples(), MASKED, SETTINGS, TEXTS, tuple(before)):
        records.append(record)
        if record.kind == "step" and record.step == until:
            break
    return records


def main(folder):
    accelerator = make_accelerator()
    first = accelerator.is_main_process
    first_state = sharded(accelerator)
    records = train_until(first_state, until=3)
    save_state(first_state, folder / "state.safetensors" if first else None)
    accelerator.wait_for_everyone()
    second_state = sharded(accelerator)
    load_state(second_state, folder / "state.safetensors")
    train_until(second_state, until=6, before=records)
    save_state(second_state, folder / "end.safetensors" if first else None)
    save_model(second_state, NoTokenizer(), folder / "model" if first else None)
    accelerator.wait_for_everyone()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stderr.flush()
    # Without Python's own end, in which a thread of torch's that still runs may abort the process: seen once.
    os._exit(0)
