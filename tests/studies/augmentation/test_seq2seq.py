"""Sequence-to-sequence generator: a T5 of two layers made here learns pairs by heart; samples, seeds, refusals."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dana.core.rng import torch_seed
from dana.models.generation import RowSampling
from dana.studies.augmentation.generators import (
    FittedSequence2Sequence,
    Sequence2Sequence,
    load_seq2seq,
)
from tests.studies.toy_pool import word_tokenizer

WORDS = [f"word{number}" for number in range(40)]


def write_small_t5(folder):
    """A T5 of two layers of 32, without dropout, over :data:`WORDS`."""
    from tokenizers.processors import TemplateProcessing
    from transformers import T5Config, T5ForConditionalGeneration

    ending = TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    words = ["<pad>", "</s>", "<unk>", "generate:", *WORDS]
    word_tokenizer(words, ending, eos_token="</s>").save_pretrained(folder)
    shape = {
        "d_model": 64,
        "d_kv": 32,
        "d_ff": 128,
        "num_layers": 2,
        "num_heads": 2,
        "dropout_rate": 0.0,
    }
    with torch_seed(0):
        model = T5ForConditionalGeneration(
            T5Config(vocab_size=44, decoder_start_token_id=0, **shape)
        )
    model.generation_config.num_beams = 4  # as a checkpoint may have them: no effect
    model.generation_config.max_length = 3
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def small_t5(tmp_path_factory):
    return write_small_t5(tmp_path_factory.mktemp("models") / "small-t5")


def independent_pairs(count):
    """Pairs of which a text follows from no other pair."""
    random = np.random.default_rng(1)

    def draw(length):
        return random.choice(WORDS, length, replace=False)

    return [(tuple(draw(3)), " ".join(draw(random.integers(2, 6)))) for _ in range(count)]


def test_eight_pairs_are_learnt_by_heart(small_t5):
    pairs = independent_pairs(8)
    settings = Sequence2Sequence(str(small_t5), epochs=100, learning_rate=3e-3, tokens=12, top_k=1)
    model = settings.fit(pairs, seed=0)
    assert model.generate([keywords for keywords, _ in pairs], range(8)) == [
        text for _, text in pairs
    ]
    reversed_keywords = [keywords for keywords, _ in pairs][::-1]
    assert model.generate(reversed_keywords, range(8)) == [text for _, text in pairs][::-1], (
        "texts come from keywords"
    )


def test_a_step_is_adafactors_with_a_constant_rate(small_t5):
    from transformers.optimization import Adafactor

    pairs = independent_pairs(3)
    network = (
        Sequence2Sequence(str(small_t5), epochs=2, batch=3, learning_rate=0.01)
        .fit(pairs, seed=0)
        .model
    )
    model, tokenizer = load_seq2seq(str(small_t5))
    optimizer = Adafactor(
        model.parameters(),
        lr=0.01,
        scale_parameter=False,
        relative_step=False,
        warmup_init=False,
        clip_threshold=1.0,
    )
    inputs = tokenizer(
        [f"generate: {' '.join(keywords)}" for keywords, _ in pairs],
        padding=True,
        return_tensors="pt",
    )
    labels = tokenizer([text for _, text in pairs], padding=True, return_tensors="pt")
    targets = labels["input_ids"].masked_fill(labels["attention_mask"] == 0, -100)
    for _ in range(2):
        model.train()
        model(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], labels=targets
        ).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    for name, reference in model.state_dict().items():
        torch.testing.assert_close(network.state_dict()[name], reference, atol=1e-5, rtol=1e-4)


@pytest.fixture(scope="module")
def random_model(small_t5):
    return FittedSequence2Sequence(
        Sequence2Sequence(str(small_t5), tokens=8, top_p=1.0), *load_seq2seq(str(small_t5))
    )


def test_a_row_is_the_same_alone_and_in_any_batch(random_model):
    keywords = [tuple(WORDS[:length]) for length in (1, 5, 2, 9, 0, 3)]
    seeds = [11, 12, 13, 14, 15, 16]
    together = random_model.generate(keywords, seeds)
    assert together == [
        random_model.generate([words], [seed])[0]
        for words, seed in zip(keywords, seeds, strict=True)
    ]
    assert together == replace(random_model, rows=4).generate(keywords, seeds)
    others = random_model.generate(keywords, [seed + 10 for seed in seeds])
    assert all(one != other for one, other in zip(together, others, strict=True))
    assert all(len(text.split()) <= 8 for text in together)
    assert max(len(text.split()) for text in together) > 3, (
        "the checkpoint's own max_length does not count"
    )


def test_tokens_are_drawn_in_proportion_to_the_probabilities_that_top_k_and_top_p_leave():
    probabilities = torch.tensor([0.4, 0.25, 0.2, 0.1, 0.05])
    rows = 4000
    scores = probabilities.log().expand(rows, -1)
    samples = RowSampling(4, 0.8, range(rows))(torch.zeros(rows, 1), scores).argmax(1)
    shares = np.bincount(samples, minlength=5) / rows
    reference = np.array([0.4, 0.25, 0.2, 0, 0]) / 0.85
    assert shares[3:].sum() == 0
    assert np.abs(shares - reference).max() < 4 * np.sqrt(0.25 / rows)
    assert (RowSampling(1, 1.0, range(50))(torch.zeros(50, 1), scores[:50]).argmax(1) == 0).all()
    two = RowSampling(2, 1.0, range(rows))(torch.zeros(rows, 1), scores).argmax(1)
    assert set(two.tolist()) == {0, 1}, "top-k alone"
