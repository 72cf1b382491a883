"""What a step does with its gradient: clipped to a norm, and weights that decay."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from dana.train.layout import BatchLayout
from dana.train.loop import prepare, take_step
from dana.train.objectives import masked as masked_objective
from dana.train.settings import Execution, TrainSettings

SETTINGS = TrainSettings(max_tokens=16, execution=Execution(micro_batch_tokens=512))


def parameters(prepared):
    return torch.cat([value.detach().flatten() for value in prepared.module.parameters()])


def moved(tiny_model, collator, examples, settings, plain_descent=False):
    """How far one step of rate 1 (or of Adam at 1e-3) moves the parameters, and the norm it tells of."""
    prepared = prepare(tiny_model(), settings, Accelerator(cpu=True), BatchLayout(budget=512))
    if plain_descent:
        prepared.optimizer = torch.optim.SGD(prepared.module.parameters(), lr=1.0)
    batch = collator.step_batch(examples.take(np.arange(8)), 0, "batch")
    before = parameters(prepared).clone()
    norm = take_step(prepared, batch, 1.0 if plain_descent else 1e-3, 0, settings).grad_norm
    return parameters(prepared) - before, norm


@pytest.mark.parametrize("clip", [0.01, 0.1])
def test_a_gradient_is_clipped_to_the_norm_and_the_record_has_the_norm_before(tiny_model, collator, examples, clip):
    change, norm = moved(tiny_model, collator, examples, replace(SETTINGS, clip=clip), plain_descent=True)
    assert norm > 0.2
    assert float(change.norm()) == pytest.approx(clip, rel=1e-3)
    free, _ = moved(tiny_model, collator, examples, replace(SETTINGS, clip=1e6), plain_descent=True)
    assert float(free.norm()) == pytest.approx(norm, rel=1e-5)


def test_weight_decay_shrinks_matrices_by_rate_times_decay(tiny_model, collator, examples):
    start = torch.cat([value.detach().flatten() for value in tiny_model().parameters()])
    matrix = torch.cat([torch.full((value.numel(),), value.ndim > 1) for value in tiny_model().parameters()])
    without, _ = moved(tiny_model, collator, examples, replace(SETTINGS, weight_decay=0.0))
    decayed, _ = moved(tiny_model, collator, examples, replace(SETTINGS, weight_decay=0.5))
    torch.testing.assert_close((decayed - without)[matrix], -1e-3 * 0.5 * start[matrix], atol=1e-7, rtol=0)
    assert torch.equal(decayed[~matrix], without[~matrix])


@pytest.fixture
def seen(monkeypatch):
    """Every mask of a run: (example id, epoch) to what was masked."""
    found, original = {}, masked_objective.mask

    def spy(tokens, offsets, ids, epochs, masking):
        masked = original(tokens, offsets, ids, epochs, masking)
        for place, key in enumerate(zip(ids.tolist(), np.broadcast_to(epochs, ids.shape).tolist(), strict=True)):
            found[key] = masked.is_masked[offsets[place] : offsets[place + 1]]
        return masked

    monkeypatch.setattr(masked_objective, "mask", spy)
    return found


def test_every_epoch_of_a_run_has_masks_of_its_own(run, make_examples, seen):
    examples = make_examples()
    run(examples, steps=6)
    pairs = [(seen[key, 0], seen[key, 1]) for key in examples.ids.tolist()]
    assert sum((one != other).any() for one, other in pairs) > 18, "24 examples, seen in two epochs"
