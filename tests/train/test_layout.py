import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dana.models.varlen import attention, has_kernel, padded_attention
from dana.train import LAYOUTS
from dana.train.layout import BatchLayout, lay_out, micro_batches

LENGTHS = st.lists(st.integers(1, 64), min_size=1, max_size=60)


@given(lengths=LENGTHS, budget=st.integers(64, 400), world=st.integers(1, 4), layout=st.sampled_from(LAYOUTS))
def test_micro_batches_share_a_step_among_ranks(lengths, budget, world, layout):
    lengths = np.array(lengths)
    ranks = [micro_batches(lengths, BatchLayout(layout, budget), rank, world) for rank in range(world)]
    assert len({len(batches) for batches in ranks}) == 1, "collectives need equally many on every rank"
    found = [example for batches in ranks for rows in batches for example in rows]
    assert sorted(found) == list(range(lengths.size))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    for batches in ranks:
        for rows in batches:
            if rows.size:
                size = lay_out(rows, offsets, BatchLayout(layout))[0].size
                assert size <= budget + (lengths.max() if layout == "unpadded" else 0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_example_longer_than_the_budget_is_a_pass_of_its_own(layout):
    cut = [micro_batches(np.array([5, 5, 5]), BatchLayout(layout, 4), rank, 2) for rank in (0, 1)]
    assert [[rows.tolist() for rows in batches] for batches in cut] == [[[0], [2]], [[1], []]]


def test_padded_micro_batches_hold_similar_lengths():
    lengths = np.array([4, 40, 5, 41, 6, 42])
    cut = micro_batches(lengths, BatchLayout(budget=126))
    assert [sorted(lengths[rows].tolist()) for rows in cut] == [[40, 41, 42], [4, 5, 6]]


def test_padded_micro_batches_are_cut_where_padding_would_cost_more_than_a_pass():
    lengths = np.array([128] * 16 + [100] * 4 + [40] * 30 + [20] * 10)
    cut = micro_batches(lengths, BatchLayout(budget=1 << 20))
    assert [sorted({*lengths[rows].tolist()}) for rows in cut] == [[100, 128], [40], [20]]
    assert len(micro_batches(lengths[-10:], BatchLayout(budget=1 << 20))) == 1
    few = micro_batches(np.array([100, 10, 10, 5]), BatchLayout(budget=1 << 20))
    assert len(few) == 1, "too little to keep a processor busy twice"


def test_places_of_two_examples_by_hand():
    chosen, offsets = np.array([1, 0]), np.array([0, 2, 5, 9])
    places, attention_inputs = lay_out(chosen, offsets, BatchLayout())
    assert places.tolist() == [[2, 3, 4], [0, 1, -1]]
    assert attention_inputs["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    places, attention_inputs = lay_out(chosen, offsets, BatchLayout("unpadded", first_position=2))
    assert places.tolist() == [[2, 3, 4, 0, 1]]
    assert attention_inputs["position_ids"].tolist() == [[2, 3, 4, 2, 3]]
    assert attention_inputs["cu_seq_lens_q"].tolist() == [0, 3, 5]
    assert attention_inputs["max_length_q"] == 3


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


def test_attention_over_lengths_honours_a_sliding_window():
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 9, 4, generator=generator).unbind(0)
    bounds = torch.tensor([0, 7, 9], dtype=torch.int32)
    given = {"cu_seq_lens_q": bounds, "max_length_q": 7}
    found, _ = attention(torch.nn.Module(), query, key, value, None, sliding_window=3, **given)
    near = (torch.arange(9)[:, None] - torch.arange(9)).abs() <= 2  # transformers counts the place itself
    together = torch.tensor([0] * 7 + [1] * 2)
    mask = near & (together[:, None] == together)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2)
    torch.testing.assert_close(found, expected)
    wide, _ = attention(torch.nn.Module(), query, key, value, None, **given)
    assert (wide - found).abs().max() > 0.1
    alone, _ = attention(torch.nn.Module(), query, key, value, None, sliding_window=1, **given)
    torch.testing.assert_close(alone, value.transpose(1, 2))


def test_gradients_of_a_sliding_window_are_finite_where_padding_sees_no_one():
    parts = torch.randn(3, 1, 2, 12, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    bounds = torch.tensor([0, 11, 12], dtype=torch.int32)
    found = padded_attention(*parts.unbind(0), bounds, 11, window=1)
    found.square().sum().backward()
    assert torch.isfinite(parts.grad).all()


def kernel_difference(bounds, heads, dims, window=-1):
    """The kernel's largest difference to the padded product on random vectors, both in bfloat16."""
    generator = torch.Generator(bounds.device).manual_seed(0)
    shape = (3, 1, heads, int(bounds[-1]), dims)
    query, key, value = torch.randn(shape, generator=generator, device=bounds.device, dtype=torch.bfloat16).unbind(0)
    longest = int(bounds.diff().max())
    given = {"cu_seq_lens_q": bounds, "max_length_q": longest, "sliding_window": window + 1}
    kernel, _ = attention(torch.nn.Module(), query, key, value, None, **given)
    expected = padded_attention(query.float(), key.float(), value.float(), bounds, longest, window=window)
    return float((kernel.float() - expected).abs().max())


@pytest.mark.gpu
@pytest.mark.parametrize("window", [-1, 20])
def test_the_kernel_agrees_with_the_padded_product(window):
    bounds = torch.tensor([0, 120, 121, 300], dtype=torch.int32, device="cuda")
    assert has_kernel(bounds.device)
    assert 0 < kernel_difference(bounds, 4, 64, window) < 3e-2


def test_the_kernel_is_given_the_window_and_a_wrong_one_is_noticed(monkeypatch):
    """A stand-in for the kernel, which only GPUs have: the padded product, right and with the window forgotten."""
    bounds = torch.tensor([0, 20, 21, 50], dtype=torch.int32)
    windows, right = [], True

    def stand_in(q, k, v, cu_seq_q, cu_seq_k, max_q, max_k, *, scale, window_size):
        windows.append(window_size)
        q, k, v = (part.transpose(0, 1).unsqueeze(0) for part in (q, k, v))
        return padded_attention(q, k, v, cu_seq_q, max_q, scale, window=window_size[0] if right else -1)[0]

    monkeypatch.setattr("dana.models.varlen.has_kernel", lambda device: True)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", stand_in)
    assert kernel_difference(bounds, 2, 8) < 3e-2
    assert kernel_difference(bounds, 2, 8, window=5) < 3e-2
    assert windows == [(-1, -1), (5, 5)]
    right = False
    assert kernel_difference(bounds, 2, 8, window=5) > 0.1
