"""A step computes in the precision of its layout and with the dropout of its rank."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from dana.models.heads import SelectedLogits
from dana.train.evaluation import measure_loss
from dana.train.layout import BatchLayout
from dana.train.loop import prepare, take_step
from dana.train.settings import TrainSettings

SETTINGS = TrainSettings(max_tokens=16)


def of_rank(rank, world):
    """One of several ranks, which computes by itself; gradients and losses are not summed over the others."""
    alone = Accelerator(cpu=True)
    return SimpleNamespace(
        process_index=rank,
        num_processes=world,
        device=alone.device,
        distributed_type=alone.distributed_type,
        gradient_accumulation_steps=1,
        scaler=None,
        backward=lambda loss: loss.backward(),
        no_sync=alone.no_sync,
        clip_grad_norm_=torch.nn.utils.clip_grad_norm_,
        reduce=lambda tensor: tensor,
        prepare=lambda *parts: parts,
    )


def step_losses(tiny_model, collator, examples, rank, dropout):
    """Losses of one rank's step, where every rank is given the same examples."""
    prepared = prepare(tiny_model(dropout), SETTINGS, of_rank(rank, 2), BatchLayout())
    batch = collator.step_batch(examples.take(np.arange(8)), 0, "batch")
    return take_step(prepared, batch, 1e-4, 0, SETTINGS).loss


def test_every_rank_draws_its_own_dropout(tiny_model, collator, examples, monkeypatch):
    from dana.train import loop

    cut = loop.micro_batches
    monkeypatch.setattr(loop, "micro_batches", lambda lengths, layout, rank, world: cut(lengths, layout))
    first, second, again = (step_losses(tiny_model, collator, examples, rank, 0.3) for rank in (0, 1, 0))
    assert first == again != second
    without = {step_losses(tiny_model, collator, examples, rank, 0.0) for rank in (0, 1)}
    assert len(without) == 1, "nothing else differs between them"


@pytest.mark.parametrize(("bf16", "expected"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_run_computes_in_the_precision_of_its_shape(tiny_model, collator, examples, bf16, expected):
    seen = []
    model = tiny_model()
    model.bert.encoder.layer[0].intermediate.dense.register_forward_hook(lambda *found: seen.append(found[2].dtype))
    prepared = prepare(model, SETTINGS, Accelerator(cpu=True), BatchLayout(bf16=bf16))
    batch = collator.step_batch(examples.take(np.arange(8)), 0, "batch")
    take_step(prepared, batch, 1e-4, 0, SETTINGS)
    measure_loss(prepared.module, examples, collator, prepared.shape, prepared.accelerator)
    assert len(seen) >= 2
    assert set(seen) == {expected}
    assert {value.dtype for value in model.parameters()} == {torch.float32}, "weights stay in float32"


def test_half_precision_rounds_and_no_more(tiny_model, collator, examples):
    losses = []
    for bf16 in (False, True):
        module = SelectedLogits(tiny_model(), bf16).eval()
        found = measure_loss(module, examples, collator, BatchLayout(bf16=bf16), Accelerator(cpu=True))
        losses.append(found.mean)
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)
