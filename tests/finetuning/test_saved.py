"""Saved classifiers: what transformers opens alone agrees with what was trained, for every kind of head."""

import numpy as np
import pytest
import torch
import toy_task
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer, pipeline

from dana.core.errors import ArtifactError
from dana.core.rng import seeded
from dana.finetuning.saved import open_classifier, save_classifier
from dana.models.classifier import HEAD, Classifier, MeanPooling, new_classifier
from dana.tasks.kinds.single_label import SingleLabel

LABELS = ["fruit", "metal", "bird"]
KIND = SingleLabel(tuple(LABELS))
KINDS = {
    "bert": {},
    "roberta": {},
    "camembert": {},
    "mpnet": {},
    "albert": {"embedding_size": 16},
    "deberta-v2": {},
    "deberta": {},
    "electra": {"embedding_size": 16},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    "modernbert": {"cls_token_id": 2, "sep_token_id": 3, "global_attn_every_n_layers": 1},
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    found = AutoTokenizer.from_pretrained(toy_task.write_checkpoint(tmp_path_factory.mktemp("toy")))
    found.model_max_length = 24
    return found


def trained(kind, mean=False):
    """A classifier whose last layer is far from nothing, so that another head would show."""
    with seeded(3):
        config = AutoConfig.for_model(kind, **{**toy_task.SIZE, **KINDS[kind]}, num_labels=3)
        whole = AutoModelForSequenceClassification.from_config(config)
        classifier = Classifier(MeanPooling(AutoModel.from_config(config), 3) if mean else whole)
        torch.nn.init.normal_(classifier.out.weight, std=0.5)
        torch.nn.init.normal_(classifier.out.bias, std=0.5)
    return classifier.eval()


def probe(tokenizer):
    given = tokenizer([row["text"] for row in toy_task.rows(8, seed=5)], padding=True, return_tensors="pt")
    return given["input_ids"], given["attention_mask"]


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_alone_opens_it_and_gives_the_same_logits(kind, tokenizer, tmp_path):
    classifier, (ids, mask) = trained(kind), probe(tokenizer)
    save_classifier(classifier, tokenizer, KIND, tmp_path)
    opened = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    saved = open_classifier(str(tmp_path))
    with torch.no_grad():
        expected = classifier(ids, mask)
        assert torch.allclose(opened(input_ids=ids, attention_mask=mask).logits, expected, atol=1e-5)
        assert torch.allclose(saved.module(ids, mask), expected, atol=1e-5)
    assert (saved.kind, saved.max_tokens) == (KIND, 24)
    assert opened.config.id2label == dict(enumerate(LABELS))
    assert opened.config.label2id == {label: place for place, label in enumerate(LABELS)}


def test_a_pipeline_labels_text_with_it(tokenizer, tmp_path):
    classifier = trained("bert")
    save_classifier(classifier, tokenizer, KIND, tmp_path)
    texts = [row["text"] for row in toy_task.rows(5, seed=6)]
    with torch.no_grad():
        each = [classifier(**tokenizer(text, return_tensors="pt", return_token_type_ids=False)) for text in texts]
    expected = [LABELS[int(logits.argmax())] for logits in each]
    assert [found["label"] for found in pipeline("text-classification", str(tmp_path))(texts)] == expected


def test_another_project_s_classifier_can_be_opened(tokenizer, tmp_path):
    """ELECTRA's own head, which is not ours."""
    with seeded(1):
        config = AutoConfig.for_model("electra", **toy_task.SIZE, embedding_size=16, num_labels=4)
        model = AutoModelForSequenceClassification.from_config(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    saved, (ids, mask) = open_classifier(str(tmp_path)), probe(tokenizer)
    assert saved.kind == SingleLabel(("LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3"))
    with torch.no_grad():
        assert torch.allclose(saved.module(ids, mask), model(input_ids=ids, attention_mask=mask).logits)


def test_texts_are_cut_where_the_model_ends(tmp_path):
    """A tokenizer that names no length: a BERT of 40 positions reads 40 tokens, a RoBERTa of 40 two less."""
    for kind, most in (("bert", 40), ("roberta", 38)):
        tokenizer = AutoTokenizer.from_pretrained(toy_task.write_checkpoint(tmp_path / "toy"))
        save_classifier(trained(kind), tokenizer, KIND, tmp_path / kind)
        assert open_classifier(str(tmp_path / kind)).max_tokens == most


def damage_head(folder):
    (folder / HEAD).write_bytes(b"nothing")


def damage_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize(("mean", "damage"), [(True, damage_head), (False, damage_weights)])
def test_a_damaged_classifier_is_one_line(mean, damage, tokenizer, tmp_path):
    save_classifier(trained("bert", mean), tokenizer, KIND, tmp_path)
    damage(tmp_path)
    with pytest.raises(ArtifactError, match="cannot be loaded") as caught:
        open_classifier(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_what_is_no_classifier_is_refused(tokenizer, tmp_path):
    masked = toy_task.write_checkpoint(tmp_path / "masked")
    with pytest.raises(ArtifactError, match="holds BertForMaskedLM, not a sequence classifier; make one with"):
        open_classifier(str(masked))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtifactError, match="empty: no classifier here"):
        open_classifier(str(tmp_path / "empty"))
    with pytest.raises(ArtifactError, match="no such folder"):
        open_classifier(str(tmp_path / "gone"))
    config = AutoConfig.for_model("bert", **toy_task.SIZE, num_labels=3, problem_type="regression")
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path / "three")
    tokenizer.save_pretrained(tmp_path / "three")
    with pytest.raises(
        ArtifactError, match=r"num_labels=3, problem_type=regression: must be a model for one of the kinds"
    ):
        open_classifier(str(tmp_path / "three"))


def test_a_classifier_of_the_mean_is_saved_in_parts(checkpoint, tokenizer, tmp_path):
    classifier = new_classifier(checkpoint, 3, seed=5, pooling="mean").eval()
    save_classifier(classifier, tokenizer, KIND, tmp_path)
    saved = open_classifier(str(tmp_path))
    assert (saved.kind, saved.max_tokens) == (KIND, 24)
    with pytest.raises((OSError, ValueError)):  # not with a head of its own making
        AutoModelForSequenceClassification.from_pretrained(tmp_path)
    AutoModel.from_pretrained(tmp_path / "backbone")
    opened = saved.module
    with torch.no_grad():
        assert torch.equal(opened(*probe(tokenizer)), classifier(*probe(tokenizer)))
        first_token = new_classifier(checkpoint, 3, seed=5).eval()
        assert not torch.allclose(opened(*probe(tokenizer)), first_token(*probe(tokenizer)), atol=1e-3)


def test_weights_that_are_missing_are_refused(tokenizer, tmp_path):
    from safetensors.torch import load_file, save_file

    save_classifier(trained("bert"), tokenizer, KIND, tmp_path)
    held = load_file(tmp_path / "model.safetensors")
    save_file(
        {name: value for name, value in held.items() if name != "classifier.bias"}, tmp_path / "model.safetensors"
    )
    with pytest.raises(ArtifactError, match=r"weights are missing, for example classifier\.bias"):
        open_classifier(str(tmp_path))


def test_the_head_that_is_saved_is_that_of_the_classifier_not_a_new_one(checkpoint, tokenizer, tmp_path):
    classifier = new_classifier(checkpoint, 3, seed=5)
    save_classifier(classifier, tokenizer, KIND, tmp_path)
    held = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert np.array_equal(held.classifier.weight.detach(), classifier.out.weight.detach())
    assert np.array_equal(held.bert.pooler.dense.weight.detach(), classifier.model.bert.pooler.dense.weight.detach())
