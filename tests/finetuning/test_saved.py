"""Saved classifiers: transformers alone opens them and computes the same logits, for every head and form of text."""

import numpy as np
import pytest
import torch
import toy_pairs
import toy_task
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer, pipeline

from dana.core.errors import ArtifactError
from dana.core.rng import torch_seed
from dana.finetuning.loop import EncodedSplit
from dana.finetuning.saved import open_classifier, save_classifier
from dana.models.classifier import HEAD, Classifier, MeanPooling, auto_class, head_layers, new_classifier
from dana.tasks.examples import Example
from dana.tasks.kinds import KINDS
from dana.tasks.kinds.single_label import SingleLabel

LABELS = ("fruit", "metal", "bird")
KIND = SingleLabel(LABELS)
WORD_KIND = KINDS["token_labels"](("O", "B-x", "I-x"))
CONFIGS = {
    **{kind: {} for kind in ("bert", "roberta", "camembert", "mpnet", "deberta-v2", "deberta")},
    **{kind: {"embedding_size": 16} for kind in ("albert", "electra")},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    "modernbert": {"cls_token_id": 2, "sep_token_id": 3, "global_attn_every_n_layers": 1},
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    tokenizer = AutoTokenizer.from_pretrained(toy_task.write_checkpoint(tmp_path_factory.mktemp("toy")))
    tokenizer.model_max_length = 24
    return tokenizer


@pytest.fixture(scope="module")
def pair_tokenizer(tmp_path_factory):
    return AutoTokenizer.from_pretrained(toy_pairs.write_checkpoint(tmp_path_factory.mktemp("pairs")))


def untrained(kind, mean=False, per_word=False, **config):
    """A classifier whose head has large weights, so that another head would show."""
    with torch_seed(3):
        config = AutoConfig.for_model(kind, **{**toy_task.SIZE, **CONFIGS[kind], **config}, num_labels=3)
        whole = auto_class(per_word).from_config(config)
        classifier = Classifier(MeanPooling(AutoModel.from_config(config), 3) if mean else whole, per_word)
        for layer in [classifier.out] if mean or per_word else head_layers(classifier.model):
            torch.nn.init.normal_(layer.weight, std=0.5)
            if layer.bias is not None:
                torch.nn.init.normal_(layer.bias, std=0.5)
    return classifier.eval()


def probe(tokenizer):
    encoding = tokenizer([row["text"] for row in toy_task.rows(8, seed=5)], padding=True, return_tensors="pt")
    return encoding["input_ids"], encoding["attention_mask"]


@pytest.mark.parametrize("kind", CONFIGS)
def test_texts_have_the_same_logits_in_transformers(kind, tokenizer, tmp_path):
    classifier, (ids, mask) = untrained(kind), probe(tokenizer)
    save_classifier(classifier, tokenizer, KIND, tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    saved = open_classifier(str(tmp_path))
    with torch.no_grad():
        expected = classifier(ids, mask)
        assert torch.allclose(model(input_ids=ids, attention_mask=mask).logits, expected, atol=1e-5)
        assert torch.allclose(saved.module(ids, mask), expected, atol=1e-5)
    assert (saved.kind, saved.max_tokens) == (KIND, 24)
    assert model.config.id2label == dict(enumerate(LABELS))
    assert model.config.label2id == {label: at for at, label in enumerate(LABELS)}


@pytest.mark.parametrize(
    ("kind", "types", "has_types"),
    [("bert", 2, True), ("albert", 2, True), ("electra", 2, True), ("bert", 1, False), ("distilbert", 2, False)],
)
def test_pairs_have_the_same_logits_in_transformers(kind, types, has_types, pair_tokenizer, tmp_path):
    """Token types are passed to the models that have them."""
    rows = toy_pairs.rows(8, 5)
    examples = [Example(row["uid"], row["premise"], 0, row["hypothesis"]) for row in rows]
    batch = EncodedSplit.of(examples, pair_tokenizer, 24).batch(np.arange(8), torch.device("cpu"))
    classifier = untrained(kind, type_vocab_size=types)
    save_classifier(classifier, pair_tokenizer, KIND, tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    texts = [[row[field] for row in rows] for field in ("premise", "hypothesis")]
    options = {"padding": True, "truncation": True, "max_length": 24, "return_tensors": "pt"}
    inputs = AutoTokenizer.from_pretrained(tmp_path)(*texts, **options, return_token_type_ids=has_types)
    with torch.no_grad():
        expected = classifier(*batch)
        assert torch.allclose(classifier(*batch[:2]), expected) != has_types
        assert torch.allclose(open_classifier(str(tmp_path)).module(*batch), expected, atol=1e-5)
        assert torch.allclose(model(**inputs).logits, expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "roberta", "electra", "distilbert", "modernbert"])
def test_words_have_the_same_logits_in_transformers(kind, tokenizer, tmp_path):
    classifier = untrained(kind, per_word=True)
    texts = [("wren", "owl"), ("zinc", "iron", "lead", "word1")]
    examples = [Example("", " ".join(words), (0,) * len(words), words=words) for words in texts]
    batch = EncodedSplit.of(examples, tokenizer, 24).batch(np.arange(2), torch.device("cpu"))
    save_classifier(classifier, tokenizer, WORD_KIND, tmp_path)
    saved, model = open_classifier(str(tmp_path)), auto_class(True).from_pretrained(tmp_path).eval()
    assert saved.kind == WORD_KIND
    with torch.no_grad():
        assert classifier(*batch).shape == (6, 3)
        assert torch.allclose(saved.module(*batch), classifier(*batch), atol=1e-5)
        logits = model(input_ids=batch[0], attention_mask=batch[1]).logits
        assert torch.allclose(logits[batch[2]], classifier(*batch), atol=1e-5)


def test_a_pipeline_labels_text(tokenizer, tmp_path):
    classifier = untrained("bert")
    save_classifier(classifier, tokenizer, KIND, tmp_path)
    texts = [row["text"] for row in toy_task.rows(5, seed=6)]
    with torch.no_grad():
        each = [classifier(**tokenizer(text, return_tensors="pt", return_token_type_ids=False)) for text in texts]
    expected = [LABELS[int(logits.argmax())] for logits in each]
    assert [row["label"] for row in pipeline("text-classification", str(tmp_path))(texts)] == expected


def test_a_classifier_of_another_project_is_opened(tokenizer, tmp_path):
    with torch_seed(1):
        config = AutoConfig.for_model("electra", **toy_task.SIZE, embedding_size=16, num_labels=4)
        model = AutoModelForSequenceClassification.from_config(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    saved, (ids, mask) = open_classifier(str(tmp_path)), probe(tokenizer)
    assert saved.kind == SingleLabel(("LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3"))
    with torch.no_grad():
        assert torch.allclose(saved.module(ids, mask), model(input_ids=ids, attention_mask=mask).logits)


def test_without_a_length_texts_are_truncated_at_the_models_positions(checkpoint, tmp_path):
    for kind, positions in (("bert", 40), ("roberta", 38)):
        save_classifier(untrained(kind), AutoTokenizer.from_pretrained(checkpoint), KIND, tmp_path / kind)
        assert open_classifier(str(tmp_path / kind)).max_tokens == positions


def test_a_classifier_with_mean_pooling_is_saved_in_parts(checkpoint, tokenizer, tmp_path):
    classifier = new_classifier(checkpoint, 3, seed=5, pooling="mean").eval()
    save_classifier(classifier, tokenizer, KIND, tmp_path)
    saved = open_classifier(str(tmp_path))
    assert (saved.kind, saved.max_tokens) == (KIND, 24)
    with pytest.raises((OSError, ValueError)):  # or transformers would make a new head
        AutoModelForSequenceClassification.from_pretrained(tmp_path)
    AutoModel.from_pretrained(tmp_path / "backbone")
    with torch.no_grad():
        assert torch.equal(saved.module(*probe(tokenizer)), classifier(*probe(tokenizer)))
        first_token = new_classifier(checkpoint, 3, seed=5).eval()
        assert not torch.allclose(saved.module(*probe(tokenizer)), first_token(*probe(tokenizer)), atol=1e-3)


def write_config(folder, **config):
    AutoModelForSequenceClassification.from_config(
        AutoConfig.for_model("bert", **toy_task.SIZE, **config)
    ).save_pretrained(folder)


def remove_bias(path):
    tensors = load_file(path)
    save_file({name: value for name, value in tensors.items() if name != "classifier.bias"}, path)


@pytest.mark.parametrize(
    ("mean", "damage", "says"),
    [
        (True, lambda folder: (folder / HEAD).write_bytes(b"nothing"), "cannot be loaded"),
        (False, lambda folder: (folder / "model.safetensors").write_bytes(b"nothing"), "cannot be loaded"),
        (False, lambda folder: remove_bias(folder / "model.safetensors"), "classifier.bias"),
        (False, lambda folder: (folder / "config.json").unlink(), "no classifier here"),
        (
            False,
            lambda folder: write_config(folder, num_labels=3, problem_type="regression"),
            "problem_type=regression",
        ),
        (False, lambda folder: toy_task.write_checkpoint(folder), "BertForMaskedLM"),
    ],
)
def test_a_damaged_classifier_or_another_model_is_refused(mean, damage, says, tokenizer, tmp_path):
    save_classifier(untrained("bert", mean), tokenizer, KIND, tmp_path)
    damage(tmp_path)
    with pytest.raises(ArtifactError) as error:
        open_classifier(str(tmp_path))
    assert says in str(error.value)
    assert "\n" not in str(error.value)
