"""Results of seeds: stored, read back, shown; the weights of the best seed wait for the end."""

from dataclasses import replace

import numpy as np
import torch

from dana.finetuning.results import SeedResult, Seeds, read_results, results_table, write_results
from dana.tasks.examples import Example

ROWS = [
    {"seed": 0, "score": 0.5, "dev_score": 0.61234, "epoch": 3, "seconds": 12.34, "degenerate": False},
    {"seed": 11, "score": 0.2, "dev_score": 0.25, "epoch": 1, "seconds": 9.0, "degenerate": True},
]


def test_the_table_has_one_line_per_seed_and_flags_a_collapse():
    metrics = {"metric": "macro_f1", "seeds": ROWS, "mean": 0.35, "std": 0.21213, "n": 2}
    head, first, second, last = results_table(metrics).splitlines()
    assert head.split() == ["seed", "macro_f1", "dev", "epoch", "seconds"]
    assert first.split() == ["0", "0.5000", "0.6123", "3", "12.3"]
    assert second.split()[:6] == ["11", "0.2000", "0.2500", "1", "9.0", "collapsed:"]
    assert last.split()[:6] == ["mean", "0.3500", "±", "0.2121", "(n", "="]
    alone = results_table({**metrics, "seeds": ROWS[:1], "mean": 0.5, "std": None, "n": 1})
    assert "±" not in alone


def test_results_are_read_back_bit_for_bit(toy_card, tmp_path):
    random = np.random.default_rng(0)
    results = [SeedResult(seed, 2, [0.1, 1 / 3], random.random((5, 3), dtype=np.float32), 0.123) for seed in (4, 1)]
    write_results(tmp_path, toy_card, {}, results, [Example(f"test-{at}", "some text", at % 3) for at in range(5)])
    for before, after in zip(results, read_results(tmp_path, toy_card.target), strict=True):
        assert np.array_equal(before.outputs, after.outputs)
        assert after.outputs.dtype == np.float32
        assert {**vars(before), "outputs": 0} == {**vars(after), "outputs": 0}


def test_the_weights_of_the_best_seed_wait_and_are_restored_undamaged_in_their_precision(tmp_path):
    seeds = Seeds(tmp_path / "seeds", {"model": "m"}, seeds=(0, 1, 2))
    model, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    for seed, score, best in ((1, 0.5, "model-1"), (2, 0.4, "model-1"), (0, 0.5, "model-0")):
        seeds.keep_model(SeedResult(seed, 1, [score], np.zeros((2, 2), dtype=np.float32), 0.0), model)
        assert [path.name for path in seeds.folder.iterdir()] == [best], "of equal scores the earlier seed"
    assert not seeds.restore(1, other)
    assert not replace(seeds, precision="bf16").restore(0, other)
    assert not torch.equal(other.weight, model.weight)
    assert seeds.restore(0, other)
    assert torch.equal(other.weight, model.weight)
    weights = seeds.folder / "model-0" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert not seeds.restore(0, other)
