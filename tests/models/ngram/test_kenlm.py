"""Our models in KenLM, the reference implementation; its scores of one model are stored, for where it is missing."""

import sys
from pathlib import Path

import numpy as np
import pytest

from dana.core.errors import PluginError
from dana.models.ngram.arpa import KenLM, read_arpa
from dana.models.ngram.kneser_ney import train_ngrams
from dana.models.ngram.model import text_entropies
from dana.models.ngram.vocabulary import Vocabulary

HERE = Path(__file__).parent
TEXTS = (HERE / "lmplz.txt").read_text(encoding="utf-8").splitlines()
ODD = ["", "be", "never seen be ba", "ba ba ba ba ba ba ba", "fe go by do bu gy fi ba never", "ky ky"]
# kenlm.Model("lmplz.arpa").score(text), KenLM 0.3.0
STORED = [-0.88544, -1.82024, -7.12879, -6.84448, -13.31523, -4.95271]


def test_stored_scores_of_kenlm():
    ours = -text_entropies(read_arpa(HERE / "lmplz.arpa"), ODD).nats / np.log(10)
    assert ours == pytest.approx(STORED, abs=1e-4)


@pytest.mark.parametrize("order", [2, 3, 5])
@pytest.mark.parametrize("cutoffs", [(), (0, 1)])
def test_kenlm_scores_our_files_as_we_do(order, cutoffs):
    pytest.importorskip("kenlm", reason="KenLM is not installed: pip install 'dana[kenlm]'")
    model = train_ngrams(TEXTS, order, Vocabulary.of_texts(TEXTS, 2), cutoffs)
    texts = [*TEXTS, *ODD]
    ours = -text_entropies(model, texts).nats / np.log(10)
    assert KenLM.of(model).log10(texts) == pytest.approx(ours, abs=1e-4)


def test_where_kenlm_is_missing_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "kenlm", None)
    with pytest.raises(PluginError, match=r"pip install 'dana\[kenlm\]'"):
        KenLM.of(train_ngrams(TEXTS, 2))
