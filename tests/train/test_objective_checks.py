"""Checks of objectives: those of dana pass, and each broken promise fails the check that names it."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModelForMaskedLM, XLNetConfig

from dana.core.checks import checks_of
from dana.core.errors import ConfigError, PluginError
from dana.train.checks import ObjectiveChecks, check_objective
from dana.train.objectives.classes import ClassBatch, ClassCollator, ClassLogits, ClassMicroBatch
from dana.train.objectives.masked import MaskedTokens
from dana.train.objectives.position import Position

EXEMPT = {"next_sentence": ["weight_0_is_absence"]}
SHIPPED = ["masked", "next_sentence", "causal", "translation", "position", "crops"]


def failures(objective):
    return {
        result.name: result.detail for result in check_objective(objective) if not result.passed
    }


@pytest.mark.parametrize("spec", [*SHIPPED, "masked:whole_word=true", "position:sentences=0"])
def test_built_ins_pass_every_check(spec):
    results = check_objective(spec)
    assert [str(result) for result in results if not result.passed] == []
    assert [result.name for result in results] == checks_of(ObjectiveChecks)
    exempt = [result.name for result in results if result.detail]
    assert exempt == EXEMPT.get(spec, [])


class WithoutWeights(ClassCollator):
    def step_batch(self, batch, epochs, denominator):
        ones = replace(batch, weights=np.ones_like(batch.weights))
        return super().step_batch(ones, epochs, denominator)


@dataclass(frozen=True)
class IgnoresWeights(Position):
    def collator(self, tokenizer, seed):
        return WithoutWeights(**vars(super().collator(tokenizer, seed)))


@dataclass(frozen=True)
class DrawsWithoutSeed(Position):
    def texts(self, batch, epochs, seed):
        return batch, np.random.default_rng().integers(0, 5, len(batch))


class MeanOfMicroBatch(ClassMicroBatch):
    def losses(self, module):
        return super().losses(module) / len(self.labels)


class BatchOfMeans(ClassBatch):
    def micro(self, rows, layout):
        return MeanOfMicroBatch(**vars(super().micro(rows, layout)))


class CollatorOfMeans(ClassCollator):
    def step_batch(self, batch, epochs, denominator):
        return BatchOfMeans(**vars(super().step_batch(batch, epochs, denominator)))


@dataclass(frozen=True)
class DependsOnMicroBatch(Position):
    def collator(self, tokenizer, seed):
        return CollatorOfMeans(**vars(super().collator(tokenizer, seed)))


class NotANumber(ClassLogits):
    def forward(self, *inputs, **named_inputs):
        logits = super().forward(*inputs, **named_inputs)
        return logits if self.training else logits * torch.nan


@dataclass(frozen=True)
class HasNoHeldOutLoss(Position):
    def module(self, model, bf16=False):
        return NotANumber(model, self, bf16)


@dataclass(frozen=True)
class DependsOnOrder(Position):
    def texts(self, batch, epochs, seed):
        return batch, np.arange(len(batch)) % 5


@dataclass(frozen=True)
class KeepsItsHeadInTheModel(Position):
    def module(self, model, bf16=False):
        module = super().module(model, bf16)
        model.own = nn.Linear(2, 2)
        return module


@dataclass(frozen=True)
class CountsNothing(Position):
    def examples(self, text, tokenizer, max_tokens, seed=None):
        return super().examples(text, tokenizer, max_tokens, seed)[0], {}


@dataclass(frozen=True)
class ReadsEverything(Position):
    def examples(self, text, tokenizer, max_tokens, seed=None):
        return super().examples(replace(text, weights=None), tokenizer, max_tokens, seed)


BROKEN = [
    (IgnoresWeights, "weight_0_is_absence", "with examples of weight 0 and without them"),
    (ReadsEverything, "examples_have_the_weights_of_their_text", "weights of text are 0.5"),
    (DrawsWithoutSeed, "the_same_seed_gives_the_same_examples", "labels of a step differ at"),
    (
        DependsOnMicroBatch,
        "any_cut_into_micro_batches_gives_the_same_step",
        "in one pass and in passes of 24 tokens",
    ),
    (HasNoHeldOutLoss, "the_held_out_loss_is_finite", "is nan, expected a finite number"),
    (
        DependsOnOrder,
        "the_order_of_the_documents_changes_nothing",
        "of documents in order and in reverse",
    ),
    (KeepsItsHeadInTheModel, "the_saved_folder_opens_without_dana", "holds own.bias, own.weight"),
    (CountsNothing, "text_that_is_too_short_is_counted", "documents_in is None"),
]


@pytest.mark.parametrize(("kind", "check", "words"), BROKEN, ids=[row[1] for row in BROKEN])
def test_a_broken_promise_fails_the_check_that_names_it(kind, check, words):
    found = failures(kind())
    assert words in found[check]
    assert "\n" not in found[check]
    assert ": " in found[check], "what to do comes after a colon"


class TwoTexts(MaskedTokens):
    exemptions: ClassVar[dict[str, str]] = {"no_such_check": "it is not there"}


def test_an_exemption_from_a_check_that_does_not_exist_fails():
    assert failures(TwoTexts()) == {"no_such_check": "exempt from a check that does not exist"}


class OfXLNet(MaskedTokens):
    def auto_class(self, config):
        if not isinstance(config, XLNetConfig):
            raise ConfigError("only xlnet")
        return AutoModelForMaskedLM


def test_an_objective_of_another_architecture_is_refused_in_one_line():
    with pytest.raises(PluginError, match="OfXLNet supports none of bert, gpt2, bart"):
        check_objective(OfXLNet())
