"""Tokens of units are counted as transformers counts them."""

import json

import pytest
from tokenizers import Tokenizer

from dana.core.errors import ConfigError
from dana.models.folder import load_own_tokenizer
from dana.weighting.settings import WeighSettings
from dana.weighting.texts import counting_tokenizer

TEXTS = ["The gene binds.", "[MASK] of [MASK]", "", "  two  spaces", "naïve Ünïcode 東京", "word " * 700]


def read(tokenizer, folder, split=False):
    """A function that counts with the tokenizer of a folder, and its digest."""
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "split_special_tokens": split}))
    core = Tokenizer.from_file(str(folder / "tokenizer.json"))
    core.enable_truncation(3)  # a tokenizer may be saved as it was used last
    core.enable_padding(length=9)
    core.save(str(folder / "tokenizer.json"))
    counting, digest = counting_tokenizer(WeighSettings(budget="9 tokens", tokenizer=str(folder)))
    return lambda texts: [len(one) for one in counting.encode_batch_fast(texts, add_special_tokens=False)], digest


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("kind", ["tiny_tokenizer", "byte_level"])
def test_tokens_are_counted_as_by_transformers(tmp_path, request, kind, split):
    count, _ = read(request.getfixturevalue(kind), tmp_path, split)
    tokenizer = load_own_tokenizer(str(tmp_path))
    assert count(TEXTS) == [len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in TEXTS]
    assert count(TEXTS)[-1] >= 700


def test_special_tokens_are_part_of_the_digest(tmp_path, tiny_tokenizer):
    (one, of_one), (two, of_two) = (read(tiny_tokenizer, tmp_path / str(split), split) for split in (False, True))
    assert one(["[MASK]"]) == [1]
    pieces = len(tiny_tokenizer.tokenize("mask"))  # by the text that it was trained on
    assert two(["[MASK]"]) == [2 + pieces]
    assert of_one != of_two


def test_a_slow_tokenizer_is_refused(tmp_path):
    from transformers import ByT5Tokenizer

    ByT5Tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="ByT5Tokenizer"):
        counting_tokenizer(WeighSettings(budget="9 tokens", tokenizer=str(tmp_path)))
