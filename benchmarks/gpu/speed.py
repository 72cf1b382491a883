"""Measure tokens a second of MLM training: dana's loop in several settings, and a stock loop.

    python speed.py bert|modernbert|mini|minilm

dana: its loop as it ships. stock: bf16 autocast, fused AdamW, SDPA, rows of similar length padded to a
multiple of 64, masks and batches by four worker processes in pinned memory, the model's own loss over
all words.
stock-compile: the same under torch.compile.
"""

import gc
import sys
import time

import numpy as np
import torch
from common import (
    BF16_PEAK,
    CUDA,
    DEVICE,
    TINY,
    VOCABULARY,
    attempt,
    busy_share,
    examples_of,
    new_model,
    operations,
    rows_of,
    say,
    sync,
)

ARCH = sys.argv[1]
STEP = 65536 if CUDA else 1024  # tokens of an optimizer step
SECONDS, WARM = (4.0, 4) if CUDA else (0.1, 1)


def report(arm, width, tokens, seconds, steps, model, **more):
    """Say the speed of an arm."""
    lengths = np.diff(rows_of(width)[1])
    speed = tokens / max(seconds, 1e-9)
    peak = torch.cuda.max_memory_allocated() / 1e9 if CUDA else 0.0
    mfu = operations(model, lengths) * speed / BF16_PEAK
    say(
        what="train",
        arch=ARCH,
        arm=arm,
        width=width,
        mean_length=round(float(lengths.mean()), 1),
        tokens_per_second=round(speed),
        mfu=round(mfu, 4),
        ms_a_step=round(1e3 * seconds / max(steps, 1), 1),
        steps=steps,
        peak_gb=round(peak, 2),
        **more,
    )


def fresh():
    """Free the memory of the model before."""
    gc.collect()
    if CUDA:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def dana(arm, width):
    """Measure dana's loop as it ships: layout, precision and size of passes are its own choice."""
    from accelerate import Accelerator

    from dana.train.evaluation import HeldOut
    from dana.train.loop import prepare, take_step, train
    from dana.train.plan import Plan
    from dana.train.planner import choose_execution
    from dana.train.records import StepRecord
    from dana.train.settings import TrainSettings

    fresh()
    examples, collator = examples_of(width)
    settings = TrainSettings(
        steps=3000,
        batch_tokens=STEP,
        max_tokens=width,
        learning_rate=1e-4,
        denominator="token_count",
        evaluations=0,
        evaluation_tokens=1000,
    )
    accelerator, model = Accelerator(), new_model(ARCH, None)
    shape, reasons = choose_execution(model, examples, settings, accelerator, collator)
    state = prepare(model, settings, accelerator, shape)
    heldout = HeldOut({name: examples.rows(np.arange(4)) for name in ("target", "pool")}, collator)
    first = last = None
    loop = train(state, examples, [collator], settings, heldout)
    for record in loop:
        if not isinstance(record, StepRecord):
            continue
        if record.step == WARM:
            sync()
            first, start = record, time.monotonic()
        elif first is not None:
            last = record
            if time.monotonic() - start > SECONDS:
                break
    sync()
    seconds = time.monotonic() - start
    loop.close()
    plan = Plan.from_settings(examples, settings)
    step = plan[0]
    batch = collator.step_batch(examples.take(step.rows), step.epochs, "token_count")
    busy, kernels = attempt(
        f"profile {arm}", busy_share, lambda: take_step(state, batch, 1e-5, 0, settings)
    ) or (None, None)
    report(
        arm,
        width,
        last.tokens - first.tokens,
        seconds,
        last.step - first.step,
        model,
        micro=shape.budget,
        layout=shape.layout,
        passes=last.passes,
        waiting=last.waiting,
        busy=busy,
        kernels=kernels,
        loss=round(last.plain_loss, 3),
        chosen=reasons[2],
    )


class Rows(torch.utils.data.Dataset):
    """Make padded batches of similar length, masked in the worker."""

    def __init__(self, width, batch_tokens, epochs=50):
        self.tokens, self.offsets = rows_of(width)
        lengths, random = np.diff(self.offsets), np.random.default_rng(0)
        self.batches, pool = [], 64 * batch_tokens // int(lengths.mean())
        for _ in range(epochs):
            order = random.permutation(lengths.size)
            found = []
            for start in range(0, order.size, pool):
                part = order[start : start + pool]
                part = part[np.argsort(-lengths[part], kind="stable")]
                at = 0
                while at < part.size:
                    wide = -(-int(lengths[part[at]]) // 64) * 64
                    found.append((part[at : at + max(1, batch_tokens // wide)], wide))
                    at += found[-1][0].size
            self.batches += [found[index] for index in random.permutation(len(found))]
            if len(self.batches) > 4000:
                break

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        rows, wide = self.batches[index]
        random = np.random.default_rng(index)
        lengths = np.diff(self.offsets)[rows]
        real = np.arange(wide) < lengths[:, None]
        ids = np.zeros(real.shape, np.int64)
        ids[real] = np.concatenate(
            [self.tokens[self.offsets[row] : self.offsets[row + 1]] for row in rows]
        )
        hidden = (random.random(ids.shape) < 0.15) & real & (ids > 103)
        labels, fate = np.where(hidden, ids, -100), random.random(ids.shape)
        ids = np.where(hidden & (fate < 0.8), 103, ids)
        ids = np.where(
            hidden & (fate >= 0.8) & (fate < 0.9), random.integers(999, VOCABULARY, ids.shape), ids
        )
        names = {"input_ids": ids, "attention_mask": real.astype(np.int64), "labels": labels}
        return {name: torch.from_numpy(part) for name, part in names.items()}, int(lengths.sum())


def stock(arm, width, micro, compiled=False):
    """Measure a tuned loop of torch and transformers alone."""
    fresh()
    torch.set_float32_matmul_precision("high")
    model = new_model(ARCH, None).to(DEVICE).train()
    run = torch.compile(model, dynamic=True) if compiled else model
    workers = {"num_workers": 4, "prefetch_factor": 4, "pin_memory": True} if CUDA else {}
    loader = torch.utils.data.DataLoader(Rows(width, micro), batch_size=None, **workers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=CUDA)
    each = max(1, STEP // micro)

    def step(batches):
        for batch in batches:
            batch = {name: part.to(DEVICE, non_blocking=True) for name, part in batch.items()}
            with torch.autocast(DEVICE.type, torch.bfloat16, enabled=CUDA):
                loss = run(**batch).loss / each
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    began, start, tokens, steps, waiting, count, kept = time.monotonic(), None, 0, 0, [], 0, None
    warm_up = WARM * (3 if compiled else 1)
    for batch, size in loader:
        waiting.append(batch)
        tokens += size
        if len(waiting) < each:
            continue
        loss, kept, waiting = step(waiting), waiting, []
        count += 1
        steps += start is not None
        if count == warm_up:
            sync()
            start, tokens, warm = time.monotonic(), 0, round(time.monotonic() - began, 1)
        elif start is not None and steps % 4 == 0 and steps:
            sync()
            if time.monotonic() - start > SECONDS:
                break
    sync()
    seconds = time.monotonic() - start
    busy, kernels = attempt(f"profile {arm}", busy_share, lambda: step(kept)) or (None, None)
    report(
        arm,
        width,
        tokens,
        seconds,
        steps,
        model,
        micro=micro,
        layout="padded",
        passes=each,
        busy=busy,
        kernels=kernels,
        warm_s=warm,
        loss=round(loss.item() * each, 3),
    )


if __name__ == "__main__":
    # ModernBERT's states and the logits of all words need the memory.
    limit = STEP // 2 if ARCH == "modernbert" else STEP
    for arm, function, *arguments in (
        ("dana", dana, 128),
        ("stock", stock, 128, limit),
        ("dana", dana, 512),
        ("stock", stock, 512, limit),
        ("dana again", dana, 128),
        ("stock again", stock, 128, limit),
        ("stock-compile", stock, 128, limit, True),
    ):
        if TINY and arm != "dana" and arm != "stock":
            continue  # minutes on two cores
        attempt(f"{arm} {arguments[0]}", function, arm, *arguments)
