"""The objective of translation: the loss of transformers pair by pair, weighted, smoothed, in any cut; resumable."""

import os
import signal
from itertools import pairwise

import numpy as np
import pytest
import torch
from transformers import BertConfig, MarianConfig, MarianMTModel, T5Config

from dana.core.errors import ConfigError, DataError, Preemption
from dana.core.registry import OBJECTIVES
from dana.core.rng import torch_seed
from dana.train import DENOMINATORS
from dana.train.checkpoints import CheckpointPolicy, Checkpoints
from dana.train.evaluation import HeldOut, example_losses, measure_loss
from dana.train.examples import Examples, SpecialTokens
from dana.train.layout import BatchLayout
from dana.train.loop import train
from dana.train.objectives.batch import micro_loss
from dana.train.objectives.translation import TranslationCollator
from dana.train.records import StepRecord
from dana.train.settings import Execution, TrainSettings
from tests.train.conftest import gradient_of_step, new_state, parameters

PAD, END, TAB, VOCABULARY = 0, 1, 2, 50
END_ALONE = SpecialTokens(np.zeros(0, np.int32), np.array([END], np.int32))
COLLATOR = TranslationCollator(END_ALONE, TAB, PAD)
SIZES = [
    (1, 1),
    (4, 2),
    (2, 7),
    (6, 6),
    (3, 1),
    (5, 0),
    (0, 3),
    (6, 5),
]  # tokens of source and translation
WEIGHTS = [0.3, 1.0, 0.0, 0.7, 0.2, 1.0, 0.5, 0.9]


def marian(dropout=0.0, **change):
    """An untrained Marian; its matrices are so large that attention is far from even."""
    shape = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 32}
    shape |= {f"{side}_{part}": size for side in ("encoder", "decoder") for part, size in
              (("attention_heads", 2), ("ffn_dim", 32))}  # fmt: skip
    ids = {
        "pad_token_id": PAD,
        "eos_token_id": END,
        "decoder_start_token_id": PAD,
        "forced_eos_token_id": None,
    }
    with torch_seed(1), torch.no_grad():
        model = MarianMTModel(
            MarianConfig(vocab_size=VOCABULARY, dropout=dropout, **shape, **ids, **change)
        )
        for name, value in model.named_parameters():
            value.mul_(5.0 if value.ndim > 1 and "positions" not in name else 1.0)
    return model


def pairs(sizes=SIZES, weights=WEIGHTS):
    generator, rows = np.random.default_rng(0), []
    for source, target in sizes:
        row = generator.integers(3, VOCABULARY, source + 1 + target)
        row[source] = TAB
        rows.append(row)
    counts = np.array(list(map(len, rows)))
    ids = np.arange(len(rows), dtype=np.uint64)
    weights = np.resize(np.array(weights, dtype=np.float32), len(rows))
    return Examples(
        np.concatenate(rows), np.cumsum(counts) - counts, counts, ids, weights, END_ALONE
    )


def reference(model, batch, denominator="token_count", smoothing=0.0):
    """The step's loss by the model's own forward pass, pair by pair."""
    sums, counts, weights = [], [], batch.weights.astype(float)
    for first, last in pairwise(batch.offsets.tolist()):
        row = torch.from_numpy(batch.tokens[first:last]).long()
        tab = int((row == TAB).nonzero())
        source, labels = torch.cat([row[:tab], torch.tensor([END])])[None], row[tab + 1 :][None]
        output = model(input_ids=source, labels=labels)
        log_p = torch.log_softmax(output.logits[0], -1)
        losses = (1 - smoothing) * -log_p.gather(1, labels[0][:, None])[
            :, 0
        ] - smoothing * log_p.mean(-1)
        if not smoothing:
            assert float(losses.mean().detach()) == pytest.approx(
                float(output.loss.detach()), rel=1e-5
            )
        sums.append(losses.sum())
        counts.append(labels.numel())
    shares = [weight * part for weight, part in zip(weights, sums, strict=True)]
    if denominator == "batch":
        return sum(share / count for share, count in zip(shares, counts, strict=True)) / len(counts)
    return sum(shares) / np.dot(
        weights if denominator == "weight_sum" else np.ones(len(counts)), counts
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("budget", [16, 512])
@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_loss_and_gradient_of_a_weighted_step_are_those_of_transformers_pair_by_pair(
    denominator, budget, smoothing
):
    model, other = marian(), marian()
    batch = COLLATOR.step_batch(pairs().take(np.arange(8)), 0, denominator)
    loss = reference(model, batch.examples, denominator, smoothing)
    loss.backward()
    autograd = torch.cat(
        [value.grad.flatten() for value in model.parameters() if value.grad is not None]
    )
    objective = f"translation:smoothing={smoothing}"
    settings = TrainSettings(max_tokens=16, objective=objective, denominator=denominator, clip=1e9)
    state = new_state(other, settings, budget)
    outcome, gradient = gradient_of_step(state, batch, settings)
    assert outcome.loss == pytest.approx(float(loss.detach()), rel=1e-6)
    torch.testing.assert_close(
        gradient, autograd, atol=1e-6 * float(autograd.abs().max()), rtol=1e-4
    )


def test_ranks_share_the_gradient_of_a_step_and_an_idle_one_adds_nothing():
    batch = COLLATOR.step_batch(pairs(SIZES[:3]).take(np.arange(3)), 0, "batch")
    module = OBJECTIVES.create("translation").module(marian())
    total = 0.0
    for rows in ([0], [1], [2], []):
        micro = batch.micro(np.array(rows, dtype=np.int64), BatchLayout())
        loss = micro_loss(micro.losses(module), micro.coefficients, batch.scale.total, 4)
        total += float(loss.detach()) / 4
        assert rows or micro.labels.numel() == 0
    assert total == pytest.approx(float(reference(marian(), batch.examples, "batch")), rel=1e-6)


def test_the_held_out_loss_is_not_smoothed_and_has_the_sum_of_each_pair():
    settings = TrainSettings(max_tokens=16, objective="translation:smoothing=0.2")
    state, examples = new_state(marian(), settings), pairs()
    batch = examples.take(np.arange(8))
    mean = measure_loss(state.module, examples, COLLATOR, state.shape, state.accelerator).mean
    model = marian().eval()
    ones = type(batch)(batch.tokens, batch.offsets, batch.ids, np.ones_like(batch.weights))
    assert mean == pytest.approx(float(reference(model, ones).detach()), rel=1e-6)
    sums, counts = example_losses(state.module, examples, COLLATOR, state.shape, state.accelerator)
    assert counts.tolist() == [target + 1 for _, target in SIZES], "the end is predicted too"
    one = pairs().rows(np.array([3])).take(np.array([0]))
    one = type(one)(one.tokens, one.offsets, one.ids, np.ones_like(one.weights))
    assert sums[3] == pytest.approx(7 * float(reference(model, one).detach()), rel=1e-6)


def test_stopped_by_a_signal_it_resumes_bit_for_bit(tmp_path):
    settings = TrainSettings(
        objective="translation:smoothing=0.1",
        denominator="token_count",
        schedule="inverse-sqrt",
        warmup_steps=2,
        steps=6,
        batch_tokens=40,
        max_tokens=16,
        evaluations=1,
        learning_rate=1e-3,
        execution=Execution(save_every=0),
    )
    heldout = HeldOut({"target": pairs(), "pool": pairs(SIZES[:4])}, COLLATOR)

    def run(name, stop=0):
        state = new_state(marian(0.1), settings, budget=32)
        policy = CheckpointPolicy(Checkpoints(tmp_path / name, {}), settings, {})
        if checkpoint := policy.checkpoints.newest():
            policy.resume(state, checkpoint)
        records = train(state, pairs(SIZES * 4), [COLLATOR], settings, heldout, policy.records)
        for record in policy.watch(state, records):
            if isinstance(record, StepRecord) and record.step == stop:
                os.kill(os.getpid(), signal.SIGTERM)
        return parameters(state.module), [
            getattr(record, "loss", None) for record in policy.records
        ]

    with pytest.raises(Preemption, match="after step 3"):
        run("stopped", 3)
    weights, losses = run("stopped")
    straight, all_losses = run("straight")
    assert torch.equal(weights, straight)
    assert losses == all_losses
    assert not torch.equal(straight, parameters(marian(0.1))), "it has learnt"


@pytest.mark.parametrize("tabs", [0, 2])
def test_an_example_without_one_tab_is_refused(tabs):
    examples = pairs([(4, 4)])
    examples.stream[4] = 9
    examples.stream[:tabs] = TAB
    with pytest.raises(DataError, match=f"has {tabs} tabs, must have one: .*max_tokens"):
        COLLATOR.step_batch(examples.take(np.array([0])), 0, "batch")


def test_models_and_tokenizers_that_cannot_translate_are_refused(tiny_tokenizer):
    objective = OBJECTIVES.create("translation")
    for config in (BertConfig(), MarianConfig(pad_token_id=0, decoder_start_token_id=1)):
        with pytest.raises(
            ConfigError, match=rf"objective='translation'.* {config.model_type} has no decoder"
        ):
            objective.auto_class(config)
    assert (
        objective.auto_class(T5Config(decoder_start_token_id=0)).__name__ == "AutoModelForSeq2SeqLM"
    )
    with pytest.raises(ConfigError, match="needs a tab"):
        objective.collator(tiny_tokenizer, 0)
    with pytest.raises(ConfigError, match="smoothing"):
        OBJECTIVES.create("translation:smoothing=1.0")
