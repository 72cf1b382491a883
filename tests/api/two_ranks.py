"""WeightedTrainer in two processes, two micro-batches of two examples each a step: writes the model's parameters."""

import os
import sys
from pathlib import Path

import torch
from datasets import load_from_disk
from torch.distributed import barrier, get_rank
from transformers import AutoTokenizer

from tests.api.test_trainer import load_without_dropout, trainers_steps

if __name__ == "__main__":
    checkpoint, folder = sys.argv[1], Path(sys.argv[2])
    model = load_without_dropout(checkpoint)
    rows, tokenizer = load_from_disk(folder / "rows"), AutoTokenizer.from_pretrained(checkpoint)
    after = trainers_steps(model, rows, tokenizer, folder, batch=2, accumulation=2)
    if get_rank() == 0:
        torch.save(after, folder / "after.pt")
    barrier()
    sys.stdout.flush()
    os._exit(0)  # a thread of gloo that frees tensors while the interpreter ends aborts the process
