from pathlib import Path

import numpy as np
import pytest

from dana.core.errors import DataError
from dana.models.ngram.arpa import read_arpa, write_arpa
from dana.models.ngram.kneser_ney import train_ngrams
from dana.models.ngram.model import text_entropies
from dana.models.ngram.vocabulary import Vocabulary

HERE = Path(__file__).parent
# 60 made-up texts, and what KenLM's estimator made of them:
# lmplz -o 3 --discount_fallback --prune 0 0 1 --text lmplz.txt --arpa lmplz.arpa
TEXTS = (HERE / "lmplz.txt").read_text(encoding="utf-8").splitlines()
TINY = """
\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-1.5\t<unk>
-99\t<s>\t-0.5
-0.7\t</s>
-0.4\ta\t-0.25
-0.6\tb\t-0.125

\\2-grams:
-0.2\t<s> a
-0.3\ta b
-0.1\tb </s>

\\end\\
"""


def by_phrase(model):
    return {
        phrase: (float(log_prob), float(backoff))
        for level, phrases in zip(model.levels, model.phrases(), strict=True)
        for phrase, log_prob, backoff in zip(phrases, level.log_probs, level.backoffs, strict=True)
    }


def test_the_smoothing_is_lmplz_s():
    theirs, ours = by_phrase(read_arpa(HERE / "lmplz.arpa")), by_phrase(train_ngrams(TEXTS, 3, cutoffs=(0, 0, 1)))
    assert ours.keys() == theirs.keys()
    assert ours.pop("<s>")[1] == pytest.approx(theirs.pop("<s>")[1], abs=1e-5)  # never predicted: -99, and 0 in theirs
    for phrase, (log_prob, backoff) in theirs.items():
        assert ours[phrase] == pytest.approx((log_prob, backoff), abs=1e-5), phrase


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
def test_what_is_written_is_read_bit_by_bit(order, name, tmp_path):
    model = train_ngrams(TEXTS, order, Vocabulary.of_texts(TEXTS, 5))
    write_arpa(model, tmp_path / name)
    again = read_arpa(tmp_path / name)
    assert again.vocabulary == model.vocabulary
    for read, written in zip(again.levels, model.levels, strict=True):
        for column in ("keys", "log_probs", "backoffs"):
            assert getattr(read, column).tobytes() == getattr(written, column).tobytes(), column
    first = (tmp_path / name).read_bytes()
    write_arpa(again, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_of_another_tool_is_scored_by_its_back_offs(tmp_path):
    path = tmp_path / "tiny.arpa"
    path.write_text(TINY, encoding="utf-8")
    found = text_entropies(read_arpa(path), ["a b", "b a", "what"]).nats / np.log(10)
    assert found.tolist() == pytest.approx(
        [0.2 + 0.3 + 0.1, (0.5 + 0.6) + (0.125 + 0.4) + (0.25 + 0.7), 0.5 + 1.5 + 0.7]
    )


def test_n_grams_over_the_end_of_a_text_do_not_join_two_texts(tmp_path):
    path = tmp_path / "joined.arpa"
    longer = "\\2-grams:\n-0.1\t</s> <s>\t0\n-0.2\t<s> a\t0\n-0.3\ta b\t0\n\n\\3-grams:\n-5\t</s> <s> a\n\n\\end\\\n"
    path.write_text(TINY.partition("\\2-grams:")[0].replace("2=3", "2=3\nngram 3=1") + longer, encoding="utf-8")
    found = text_entropies(read_arpa(path), ["a b", "a b"]).nats
    assert found[0] == found[1]


def test_the_unknown_word_may_be_missing_or_in_capitals(tmp_path):
    path = tmp_path / "tiny.arpa"
    path.write_text(TINY.replace("-1.5\t<unk>\n", "").replace("1=5", "1=4"), encoding="utf-8")
    assert read_arpa(path).levels[0].log_probs[0] == -100
    path.write_text(TINY.replace("<unk>", "<UNK>"), encoding="utf-8")
    assert read_arpa(path).levels[0].log_probs[0] == -1.5


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("\\end\\", "", r"ends in its 2-grams: the file is cut off"),
        ("-0.3\ta b\n-0.1\tb </s>\n\n\\end\\", "", r"ends in its 2-grams, 1 of 3 are there: the file is cut off"),
        ("-0.6\tb\t-0.125\n", "", r":12: .*expected a number and an n-gram, 4 of 5 1-grams are there"),
        ("\\data\\", "data", r"no line of it is .data., with which an ARPA file begins$"),
        ("ngram 2=3", "ngram 3=3", r":4: 'ngram 3=3': expected 'ngram 2='"),
        ("2=3", "2=2", r":16: more 2-grams than the 2 of the header"),
        ("1=5", "1=4", r":11: .*expected .2-grams:"),
        ("-0.3\ta b", "x\ta b", r":15: 'x.ta b': could not convert"),
        ("-0.3\ta b", "0.3\ta b", r":15: .*above 0"),
        ("-0.3\ta b", "nan\ta b", r":15: .*not finite"),
        ("-0.4\ta\t-0.25", "-0.4\ta\t1e300", r":10: .*not finite in float32"),
        ("-0.4\ta\t-0.25", "-1e39\ta\t-0.25", r":10: .*not finite in float32"),
        ("-0.3\ta b", "-0.3\ta c", r":15: the 2-gram 'a c' has words, or first words, that are not among"),
        ("-0.3\ta b", "-0.2\t<s> a", r":15: the 2-gram '<s> a' is there twice"),
        ("-0.6\tb\t", "-0.6\ta\t", r":11: the 1-gram 'a' is there twice"),
        ("-0.7\t</s>\n", "-0.7\tc\n", r"its 1-grams have no </s>"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(old, new, said, tmp_path):
    path = tmp_path / "damaged.arpa"
    assert old in TINY
    path.write_text(TINY.replace(old, new), encoding="utf-8")
    with pytest.raises(DataError, match=said) as error:
        read_arpa(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_a_gzipped_file_that_is_cut_off_is_refused(tmp_path):
    path = tmp_path / "model.arpa.gz"
    write_arpa(train_ngrams(TEXTS, 3), path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"model.arpa.gz"):
        read_arpa(path)


def test_a_place_that_cannot_be_written_is_an_error_of_one_line(tmp_path):
    with pytest.raises(DataError, match="cannot be written"):
        write_arpa(train_ngrams(TEXTS, 2), tmp_path / "missing" / "model.arpa")
