"""Check that training on this device is what it should be.

Each check prints a JSON line, with ok true or false.

paths    which attention each architecture takes in training under bf16: torch's kernel, or the
         padded product
kernel   logits without padding against padded rows, in bf16
trainer  weights of 1 against transformers' Trainer: losses of every step and the final weights,
         in float32 and bf16
resume   saved after two steps and loaded again, against four steps at once
"""

import copy
import tempfile
from pathlib import Path

import numpy as np
import torch
from common import CUDA, DEVICE, TINY, VOCABULARY, attempt, examples_of, say
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    Trainer,
    TrainingArguments,
)

import dana.models.varlen as varlen
from dana.models.heads import SelectedLogits
from dana.train.layout import BatchLayout, micro_batches
from dana.train.loop import prepare, take_step
from dana.train.settings import TrainSettings

SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "max_position_embeddings": 514,
    "pad_token_id": 0,
}
SHAPE |= {"hidden_size": 128, "num_hidden_layers": 2, "intermediate_size": 64} if TINY else {}
NO_ENDS = {"bos_token_id": None, "eos_token_id": None}
KINDS = {
    "bert, dropout .1": ("bert", {}),
    "bert, dropout 0": ("bert", {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}),
    "bert, heads of 26": (
        "bert",
        {
            "hidden_size": 312,
            "num_attention_heads": 12,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        },
    ),
    "roberta, dropout 0": (
        "roberta",
        {"pad_token_id": 1, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    ),
    "modernbert": ("modernbert", {**NO_ENDS, "cls_token_id": 101, "sep_token_id": 102}),
    "eurobert": ("eurobert", {**NO_ENDS, "mask_token_id": 103, "num_key_value_heads": 4}),
    "llama": ("llama", {**NO_ENDS, "num_key_value_heads": 2}),
    "qwen3": ("qwen3", {**NO_ENDS, "num_key_value_heads": 2, "head_dim": 32 if TINY else 64}),
}


def model_of(kind, options, seed=0):
    """Make a small model of an architecture."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind, **{**SHAPE, **options})
    auto = AutoModelForCausalLM if kind in ("llama", "qwen3") else AutoModelForMaskedLM
    return auto.from_config(config)


def some_batch(count=8 if TINY else 48, width=128):
    """Return the examples, their collator and the batch of a step."""
    examples, collator = examples_of(width, 2000)
    rows = np.random.default_rng(1).permutation(len(examples))[:count]
    return examples, collator, collator.step_batch(examples.take(rows), 0, "token_count")


def check_paths():
    """Count the calls of the kernel and of the padded product in one training pass."""
    _, _, batch = some_batch()
    for name, (kind, options) in KINDS.items():

        def one_pass(kind=kind, options=options, name=name):
            model = model_of(kind, options).to(DEVICE).train()
            varlen.register()
            model.set_attn_implementation(varlen.NAME)
            shape = BatchLayout.from_config(model.config, 1 << 20, "unpadded", True)
            (rows,) = micro_batches(batch.lengths, shape)
            varlen.calls.clear()
            SelectedLogits(model, True)(
                **batch.micro(rows, shape).to(DEVICE).inputs
            ).float().sum().backward()
            counts = {what: varlen.calls[what] for what in ("kernel", "product")}
            taken = "padded product" if counts["product"] else "kernel"
            say(what="path", model=name, taken=taken, ok=not CUDA or taken == "kernel", **counts)

        attempt(f"path {name}", one_pass)


def check_kernel():
    """Compare logits in bf16 with and without padding; padded rows in float32 are the measure."""
    count = 8 if TINY else 24
    _, _, batch = some_batch(count)
    for name in ("bert, dropout 0", "roberta, dropout 0", "modernbert"):
        kind, options = KINDS[name]

        def logits(layout, half, kind=kind, options=options):
            model = model_of(kind, options).to(DEVICE).eval()
            with torch.no_grad():
                for value in model.parameters():
                    value.mul_(3.0 if value.ndim > 1 else 1.0)  # attention that is far from even
            if layout == "unpadded":
                varlen.register()
                model.set_attn_implementation(varlen.NAME)
            shape = BatchLayout.from_config(model.config, 1 << 20, layout, half)
            micro = batch.micro(
                np.arange(count) if layout == "padded" else micro_batches(batch.lengths, shape)[0],
                shape,
            )
            order = torch.argsort(micro.owners, stable=True)
            with torch.no_grad():
                return (
                    SelectedLogits(model, half)
                    .eval()(**micro.to(DEVICE).inputs)
                    .float()
                    .cpu()[order]
                )

        exact, rounded, joint = (
            logits("padded", False),
            logits("padded", True),
            logits("unpadded", True),
        )
        errors = [float((other - exact).norm() / exact.norm()) for other in (rounded, joint)]
        say(
            what="kernel",
            model=name,
            padded_bf16=round(errors[0], 5),
            unpadded_bf16=round(errors[1], 5),
            ok=errors[1] < 1.5 * errors[0] + 1e-3,
        )


class InOrder(Trainer):
    """Trainer that reads its data in order, and keeps the loss of every step."""

    def _get_train_sampler(self, *arguments, **more):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def check_trainer(steps=3 if TINY else 6, size=8 if TINY else 32):
    """Train a BERT on the same masked batches by both; AdamW, clipping at 1, a constant rate."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    examples, collator = examples_of(128, 2000)
    chosen = (
        np.random.default_rng(2).permutation(len(examples))[: steps * size].reshape(steps, size)
    )
    batches = [collator.step_batch(examples.take(rows), 0, "token_count") for rows in chosen]
    start = model_of(*KINDS["bert, dropout 0"])
    data = []
    for batch in batches:
        for first, end in zip(batch.examples.offsets[:-1], batch.examples.offsets[1:], strict=True):
            ids, labels = (
                torch.from_numpy(batch.inputs[first:end].astype(np.int64)),
                torch.from_numpy(batch.labels[first:end].astype(np.int64)),
            )
            data.append(
                {"input_ids": ids, "labels": labels, "attention_mask": torch.ones_like(ids)}
            )

    def pad(rows):
        fill = {"input_ids": 0, "labels": -100, "attention_mask": 0}
        return {
            name: torch.nn.utils.rnn.pad_sequence([row[name] for row in rows], True, value)
            for name, value in fill.items()
        }

    def by_trainer(half):
        AcceleratorState._reset_state(reset_partial_state=True)
        model, losses = copy.deepcopy(start), []

        class Keep(InOrder):
            def training_step(self, *arguments, **more):
                loss = super().training_step(*arguments, **more)
                losses.append(float(loss))
                return loss

        with tempfile.TemporaryDirectory() as folder:
            settings = TrainingArguments(
                folder,
                per_device_train_batch_size=size,
                max_steps=steps,
                learning_rate=1e-4,
                lr_scheduler_type="constant",
                weight_decay=0.0,
                max_grad_norm=1.0,
                bf16=half,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                use_cpu=not CUDA,
                tf32=False if CUDA else None,
                disable_tqdm=True,
                dataloader_num_workers=0,
            )
            trainer = Keep(model=model, args=settings, train_dataset=data, data_collator=pad)
            trainer.train()
        return losses, {
            name: value.detach().float().cpu() for name, value in trainer.model.named_parameters()
        }

    def by_dana(half, layout):
        AcceleratorState._reset_state(reset_partial_state=True)
        model = copy.deepcopy(start)
        if layout == "unpadded":
            varlen.register()
            model.set_attn_implementation(varlen.NAME)
        settings = TrainSettings(
            steps=steps,
            batch_size=size,
            max_tokens=128,
            learning_rate=1e-4,
            weight_decay=0.0,
            warmup=0.0,
            schedule="constant",
            denominator="token_count",
        )
        accelerator = Accelerator(cpu=not CUDA)
        state = prepare(
            model,
            settings,
            accelerator,
            BatchLayout.from_config(model.config, 1 << 14, layout, half),
        )
        losses = [
            take_step(state, batch, 1e-4, index, settings).loss
            for index, batch in enumerate(batches)
        ]
        return losses, {
            name: value.detach().float().cpu() for name, value in state.model.named_parameters()
        }

    before = {name: value.detach() for name, value in start.named_parameters()}
    torch.backends.cuda.matmul.allow_tf32 = False
    for half, layout, loss_limit, weight_limit in (
        (False, "padded", 1e-4, 2e-2),
        (True, "padded", 2e-2, 0.15),
        (True, "unpadded", 2e-2, 0.15),
    ):
        theirs, their_weights = by_trainer(half)
        ours, our_weights = by_dana(half, layout)
        gap = max(abs(one - other) for one, other in zip(ours, theirs, strict=True))
        names = [name for name, value in before.items() if value.ndim > 1]
        moved = (
            sum(float((their_weights[name] - before[name]).square().sum()) for name in names) ** 0.5
        )
        apart = (
            sum(float((our_weights[name] - their_weights[name]).square().sum()) for name in names)
            ** 0.5
        )
        say(
            what="trainer",
            precision="bf16" if half else "fp32",
            layout=layout,
            largest_loss_difference=round(gap, 6),
            weights_apart=round(apart / moved, 5),
            losses=[round(one, 4) for one in ours],
            ok=gap < loss_limit and apart / moved < weight_limit,
        )


def check_resume():
    """Take four steps at once, and two, save, load into a new model, two."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from safetensors.torch import save_file

    from dana.train.state import read_state, restore_state

    examples, collator = examples_of(128, 2000)
    batches = [
        collator.step_batch(examples.take(np.arange(32) + 32 * index), 0, "token_count")
        for index in range(4)
    ]
    settings = TrainSettings(steps=4, batch_size=32, max_tokens=128, denominator="token_count")

    def new_state(seed):
        AcceleratorState._reset_state(reset_partial_state=True)
        model = model_of(*KINDS["bert, dropout .1"], seed)
        return prepare(
            model,
            settings,
            Accelerator(cpu=not CUDA),
            BatchLayout.from_config(model.config, 1 << 14, "padded", True),
        )

    def go(state, first, end):
        for index in range(first, end):
            take_step(state, batches[index], 1e-4, index, settings)

    whole = new_state(0)
    go(whole, 0, 4)
    first = new_state(0)
    go(first, 0, 2)
    with tempfile.TemporaryDirectory() as folder:
        save_file(read_state(first), Path(folder) / "state.safetensors")
        second = new_state(1)
        restore_state(second, Path(folder) / "state.safetensors")
    go(second, 2, 4)
    pairs = zip(whole.model.parameters(), second.model.parameters(), strict=True)
    gap = max(float((one - other).detach().abs().max()) for one, other in pairs)
    say(what="resume", largest_difference=gap, ok=gap < 1e-5)


if __name__ == "__main__":
    for check in (check_paths, check_kernel, check_trainer, check_resume):
        attempt(check.__name__, check)
