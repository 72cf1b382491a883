"""Models that wait for the end of a fine-tuning: the best stays, and nobody removes what another process is writing."""

import subprocess
import sys

import numpy as np
import torch

from dana.finetuning.kept import Kept
from dana.finetuning.results import SeedResult

HOLD = """
import sys, time
from pathlib import Path
from dana.core.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(1.0)
    print("there" if Path(sys.argv[1]).is_dir() else "gone", flush=True)
"""


def kept(folder):
    return Kept(folder / "out-model", folder / "out-seeds", {"model": "m", "precision": "no"}, [0, 1, 2])


def result(seed, dev_score):
    return SeedResult(seed, 1, [dev_score], np.zeros((2, 2), dtype=np.float32), 0.0)


def waiting(folder):
    return sorted(path.name for path in (folder / "out-seeds").iterdir())


def test_the_best_so_far_waits_and_of_equal_ones_the_earlier(tmp_path):
    places, model = kept(tmp_path), torch.nn.Linear(2, 2)
    for seed, score, names in ((1, 0.5, ["model-1"]), (2, 0.4, ["model-1"]), (0, 0.5, ["model-0"])):
        places.keep(result(seed, score), model)
        assert waiting(tmp_path) == names


def test_a_worse_one_that_another_process_still_writes_is_removed_when_that_is_done(tmp_path):
    places, model = kept(tmp_path), torch.nn.Linear(2, 2)
    places.keep(result(1, 0.3), model)
    place = tmp_path / "out-seeds" / "model-1"
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(place)], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "held\n"
    places.keep(result(0, 0.9), model)
    assert other.communicate(timeout=60)[0] == "there\n"
    assert waiting(tmp_path) == ["model-0"]
