"""Hidden words that a model fills by its own head."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

from dana.finetuning.fill_mask import fill_hidden_words, has_trained_head


def test_the_longest_word_of_one_token_is_hidden_and_its_probability_is_the_models(checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    words = [word for word in tokenizer.get_vocab() if word.isalpha() and len(word) > 3]
    longest, other = sorted(words, key=len)[-1], sorted(words, key=len)[0]
    text = f"{other} {longest}, {other}"
    [filled] = fill_hidden_words(str(checkpoint), [text], 32)
    parts = filled["before"], filled["word"], filled["after"]
    assert parts == (f"{other} ", longest, f", {other}")
    model = AutoModelForMaskedLM.from_pretrained(checkpoint).eval()
    ids = tokenizer(f"{other} {tokenizer.mask_token}, {other}", return_tensors="pt")
    place = ids["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    with torch.inference_mode():
        expected = model(**ids).logits[0, place].softmax(-1)
    token = tokenizer.convert_tokens_to_ids(longest)
    assert filled["probability"] == pytest.approx(float(expected[token]), abs=1e-4)
    assert filled["fills"][0] == tokenizer.decode([int(expected.argmax())])


@pytest.mark.parametrize("text", ["", "1 2 3", "an ox", "qqzzqqzz"])
def test_a_text_without_such_a_word_is_left_out(checkpoint, text):
    assert fill_hidden_words(str(checkpoint), [text], 32) == [None]


def test_a_word_beyond_what_is_read_is_left_out(checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    word = max((word for word in tokenizer.get_vocab() if word.isalpha()), key=len)
    assert fill_hidden_words(str(checkpoint), ["a " * 40 + word], 16) == [None]


def test_no_more_is_read_than_the_model_has_positions_for(checkpoint):
    positions = AutoConfig.from_pretrained(checkpoint).max_position_embeddings
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    word = max((word for word in tokenizer.get_vocab() if word.isalpha()), key=len)
    [filled] = fill_hidden_words(str(checkpoint), [word + " a" * positions], 2 * positions)
    assert filled["word"] == word


def test_a_head_that_was_not_trained_with_the_model_is_not_shown(checkpoint, tmp_path):
    from transformers import AutoModel

    assert has_trained_head(str(checkpoint))
    AutoModel.from_pretrained(checkpoint).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(checkpoint).save_pretrained(tmp_path)
    assert not has_trained_head(str(tmp_path))
