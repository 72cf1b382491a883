"""Memory is tried before the first step, with a stand-in for a device that has too little."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from dana.core.errors import DanaError
from dana.models.heads import SelectedLogits
from dana.train.layout import BatchLayout
from dana.train.loop import prepare, train
from dana.train.planner import choose_execution, largest_batch, largest_micro_batch, ran_out
from dana.train.settings import Execution, TrainSettings
from tests.train.conftest import held_out

SETTINGS = TrainSettings(steps=3, batch_size=8, max_tokens=16, evaluations=0)


@pytest.fixture
def memory(monkeypatch):
    """Holds so many tokens of a forward pass; `sizes` has what was tried."""
    found = SimpleNamespace(tokens=40, sizes=[], when="always")
    forward = SelectedLogits.forward

    def small(self, input_ids, where, **attention):
        found.sizes.append(input_ids.numel())
        grows = found.when == "always" or self.training is (found.when == "training")
        if grows and input_ids.numel() > found.tokens:
            raise torch.OutOfMemoryError("not enough")
        return forward(self, input_ids, where, **attention)

    monkeypatch.setattr(SelectedLogits, "forward", small)
    monkeypatch.setattr("dana.train.planner.can_run_out", lambda device: True)
    return found


def choose(model, examples, collator, settings=SETTINGS, **execution):
    chosen = replace(settings, execution=Execution(**{"micro_batch_tokens": 128, **execution}))
    return choose_execution(model, examples, collator, chosen, Accelerator(cpu=True, mixed_precision="no"))


def test_a_micro_batch_is_halved_until_it_fits_and_nothing_else_changes(tiny_model, weighted, collator, memory, run):
    model = tiny_model()
    shape, reasons = choose(model, weighted, collator)
    assert shape == BatchLayout.of(model.config, 16)
    assert reasons[-1] == "memory    micro-batches of 16 tokens: 128 do not fit on every rank"
    assert all(value.grad is None for value in model.parameters())
    memory.tokens = 1000
    whole, _ = run(weighted, steps=3)
    cut, _ = run(weighted, steps=3, budget=16)
    for one, other in zip(whole.module.parameters(), cut.module.parameters(), strict=True):
        torch.testing.assert_close(other, one, atol=1e-6, rtol=0)


@pytest.mark.parametrize("layout", ["padded", "unpadded"])
def test_no_micro_batch_of_the_run_is_larger_than_the_one_that_was_tried(
    tiny_model, make_examples, collator, memory, layout
):
    memory.tokens, memory.when = 80, "training"
    examples = make_examples(200, seed=3)
    settings = replace(SETTINGS, steps=20, execution=Execution(micro_batch_tokens=128, layout=layout))
    model, accelerator = tiny_model(), Accelerator(cpu=True, mixed_precision="no")
    shape, _ = choose_execution(model, examples, collator, settings, accelerator)
    tried = memory.sizes[-1]
    assert tried <= 80 < max(memory.sizes)
    memory.sizes.clear()
    heldout = held_out(make_examples(6, 11), make_examples(6, 12))
    list(train(prepare(model, settings, accelerator, shape), examples, collator, settings, heldout))
    assert 0 < max(memory.sizes) <= tried


def test_one_rank_without_memory_makes_all_of_them_smaller(tiny_model, weighted, collator, memory):
    """Two ranks played one after the other: what the first cannot hold the second, which can, does not take."""
    memory.tokens = 1000
    said = iter([1.0, 1.0, 0.0])  # ranks that have no memory, by attempt

    def reduce(flag):
        return flag + next(said)

    accelerator = SimpleNamespace(
        num_processes=2, process_index=1, device=torch.device("cpu"), reduce=reduce, autocast=Accelerator().autocast
    )
    settings = replace(SETTINGS, execution=Execution(micro_batch_tokens=128))
    model = tiny_model()
    shape = BatchLayout.of(model.config, 128)
    fits = largest_micro_batch(SelectedLogits(model), weighted, collator, settings, accelerator, shape)
    assert fits.budget == 32
    assert next(said, None) is None


def test_memory_for_not_even_one_example_is_an_error_that_says_so(tiny_model, weighted, collator, memory):
    memory.tokens = 3
    with pytest.raises(DanaError, match="out of memory with a micro-batch of one example of 15 tokens: set max_tokens"):
        choose(tiny_model(), weighted, collator)


@pytest.mark.parametrize(("when", "what"), [("training", "step 1"), ("evaluation", "evaluation after step 0")])
def test_memory_that_runs_out_later_is_one_line_that_says_what_to_set(run, weighted, memory, when, what):
    memory.when = when
    with pytest.raises(DanaError, match=rf"{what}: out of memory with execution\.micro_batch_tokens=512; set it lower"):
        run(weighted, steps=1)


def test_other_errors_are_not_taken_for_it():
    assert ran_out(RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"))
    assert ran_out(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"))
    assert not ran_out(RuntimeError("shapes do not match"))
    assert not ran_out(ValueError("out of memory"))


def test_a_cpu_is_not_tried_because_it_swaps_instead(tiny_model, weighted, collator, memory, monkeypatch):
    monkeypatch.undo()
    shape, _ = choose(tiny_model(), weighted, collator)
    assert shape.budget == 128


def test_the_budget_never_falls_below_the_longest_example(tiny_model, weighted, collator, memory):
    longest = int(weighted.lengths.max())
    memory.tokens = 2 * longest  # one example, and the one more that is tried with it
    shape, _ = choose(tiny_model(), weighted, collator, micro_batch_tokens=2 * longest)
    assert shape.budget == longest


def test_the_optimizers_moments_are_part_of_what_is_tried(tiny_model, weighted, collator, memory, monkeypatch):
    model, taken, like = tiny_model(), [], torch.empty_like

    def counted(value):
        taken.append(value.numel())
        return like(value)

    memory.tokens = 1000
    monkeypatch.setattr("dana.train.planner.torch.empty_like", counted)
    accelerator = Accelerator(cpu=True, mixed_precision="no")
    largest_micro_batch(SelectedLogits(model), weighted, collator, SETTINGS, accelerator, BatchLayout(budget=64))
    assert sum(taken) == 2 * sum(value.numel() for value in model.parameters())


def test_more_is_masked_where_memory_is_tried_than_in_a_step_or_an_evaluation(make_examples, collator):
    def at_rate(rate):
        return replace(collator, masking=replace(collator.masking, rate=rate))

    examples = make_examples(200, seed=3)
    for rate in (0.01, 0.4):
        settings = replace(SETTINGS, batch_size=200)
        most = at_rate(max(rate, 0.15)).step_batch(examples.take(np.arange(200)), 0, "batch")
        assert largest_batch(examples, at_rate(rate), settings).counts.sum() > most.counts.sum()
