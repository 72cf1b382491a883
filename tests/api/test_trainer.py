"""Weights in Hugging Face's Trainer: the examples, masks and steps of dana's own loop, however a step is cut."""

import copy
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset
from transformers import AutoTokenizer, TrainingArguments

import dana
from dana.core.artifacts import read_json
from dana.core.errors import ConfigError, DataError
from dana.core.registry import Registry
from dana.train import DENOMINATORS
from dana.train.examples import Batch
from dana.train.execution import make_accelerator
from dana.train.layout import BatchLayout
from dana.train.loop import take_step
from dana.train.objectives.masked import MaskedTokens
from dana.train.objectives.position import Position
from dana.train.settings import TrainSettings
from dana.train.training_state import TrainingState
from tests.api.conftest import launch

MAX_TOKENS = 24
RATE = 0.5


@pytest.fixture(scope="module")
def tokenizer(pieces):
    return AutoTokenizer.from_pretrained(pieces)


@pytest.fixture(scope="module")
def table(weights_run, tokenizer):
    return dana.training_dataset(weights_run[0], tokenizer, max_tokens=MAX_TOKENS)


def load_without_dropout(checkpoint):
    """Draws of dropout depend on how a step is cut."""
    model, _ = dana.load_model(checkpoint)
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    return model


@pytest.fixture
def model(pieces):
    return load_without_dropout(pieces)


def copy_parameters(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def loop_steps(model, steps, tokenizer, denominator):
    """Parameters after steps of dana's loop by plain gradient descent; each of rows and an epoch."""
    settings = TrainSettings(steps=1, batch_size=1, max_tokens=MAX_TOKENS, clip=1e9)
    accelerator = make_accelerator()
    module = MaskedTokens().module(model)
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    module, optimizer = accelerator.prepare(module, optimizer)
    state = TrainingState(
        module, optimizer, accelerator, BatchLayout.from_config(model.config, 8192)
    )
    collator = MaskedTokens().collator(tokenizer, 0)
    for index, (rows, epoch) in enumerate(steps):
        lengths = [len(row["input_ids"]) for row in rows]
        batch = Batch(
            np.concatenate([np.array(row["input_ids"], dtype=np.int32) for row in rows]),
            np.append(0, np.cumsum(lengths)),
            np.array([row["example_id"] for row in rows], dtype=np.uint64),
            np.array([row["weight"] for row in rows], dtype=np.float32),
        )
        take_step(state, collator.step_batch(batch, epoch, denominator), RATE, index, settings)
    return copy_parameters(model)


def trainers_steps(
    model, rows, tokenizer, folder, denominator="batch", batch=8, accumulation=1, decay=0.0, **extra
):
    """Parameters after WeightedTrainer went through the rows, in their order."""
    usual = {
        "use_cpu": True,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "num_train_epochs": 1,
    }
    steps = {
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": accumulation,
        "max_grad_norm": 0,
    }
    order = {"train_sampling_strategy": "sequential"}
    arguments = TrainingArguments(str(folder), **{**usual, **steps, **order, **extra})
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, weight_decay=decay)
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    options = {
        "train_dataset": rows,
        "optimizers": (optimizer, constant),
        "denominator": denominator,
    }
    dana.WeightedTrainer(model, arguments, dana.WeightedCollator(tokenizer), **options).train()
    return copy_parameters(model)


def largest_difference(one, other):
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def assert_alike(ours, rival, before):
    assert largest_difference(ours, before) > 1e-3  # so that a difference of 1e-6 says something
    assert largest_difference(ours, rival) <= 1e-6


def test_the_table_has_the_examples_that_adapting_trains_on(
    weights_run, table, tokenizer, pieces, tmp_path
):
    run = shutil.copytree(
        weights_run[0], tmp_path / "run"
    )  # that of all tests is adapted otherwise
    shutil.rmtree(run / "adapted", ignore_errors=True)
    assert table.column_names == ["input_ids", "weight", "example_id"]
    dana.adapt(pieces, out=run, steps=1, batch_size=4, max_tokens=MAX_TOKENS, evaluations=1)
    counts = read_json(run / "adapted" / "__dana__" / "manifest.json")["counts"]
    assert len(table) == counts["windows"]
    assert sum(map(len, table["input_ids"])) == counts["tokens_with_special"]
    assert len(set(table["example_id"])) == len(table)
    assert 0 < min(table["weight"]) < max(table["weight"]) <= 1
    again = dana.training_dataset(
        str(weights_run[0]), tokenizer, weights_run[1], max_tokens=MAX_TOKENS
    )
    pd.testing.assert_frame_equal(again.to_pandas(), table.to_pandas())


@pytest.mark.parametrize("denominator", DENOMINATORS)
@pytest.mark.parametrize(("batch", "accumulation"), [(8, 1), (2, 4)])
def test_steps_are_those_of_our_loop(
    denominator, batch, accumulation, table, model, tokenizer, tmp_path
):
    rows = table.select(range(15))  # the second step has seven examples, its last micro-batch one
    rows = rows.map(
        lambda row, index: {"weight": 0.0 if index in (3, 12) else row["weight"]}, with_indices=True
    )
    twin = copy.deepcopy(model)
    before = copy_parameters(model)
    steps = [(rows.select(range(8)), 0), (rows.select(range(8, 15)), 0)]
    ours = loop_steps(model, steps, tokenizer, denominator)
    rival = trainers_steps(twin, rows, tokenizer, tmp_path, denominator, batch, accumulation)
    assert_alike(ours, rival, before)


def test_masks_change_from_epoch_to_epoch_as_ours_do(table, model, tokenizer, tmp_path):
    rows = table.select(range(8))
    twin, third = copy.deepcopy(model), copy.deepcopy(model)
    before = copy_parameters(model)
    ours = loop_steps(model, [(rows, 0), (rows, 1)], tokenizer, "batch")
    rival = trainers_steps(
        twin, rows, tokenizer, tmp_path, num_train_epochs=2, dataloader_num_workers=1
    )
    assert_alike(ours, rival, before)
    same_masks = loop_steps(third, [(rows, 0), (rows, 0)], tokenizer, "batch")
    assert largest_difference(ours, same_masks) > 1e-4


def test_a_step_of_weights_of_zero_leaves_the_model(table, model, tokenizer, tmp_path):
    rows = table.select(range(8)).map(lambda row: {"weight": 0.0})
    before = copy_parameters(model)
    after = trainers_steps(model, rows, tokenizer, tmp_path, decay=0.1)
    assert largest_difference(after, before) == 0


def test_evaluation_is_the_weighted_loss_of_its_batches(table, model, tokenizer, tmp_path):
    rows = table.select(range(8))
    arguments = TrainingArguments(
        str(tmp_path), use_cpu=True, report_to=[], per_device_eval_batch_size=8
    )
    collator = dana.WeightedCollator(tokenizer)
    options = {"eval_dataset": rows, "data_collator": collator, "denominator": "weight_sum"}
    trainer = dana.WeightedTrainer(model, arguments, **options)
    loss = trainer.evaluate()["eval_loss"]
    inputs = collator(list(rows))
    weight, labels = inputs.pop("weight"), inputs.pop("labels")
    with torch.no_grad():
        logits = model.eval()(**inputs).logits
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), reduction="none"
    ).view_as(labels)
    masked_weights = (labels != -100) * weight[:, None]
    assert loss == pytest.approx(
        float((losses * masked_weights).sum() / masked_weights.sum()), abs=1e-5
    )


@pytest.mark.parametrize(
    ("keywords", "arguments", "name"),
    [
        ({"data_collator": None}, {}, "data_collator="),
        ({"denominator": "mean"}, {}, "denominator='mean'"),
        ({"compute_loss_func": print}, {}, "compute_loss_func="),
        ({}, {"label_smoothing_factor": 0.1}, "label_smoothing_factor=0.1"),
        (
            {},
            {"dataloader_persistent_workers": True, "dataloader_num_workers": 1},
            "persistent_workers=True",
        ),
    ],
)
def test_what_would_change_the_loss_is_refused(
    keywords, arguments, name, model, tokenizer, tmp_path
):
    training = TrainingArguments(str(tmp_path), use_cpu=True, report_to=[], **arguments)
    keywords = {"data_collator": dana.WeightedCollator(tokenizer), **keywords}
    with pytest.raises(ConfigError, match=name):
        dana.WeightedTrainer(model, training, **keywords)


def test_rows_without_weights_objectives_of_pairs_and_names_of_tokenizers_are_refused(
    table, tokenizer, weights_run
):
    with pytest.raises(DataError, match=r"weight.*input_ids, example_id"):
        dana.WeightedCollator(tokenizer)(list(table.select(range(2)).remove_columns("weight")))
    with pytest.raises(ConfigError, match="next_sentence"):
        dana.WeightedCollator(tokenizer, "next_sentence")(list(table.select(range(2))))
    for wrong in (None, "bert-base-uncased"):
        for work in (
            lambda: dana.training_dataset(weights_run, wrong),  # noqa: B023
            lambda: dana.WeightedCollator(wrong),  # noqa: B023
        ):
            with pytest.raises(ConfigError, match=f"tokenizer={wrong!r}"):
                work()


@pytest.mark.parametrize("weight", [np.nan, np.inf, -1.0, None])
def test_a_weight_that_is_no_amount_is_refused_with_its_example(table, tokenizer, weight):
    rows = list(table.select(range(2)))
    rows[1] = {**rows[1], "weight": weight}
    with pytest.raises(
        DataError, match=f"example_id {rows[1]['example_id']}: weight .* at least 0"
    ):
        dana.WeightedCollator(tokenizer)(rows)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_a_weight_without_an_inverse_leaves_the_model_as_it_is(
    table, tokenizer, model, tmp_path, denominator
):
    rows = [{**row, "weight": 1e-45} for row in table.select(range(2))]
    before = copy_parameters(model)
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, report_to=[], max_steps=1)
    trainer = dana.WeightedTrainer(
        model,
        arguments,
        train_dataset=Dataset.from_list(rows),
        data_collator=dana.WeightedCollator(tokenizer),
        denominator=denominator,
    )
    trainer.train()
    after = copy_parameters(model)
    assert all(torch.isfinite(value).all() for value in after.values())
    if denominator == "weight_sum":
        assert all(torch.equal(after[name], before[name]) for name in before)


def test_objectives_that_the_model_cannot_learn_are_refused(model, tokenizer, tmp_path):
    with pytest.raises(ConfigError, match="position"):
        dana.WeightedCollator(tokenizer, objective="position")
    training = TrainingArguments(str(tmp_path), use_cpu=True, report_to=[])
    with pytest.raises(ConfigError, match="causal"):
        dana.WeightedTrainer(
            model, training, data_collator=dana.WeightedCollator(tokenizer, objective="causal")
        )


def test_an_objective_that_reads_documents_but_has_no_head_of_its_own_is_refused(
    tokenizer, weights_run, monkeypatch
):
    class OfAPlugin(Position):
        has_own_head = False

    monkeypatch.setattr(Registry, "create", lambda self, spec: OfAPlugin())
    with pytest.raises(ConfigError, match=r"objective='of-a-plugin': .*trains tokens"):
        dana.training_dataset(weights_run[0], tokenizer, objective="of-a-plugin")


@pytest.mark.slow
def test_two_ranks_take_the_steps_of_one(table, model, tokenizer, pieces, tmp_path):
    rows = table.select(range(16))
    rows.save_to_disk(tmp_path / "rows")
    before = copy_parameters(model)
    ours = loop_steps(
        model, [(rows.select(range(8)), 0), (rows.select(range(8, 16)), 0)], tokenizer, "batch"
    )
    launch("two_ranks.py", pieces, tmp_path)
    assert_alike(ours, torch.load(tmp_path / "after.pt"), before)
