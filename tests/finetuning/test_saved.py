"""Saved classifiers: transformers alone opens them and computes the same logits, for every head and form of text."""

import numpy as np
import pytest
import torch
import toy_pairs
import toy_task
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertModel,
    pipeline,
)

from dana.core.errors import ArtifactError
from dana.core.rng import torch_seed
from dana.finetuning.encoded_split import EncodedSplit
from dana.finetuning.saved import open_classifier, save_classifier
from dana.models.classifier import (
    HEAD,
    Classifier,
    PooledClassifier,
    auto_class,
    head_layers,
    new_classifier,
)
from dana.tasks.examples import Example
from dana.tasks.kinds import KINDS
from dana.tasks.kinds.single_label import SingleLabel

CPU = torch.device("cpu")
LABELS = ("fruit", "metal", "bird")
KIND = SingleLabel(LABELS)
WORD_KIND = KINDS["token_labels"](("O", "B-x", "I-x"))
TEXTS = [row["text"] for row in toy_task.rows(8, seed=5)]
CONFIGS = {
    **{kind: {} for kind in ("bert", "roberta", "camembert", "mpnet", "deberta-v2", "deberta")},
    **{kind: {"embedding_size": 16} for kind in ("albert", "electra")},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    "modernbert": {"cls_token_id": 2, "sep_token_id": 3, "global_attn_every_n_layers": 1},
}


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def tokenizer(checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    tokenizer.model_max_length = 24
    return tokenizer


def untrained(kind, mean=False, per_word=False, **config):
    """A classifier whose head has large weights, so that another head would show."""
    with torch_seed(3):
        config = AutoConfig.for_model(
            kind, **{**toy_task.SIZE, **CONFIGS[kind], **config}, num_labels=3
        )
        model = auto_class(per_word).from_config(config)
        classifier = Classifier(
            PooledClassifier(AutoModel.from_config(config), 3) if mean else model, per_word
        )
        for layer in [classifier.out] if mean or per_word else head_layers(classifier.model):
            torch.nn.init.normal_(layer.weight, std=0.5)
            if layer.bias is not None:
                torch.nn.init.normal_(layer.bias, std=0.5)
    return classifier.eval()


def close(one, other):
    return torch.allclose(one, other, atol=1e-5)


def probe(tokenizer):
    encoding = tokenizer(TEXTS, padding=True, return_tensors="pt")
    return encoding["input_ids"], encoding["attention_mask"]


def test_a_saved_tokenizer_does_not_depend_on_its_last_call(tokenizer, tmp_path):
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
        save_classifier(untrained("bert"), tokenizer, KIND, tmp_path / name)
        tokenizer(TEXTS, truncation=True, max_length=8)
    assert (
        len({(tmp_path / name / "tokenizer.json").read_bytes() for name in ("before", "after")})
        == 1
    )


@pytest.mark.parametrize("kind", CONFIGS)
def test_texts_have_the_same_logits_in_transformers(kind, tokenizer, tmp_path):
    classifier, (ids, mask) = untrained(kind), probe(tokenizer)
    save_classifier(classifier, tokenizer, KIND, tmp_path)
    model, again = (
        AutoModelForSequenceClassification.from_pretrained(tmp_path).eval(),
        open_classifier(str(tmp_path)),
    )
    logits = classifier(ids, mask)
    assert close(model(input_ids=ids, attention_mask=mask).logits, logits)
    assert close(again.module(ids, mask), logits)
    assert (again.kind, again.max_tokens) == (KIND, 24)
    assert model.config.id2label == dict(enumerate(LABELS))
    assert model.config.label2id == {label: at for at, label in enumerate(LABELS)}
    if kind == "bert":
        each = [
            classifier(**tokenizer(text, return_tensors="pt", return_token_type_ids=False))
            for text in TEXTS
        ]
        labels = [LABELS[int(logits.argmax())] for logits in each]
        assert [
            row["label"] for row in pipeline("text-classification", str(tmp_path))(TEXTS)
        ] == labels


@pytest.mark.parametrize(
    ("kind", "types", "has_types"),
    [
        ("bert", 2, True),
        ("albert", 2, True),
        ("electra", 2, True),
        ("bert", 1, False),
        ("distilbert", 2, False),
    ],
)
def test_pairs_have_the_same_logits_in_transformers(
    kind, types, has_types, pair_tokenizer, tmp_path
):
    """Token types are passed to the models that have them."""
    rows = toy_pairs.rows(8, 5)
    examples = [Example(row["uid"], row["premise"], 0, row["hypothesis"]) for row in rows]
    batch = EncodedSplit.from_examples(examples, pair_tokenizer, 24).batch(np.arange(8), CPU)
    classifier = untrained(kind, type_vocab_size=types)
    save_classifier(classifier, pair_tokenizer, KIND, tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    texts = [[row[field] for row in rows] for field in ("premise", "hypothesis")]
    options = {"padding": True, "truncation": True, "max_length": 24, "return_tensors": "pt"}
    inputs = AutoTokenizer.from_pretrained(tmp_path)(
        *texts, **options, return_token_type_ids=has_types
    )
    logits = classifier(*batch)
    assert torch.allclose(classifier(*batch[:2]), logits) != has_types
    assert close(open_classifier(str(tmp_path)).module(*batch), logits)
    assert close(model(**inputs).logits, logits)


@pytest.mark.parametrize("kind", ["bert", "roberta", "electra", "distilbert", "modernbert"])
def test_words_have_the_same_logits_in_transformers(kind, tokenizer, tmp_path):
    classifier = untrained(kind, per_word=True)
    texts = [("wren", "owl"), ("zinc", "iron", "lead", "word1")]
    examples = [Example("", " ".join(words), (0,) * len(words), words=words) for words in texts]
    ids, mask, firsts = EncodedSplit.from_examples(examples, tokenizer, 24).batch(np.arange(2), CPU)
    save_classifier(classifier, tokenizer, WORD_KIND, tmp_path)
    again, model = open_classifier(str(tmp_path)), auto_class(True).from_pretrained(tmp_path).eval()
    assert again.kind == WORD_KIND
    logits = classifier(ids, mask, firsts)
    assert logits.shape == (6, 3)
    assert close(again.module(ids, mask, firsts), logits)
    assert close(model(input_ids=ids, attention_mask=mask).logits[firsts], logits)


def test_a_classifier_of_another_project_is_opened(tokenizer, tmp_path):
    config = AutoConfig.for_model("electra", **toy_task.SIZE, embedding_size=16, num_labels=4)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    again, (ids, mask) = open_classifier(str(tmp_path)), probe(tokenizer)
    assert again.kind == SingleLabel(("LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3"))
    assert close(again.module(ids, mask), model(input_ids=ids, attention_mask=mask).logits)


@pytest.mark.parametrize(("kind", "positions"), [("bert", 40), ("roberta", 38)])
def test_without_a_length_texts_are_truncated_at_the_models_positions(
    kind, positions, checkpoint, tmp_path
):
    save_classifier(untrained(kind), AutoTokenizer.from_pretrained(checkpoint), KIND, tmp_path)
    assert open_classifier(str(tmp_path)).max_tokens == positions


def test_a_classifier_with_mean_pooling_is_saved_in_parts(checkpoint, tokenizer, tmp_path):
    classifier, inputs = (
        new_classifier(checkpoint, 3, seed=5, pooling="mean").eval(),
        probe(tokenizer),
    )
    save_classifier(classifier, tokenizer, KIND, tmp_path)
    again = open_classifier(str(tmp_path))
    assert (again.kind, again.max_tokens) == (KIND, 24)
    assert torch.equal(again.module(*inputs), classifier(*inputs))
    with pytest.raises((OSError, ValueError)):  # or transformers would make a new head
        AutoModelForSequenceClassification.from_pretrained(tmp_path)
    AutoModel.from_pretrained(tmp_path / "backbone")


def write_config(folder):
    config = AutoConfig.for_model("bert", **toy_task.SIZE, num_labels=3, problem_type="regression")
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)


def write_encoder_and_head(folder):
    """A sentence encoder with a head for masked tokens in a file of its own."""
    BertModel(AutoConfig.for_model("bert", **toy_task.SIZE)).save_pretrained(folder)
    (folder / HEAD).write_bytes(b"of masked tokens")


def remove_bias(path):
    tensors = load_file(path)
    save_file({name: value for name, value in tensors.items() if name != "classifier.bias"}, path)


@pytest.mark.parametrize(
    ("mean", "damage", "problem"),
    [
        (True, lambda folder: (folder / HEAD).write_bytes(b"nothing"), "cannot be loaded"),
        (
            False,
            lambda folder: (folder / "model.safetensors").write_bytes(b"nothing"),
            "cannot be loaded",
        ),
        (False, lambda folder: remove_bias(folder / "model.safetensors"), "classifier.bias"),
        (False, lambda folder: (folder / "config.json").unlink(), "no classifier here"),
        (False, write_config, "problem_type=regression"),
        (False, toy_task.write_checkpoint, "BertForMaskedLM"),
        (False, write_encoder_and_head, "BertModel, not a sequence classifier"),
    ],
)
def test_a_damaged_classifier_or_another_model_is_refused(
    mean, damage, problem, tokenizer, tmp_path
):
    save_classifier(untrained("bert", mean), tokenizer, KIND, tmp_path)
    damage(tmp_path)
    with pytest.raises(ArtifactError) as error:
        open_classifier(str(tmp_path))
    assert problem in str(error.value)
    assert "\n" not in str(error.value)
