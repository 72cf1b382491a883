"""A BERT of two tiny layers, and examples of random tokens for it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining

from dana.core.rng import torch_seed
from dana.models.varlen import NAME, register
from dana.train.documents import Documents
from dana.train.evaluation import HeldOut, measure_loss
from dana.train.examples import Examples, SpecialTokens
from dana.train.layout import BatchLayout
from dana.train.loop import prepare, take_step, train
from dana.train.objectives.classes import ClassCollator
from dana.train.objectives.crops import CropsCollator
from dana.train.objectives.masked import HELDOUT_RATE, HELDOUT_SEED, MaskedCollator, Masking
from dana.train.objectives.next_sentence import PairCollator
from dana.train.objectives.position import Position
from dana.train.records import StepRecord
from dana.train.settings import Execution, TrainSettings

VOCABULARY = 60
SPECIAL_TOKENS = SpecialTokens(np.array([2], dtype=np.int32), np.array([3], dtype=np.int32))
PAIR_TOKENS = replace(SPECIAL_TOKENS, middle=np.array([3], dtype=np.int32))
MASKED = MaskedCollator(Masking(4, np.arange(VOCABULARY) < 5, seed=0), SPECIAL_TOKENS)
PAIRS = PairCollator(MASKED.masking, PAIR_TOKENS)
HELDOUT = replace(MASKED, masking=replace(MASKED.masking, seed=HELDOUT_SEED, rate=HELDOUT_RATE))
COLLATORS = {  # by objective
    "masked": MASKED,
    "next_sentence": PAIRS,
    "position": ClassCollator(Position(), SPECIAL_TOKENS, 0),
    "crops": CropsCollator(SPECIAL_TOKENS),
}
SETTINGS = TrainSettings(max_tokens=16)


def random_examples(count=24, seed=0, weights=None):
    generator = np.random.default_rng(seed)
    sizes = generator.integers(4, 16, count) - 2
    stream = generator.integers(5, VOCABULARY, sizes.sum()).astype(np.uint16)
    ids = generator.integers(0, 2**63, count).astype(np.uint64)
    weights = (np.ones(count) if weights is None else weights).astype(np.float32)
    return Examples(stream, np.cumsum(sizes) - sizes, sizes, ids, weights, SPECIAL_TOKENS)


def some_weights(count):
    return np.random.default_rng(9).uniform(0.1, 1, count)


def random_documents(count=24, seed=0, draw=None, weights=None, gaps=0.0, sentences=None, room=12):
    """Documents of 4 to 9 sentences of 1 to 6 random tokens, of which a share is not selected."""
    generator = np.random.default_rng(seed)
    totals = generator.integers(4, 10, count) if sentences is None else np.full(count, sentences)
    rows = [
        (document, number)
        for document, total in enumerate(totals)
        for number in range(total)
        if number == 0 or generator.random() >= gaps
    ]
    owners, numbers = np.array(rows).T
    sizes = generator.integers(1, 7, numbers.size)
    # The text that is not selected lies between the sentences.
    starts = np.cumsum(sizes) - sizes + 3 * np.arange(numbers.size) * (gaps > 0)
    stream = generator.integers(5, VOCABULARY, int(starts[-1] + sizes[-1])).astype(np.uint16)
    ids = generator.integers(0, 2**63, count).astype(np.uint64)
    weights = np.ones(numbers.size) if weights is None else weights(numbers.size)
    firsts = np.append(0, np.cumsum(np.bincount(owners, minlength=count)))
    return Documents(
        stream, firsts, starts, sizes, numbers, weights, totals, ids, SPECIAL_TOKENS, draw, room
    )


TEXTS = HeldOut({"target": random_examples(6, 11), "pool": random_examples(6, 12)}, HELDOUT)


def bert(dropout=0.0, next_sentence=False):
    shape = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), dropout)
    config = BertConfig(vocab_size=VOCABULARY, max_position_embeddings=16, **shape, **rates)
    with torch_seed(1):
        return (BertForPreTraining if next_sentence else BertForMaskedLM)(config)


def use_varlen(model):
    """Attention over rows without padding, as the planner sets it up."""
    register()
    model.set_attn_implementation(NAME)


def new_state(model, settings=SETTINGS, budget=512, **layout):
    return prepare(model, settings, Accelerator(cpu=True), BatchLayout(budget=budget, **layout))


def mean_loss(module, examples, collator, budget=512, **layout):
    return measure_loss(
        module, examples, collator, BatchLayout(budget=budget, **layout), Accelerator(cpu=True)
    ).mean


def parameters(module):
    return torch.cat([value.detach().flatten() for value in module.parameters()])


def steps(records):
    return [record for record in records if isinstance(record, StepRecord)]


def gradient_of_step(state, batch, settings):
    """Takes a step; returns its outcome and its gradient."""
    gradients = []
    zero_grad = state.optimizer.zero_grad

    def keep_gradients():
        trained = [value for value in state.module.parameters() if value.requires_grad]
        gradients.append(torch.cat([value.grad.flatten() for value in trained]))
        zero_grad()

    state.optimizer.zero_grad = keep_gradients
    return take_step(state, batch, 1e-4, 0, settings), gradients[-1]


def assert_passes_change_nothing(batch, settings, layout, budget):
    """A step in passes of a budget and layout has the losses and the gradient of one padded pass."""
    one, gradient = gradient_of_step(new_state(bert(), settings), batch, settings)
    model = bert()
    if layout == "unpadded":
        use_varlen(model)
    state = new_state(model, settings, budget, layout=layout)
    other, other_gradient = gradient_of_step(state, batch, settings)
    assert other.loss == pytest.approx(one.loss, abs=1e-6)
    assert other.plain_loss == pytest.approx(one.plain_loss, abs=1e-6)
    assert other.other_losses == pytest.approx(one.other_losses)
    torch.testing.assert_close(other_gradient, gradient, atol=2e-6, rtol=1e-4)


def run(examples, dropout=0.0, budget=512, layout="padded", **settings):
    """Trains a new tiny model; returns its state and records."""
    defaults = {"max_tokens": 16, "batch_size": 8, "evaluations": 0}
    settings = TrainSettings(
        **{**defaults, "execution": Execution(micro_batch_tokens=budget), **settings}
    )
    pairs = settings.objective == "next_sentence"
    model = bert(dropout, pairs)
    if layout == "unpadded":
        use_varlen(model)
    state = new_state(model, settings, budget, layout=layout)
    return state, list(train(state, examples, [PAIRS if pairs else MASKED] * 3, settings, TEXTS))


@pytest.fixture
def examples():
    return random_examples()


@pytest.fixture
def weighted_examples(examples):
    weights = np.random.default_rng(5).uniform(0.05, 1, len(examples))
    return replace(examples, weights=weights.astype(np.float32))


@pytest.fixture
def pair_examples(weighted_examples):
    """The weighted examples, with the special tokens of next-sentence pairs."""
    return replace(weighted_examples, special_tokens=PAIR_TOKENS)
