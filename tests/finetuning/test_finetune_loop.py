from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoTokenizer

from dana.core.artifacts import read_json
from dana.core.errors import ArtifactError, DanaError
from dana.finetuning import loop as finetuning_loop
from dana.finetuning.encoded_split import EncodedSplit, tokenise_words
from dana.finetuning.loop import order, predict, run_seed
from dana.finetuning.results import (
    SeedResult,
    join_results,
    read_results,
    results_table,
    write_result,
)
from dana.models.classifier import new_classifier
from dana.tasks.card import TaskCard
from dana.tasks.examples import Example, overlap, read_splits
from dana.tasks.kinds import KINDS, find_kind
from dana.tasks.kinds.single_label import SingleLabel
from dana.tasks.tables import collapse_warning, data_warnings
from dana.train.execution import Precision
from dana.train.half_weights import HalfWeights
from dana.train.supervised import train_supervised
from tests.toy_task import encode_splits

KIND = SingleLabel.from_count(3)
FLOAT32 = Precision(torch.device("cpu"), "no", False)
HALF = Precision(torch.device("cpu"), "bf16", False)


@pytest.fixture
def splits(toy_card, checkpoint):
    return encode_splits(toy_card, checkpoint)


@pytest.fixture
def run(toy_card, checkpoint, splits):
    """Fine-tunes for a seed; returns the classifier and the result."""

    def run(seed=0, model=checkpoint, precision=FLOAT32, **changes):
        return run_seed(
            model, splits, toy_card, replace(toy_card.preset("quick"), **changes), seed, precision
        )

    return run


def test_a_task_that_can_be_learnt_is_learnt(run, toy_card):
    _, result = run()
    right = result.outputs.argmax(1) == [example.label for example in read_splits(toy_card)["test"]]
    assert right.mean() > 0.9
    assert np.allclose(result.outputs.sum(1), 1, atol=1e-5)
    assert (result.epoch, len(result.dev_scores)) == (6, 1), (
        "the development data decide nothing: read once"
    )
    assert result.dev_score == result.dev_scores[0] > 0.9


def test_a_seed_is_reproducible_trains_every_part_and_computes_in_its_precision(run, checkpoint):
    torch.manual_seed(1)
    classifier, first = run(epochs=1)
    torch.manual_seed(2)
    _, again = run(epochs=1)
    assert np.array_equal(first.outputs, again.outputs), "whatever was drawn before"
    assert not np.array_equal(first.outputs, run(seed=1, epochs=1)[1].outputs)
    half, result = run(epochs=1, precision=HALF)
    assert not np.array_equal(first.outputs, result.outputs)
    np.testing.assert_allclose(first.outputs, result.outputs, atol=0.1)
    assert {value.dtype for value in half.parameters()} == {torch.float32}, (
        "weights stay in float32"
    )
    before = dict(new_classifier(checkpoint, 3, 0).named_parameters())
    frozen = [
        name for name, value in classifier.named_parameters() if torch.equal(value, before[name])
    ]
    assert frozen == []


def test_weights_that_are_cast_once_a_step_give_the_bits_of_autocast(run, monkeypatch):
    _, plain = run(epochs=2, precision=HALF)
    made = []

    def supervised(*arguments):
        optimizer, *others, clip, half = arguments
        assert half is None, "on a CPU"
        half = HalfWeights(classifiers[-1])
        made.append(half)
        return train_supervised(optimizer, *others, clip, half)

    classifiers = []
    new = finetuning_loop.new_classifier
    monkeypatch.setattr(
        finetuning_loop,
        "new_classifier",
        lambda *arguments: classifiers.append(new(*arguments)) or classifiers[-1],
    )
    monkeypatch.setattr(finetuning_loop, "train_supervised", supervised)
    classifier, half = run(epochs=2, precision=HALF)
    assert len(made) == 1
    assert np.array_equal(half.outputs, plain.outputs)
    assert {value.dtype for value in classifier.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("sign", "evaluate", "scores", "epoch"),
    [
        (1, "best", [0.1, 0.9, 0.9, 0.5], 2),
        (-1, "best", [0.5, 0.1, 0.1, 0.9], 2),
        (1, "last", [0.7], 4),
    ],
)
def test_the_first_best_epoch_is_tested_or_the_last(
    run, splits, monkeypatch, sign, evaluate, scores, epoch
):
    """Dev is also the test split here and its scores are fixed, so the predictions of each epoch are known."""
    remaining, predictions = iter(scores), []

    def remember(*arguments):
        predictions.append(predict(*arguments))
        return predictions[-1]

    monkeypatch.setattr(TaskCard, "sign", sign)
    monkeypatch.setattr(
        "dana.tasks.kinds.single_label.score_predictions", lambda *_: {"macro_f1": next(remaining)}
    )
    monkeypatch.setattr("dana.finetuning.loop.predict", remember)
    splits["test"] = splits["dev"]
    _, result = run(epochs=4, evaluate=evaluate)
    assert (result.epoch, result.dev_scores) == (epoch, scores)
    same = [np.array_equal(result.outputs, outputs) for outputs in predictions[:-1]]
    assert same == ([False, True, False, False] if evaluate == "best" else [True])


def test_the_batches_of_a_prediction_do_not_show(splits, checkpoint, monkeypatch):
    classifier = new_classifier(checkpoint, 3, 0)
    together = predict(classifier, splits["test"], KIND, FLOAT32)
    monkeypatch.setattr("dana.finetuning.loop.EVALUATION_TOKENS", 50)
    assert np.allclose(together, predict(classifier, splits["test"], KIND, FLOAT32), atol=1e-6)
    with torch.no_grad():
        alone = classifier(*splits["test"].batch(np.array([5]), torch.device("cpu"))).softmax(-1)
    assert np.allclose(together[5], alone[0], atol=1e-6)


def test_a_loss_that_is_not_finite_stops_the_seed(run):
    with pytest.raises(
        DanaError, match=r"seed 0, step \d+: the loss is (nan|inf); lower learning_rate="
    ):
        run(learning_rate=1e30)


def test_outputs_that_are_not_finite_are_no_predictions(checkpoint, splits):
    classifier = new_classifier(str(checkpoint), 3, 0)
    with torch.no_grad():
        classifier.out.weight[0] = float("nan")
    with pytest.raises(ArtifactError, match="outputs are not finite"):
        predict(classifier, splits["test"], KIND, FLOAT32)


def test_a_step_has_dropout_the_planned_rate_and_a_bounded_gradient(run, monkeypatch):
    """15 steps an epoch, 30 in all: 3 of warm-up, then down to a 27th of the peak."""
    training, rates, norms = [], [], []

    class Recorder(torch.optim.SGD):
        def step(self):
            [group] = self.param_groups
            gradients = [value.grad.norm() for value in group["params"] if value.grad is not None]
            norms.append(torch.stack(gradients).norm().item())
            rates.append(group["lr"])

    def classifier(*arguments):
        classifier = new_classifier(*arguments)
        classifier.register_forward_pre_hook(lambda module, _: training.append(module.training))
        return classifier

    monkeypatch.setattr("dana.finetuning.loop.new_classifier", classifier)
    monkeypatch.setattr(
        "dana.finetuning.loop.make_optimizer", lambda model, *_: Recorder(model.parameters(), 0.0)
    )
    monkeypatch.setattr("dana.finetuning.loop.CLIP", 1e-3)
    run(epochs=2, learning_rate=0.27, evaluate="best")
    # A trial of the precision first, dev after each epoch, test at the end.
    assert training == [*[True] * 16, False, *[True] * 15, False, False]
    assert rates[:4] == pytest.approx([0.09, 0.18, 0.27, 0.27])
    assert rates[-1] == pytest.approx(0.01)
    assert norms == pytest.approx([1e-3] * 30, rel=1e-2)


CPU = torch.device("cpu")
BOTH = np.array([1, 0])


def test_texts_are_truncated_and_padded_to_the_longest_of_the_batch(checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    examples, kind = (
        [Example("a", "apple pear", 1), Example("b", "iron " * 20, 0)],
        SingleLabel.from_count(2),
    )
    split = EncodedSplit.with_labels(examples, tokenizer, 6, kind)
    assert split.lengths.tolist() == [4, 6]
    assert split.loss_labels.tolist() == split.labels.tolist() == [1, 0]
    ids, mask = split.batch(BOTH, CPU)
    assert mask.tolist() == [[1] * 6, [1, 1, 1, 1, 0, 0]]
    assert ids[1].tolist() == [*tokenizer("apple pear")["input_ids"], *[tokenizer.pad_token_id] * 2]
    assert split.batch(BOTH[1:], CPU)[0].shape == (1, 4)


def test_pairs_are_joined_with_token_types_and_the_longer_text_is_truncated_first(pair_tokenizer):
    examples = [Example("a", "apple pear", 1, "iron"), Example("b", "owl", 0, "wren " * 20)]
    split = EncodedSplit.from_examples(examples, pair_tokenizer, 8)
    ids, mask, types = split.batch(BOTH, CPU)
    words = [pair_tokenizer.convert_ids_to_tokens(row) for row in ids]
    assert words[0] == ["[CLS]", "owl", "[SEP]", *["wren"] * 4, "[SEP]"]
    assert words[1] == ["[CLS]", "apple", "pear", "[SEP]", "iron", "[SEP]", "[PAD]", "[PAD]"]
    assert types.tolist() == [[0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 0, 0]]
    assert mask.tolist() == [[1] * 8, [1] * 6 + [0] * 2]
    assert (
        len(
            EncodedSplit.from_examples([Example("a", "apple", 1)], pair_tokenizer, 24).batch(
                BOTH[1:], CPU
            )
        )
        == 2
    ), "no types"


def test_a_word_is_its_first_token(tiny_tokenizer, byte_level):
    """As transformers reads lists of words, and for a tokenizer that joins the space before a word to it."""
    words = ["Unbelievable", "fine-tuning", "of", "checkpoints", ",", "again"]
    [ids], [firsts] = tokenise_words([words], tiny_tokenizer, 64)
    encoding = tiny_tokenizer(words, is_split_into_words=True)
    assert ids == encoding["input_ids"]
    assert firsts.tolist() == [encoding.word_ids().index(at) for at in range(len(words))]
    [ids], [firsts] = tokenise_words([["ab", "é", "c d", "e"]], byte_level, 64)
    assert len(ids) == len("ab é c d e".encode())
    assert firsts.tolist() == [0, 3, 6, 10]
    with pytest.raises(ArtifactError, match="Slow: "):
        tokenise_words([["a"]], type("Slow", (), {"is_fast": False})(), 8)


def test_truncated_words_have_no_unit(checkpoint):
    kind = find_kind("token_labels")(("O", "B-x", "I-x"))
    rows = [(["wren", "owl"], (0, 1)), (["zinc", "iron", "lead", "word1"], (1, 2, 0, 2))]
    examples = [Example("", " ".join(words), labels, words=tuple(words)) for words, labels in rows]
    split = EncodedSplit.with_labels(examples, AutoTokenizer.from_pretrained(checkpoint), 5, kind)
    assert [part.tolist() for part in split.first_tokens] == [[1, 2], [1, 2, 3, -1]]
    assert split.sizes.tolist() == [2, 4]
    ids, mask, first = split.batch(BOTH, CPU)
    assert first.tolist() == [[False, True, True, True, False], [False, True, True, False, False]]
    assert ids.shape == mask.shape == first.shape
    assert split.units(BOTH).tolist() == [2, 3, 4, 0, 1]
    assert split.loss_labels[split.units(BOTH)].tolist() == [1, 2, 0, 0, 1]


def test_the_order_is_a_function_of_seed_and_epoch():
    split = EncodedSplit([[1] * (1 + row % 17) for row in range(100)], 0)
    one, same, seed, epoch = (
        np.concatenate(order(split, 8, *at)).tolist() for at in ((0, 0), (0, 0), (1, 0), (0, 1))
    )
    assert one == same
    assert one not in (seed, epoch)


ROWS = [
    {
        "seed": 0,
        "score": 0.5,
        "dev_score": 0.61234,
        "epoch": 3,
        "seconds": 12.34,
        "degenerate": False,
    }
]
ROWS += [
    {"seed": 11, "score": 0.2, "dev_score": 0.45, "epoch": 1, "seconds": 9.0, "degenerate": True}
]
ROWS += [
    {"seed": 12, "score": 0.4, "dev_score": 0.25, "epoch": 1, "seconds": 9.0, "degenerate": False}
]
BASELINES = {"largest_class_dev": 0.25, "largest_class_test": 0.2}
METRICS = {
    "metric": "macro_f1",
    "direction": "higher",
    "seeds": [{**row, **BASELINES} for row in ROWS],
}


def test_the_table_has_one_line_per_seed_and_flags_a_collapse():
    metrics = {**METRICS, "mean": 0.35, "std": 0.21213, "n": 3}
    head, first, second, third, last = results_table(metrics).splitlines()
    assert head.split() == ["seed", "macro_f1", "dev", "epoch", "seconds"]
    assert first.split() == ["0", "0.5000", "0.6123", "3", "12.3"]
    assert second.split()[:6] == ["11", "0.2000", "0.4500", "1", "9.0", "collapsed:"]
    assert second.endswith("9.0  collapsed: not above the largest class, or nearly one label")
    assert third.endswith(" 9.0"), "the rule looks at the test texts alone, as that of the report"
    assert last.split()[:6] == ["mean", "0.3500", "±", "0.2121", "(n", "="]
    alone = results_table(
        {**metrics, "seeds": metrics["seeds"][:1], "mean": 0.5, "std": None, "n": 1}
    )
    assert "±" not in alone


def test_a_collapse_is_said_with_its_baseline_and_what_to_change():
    text = collapse_warning(METRICS)
    assert text.startswith(
        "Beware: 1 of 3 models (seed 11) do not beat the largest class on the test texts (macro_f1 0.2000)"
    )
    assert ", or predict nearly one label. Their labels" in text, (
        "seed 11 of several labels may beat that class"
    )
    assert "try learning_rate=auto, more steps" in text
    assert collapse_warning({**METRICS, "seeds": METRICS["seeds"][:1]}) == ""


def test_results_are_read_back_bit_for_bit(toy_card, tmp_path):
    random = np.random.default_rng(0)
    results = [
        SeedResult(seed, 2, [0.1, 1 / 3], random.random((5, 3), dtype=np.float32), 0.123)
        for seed in (4, 1)
    ]
    test = [Example(f"test-{at}", f"text {at}", at % 3) for at in range(5)]
    splits = {
        "train": [Example("train-1", "text 1", 0)],
        "dev": [Example("dev-1", "text 3", 0)],
        "test": test,
    }
    details = {"split_overlap": overlap(splits), "settings": {}, "folds": None}
    for name, result in zip("ab", results, strict=True):
        (tmp_path / name).mkdir()
        write_result(tmp_path / name, toy_card, details, result, splits)
        [after] = read_results(tmp_path / name, toy_card.label_kind)
        assert np.array_equal(result.outputs, after.outputs)
        assert after.outputs.dtype == np.float32
        assert {**vars(result), "outputs": 0} == {**vars(after), "outputs": 0}
    (tmp_path / "both").mkdir()
    parts = {0: [tmp_path / "a"], 1: [tmp_path / "b"]}
    join_results(parts, tmp_path / "both", toy_card.label_kind, {})
    seen = read_json(tmp_path / "both" / "metrics.json")["split_overlap"]
    unseen, labels = (
        [0, 2, 4],
        np.array([0, 2, 1]),
    )  # test texts that are neither in train nor in dev
    means = [
        toy_card.label_kind.scores(result.outputs[unseen].argmax(1), labels)["macro_f1"]
        for result in results
    ]
    assert seen == {
        "test_in_train": 1,
        "test_in_dev": 1,
        "seen": 2,
        "unseen": 3,
        "unseen_mean": np.mean(means),
    }
    warning = (
        f"2 of 5 test texts are also in train or dev; macro_f1 without them: {np.mean(means):.4f}."
    )
    assert data_warnings({"metric": "macro_f1", "split_overlap": seen}) == [f"Beware: {warning}"]
    joined = pq.read_table(tmp_path / "both" / "predictions.parquet")
    tables = [pq.read_table(tmp_path / part / "predictions.parquet") for part in "ab"]
    assert joined["adaptation"].to_pylist() == [0] * 5 + [1] * 5
    assert joined.drop(["adaptation"]) == pa.concat_tables(tables).drop(["adaptation"])


@pytest.mark.parametrize("name", ["single_label", "multi_label", "token_labels"])
def test_the_weighted_loss_of_a_batch_is_that_of_its_parts_and_of_repeated_texts(name):
    kind = KINDS[name](("a", "b", "c"))
    labels = {
        "single_label": [0, 0, 0, 0, 1, 1],
        "multi_label": [(0,), (0,), (0,), (), (0, 1), (1,)],
        "token_labels": [(0, 0), (0, 0), (1, 1)],
    }[name]
    targets = kind.loss_labels(labels)
    weights = torch.from_numpy(kind.class_weights(targets))
    rows = torch.from_numpy(targets)
    rows = rows.double() if name == "multi_label" else rows
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss = kind.loss(logits, rows, weights)
    for cut in (1, 2, 5):
        first = kind.loss(logits[:cut], rows[:cut], weights) * cut
        rest = kind.loss(logits[cut:], rows[cut:], weights) * (6 - cut)
        assert torch.isclose((first + rest) / 6, loss, rtol=1e-12)
    if name != "multi_label":
        order = torch.tensor([0, 1, 2, 3, 4, 5, 4, 5])  # as often as the other class
        assert torch.isclose(kind.loss(logits[order], rows[order]), loss, rtol=1e-6)
    else:
        every = [
            torch.nn.functional.binary_cross_entropy_with_logits(
                logits[:, label][rows[:, label] == bit],
                rows[:, label][rows[:, label] == bit],
            )
            for label in (0, 1)
            for bit in (0, 1)
        ]
        absent = torch.nn.functional.binary_cross_entropy_with_logits(logits[:, 2], rows[:, 2])
        halves = [(every[0] + every[1]) / 2, (every[2] + every[3]) / 2, absent]
        assert torch.isclose(sum(halves) / 3, loss, rtol=1e-6), "a label's two sides count alike"
    assert torch.equal(kind.loss(logits, rows, None), kind.loss(logits, rows)), "by default none"


def test_a_rare_class_is_predicted_more_often_with_balanced_classes(toy_card, checkpoint, splits):
    rare = [n for n, label in enumerate(splits["train"].labels) if label == 2][5:]
    kept = np.setdiff1d(np.arange(len(splits["train"].tokens)), rare)
    train = splits["train"]
    splits["train"] = replace(
        train,
        tokens=[train.tokens[row] for row in kept],
        labels=train.labels[kept],
        loss_labels=train.loss_labels[kept],
    )
    counts = []
    for weight in (None, "balanced"):
        card = replace(toy_card, class_weight=weight)
        preset = replace(toy_card.preset("quick"), epochs=2)
        _, result = run_seed(checkpoint, splits, card, preset, 0, FLOAT32)
        counts.append(float(result.outputs[:, 2].mean()))
    assert counts[1] > counts[0] + 0.03
