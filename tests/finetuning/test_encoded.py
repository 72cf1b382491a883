import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from dana.finetuning.encoded import BUCKET, Encoded, order
from dana.tasks.examples import Example
from dana.tasks.kinds.single_label import SingleLabel


def test_texts_are_cut_and_padded(checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    examples, kind = [Example("a", "apple pear", 1), Example("b", "iron " * 20, 0)], SingleLabel.numbered(2)
    split = Encoded.labelled(examples, tokenizer, 6, kind)
    assert split.lengths.tolist() == [4, 6]
    assert split.targets.tolist() == split.references.tolist() == [1, 0]
    ids, mask = split.batch(np.array([1, 0]), torch.device("cpu"))
    assert mask.tolist() == [[1] * 6, [1, 1, 1, 1, 0, 0]]
    assert ids[1].tolist() == [
        *tokenizer("apple pear")["input_ids"],
        tokenizer.pad_token_id,
        tokenizer.pad_token_id,
    ]
    assert ids[:, 0].tolist() == [tokenizer.cls_token_id] * 2


def test_a_batch_is_as_wide_as_its_longest_text():
    split = Encoded([[1], [1, 2], [1, 2, 3]], 0)
    assert split.batch(np.array([1, 0]), torch.device("cpu"))[0].tolist() == [[1, 2], [1, 0]]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=200), st.integers(1, 9), st.integers(0, 3))
def test_an_epoch_sees_every_example_once(lengths, size, epoch):
    steps = list(order(np.array(lengths), size, 0, epoch))
    assert sorted(np.concatenate(steps)) == list(range(len(lengths)))
    assert len(steps) == -(-len(lengths) // size)
    assert max(map(len, steps)) <= size


def test_the_order_is_a_function_of_seed_and_epoch():
    lengths = np.arange(100) % 17

    def flat(seed, epoch):
        return np.concatenate(list(order(lengths, 8, seed, epoch))).tolist()

    assert flat(0, 0) == flat(0, 0)
    assert flat(0, 0) != flat(1, 0)
    assert flat(0, 0) != flat(0, 1)


def test_batches_of_a_bucket_are_of_like_length_and_not_in_the_order_of_length():
    lengths = np.random.default_rng(0).permutation(8 * BUCKET)
    longest = [lengths[rows].max() for rows in order(lengths, 8, 0, 0)]
    spread = [np.ptp(lengths[rows]) for rows in order(lengths, 8, 0, 0)]
    assert max(spread) == 7  # one bucket holds everything, so a batch holds 8 neighbours
    assert longest != sorted(longest)
