"""Tokens of units are counted as transformers counts them, in processes that do not import it."""

import json
import subprocess
import sys

import pytest
from tokenizers import Tokenizer

from dana.core.errors import ConfigError
from dana.models.folder import load_own_tokenizer
from dana.weighting.settings import WeighSettings
from dana.weighting.texts import CountingTokenizer, counter

TEXTS = ["The gene binds.", "[MASK] of [MASK]", "", "  two  spaces", "naïve Ünïcode 東京", "word " * 700]


def read(tokenizer, folder, split=False):
    """The tokenizer that counts, read from a folder, and the file of its core."""
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "split_special_tokens": split}))
    core = Tokenizer.from_file(str(folder / "tokenizer.json"))
    core.enable_truncation(3)  # a tokenizer may be saved as it was used last
    core.enable_padding(length=9)
    core.save(str(folder / "tokenizer.json"))
    counting = CountingTokenizer.of(WeighSettings(budget="9 tokens", tokenizer=str(folder)))
    (folder / "core").write_text(counting.core, encoding="utf-8")
    return counting, folder / "core"


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("kind", ["tiny_tokenizer", "byte_level"])
def test_tokens_are_counted_as_transformers_does(tmp_path, request, kind, split):
    counting, core = read(request.getfixturevalue(kind), tmp_path, split)
    tokenizer = load_own_tokenizer(str(tmp_path))
    counts = counter(core, counting.split_special_tokens)(TEXTS)
    assert counts == [len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in TEXTS]
    assert counts[-1] >= 700
    assert counter(core, split)([]) == []


def test_what_a_tokenizer_takes_special_tokens_for_is_part_of_it(tmp_path, tiny_tokenizer):
    (one, of_one), (two, of_two) = (read(tiny_tokenizer, tmp_path / str(split), split) for split in (False, True))
    assert counter(of_one, one.split_special_tokens)(["[MASK]"]) == [1]
    pieces = len(tiny_tokenizer.tokenize("mask"))  # by the text that it was trained on
    assert counter(of_two, two.split_special_tokens)(["[MASK]"]) == [2 + pieces]
    assert one.digest != two.digest


def test_a_slow_tokenizer_is_refused(tmp_path):
    from transformers import ByT5Tokenizer

    ByT5Tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"^tokenizer ByT5Tokenizer has no character offsets; a fast one is needed"):
        CountingTokenizer.of(WeighSettings(budget="9 tokens", tokenizer=str(tmp_path)))


COUNTED = """
import sys
from pathlib import Path
from dana.core.errors import ArtifactError
from dana.weighting.settings import WeighSettings
from dana.weighting.texts import CountingTokenizer, counter
folder, texts = Path(sys.argv[1]), eval(sys.argv[2])
counting = CountingTokenizer.of(WeighSettings(budget="9 tokens", tokenizer=str(folder)))
(folder / "core").write_text(counting.core, encoding="utf-8")
print(counting.digest, counter(folder / "core", counting.split_special_tokens)(texts))
try:
    CountingTokenizer.of(WeighSettings(budget="9 tokens", tokenizer=str(folder / "none")))
except ArtifactError as error:
    print(error)
print({"torch", "transformers"} & {*sys.modules})
"""


def test_a_process_that_counts_imports_neither_transformers_nor_torch(tmp_path, tiny_tokenizer):
    counting, core = read(tiny_tokenizer, tmp_path)
    command = [sys.executable, "-c", COUNTED, str(tmp_path), repr(TEXTS)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[0] == f"{counting.digest} {counter(core, False)(TEXTS)}"
    assert said[1].startswith(f"{tmp_path / 'none'}: its tokenizer")
    assert said[2] == "set()"
