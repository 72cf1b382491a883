"""Measure seconds a seed of fine-tuning on 500 texts, in three ways.

dana's loop, the same step as a CUDA graph, and eight seeds stacked in one model.

The graph and the stack are sketches of what could be had: the same model, batch size, steps,
dropout, AdamW and clipping; rows are padded to one of a few widths.
"""

import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from common import CUDA, DATA, DEVICE, attempt, say, sync
from transformers import AutoConfig, AutoModel, AutoTokenizer

from dana.finetuning.encoded_split import EncodedSplit
from dana.finetuning.loop import order, run_seed
from dana.models.classifier import new_classifier
from dana.tasks.card import load_card
from dana.tasks.examples import Example
from dana.tasks.settings import PRESETS
from dana.train.execution import Precision

TEXTS = 500 if CUDA else 24
SEEDS = 8 if CUDA else 2


def splits_of(card, tokenizer, max_tokens):
    """Encode the packed task."""
    task = json.loads((DATA / "task.json").read_text())
    found = {}
    for split, rows in task.items():
        rows = rows[: {"train": TEXTS, "dev": TEXTS, "test": 2 * TEXTS}[split]]
        examples = [
            Example(str(index), row["text"], card.labels.index(row["label"]))
            for index, row in enumerate(rows)
        ]
        found[split] = EncodedSplit.with_labels(examples, tokenizer, max_tokens, card.label_kind)
    return found


def width_of(length):
    """Return the narrowest of a few widths that holds a length."""
    return next(width for width in (32, 64, 96, 128, 192, 256) if length <= width)


def epoch_batches(split, size, seed, epochs):
    """Yield token ids and targets of every step.

    A last small batch is left out, as a graph has one number of rows.
    """
    for epoch in range(epochs):
        for rows in order(split, size, seed, epoch):
            if rows.size < size:
                continue
            width = width_of(max(len(split.tokens[row]) for row in rows))
            ids = np.zeros((size, width), np.int64)
            for at, row in enumerate(rows):
                ids[at, : len(split.tokens[row])] = split.tokens[row]
            yield torch.from_numpy(ids), torch.from_numpy(split.loss_labels[rows].astype(np.int64))


class Net(torch.nn.Module):
    """Wrap dana's classifier to take the mask that attention adds, of four axes, beside its own.

    With a mask of two axes transformers asks the device whether all of it is real, which neither a
    capture nor vmap can.
    """

    def __init__(self, classifier):
        super().__init__()
        self.model = classifier.model

    def forward(self, ids, wide, real):
        if hasattr(self.model, "parts"):  # dana's PooledClassifier
            return self.model(attention_mask=wide, groups=real, input_ids=ids).logits
        masks = {"full_attention": wide, "sliding_attention": wide}
        states = self.model.model(input_ids=ids, attention_mask=masks)[0]
        pooled = (states * real.unsqueeze(-1)).sum(1) / real.sum(1, keepdim=True)
        return self.model.classifier(self.model.drop(self.model.head(pooled)))


def masks_of(ids):
    """Return the mask of attention, (..., 1, width, width), and that of pooling, (..., width)."""
    real = (ids != 0).long()
    return real.bool()[..., None, None, :].expand(
        *real.shape[:-1], 1, real.shape[-1], real.shape[-1]
    ), real


def graphed(model, split, preset, classes, epochs):
    """Train one seed with a captured step for each width.

    Returns the seconds of capture and of training, and the number of steps.
    """
    network = Net(new_classifier(model, classes, 0, False, preset.pooling)).to(DEVICE).train()
    parameters = [value for value in network.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(
        parameters,
        lr=torch.tensor(1e-4, device=DEVICE),
        weight_decay=0.01,
        fused=True,
        capturable=True,
    )
    data = list(epoch_batches(split, preset.batch_size, 0, epochs))
    static, graphs = {}, {}
    start = time.monotonic()

    def step(ids, target):
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            logits = network(ids, *masks_of(ids))
        torch.nn.functional.cross_entropy(logits.float(), target).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    for ids, target in data:
        width = ids.shape[1]
        if width in static:
            continue
        static[width] = ids.to(DEVICE), target.to(DEVICE)
        with torch.cuda.stream(side):
            for _ in range(2):
                step(*static[width])
    torch.cuda.current_stream().wait_stream(side)
    for width, inputs in static.items():
        graphs[width] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[width]):
            step(*inputs)
    sync()
    captured = time.monotonic() - start
    start = time.monotonic()
    for ids, target in data:
        for place, value in zip(static[ids.shape[1]], (ids, target), strict=True):
            place.copy_(value, non_blocking=True)
        graphs[ids.shape[1]].replay()
    sync()
    return captured, time.monotonic() - start, len(data)


def stacked(model, split, preset, classes, epochs, seeds):
    """Train several seeds as one model whose parameters have a first axis of seeds.

    Each seed has batches of its own.
    """
    from torch.func import functional_call, stack_module_state, vmap
    from torch.nn.attention import SDPBackend, sdpa_kernel

    networks = [
        Net(new_classifier(model, classes, seed, False, preset.pooling)).to(DEVICE).train()
        for seed in range(seeds)
    ]
    parameters, buffers = stack_module_state(networks)
    leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
    optimizer = torch.optim.AdamW(list(leaves.values()), 1e-4, weight_decay=0.01, fused=True)
    shell = networks[0]
    data = list(
        zip(
            *(list(epoch_batches(split, preset.batch_size, seed, epochs)) for seed in range(seeds)),
            strict=True,
        )
    )

    def logits_of(own, other, ids, wide, real):
        return functional_call(shell, (own, other), (ids, wide, real))

    def step(batches):
        width = max(ids.shape[1] for ids, _ in batches)
        many = torch.stack(
            [torch.nn.functional.pad(ids, (0, width - ids.shape[1])) for ids, _ in batches]
        ).to(DEVICE)
        target = torch.stack([target for _, target in batches]).to(DEVICE)
        # SDPA's fused kernels have no rule for vmap, which then calls them seed by seed; its plain
        # product has one.
        with (
            torch.autocast(DEVICE.type, torch.bfloat16, enabled=CUDA),
            sdpa_kernel(SDPBackend.MATH),
        ):
            logits = vmap(logits_of, randomness="different")(leaves, buffers, many, *masks_of(many))
        loss = (
            torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), target.flatten())
            * seeds
        )
        loss.backward()
        # Each seed is clipped by its own norm.
        grads = [
            value.grad for value in leaves.values() if value.grad is not None
        ]  # BERT's pooler has none
        squares = torch.stack([grad.square().flatten(1).sum(1) for grad in grads]).sum(0)
        factor = (1.0 / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        for grad in grads:
            grad.mul_(factor.view(-1, *[1] * (grad.ndim - 1)))
        optimizer.step()
        optimizer.zero_grad()

    step(data[0])
    sync()
    start = time.monotonic()
    for batches in data:
        step(batches)
    sync()
    return time.monotonic() - start, len(data)


def of_model(name, model, pooling):
    """Measure the three ways on a model."""
    from dataclasses import replace

    card, tokenizer = load_card("chemprot"), AutoTokenizer.from_pretrained(model)
    preset = replace(
        PRESETS["auto"],
        learning_rate=1e-4,
        pooling=pooling,
        max_tokens=256,
        **({} if CUDA else {"steps": 3, "epochs": 1}),
    )
    splits = splits_of(card, tokenizer, preset.max_tokens)
    epochs, classes = preset.epochs_of(len(splits["train"].tokens)), len(card.labels)
    steps = epochs * -(-len(splits["train"].tokens) // preset.batch_size)
    for precision in ("bf16", "no") if CUDA else ("no",):

        def ours(precision=precision):
            how = Precision(DEVICE, precision, False)
            run_seed(model, splits, card, replace(preset, epochs=1, steps=1), 99, how)
            sync()
            seconds = []
            for seed in range(2 if CUDA else 1):
                start = time.monotonic()
                _, result = run_seed(model, splits, card, preset, seed, how)
                sync()
                seconds.append(time.monotonic() - start)
            say(
                what="seeds",
                model=name,
                arm="dana",
                precision=precision,
                seconds_a_seed=round(min(seconds), 2),
                steps=steps,
                ms_a_step=round(1e3 * min(seconds) / steps, 2),
                dev=round(result.dev_score, 3),
            )

        attempt(f"dana {name} {precision}", ours)

    def graph():
        captured, seconds, done = graphed(model, splits["train"], preset, classes, epochs)
        say(
            what="seeds",
            model=name,
            arm="CUDA graphs",
            precision="bf16",
            seconds_a_seed=round(seconds, 3),
            capture_s=round(captured, 2),
            steps=done,
            ms_a_step=round(1e3 * seconds / done, 3),
        )

    def stack():
        seconds, done = stacked(model, splits["train"], preset, classes, epochs, SEEDS)
        say(
            what="seeds",
            model=name,
            arm=f"{SEEDS} seeds stacked",
            precision="bf16",
            seconds_a_seed=round(seconds / SEEDS, 3),
            steps=done,
            ms_a_step=round(1e3 * seconds / done, 2),
        )

    if CUDA:
        attempt(f"graph {name}", graph)
    attempt(f"stack {name}", stack)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        config = AutoConfig.from_pretrained(DATA / "minilm")
        if not CUDA:
            config.num_hidden_layers = 1
        AutoModel.from_config(config).save_pretrained(folder)
        AutoTokenizer.from_pretrained(DATA / "minilm").save_pretrained(folder)
        of_model("minilm's shape", folder, "mean")
    of_model(
        "dana-mini", str(Path(__import__("dana").__file__).parent / "models" / "dana-mini"), "mean"
    )
