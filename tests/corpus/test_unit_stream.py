"""Unit streams and samples: uniform, disjoint, indifferent to order and batch."""

import numpy as np
import pytest

from dana.core.rng import unit_keys
from dana.core.schemas import Document
from dana.corpus.unit_stream import Units, _Lowest, draw, split_documents


def _lines(text):
    spans, start = [], 0
    for line in text.split("\n"):
        spans.append((start, start + len(line)))
        start += len(line) + 1
    return spans


DOCUMENTS = [
    Document(f"d{i}", "s", "\n".join(f"unit {i} {j}" for j in range(1 + i % 7))) for i in range(300)
]
UNITS = sum(1 + i % 7 for i in range(300))


def test_units_carry_their_document_and_span():
    batches = list(split_documents(DOCUMENTS[:3], _lines, batch=2))
    assert [len(batch) for batch in batches] == [3, 3]
    assert batches[1].texts == ["unit 2 0", "unit 2 1", "unit 2 2"]
    assert batches[1].numbers.tolist() == [0, 1, 2]
    assert [
        DOCUMENTS[2].text[a:b] for a, b in zip(batches[1].starts, batches[1].ends, strict=True)
    ] == batches[1].texts


def test_keys_are_distinct_and_do_not_depend_on_the_batch():
    small = np.concatenate([batch.keys for batch in split_documents(DOCUMENTS, _lines, batch=1)])
    large = np.concatenate(
        [batch.keys for batch in split_documents(DOCUMENTS, _lines, batch=10**6)]
    )
    np.testing.assert_array_equal(small, large)
    assert np.unique(small).size == UNITS
    assert unit_keys("d2", np.array([1]))[0] == unit_keys("d2", np.arange(3))[1]


def _sizes(count, sizes):
    """Sizes of the samples of the first documents, each with a seed of its own; no unit is in two."""
    requests = {str(seed): (seed, size) for seed, size in enumerate(sizes)}
    samples = draw(split_documents(DOCUMENTS[:count], _lines), requests)
    ids = [unit for sample in samples.values() for unit in sample.ids]
    assert len(set(ids)) == len(ids)
    return [len(sample.ids) for sample in samples.values()]


@pytest.mark.parametrize("batch", [1, 64, 10**6])
def test_samples_are_disjoint_seeded_and_ignore_order_and_batch(batch):
    requests = {"a": (1, 50), "b": (2, 50), "none": (3, 0)}
    samples = draw(split_documents(DOCUMENTS, _lines, batch), requests)
    ids = {name: sample.ids for name, sample in samples.items()}
    backwards = draw(split_documents(DOCUMENTS[::-1], _lines, 7), requests)
    assert ids == {name: sample.ids for name, sample in backwards.items()}
    assert ids["a"] != draw(split_documents(DOCUMENTS, _lines), {"a": (9, 50)})["a"].ids
    every = Units.join(list(split_documents(DOCUMENTS, _lines, 100)))
    rows = {unit: row for row, unit in enumerate(every.ids)}
    sample, same = samples["a"], every.rows(np.array([rows[unit] for unit in ids["a"]]))
    assert sample.texts == [f"unit {doc_id[1:]} {unit}" for doc_id, unit in ids["a"]]
    for name in ("ids", "sources", "texts"):
        assert getattr(sample, name) == getattr(same, name)
    for name in ("starts", "ends", "keys", "numbers"):
        assert getattr(sample, name).tolist() == getattr(same, name).tolist()


def test_a_small_pool_gives_smaller_samples_and_nothing_twice():
    assert _sizes(300, [50, 50, 0]) == [50, 50, 0]
    assert _sizes(5, [10, 10]) == [8, 7]
    assert _sizes(5, [1000, 3, 100, 0]) == [6, 3, 6, 0]
    assert _sizes(5, [12, 3]) == [12, 3]


def test_batches_without_a_lowest_rank_are_not_held():
    batch = Units.of_texts([f"unit {row}" for row in range(100)])
    lowest = _Lowest(50)
    lowest.add(batch, np.linspace(0, 0.5, 100))
    lowest.add(batch, np.linspace(0, 0.5, 100))
    held = len(lowest._units)
    for _ in range(10):
        lowest.add(batch, np.full(100, 0.9))
    assert len(lowest._units) == held
    assert lowest.cut()[1].max() < 0.25


def test_every_unit_is_equally_likely():
    counts = np.zeros(7)
    for seed in range(200):
        for _, unit in draw(split_documents(DOCUMENTS, _lines), {"a": (seed, 20)})["a"].ids:
            counts[unit] += 1
    fair = np.array([sum(1 + i % 7 > unit for i in range(300)) for unit in range(7)]) / UNITS * 4000
    assert float(((counts - fair) ** 2 / fair).sum()) < 22.5  # 6 degrees of freedom, p = 0.001
