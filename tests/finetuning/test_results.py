import numpy as np

from dana.finetuning.results import SeedResult, read_results, results_table, write_results
from dana.tasks.examples import Example

METRICS = {
    "metric": "macro_f1",
    "seeds": [
        {"seed": 0, "score": 0.5, "dev_score": 0.61234, "epoch": 3, "seconds": 12.34, "degenerate": False},
        {"seed": 11, "score": 0.2, "dev_score": 0.25, "epoch": 1, "seconds": 9.0, "degenerate": True},
    ],
    "mean": 0.35,
    "std": 0.21213,
    "n": 2,
}


def test_the_table_has_a_line_a_seed_and_mean_and_deviation():
    head, first, second, last = results_table(METRICS).splitlines()
    assert head.split() == ["seed", "macro_f1", "dev", "epoch", "seconds"]
    assert first.split() == ["0", "0.5000", "0.6123", "3", "12.3"]
    assert second.split()[:5] == ["11", "0.2000", "0.2500", "1", "9.0"]
    assert last == "mean      0.3500 ± 0.2121  (n = 2 seeds, standard deviation with ddof 1)"


def test_the_table_flags_the_seed_that_collapsed_and_no_other():
    assert ["collapsed" in line for line in results_table(METRICS).splitlines()] == [False, False, True, False]


def test_the_table_of_one_seed_claims_no_deviation():
    alone = results_table({**METRICS, "seeds": METRICS["seeds"][:1], "mean": 0.5, "std": None, "n": 1})
    assert alone.splitlines()[-1] == "mean      0.5000  (n = 1 seed)"


def test_what_is_written_is_read_back_bit_for_bit(toy_card, tmp_path):
    random = np.random.default_rng(0)
    results = [
        SeedResult(seed, 2, [0.1, 1 / 3], random.random((5, 3), dtype=np.float32), seed + 0.123) for seed in (4, 1)
    ]
    test = [Example(f"test-{place}", "some text", place % 3) for place in range(5)]
    write_results(tmp_path, toy_card, {}, results, test)
    for before, after in zip(results, read_results(tmp_path, toy_card.target), strict=True):
        assert np.array_equal(before.outputs, after.outputs)
        assert after.outputs.dtype == np.float32
        assert (before.seed, before.epoch, before.dev_scores, before.seconds) == (
            after.seed,
            after.epoch,
            after.dev_scores,
            after.seconds,
        )
