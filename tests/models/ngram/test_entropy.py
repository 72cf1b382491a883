import math

import numpy as np
import pytest

from dana.core.errors import ArtifactError, DataError
from dana.models.ngram.kneser_ney import train_ngrams
from dana.models.ngram.model import NgramModel, text_entropies
from dana.models.ngram.vocabulary import Vocabulary
from tests.models.ngram.arpa import phrases_of

TEXTS = ["the cat sat", "the dog sat down", "a cat and a dog", "down sat the cat"] * 3


@pytest.fixture(scope="module")
def model():
    return train_ngrams(TEXTS, 3)


def test_cross_entropy_is_the_sum_of_the_words_and_of_the_end_and_perplexity_over_all_of_them(
    model,
):
    steps = 10.0 ** model.log_probs(model.vocabulary.encode(["the cat fled"])).astype(np.float64)
    the, cat, unknown, end = -np.log(steps[1:])
    for counts_unknown, nats, tokens in [
        (True, the + cat + unknown + end, 4),
        (False, the + cat + end, 3),
    ]:
        entropies = text_entropies(model, ["the cat fled", ""], counts_unknown)
        assert entropies.nats[0] == pytest.approx(nats)
        assert entropies.tokens.tolist() == [tokens, 1]
        assert entropies.per_token[0] == pytest.approx(nats / tokens)
        assert entropies.perplexity == pytest.approx(
            math.exp((nats + entropies.nats[1]) / (tokens + 1))
        )
    assert text_entropies(model, []).perplexity == 1


def test_a_text_costs_the_same_whatever_stands_beside_it(model):
    texts = [*TEXTS, "", "fled", "the cat fled with the dog " * 40]
    together = text_entropies(model, texts).nats
    alone = np.concatenate([text_entropies(model, [text]).nats for text in texts])
    backwards = text_entropies(model, texts[::-1]).nats[::-1]
    assert together.tobytes() == alone.tobytes() == backwards.tobytes()


def test_a_model_is_saved_and_loaded_whole_or_refused(model, tmp_path):
    model.save(tmp_path / "one")
    copy = NgramModel.load(tmp_path / "one")
    assert (copy.vocabulary, copy.order) == (model.vocabulary, 3)
    assert text_entropies(copy, TEXTS).nats.tobytes() == text_entropies(model, TEXTS).nats.tobytes()
    copy.save(tmp_path / "two")
    for name in ("ngrams.safetensors", "ngrams.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    (tmp_path / "one" / "ngrams.safetensors").write_bytes(b"cut off")
    with pytest.raises(ArtifactError, match="damaged"):
        NgramModel.load(tmp_path / "one")


def test_phrases_spell_the_n_grams():
    model = train_ngrams(["b a", "a"], 2, Vocabulary.of_words("ab"))
    ones, twos = phrases_of(model)
    assert ones == ["<unk>", "<s>", "</s>", "a", "b"]
    assert twos == ["<s> a", "<s> b", "a </s>", "b a"]


def test_one_text_is_not_taken_for_a_list_of_its_characters(model):
    for use in (train_ngrams, Vocabulary.of_texts, lambda text: text_entropies(model, text)):
        with pytest.raises(DataError, match="texts='the cat': must be a list of texts"):
            use("the cat")
    with pytest.raises(DataError, match="must be a list of texts"):
        train_ngrams("the cat", vocabulary=model.vocabulary)
