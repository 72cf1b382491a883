"""Operations of a step, counted by hand and by torch, and the share of a GPU's peak that they are."""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    BartConfig,
    BartForConditionalGeneration,
)

from dana.models.heads import SelectedLogits, token_losses
from dana.train import loop
from dana.train.evaluation import HeldOut
from dana.train.layout import BatchLayout
from dana.train.loop import train
from dana.train.objectives.classes import ClassCollator
from dana.train.operations import OperationCount, peak_of
from dana.train.records import StepRecord
from dana.train.settings import TrainSettings
from tests.models.test_heads import SHAPE
from tests.train.conftest import (
    HELDOUT,
    MASKED,
    SPECIAL_TOKENS,
    bert,
    new_state,
    random_documents,
    random_examples,
)

TEXTS = np.array([7, 12, 16])


def of_bert():
    """Two layers of 4 · 16² + 2 · 16 · 32 weights; a head of 16² and, tied, 60 · 16."""
    return 6 * 2 * 2048, 6 * (256 + 960)


def test_a_bert_by_hand():
    count = OperationCount.of_model(bert())
    per_token, per_label = of_bert()
    assert (count.per_token, count.per_label) == (per_token, per_label)
    pairs = 49 + 144 + 256
    assert count.of_step(TEXTS, 5) == per_token * 35 + per_label * 5 + 12 * 16 * 2 * pairs
    vectors = OperationCount.of_model(bert(), has_own_head=True)
    assert vectors.of_step(TEXTS, 3) == per_token * 35 + 12 * 16 * 2 * pairs


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "modernbert", "electra"])
def test_the_matrices_are_those_that_torch_counts(name):
    config = AutoConfig.for_model(name, **SHAPE, pad_token_id=0)
    model = AutoModelForMaskedLM.from_config(config, attn_implementation="eager")
    batch = MASKED.step_batch(random_examples(4).take(np.arange(4)), 0, "token_count")
    longest = int(batch.lengths.max())
    micro = batch.micro(np.flatnonzero(batch.lengths == longest), BatchLayout())
    rows = micro.inputs["input_ids"].shape[0]
    with FlopCounterMode(display=False) as counter:
        logits = SelectedLogits(model)(**micro.inputs)
        token_losses(logits, micro.labels).sum().backward()
    count = OperationCount.of_model(model)
    own = count.of_step(np.full(rows, longest), micro.labels.numel())
    # Torch leaves out the gradient of the first layer's input where it is not needed.
    assert own == pytest.approx(counter.get_total_flops(), rel=0.02)


def test_frozen_matrices_windows_and_what_cannot_be_counted():
    model = bert()
    for value in model.bert.parameters():
        value.requires_grad_(False)
    assert OperationCount.of_model(model).per_token == of_bert()[0] * 4 // 6
    config = AutoConfig.for_model("modernbert", **SHAPE, pad_token_id=0, local_attention=6)
    windows = OperationCount.of_model(AutoModelForMaskedLM.from_config(config)).windows
    assert set(windows) == {None, 6}
    short = OperationCount(0, 0, 1, (None, 6))
    assert short.of_step(TEXTS, 0) == 12 * (49 + 144 + 256 + 6 * 35)
    tiny = {"d_model": 8, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "vocab_size": 60}
    heads = {"encoder_attention_heads": 1, "decoder_attention_heads": 1}
    assert (
        OperationCount.of_model(BartForConditionalGeneration(BartConfig(**tiny, **heads))) is None
    )


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-40GB", 312e12),
        ("NVIDIA L40", None),
        ("NVIDIA L4", 121e12),
    ],
)
def test_a_gpu_is_known_by_its_name(name, peak, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert peak_of(torch.device("cuda")) == peak
    assert peak_of(torch.device("cpu")) is None


@pytest.mark.parametrize("objective", ["masked", "position"])
def test_every_step_records_the_share_of_the_peak_its_passes_and_its_waiting(
    objective, monkeypatch, examples
):
    monkeypatch.setattr(loop, "peak_of", lambda device: 1e9)
    now = iter(np.arange(10_000) / 2)
    monkeypatch.setattr(loop.time, "monotonic", lambda: float(next(now)))
    settings = TrainSettings(
        max_tokens=16, batch_size=8, steps=2, evaluations=0, objective=objective
    )
    made = settings.make_objective()
    text = examples if objective == "masked" else random_documents(8, draw=made.draw(0))
    collator = MASKED if objective == "masked" else ClassCollator(made, SPECIAL_TOKENS, 0)
    state = new_state(bert(), settings, 32)
    count = OperationCount.of_model(state.model, made.has_own_head)
    heldout = HeldOut({}, HELDOUT)
    records = list(train(state, text, [collator], settings, heldout))
    steps = [record for record in records if isinstance(record, StepRecord)]
    assert len(steps) == 2
    for record in steps:
        assert record.passes > 1
        assert record.waiting == pytest.approx(0.5), "one of two ticks of the clock"
        assert record.mfu is not None
        assert record.mfu > 0
    assert count.per_token > 0
