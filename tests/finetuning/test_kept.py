"""Models that wait for the end of a fine-tuning: the best stays."""

from dataclasses import replace

import numpy as np
import torch

from dana.finetuning.results import SeedResult, Seeds


def kept(folder):
    return Seeds(folder / "out-seeds", {"model": "m"}, seeds=(0, 1, 2))


def result(seed, dev_score):
    return SeedResult(seed, 1, [dev_score], np.zeros((2, 2), dtype=np.float32), 0.0)


def waiting(folder):
    return sorted(path.name for path in (folder / "out-seeds").iterdir())


def test_the_best_so_far_waits_and_of_equal_ones_the_earlier(tmp_path):
    places, model = kept(tmp_path), torch.nn.Linear(2, 2)
    for seed, score, names in ((1, 0.5, ["model-1"]), (2, 0.4, ["model-1"]), (0, 0.5, ["model-0"])):
        places.keep_model(result(seed, score), model)
        assert waiting(tmp_path) == names


def test_a_model_is_restored_whole_and_in_its_precision_or_not_at_all(tmp_path):
    places, model, other = kept(tmp_path), torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    places.keep_model(result(1, 0.5), model)
    assert not places.restore(0, other)
    assert not replace(places, precision="bf16").restore(1, other)
    assert not torch.equal(other.weight, model.weight)
    assert places.restore(1, other)
    assert torch.equal(other.weight, model.weight)
    weights = tmp_path / "out-seeds" / "model-1" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert not places.restore(1, other)
