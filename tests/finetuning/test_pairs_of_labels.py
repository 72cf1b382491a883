"""Fine-tuning by pairs: which pairs, their loss, the head, and what is refused."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from transformers import AutoTokenizer

from dana.core.errors import ConfigError
from dana.finetuning.contrastive import ContrastiveTraining, pair_loss
from dana.finetuning.loop import Callbacks, run_seed
from dana.finetuning.saved import open_classifier, save_classifier
from dana.finetuning.settings import FinetuneSettings
from dana.models.folder import load_config
from dana.stages.finetune import finetune_stage
from dana.tasks.examples import read_splits
from dana.tasks.kinds.single_label import SingleLabel
from dana.tasks.settings import Preset
from dana.train.execution import Precision
from tests.toy_task import encode_splits

FLOAT32 = Precision(torch.device("cpu"), "no", False)
PRESET = Preset(
    epochs=2, steps=80, batch_size=12, learning_rate=1e-3, pooling="mean", max_tokens=24
)


@pytest.fixture
def splits(toy_card, checkpoint):
    return encode_splits(toy_card, checkpoint)


@pytest.fixture
def run(toy_card, checkpoint, splits):
    """Fine-tunes for a seed by pairs; returns the classifier and the result."""

    def run(seed=0, card=toy_card, **changes):
        return run_seed(
            checkpoint,
            {**splits, **changes},
            card,
            PRESET,
            seed,
            FLOAT32,
            method=ContrastiveTraining,
        )

    return run


def labelled(split, labels):
    """Return a split with other labels."""
    return replace(split, loss_labels=np.array(labels), labels=np.array(labels))


def training(card, split, batch_size=12, seed=0):
    """Return a training that has no model yet."""
    preset = replace(PRESET, batch_size=batch_size)
    kind = card.label_kind
    return ContrastiveTraining(None, kind, card, preset, split, split, seed, FLOAT32, Callbacks())


def test_the_loss_is_that_of_all_pairs_in_which_both_kinds_count_alike():
    random = np.random.default_rng(0)
    vectors = random.normal(size=(7, 5))
    classes = np.array([0, 0, 1, 1, 1, 2, 0])
    errors = {True: [], False: []}
    for one, other in combinations(range(7), 2):
        cosine = vectors[one] @ vectors[other]
        cosine /= np.linalg.norm(vectors[one]) * np.linalg.norm(vectors[other])
        is_same = bool(classes[one] == classes[other])
        errors[is_same].append((cosine - is_same) ** 2)
    expected = (np.mean(errors[True]) + np.mean(errors[False])) / 2
    loss = pair_loss(torch.from_numpy(vectors), torch.from_numpy(classes))
    assert float(loss) == pytest.approx(expected)
    longer = pair_loss(torch.from_numpy(vectors * 3), torch.from_numpy(classes))
    assert float(longer) == pytest.approx(expected), "the length of a vector says nothing"


def test_a_batch_without_pairs_of_one_class_is_drawn_apart():
    vectors = torch.eye(3)
    assert float(pair_loss(vectors, torch.tensor([0, 1, 2]))) == 0
    assert float(pair_loss(vectors, torch.tensor([0, 0, 0]))) == 1


def test_classes_are_drawn_evenly_and_a_text_once_in_a_batch(toy_card, splits):
    split = splits["train"]
    labels = np.zeros(len(split.tokens), dtype=int)
    labels[:10] = 1
    labels[10:13] = 2
    for rows in training(toy_card, labelled(split, labels)).batches():
        assert len(set(rows.tolist())) == len(rows)
        assert np.bincount(labels[rows]).tolist() == [4, 4, 3], "of the last there are but three"


def test_of_many_classes_those_that_are_drawn_have_two_texts(toy_card, splits):
    card = replace(toy_card, labels=[str(number) for number in range(8)])
    split = splits["train"]
    labels = np.arange(len(split.tokens)) % 8
    drawn = set()
    for rows in training(card, labelled(split, labels), batch_size=6).batches():
        counts = np.bincount(labels[rows], minlength=8)
        assert sorted(counts.tolist()) == [0] * 5 + [2] * 3
        drawn |= set(np.flatnonzero(counts).tolist())
    assert drawn == set(range(8))


def test_a_task_that_can_be_learnt_is_learnt_and_a_seed_repeats(run, toy_card):
    _, result = run()
    labels = [example.label for example in read_splits(toy_card)["test"]]
    assert (result.outputs.argmax(1) == labels).mean() > 0.9
    np.testing.assert_allclose(result.outputs.sum(1), 1, atol=1e-5)
    assert result.dev_score == result.dev_scores[-1] > 0.9
    torch.manual_seed(5)
    assert np.array_equal(run()[1].outputs, result.outputs)
    assert not np.array_equal(run(seed=1)[1].outputs, result.outputs)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_head_is_logistic_regression_on_the_tuned_vectors(run, splits, toy_card, classes):
    card = replace(toy_card, labels=["a", "b", "c"][:classes])
    train = labelled(splits["train"], np.minimum(splits["train"].labels, classes - 1))
    dev = labelled(splits["dev"], np.minimum(splits["dev"].labels, classes - 1))
    classifier, result = run(card=card, train=train, dev=dev)
    classifier.eval()
    device = torch.device("cpu")
    with torch.no_grad():
        vectors, tested = (
            classifier.vectors(*split.batch(np.arange(len(split.tokens)), device)).numpy()
            for split in (train, splits["test"])
        )
    scale = np.linalg.norm(vectors, axis=1).mean()
    head = LogisticRegression(max_iter=1000).fit(vectors / scale, train.labels)
    np.testing.assert_allclose(head.predict_proba(tested / scale), result.outputs, atol=2e-3)


def test_a_class_without_a_training_text_is_not_predicted(run, splits, toy_card):
    card = replace(toy_card, labels=["a", "b", "c", "never"])
    _, result = run(card=card)
    assert result.outputs.shape[1] == 4
    assert result.outputs[:, 3].max() < 1e-6


def test_a_class_weight_moves_the_head(run, splits, toy_card):
    labels = splits["train"].labels
    rare = np.flatnonzero(labels == 0)[4:]
    train = labelled(splits["train"], np.where(np.isin(np.arange(labels.size), rare), 1, labels))
    _, plain = run(train=train)
    _, balanced = run(train=train, card=replace(toy_card, class_weight="balanced"))
    assert balanced.outputs[:, 0].mean() > plain.outputs[:, 0].mean()


@pytest.mark.parametrize("labels", [[0] * 6, [0, 1, 2, 0, 1, 2]])
def test_texts_without_both_kinds_of_pairs_are_refused(toy_card, splits, labels):
    split = splits["train"]
    few = replace(split, tokens=split.tokens[: len(labels)])
    if len(set(labels)) == 3:  # no two of one class
        few, labels = replace(few, tokens=few.tokens[:3]), labels[:3]
    with pytest.raises(ConfigError, match="method='contrastive': must be left out"):
        training(toy_card, labelled(few, labels))


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "multi_label"},
        {"kind": "regression", "labels": [], "metric": "pearson"},
        {"kind": "token_labels", "metric": "accuracy"},
    ],
    ids=lambda changes: changes["kind"],
)
def test_a_text_must_have_one_class(toy_card, changes):
    card = replace(toy_card, **changes)
    with pytest.raises(ConfigError, match=f"left out for kind={card.kind}"):
        ContrastiveTraining.check_task(card, PRESET)


def test_one_token_is_no_vector_of_a_text(toy_card):
    with pytest.raises(ConfigError, match="pooling='cls': must be mean or markers"):
        ContrastiveTraining.check_task(toy_card, replace(PRESET, pooling="cls"))


def test_the_preset_auto_is_that_of_the_method(toy_card, checkpoint):
    config = load_config(checkpoint)
    found = FinetuneSettings(method="contrastive", epochs=7).resolve(toy_card, config)
    assert (found.epochs, found.batch_size, found.pooling) == (7, 32, "mean")
    assert FinetuneSettings().resolve(toy_card, config).batch_size == 8


def test_a_saved_model_opens_and_predicts_the_same(run, splits, checkpoint, tmp_path):
    classifier, _ = run()
    classifier.eval()
    kind = SingleLabel.from_count(3)
    save_classifier(classifier, AutoTokenizer.from_pretrained(checkpoint), kind, tmp_path)
    again = open_classifier(str(tmp_path))
    inputs = splits["test"].batch(np.arange(9), torch.device("cpu"))
    assert torch.equal(again.module(*inputs), classifier(*inputs))


def test_dana_finetune_makes_a_model_by_pairs(toy_card, checkpoint, tmp_path):
    settings = FinetuneSettings(
        method="contrastive", preset="quick", pooling="mean", seeds=1, save=True, max_tokens=24
    )
    card = str(tmp_path / "tasks" / "toy.yaml")
    out = tmp_path / "out"
    result = finetune_stage(checkpoint, card, settings, out)
    assert result.manifest["depends_on"]
    model = open_classifier(str(tmp_path / "out-model"))
    assert list(dict(model.module.model.head.named_parameters())) == ["out.weight", "out.bias"]
    whole = replace(settings, method="whole")
    with pytest.raises(Exception, match="method"):
        finetune_stage(checkpoint, card, whole, out)
