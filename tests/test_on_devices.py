"""Training on this machine's CPU, and on its GPU where there is one: the same claims of both.

On a GPU rows have no padding and passes are computed in bfloat16 by torch's attention kernel, with
its fused optimizer on the device.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from safetensors.torch import save_file
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments

from dana.core.errors import DanaError
from dana.core.rng import torch_seed
from dana.encoders.transformer import TransformerEncoder
from dana.finetuning.loop import run_seed
from dana.models.heads import SelectedLogits
from dana.models.varlen import NAME, calls, register
from dana.tasks.card import load_card
from dana.tasks.examples import read_splits
from dana.train.execution import Precision
from dana.train.layout import BatchLayout
from dana.train.loop import prepare, take_step, train
from dana.train.planner import choose_execution
from dana.train.settings import TrainSettings
from dana.train.state import read_state, restore_state
from tests import toy_task
from tests.train.conftest import MASKED, TEXTS, VOCABULARY, random_examples

HAS_GPU = torch.cuda.is_available()
GPU = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not HAS_GPU, reason="needs a CUDA device"),
    ],
)
SETTINGS = TrainSettings(
    steps=3, batch_size=8, max_tokens=16, learning_rate=1e-3, weight_decay=0.0, warmup=0.0,
    schedule="constant", denominator="token_count", evaluations=0,
)  # fmt: skip


@pytest.fixture(params=["cpu", GPU])
def device(request):
    return torch.device(request.param)


@pytest.fixture
def checkpoint(tmp_path):
    return str(toy_task.write_checkpoint(tmp_path / "checkpoint"))


def accelerator_on(device, precision="no"):
    AcceleratorState._reset_state(reset_partial_state=True)
    return Accelerator(cpu=device.type == "cpu", mixed_precision=precision)


def new_model(dropout=0.0, seed=1):
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), dropout)
    shape = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 128,
        "max_position_embeddings": 16,
    }
    with torch_seed(seed):
        return BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, **shape, **rates))


def state_on(device, model, settings=SETTINGS, half=None, budget=64):
    """Without padding in bfloat16 on a GPU, unless half says otherwise; padded in float32 on a CPU."""
    half = device.type == "cuda" if half is None else half
    layout = "unpadded" if half and device.type == "cuda" else "padded"
    if layout == "unpadded":
        register()
        model.set_attn_implementation(NAME)
    shape = BatchLayout(layout, budget, bf16=half)
    return prepare(model, settings, accelerator_on(device), shape)


def batches_of(examples, count=3, size=8, denominator="token_count"):
    rows = np.arange(count * size).reshape(count, size)
    return [MASKED.step_batch(examples.take(some), 0, denominator) for some in rows]


def weights_of(model):
    return torch.cat([value.detach().float().cpu().flatten() for value in model.parameters()])


def by_trainer(model, batches, folder, half, device):
    """Losses and weights of transformers' Trainer, on the same masks; AdamW, clipping at 1."""
    rows = []
    for batch in batches:
        for first, end in zip(batch.examples.offsets[:-1], batch.examples.offsets[1:], strict=True):
            ids = torch.from_numpy(batch.inputs[first:end].astype(np.int64))
            labels = torch.from_numpy(batch.labels[first:end].astype(np.int64))
            mask = torch.ones_like(ids)
            rows.append({"input_ids": ids, "labels": labels, "attention_mask": mask})
    fill = {"input_ids": 0, "labels": -100, "attention_mask": 0}

    def pad(some):
        return {
            name: torch.nn.utils.rnn.pad_sequence([row[name] for row in some], True, value)
            for name, value in fill.items()
        }

    losses = []

    class Keep(Trainer):
        def _get_train_sampler(self, *arguments, **more):
            return torch.utils.data.SequentialSampler(self.train_dataset)

        def training_step(self, *arguments, **more):
            loss = super().training_step(*arguments, **more)
            losses.append(float(loss))
            return loss

    AcceleratorState._reset_state(reset_partial_state=True)
    arguments = TrainingArguments(
        str(folder), per_device_train_batch_size=8, max_steps=len(batches), learning_rate=1e-3,
        lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=1.0, bf16=half, report_to=[],
        save_strategy="no", logging_strategy="no", use_cpu=device.type == "cpu", disable_tqdm=True,
    )  # fmt: skip
    Keep(model=model, args=arguments, train_dataset=rows, data_collator=pad).train()
    return losses, weights_of(model)


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
def test_with_weights_of_one_it_trains_as_the_trainer_of_transformers(device, half, tmp_path):
    batches = batches_of(random_examples())
    start = weights_of(new_model())
    losses, weights = by_trainer(new_model(), batches, tmp_path, half, device)
    state = state_on(device, new_model(), half=half)
    own = [
        take_step(state, batch, 1e-3, index, SETTINGS).loss for index, batch in enumerate(batches)
    ]
    assert own == pytest.approx(losses, rel=2e-2 if half else 1e-4)
    moved = float((weights - start).norm())
    apart = float((weights_of(state.model) - weights).norm())
    assert apart / moved < (0.3 if half else 0.05)


def test_weights_count_as_each_text_by_itself(device):
    weights = np.random.default_rng(5).uniform(0.05, 1, 24).astype(np.float32)
    examples = random_examples(weights=weights)
    settings = replace(SETTINGS, denominator="batch", clip=1e9)
    (batch,) = batches_of(examples, 1, 24, "batch")
    together = state_on(device, new_model(), settings, budget=10_000)
    outcome = take_step(together, batch, 0.0, 0, settings)
    one_by_one = 0.0
    alone = state_on(device, new_model(), settings)
    for row in range(24):
        single = MASKED.step_batch(examples.take(np.array([row])), 0, "batch")
        if single.scale.total:
            one_by_one += take_step(alone, single, 0.0, 0, settings).loss / 24
    assert outcome.loss == pytest.approx(one_by_one, rel=1e-2 if device.type == "cuda" else 1e-5)


def test_a_run_that_is_saved_and_loaded_goes_on_as_it_was(device, tmp_path):
    batches = batches_of(random_examples())
    whole = state_on(device, new_model(0.1))
    for index, batch in enumerate(batches):
        take_step(whole, batch, 1e-3, index, SETTINGS)
    first = state_on(device, new_model(0.1))
    take_step(first, batches[0], 1e-3, 0, SETTINGS)
    save_file(read_state(first), tmp_path / "state.safetensors")
    second = state_on(device, new_model(0.1, seed=2))
    restore_state(second, tmp_path / "state.safetensors")
    for index in (1, 2):
        take_step(second, batches[index], 1e-3, index, SETTINGS)
    apart = (weights_of(whole.model) - weights_of(second.model)).abs().max()
    assert float(apart) < (1e-4 if device.type == "cuda" else 1e-8)


def test_memory_that_runs_out_is_said_in_one_line(device, monkeypatch):
    forward = SelectedLogits.forward

    def fail(module, *arguments, **more):
        if device.type == "cuda":
            torch.empty(1 << 50, dtype=torch.uint8, device=device)
        raise torch.OutOfMemoryError("out of memory")

    state = state_on(device, new_model())
    monkeypatch.setattr(SelectedLogits, "forward", fail)
    with pytest.raises(DanaError, match=r"out of memory with execution.micro_batch_tokens=64; set"):
        list(train(state, random_examples(), [MASKED], SETTINGS, replace(TEXTS, texts={})))
    monkeypatch.setattr(SelectedLogits, "forward", forward)
    (batch,) = batches_of(random_examples(), 1)
    assert take_step(state, batch, 1e-3, 0, SETTINGS).loss > 0, "and the device is not lost"


def test_the_size_of_a_pass_is_that_of_the_device(device):
    settings = replace(SETTINGS, batch_size=24)
    # The attention kernel computes in half precision alone.
    accelerator = accelerator_on(device, "bf16" if device.type == "cuda" else "no")
    shape, reasons = choose_execution(
        new_model(0.1), random_examples(), settings, accelerator, MASKED
    )
    if device.type == "cpu":
        assert (shape.layout, shape.budget) == ("padded", 8192)
        return
    assert (shape.layout, shape.budget) == ("unpadded", 65_536 + 16)
    assert "(tried on this device)" in reasons[0]
    assert "torch's attention kernel" in reasons[2]
    calls.clear()
    model = new_model(0.1)
    state = state_on(device, model, settings)
    (batch,) = batches_of(random_examples(), 1)
    take_step(state, batch, 1e-3, 0, settings)
    assert calls["kernel"] > 0
    assert not calls["product"]


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="fp16 needs a CUDA device")
def test_fp16_lowers_its_scale_until_steps_are_taken():
    accelerator = accelerator_on(torch.device("cuda"), "fp16")
    state = prepare(new_model(), SETTINGS, accelerator, BatchLayout(budget=64))
    before = weights_of(state.model)
    batches = batches_of(random_examples())
    outcomes = [take_step(state, batches[index % 3], 1e-3, index, SETTINGS) for index in range(30)]
    assert not outcomes[-1].skipped
    assert float((weights_of(state.model) - before).abs().max()) > 1e-3
    assert accelerator.scaler.get_scale() <= 2.0**16


def test_a_task_that_can_be_learnt_is_learnt(device, checkpoint, tmp_path, monkeypatch):
    monkeypatch.delenv("DANA_DATA", raising=False)
    toy_card = load_card(str(toy_task.write_task(tmp_path / "tasks")))
    encoded = toy_task.encode_splits(toy_card, checkpoint)
    precision = Precision(device, "bf16" if device.type == "cuda" else "no", False)
    _, result = run_seed(checkpoint, encoded, toy_card, toy_card.preset("quick"), 0, precision)
    labels = [example.label for example in read_splits(toy_card)["test"]]
    assert (result.outputs.argmax(1) == labels).mean() > 0.9


def test_vectors_in_each_precision(device, checkpoint, repository_texts):
    exact = TransformerEncoder(checkpoint, device="cpu", dtype="float32").encode(repository_texts)
    full = TransformerEncoder(checkpoint, device=device.type, dtype="float32")
    # Another test of this process may have allowed TF32, which rounds to about 1e-3.
    bound = 1e-3 if device.type == "cuda" else 1e-4
    torch.testing.assert_close(full.encode(repository_texts).cpu(), exact, atol=bound, rtol=0)
    half = TransformerEncoder(checkpoint, device=device.type, dtype="bfloat16")
    rounded = half.encode(repository_texts).cpu()
    assert 0 < float((rounded - exact).norm() / exact.norm()) < 3e-2
    assert full.identity() != half.identity()
