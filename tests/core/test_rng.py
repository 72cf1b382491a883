"""Seeds and hashed uniforms."""

import numpy as np

from dana.core.rng import derive_seed, generator, hash_uniform


def test_seed_and_labels_in_order_name_a_stream():
    assert (
        len({derive_seed(*key) for key in ((0, "a", "b"), (0, "b", "a"), (0, "ab"), (1, "a", "b"))})
        == 4
    )
    assert derive_seed(0, "a", "b") == 3846167687619602431  # the same on every machine, for ever
    np.testing.assert_array_equal(generator(3, "x", 1).random(5), generator(3, "x", 1).random(5))
    assert (generator(3, "x", 1).random(5) != generator(3, "x", 2).random(5)).any()


def test_hash_uniform_is_uniform_and_ignores_the_batch():
    keys = np.arange(100_000, dtype=np.uint64)
    numbers = hash_uniform(7, keys)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts, _ = np.histogram(numbers, bins=100, range=(0, 1))
    chi_square = float(((counts - 1000) ** 2 / 1000).sum())
    assert chi_square < 150  # 99 degrees of freedom, p < 0.001 beyond 148
    np.testing.assert_array_equal(hash_uniform(7, keys[::-1])[::-1], numbers)
    assert abs(np.corrcoef(numbers, hash_uniform(8, keys))[0, 1]) < 0.02
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.02
