import numpy as np
import torch
from transformers import AutoTokenizer

from dana.finetuning.loop import EncodedSplit, order
from dana.tasks.examples import Example
from dana.tasks.kinds.single_label import SingleLabel


def test_texts_are_cut_and_padded(checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    examples, kind = [Example("a", "apple pear", 1), Example("b", "iron " * 20, 0)], SingleLabel.numbered(2)
    split = EncodedSplit.with_labels(examples, tokenizer, 6, kind)
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
    split = EncodedSplit([[1], [1, 2], [1, 2, 3]], 0)
    assert split.batch(np.array([1, 0]), torch.device("cpu"))[0].tolist() == [[1, 2], [1, 0]]


def test_the_order_is_a_function_of_seed_and_epoch():
    split = EncodedSplit([[1] * (1 + row % 17) for row in range(100)], 0)

    def flat(seed, epoch):
        return np.concatenate(order(split, 8, seed, epoch)).tolist()

    assert flat(0, 0) == flat(0, 0)
    assert flat(0, 0) != flat(1, 0)
    assert flat(0, 0) != flat(0, 1)
