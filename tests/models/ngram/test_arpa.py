"""Our models beside those of KenLM, the reference implementation: its estimator's file, and its scores of it."""

from pathlib import Path

import numpy as np
import pytest

from dana.models.ngram.kneser_ney import train_ngrams
from dana.models.ngram.model import text_entropies
from dana.models.ngram.vocabulary import Vocabulary
from tests.models.ngram.arpa import phrases_of, write_arpa

HERE = Path(__file__).parent
# 60 made-up texts, and what KenLM's estimator made of them:
# lmplz -o 3 --discount_fallback --prune 0 0 1 --text lmplz.txt --arpa lmplz.arpa
TEXTS = (HERE / "lmplz.txt").read_text(encoding="utf-8").splitlines()
ODD = [
    "",
    "be",
    "never seen be ba",
    "ba ba ba ba ba ba ba",
    "fe go by do bu gy fi ba never",
    "ky ky",
]
# kenlm.Model("lmplz.arpa").score(text), KenLM 0.3.0
STORED = [-0.88544, -1.82024, -7.12879, -6.84448, -13.31523, -4.95271]


def by_phrase(path):
    """log10 probability and back-off of every n-gram of an ARPA file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    fields = [line.split("\t") for line in lines if "\t" in line]
    return {
        phrase: (float(log_prob), float(rest[0]) if rest else 0.0)
        for log_prob, phrase, *rest in fields
    }


def test_the_smoothing_is_lmplz_s(tmp_path):
    write_arpa(train_ngrams(TEXTS, 3, cutoff=1), tmp_path / "model.arpa")
    reference, numbers = by_phrase(HERE / "lmplz.arpa"), by_phrase(tmp_path / "model.arpa")
    assert numbers.keys() == reference.keys()
    assert numbers.pop("<s>")[1] == pytest.approx(
        reference.pop("<s>")[1], abs=1e-5
    )  # not predicted: -99, and 0 there
    for phrase, pair in reference.items():
        assert numbers[phrase] == pytest.approx(pair, abs=1e-5), phrase


@pytest.mark.parametrize("order", [1, 2, 4])
def test_every_number_is_written_with_all_its_digits(order, tmp_path):
    model = train_ngrams(TEXTS, order, Vocabulary.of_texts(TEXTS, 5))
    path = tmp_path / "model.arpa"
    write_arpa(model, path)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[: order + 1] == [
        "\\data\\",
        *(f"ngram {k + 1}={model.levels[k].keys.size}" for k in range(order)),
    ]
    assert lines[-1] == "\\end\\"
    numbers = by_phrase(path)
    for level, phrases in zip(model.levels, phrases_of(model), strict=True):
        assert (
            np.array([numbers[phrase][0] for phrase in phrases], np.float32).tobytes()
            == level.log_probs.tobytes()
        )
        assert [numbers[phrase][1] for phrase in phrases] == pytest.approx(
            level.backoffs.tolist(), rel=1e-7
        )
    assert [file.name for file in tmp_path.iterdir()] == ["model.arpa"]


def log10_scores(model, texts):
    return -text_entropies(model, texts).nats / np.log(10)


def test_stored_scores_of_kenlm():
    assert log10_scores(train_ngrams(TEXTS, 3, cutoff=1), ODD) == pytest.approx(STORED, abs=1e-4)


@pytest.mark.parametrize(("order", "cutoff"), [(2, 0), (3, 1), (5, 0), (5, 1)])
def test_kenlm_scores_our_files_as_we_do(order, cutoff, tmp_path):
    kenlm = pytest.importorskip("kenlm", reason="KenLM is not installed: pip install kenlm")
    model = train_ngrams(TEXTS, order, Vocabulary.of_texts(TEXTS, 2), cutoff)
    write_arpa(model, tmp_path / "model.arpa")
    reference = kenlm.Model(str(tmp_path / "model.arpa"))
    texts = [*TEXTS, *ODD]
    assert [reference.score(text) for text in texts] == pytest.approx(
        log10_scores(model, texts).tolist(), abs=1e-4
    )
