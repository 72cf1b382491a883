"""The preset ``auto``: steps, learning rate and pooling that follow the checkpoint and the texts."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from dana.core.errors import ConfigError
from dana.corpus.text import entity_markers
from dana.finetuning.encoded_split import EncodedSplit
from dana.finetuning.settings import FinetuneSettings
from dana.models.classifier import new_classifier
from dana.models.folder import load_config
from dana.tasks.examples import Example
from dana.tasks.kinds import find_kind
from dana.tasks.settings import PRESETS, Preset

RELATION = "word1 << iron >> word2 [[ owl ]] word3"


def config(width, **entries):
    return SimpleNamespace(
        hidden_size=width, max_position_embeddings=40, model_type="bert", **entries
    )


@pytest.mark.parametrize(
    ("examples", "batch", "epochs"),
    [(500, 8, 6), (5000, 8, 3), (512, 16, 10), (513, 16, 10), (3, 8, 320)],
)
def test_epochs_follow_from_the_least_number_of_steps(examples, batch, epochs):
    assert replace(PRESETS["auto"], batch_size=batch).epochs_of(examples) == epochs
    assert Preset().epochs_of(examples) == 5, "the paper's epochs are its own"


@pytest.mark.parametrize(
    ("overrides", "epochs"),
    [({}, 32), ({"epochs": 1}, 1), ({"epochs": 1, "steps": 30}, 3), ({"steps": 50}, 5)],
)
def test_given_epochs_are_not_lengthened_to_the_presets_steps(toy_card, overrides, epochs):
    assert FinetuneSettings(**overrides).resolve(toy_card, config(128)).epochs_of(80) == epochs


ENTRIES = [(config(768), 3e-5, "cls"), (config(384), 2.4e-4, "mean"), (config(128), 1e-3, "mean")]
ENTRIES += [(config(384, dana={"learning_rate": 5e-4, "pooling": "cls"}), 5e-4, "cls")]
ENTRIES += [
    (config(384, dana={"pooling": "cls"}), 2.4e-4, "cls"),
    (load_config("dana-mini"), 3e-4, "mean"),
]


@pytest.mark.parametrize(("checkpoint", "rate", "pooling"), ENTRIES)
def test_rate_and_pooling_are_the_checkpoints_entry_else_follow_its_width(
    toy_card, checkpoint, rate, pooling
):
    preset = FinetuneSettings().resolve(toy_card, checkpoint)
    assert (preset.learning_rate, preset.pooling) == (pytest.approx(rate), pooling)
    assert preset.max_tokens == min(256, checkpoint.max_position_embeddings)
    assert (
        FinetuneSettings(learning_rate=0.1, pooling="mean")
        .resolve(toy_card, checkpoint)
        .learning_rate
        == 0.1
    )
    assert FinetuneSettings(preset="paper").resolve(toy_card, checkpoint) == Preset(), (
        "whatever the checkpoint"
    )
    words = replace(toy_card, kind="token_labels", metric="accuracy")
    assert FinetuneSettings().resolve(words, checkpoint).pooling == "cls"


WRONG_ENTRIES = [(3, "dana=3: must be a mapping"), ({"rate": 1}, "unknown key 'rate'")]
WRONG_ENTRIES += [
    ({"learning_rate": "auto"}, "='auto': must be a number"),
    ({"learning_rate": -1}, "learning_rate=-1"),
]


@pytest.mark.parametrize(("entry", "problem"), WRONG_ENTRIES)
def test_a_wrong_entry_of_a_checkpoint_is_refused_by_name(toy_card, entry, problem):
    with pytest.raises(ConfigError, match=rf"config.json of the checkpoint: .*{problem}"):
        FinetuneSettings().resolve(toy_card, config(384, dana=entry))


def test_markers_are_a_pair_that_every_text_has_once():
    assert entity_markers([RELATION, "[[ b ]] and << a >>"]) == ("<<", "[[")
    assert entity_markers(["[E1] a [/E1] is [E2] b [/E2]"]) == ("[E1]", "[E2]")
    assert (
        entity_markers([RELATION, "<< a >> alone"])
        == entity_markers([RELATION, RELATION * 2])
        == ()
    )


def test_marked_texts_are_pooled_at_the_first_token_of_each_marker(checkpoint):
    """By hand: the head of both states side by side; a marker that is cut off counts 0."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    examples = [Example("a", RELATION, 0), Example("b", "owl " * 3 + RELATION, 0)]
    split = EncodedSplit.from_examples(examples, tokenizer, 10, ("<<", "[["))
    assert split.types == [[0, 0, 1, 0, 0, 0, 2, 0, 0, 0], [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]]
    ids, mask, third = split.batch(np.arange(2), torch.device("cpu"))
    classifier = new_classifier(checkpoint, 3, 0, pooling="markers").eval()
    with torch.no_grad():
        states = classifier.model.base_model(input_ids=ids, attention_mask=mask)[0]
        pairs = torch.stack(
            [torch.cat([states[0, 2], states[0, 6]]), torch.cat([states[1, 5], torch.zeros(32)])]
        )
        assert torch.allclose(classifier(ids, mask, third), classifier.model.head(pairs), atol=1e-6)


LOPSIDED = np.array([0] * 8 + [1] * 2)


@pytest.mark.parametrize(
    ("kind", "labels", "actual", "predictions", "metric", "baseline", "collapse"),
    [
        (
            "single_label",
            "ab",
            LOPSIDED,
            [0] * 6 + [1] * 4,
            "accuracy",
            0.8,
            True,
        ),  # right in 8 of 10, as the class
        (
            "single_label",
            "ab",
            LOPSIDED,
            [0] * 6 + [1] * 4,
            "macro_f1",
            4 / 9,
            False,
        ),  # by this metric it is better
        ("single_label", "ab", LOPSIDED, [0] * 7 + [1] * 3, "accuracy", 0.8, False),
        ("regression", "", np.arange(4.0), [3.0, 2.0, 1.0, 0.0], "mse", 1.25, True),
        ("regression", "", np.arange(4.0), [0.0, 1.0, 1.0, 2.0], "mse", 1.25, False),
    ],
)
def test_a_model_that_does_not_beat_the_largest_class_collapsed(
    kind, labels, actual, predictions, metric, baseline, collapse
):
    kind = find_kind(kind)(tuple(labels))
    assert kind.baseline(actual, metric) == pytest.approx(baseline)
    assert kind.is_collapsed(np.array(predictions), actual, metric) is collapse


def test_the_largest_class_of_sets_and_words_is_the_most_frequent():
    many, words = find_kind("multi_label")(("a", "b")), find_kind("token_labels")(("O", "B-x"))
    assert many.largest_class(many.gather([(0, 1), (0,), (0, 1)])).tolist() == [(0, 1)] * 3
    assert words.largest_class(words.gather([(0, 1), (0,)])).tolist() == [(0, 0), (0,)]
