"""Perplexity-gap selector on a tiny Llama: the contract, the loss against transformers', cost, what it saves."""

from itertools import islice, permutations

import numpy as np
import pytest
import torch
from transformers import AutoModel

from dana.core.errors import ArtifactError, ConfigError
from dana.selectors.checks import OTHER, TARGET, check_selector
from dana.selectors.perplexity_gap import PerplexityGapSelector
from tests import toy_task

QUICK = {"epochs": 4, "learning_rate": 1e-2, "batch_size": 16}


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    return str(
        toy_task.write_decoder(tmp_path_factory.mktemp("decoder") / "model", [*TARGET, *OTHER])
    )


@pytest.fixture(scope="module")
def fitted(decoder):
    random = np.random.default_rng(1)
    return PerplexityGapSelector(decoder, **QUICK).fit(
        [" ".join(random.choice(TARGET, 6)) for _ in range(60)]
    )


def test_perplexity_gap_passes_the_checks(decoder):
    results = check_selector(PerplexityGapSelector(decoder, **QUICK))
    assert [str(result) for result in results if not result.passed] == []


def test_a_score_is_the_difference_of_transformers_losses(fitted, decoder, tmp_path):
    """Of the folder that it saves, and of the decoder; each text begins with a token that is not predicted."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    fitted.save(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    models = [
        AutoModelForCausalLM.from_pretrained(folder).eval()
        for folder in (tmp_path / "model", decoder)
    ]
    texts = ["cell gene protein", "court", "judge assay " * 9]
    for text, score in zip(texts, fitted.score(texts), strict=True):
        ids = torch.tensor(
            [[tokenizer.pad_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"]]]
        )
        with torch.no_grad():
            adapted, base = (model(input_ids=ids, labels=ids).loss for model in models)
        assert score == pytest.approx(float(adapted - base), abs=1e-5)
    assert not list(tmp_path.rglob("*.jinja")), "the template is in tokenizer_config.json"
    assert tokenizer.chat_template


def test_the_decoder_itself_is_not_trained_and_the_seed_orders_the_steps(fitted, decoder):
    from transformers import AutoModelForCausalLM

    original = AutoModelForCausalLM.from_pretrained(decoder).state_dict()
    assert all(
        torch.equal(value, original[name])
        for name, value in fitted.selector.base.model.state_dict().items()
    )
    # Repeats count once, so that a step of 16 would read all four texts, in whatever order.
    again = PerplexityGapSelector(decoder, **{**QUICK, "batch_size": 2})
    target = ["cell gene", "kinase assay ligand", "enzyme", "receptor protein"]
    assert not np.array_equal(
        again.fit(target, seed=1).score(target), again.fit(target, seed=2).score(target)
    )


def test_the_cost_is_said_before_the_work(decoder, heard, monkeypatch):
    def stop(*_):
        raise RuntimeError("work")

    monkeypatch.setattr(PerplexityGapSelector, "_train", stop)
    orders = permutations(["cell", "gene", "protein", "kinase"], 3)
    texts = [" ".join(order) for order in islice(orders, 10)]
    with pytest.raises(RuntimeError, match="work"):
        PerplexityGapSelector(decoder, epochs=2).fit(texts)
    (line,) = heard.messages
    assert "on 80 tokens: " in line, "two passes over ten texts of three words and the first token"


def test_long_units_are_cut_and_units_without_tokens_are_neutral(fitted, decoder):
    short = PerplexityGapSelector(decoder, max_tokens=4, **QUICK)
    assert [len(row) for row in short.tokens_of(["cell " * 9, ""])] == [4, 1]
    (narrow := PerplexityGapSelector(decoder)).base.model.config.max_position_embeddings = 8
    assert len(narrow.tokens_of(["cell " * 9])[0]) == 8, "the model has no more positions"
    assert fitted.score(["", "cell"])[0] == 0
    assert np.isfinite(fitted.score([""])).all()


def test_what_is_no_decoder_is_refused(tmp_path):
    encoder = str(toy_task.write_checkpoint(tmp_path / "bert", words=list(TARGET)))
    with pytest.raises(
        ConfigError, match="a decoder, such as smollm2: a model of type bert also sees"
    ):
        PerplexityGapSelector(encoder).fit(["cell"])
    decoder = str(toy_task.write_decoder(tmp_path / "decoder", [*TARGET]))
    AutoModel.from_pretrained(decoder).save_pretrained(decoder)
    with pytest.raises(ArtifactError, match=r"weights are missing: lm_head\.weight"):
        PerplexityGapSelector(decoder).fit(["cell"])
    with pytest.raises(ArtifactError, match="none"):
        PerplexityGapSelector(str(tmp_path / "none")).identity()
    for wrong in ({"epochs": 0}, {"max_tokens": 1}, {"learning_rate": 0.0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            PerplexityGapSelector("smollm2", **wrong)
