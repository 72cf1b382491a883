import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dana.mlm.layout import LAYOUTS, Arrangement, best_fit, micro_batches, pieces
from dana.mlm.varlen import attention

LENGTHS = st.lists(st.integers(1, 64), min_size=1, max_size=60)


@given(lengths=LENGTHS, budget=st.integers(64, 400), world=st.integers(1, 4), layout=st.sampled_from(LAYOUTS))
@settings(deadline=None)
def test_micro_batches_share_a_step_among_ranks(lengths, budget, world, layout):
    lengths = np.array(lengths)
    ranks = [micro_batches(lengths, budget, rank, world, layout, 64) for rank in range(world)]
    assert len({len(batches) for batches in ranks}) == 1, "collectives need equally many on every rank"
    found = [example for batches in ranks for rows in batches for row in rows for example in row]
    assert sorted(found) == list(range(lengths.size))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    for batches in ranks:
        for rows in batches:
            if rows:
                size = Arrangement.of(rows, offsets, 64 if layout == "packed" else 0).places.size
                assert size <= budget + (lengths.max() if layout == "unpadded" else 0)


def test_padded_micro_batches_hold_similar_lengths():
    lengths = np.array([4, 40, 5, 41, 6, 42])
    cut = micro_batches(lengths, 126, 0, 1, "padded", 0)
    assert [sorted(int(lengths[row[0]]) for row in rows) for rows in cut] == [[40, 41, 42], [4, 5, 6]]


def test_padded_micro_batches_are_cut_where_padding_would_cost_more_than_a_pass():
    lengths = np.array([128] * 16 + [100] * 4 + [40] * 30 + [20] * 10)
    cut = micro_batches(lengths, 1 << 20, 0, 1, "padded", 0)
    assert [sorted({int(lengths[row[0]]) for row in rows}) for rows in cut] == [[100, 128], [40], [20]]
    assert len(micro_batches(lengths[-10:], 1 << 20, 0, 1, "padded", 0)) == 1
    few = micro_batches(np.array([100, 10, 10, 5]), 1 << 20, 0, 1, "padded", 0)
    assert len(few) == 1, "too little to keep a processor busy twice"


def test_best_fit_fills_the_fullest_row_that_has_room():
    lengths = np.array([6, 3, 5, 4, 2])
    assert [lengths[row].tolist() for row in best_fit(lengths, 10)] == [[6, 4], [5, 3, 2]]


@given(lengths=LENGTHS)
def test_best_fit_is_within_a_quarter_of_the_fewest_rows(lengths):
    lengths = np.array(lengths)
    rows = best_fit(lengths, 64)
    assert all(lengths[row].sum() <= 64 for row in rows)
    assert len(rows) <= 1.25 * -(-lengths.sum() // 64) + np.sum(lengths > 32)


def test_places_of_two_packed_examples_by_hand():
    found = Arrangement.of([np.array([1, 0]), np.array([2])], np.array([0, 2, 5, 9]), width=6)
    assert found.places.tolist() == [[2, 3, 4, 0, 1, -1], [5, 6, 7, 8, -1, -1]]
    assert found.example.tolist() == [[1, 1, 1, 0, 0, -1], [2, 2, 2, 2, -1, -1]]
    assert found.position.tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 0, 0]]
    mask = found.attention("packed", 0)["attention_mask"][0, 0]
    assert mask[0].tolist() == [True, True, True, False, False, False]
    assert mask[5].tolist() == [False, False, False, False, False, True], "padding sees padding: never 0 / 0"


def test_pieces_cut_between_rows_or_within_the_only_one():
    assert [[row.tolist() for row in piece] for piece in pieces([np.array([0, 1, 2])], 2)] == [[[0, 1]], [[2]]]
    assert [len(piece) for piece in pieces([np.array([row]) for row in range(5)], 2)] == [2, 3]
    assert pieces([], 4) == [[]], "an idle rank stays idle"


def test_attention_over_lengths_is_attention_over_each_example_alone():
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 9, 4, generator=generator, requires_grad=True).unbind(0)
    bounds = torch.tensor([0, 4, 5, 9], dtype=torch.int32)
    found, _ = attention(torch.nn.Module(), query, key, value, None, cu_seq_lens_q=bounds, max_length_q=4)
    alone = [
        torch.nn.functional.scaled_dot_product_attention(query[:, :, a:b], key[:, :, a:b], value[:, :, a:b])
        for a, b in ((0, 4), (4, 5), (5, 9))
    ]
    torch.testing.assert_close(found, torch.cat(alone, 2).transpose(1, 2))


@pytest.mark.gpu
def test_the_kernel_agrees_with_the_padded_product():
    generator = torch.Generator("cuda").manual_seed(0)
    parts = torch.randn(3, 1, 4, 300, 64, generator=generator, device="cuda", dtype=torch.bfloat16).unbind(0)
    bounds = torch.tensor([0, 120, 121, 300], dtype=torch.int32, device="cuda")
    given = {"cu_seq_lens_q": bounds, "max_length_q": 179}
    kernel, _ = attention(torch.nn.Module(), *parts, None, **given)
    padded, _ = attention(torch.nn.Module(), *(part.float() for part in parts), None, **given)
    torch.testing.assert_close(kernel.float(), padded, atol=2e-2, rtol=2e-2)
