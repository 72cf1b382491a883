"""How are several seeds of fine-tuning trained fastest on a CPU: in turn, in processes side by side, or stacked?

    DANA_DATA=... python benchmarks/finetune_seeds.py --rounds 3

Every way trains the same number of seeds for the same steps on the same batches of a task: ``in turn`` one after the
other with all threads, ``side by side`` in as many processes as cores with a thread each, ``stacked`` as one model
whose parameters have a first axis of seeds (torch.func.vmap) with all threads. Each in float32 and in bfloat16. The
ways take turns, each turn a process of its own. Reported: medians of real tokens a second over all seeds, and the
ratio to ``in turn`` in float32, turn by turn.
"""

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

WAYS = ("in turn", "side by side", "stacked")
CLASSES = 6


def batches(task: str, size: int, steps: int, width: int) -> list[torch.Tensor]:
    """Token ids of `steps` batches; each batch as wide as its longest text."""
    from dana.encoders.minilm import minilm

    path = Path(os.environ["DANA_DATA"]) / "tasks" / task / "train.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line, _ in zip(lines, range(size * steps), strict=False)]
    tokenizer = minilm().tokenizer
    return [
        tokenizer(texts[at : at + size], truncation=True, max_length=width, padding=True, return_tensors="pt")[
            "input_ids"
        ]
        for at in range(0, size * steps, size)
    ]


def classifier(seed: int) -> torch.nn.Module:
    """A BERT of 4 layers x 256 with a head, as ``dana finetune`` makes it."""
    from transformers import BertConfig, BertModel

    from dana.models.classifier import Classifier

    torch.manual_seed(seed)
    shape = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
    backbone = BertModel(BertConfig(**shape, max_position_embeddings=256), add_pooling_layer=False)
    return Classifier(backbone, CLASSES, seed)


def train_one(model: torch.nn.Module, data: list[torch.Tensor], half: bool) -> None:
    """Cross-entropy and fused AdamW, a step a batch."""
    from dana.train.optimizer import make_optimizer

    optimizer = make_optimizer(model, 3e-4, 0.01)
    model.train()
    for ids in data:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            logits = model(ids, (ids != 0).long())
        torch.nn.functional.cross_entropy(logits.float(), ids[:, 1] % CLASSES).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def train_stacked(models: list[torch.nn.Module], data: list[torch.Tensor], half: bool) -> None:
    """The same for all models at once; batches are stacked, too, so that each could have its own."""
    from torch.func import functional_call, stack_module_state, vmap

    parameters, buffers = stack_module_state(models)  # type: ignore[arg-type]
    leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
    optimizer = torch.optim.AdamW(list(leaves.values()), 3e-4, weight_decay=0.01, fused=True)
    shell = models[0].train()

    def logits_of(own: Any, other: Any, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return functional_call(shell, (own, other), (ids, mask))

    for ids in data:
        many = ids.expand(len(models), *ids.shape)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            mask = (many != 0)[:, :, None, None].expand(-1, -1, 1, ids.shape[1], -1)  # one that vmap can look through
            logits = vmap(logits_of, randomness="different")(leaves, buffers, many, mask)
        target = (many[..., 1] % CLASSES).flatten()
        (torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), target) * len(models)).backward()
        torch.nn.utils.clip_grad_norm_(list(leaves.values()), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def work(given: argparse.Namespace) -> None:
    """One process's share: prints the seconds of training alone."""
    torch.set_num_threads(given.threads)
    data = batches(given.task, given.batch_size, given.steps, given.max_tokens)
    models = [classifier(seed) for seed in range(given.seeds)]
    if given.work == "stacked":
        train_stacked(models, data[:1], given.half)
    else:
        train_one(classifier(99), data[:1], given.half)
    started = time.monotonic()
    if given.work == "stacked":
        train_stacked(models, data, given.half)
    else:
        for model in models:
            train_one(model, data, given.half)
    tokens = sum(int((ids != 0).sum()) for ids in data) * len(models)
    print(json.dumps({"seconds": time.monotonic() - started, "tokens": tokens}))


def turn(way: str, half: bool, given: argparse.Namespace) -> float:
    """Tokens a second of one way, in processes of its own."""
    cores = os.cpu_count() or 1
    many = cores if way == "side by side" else 1
    own = ["--seeds", str(given.seeds // many), "--threads", str(cores // many), "--work", way]
    own += ["--half"] if half else []
    rest = ["--task", given.task, "--steps", str(given.steps), "--batch-size", str(given.batch_size)]
    command = [sys.executable, __file__, *own, *rest, "--max-tokens", str(given.max_tokens)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(many)
    ]
    told = []
    for process in running:
        printed = process.communicate()[0]
        if process.returncode:
            return float("nan")
        told.append(json.loads(printed.splitlines()[-1]))
    return sum(one["tokens"] for one in told) / max(one["seconds"] for one in told)


def main() -> None:
    """Take turns and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="chemprot")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--work", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--half", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given)
        return
    arms = [(way, half) for half in (False, True) for way in WAYS]
    found: dict[tuple[str, bool], list[float]] = {arm: [] for arm in arms}
    for _ in range(given.rounds):
        for arm in arms:
            found[arm].append(turn(*arm, given))
    first = found[arms[0]]
    print(f"{'way':<14} {'precision':<10} {'tokens/s':>9} {'ratio':>6}")
    for (way, half), speeds in found.items():
        ratio = statistics.median(speed / other for speed, other in zip(speeds, first, strict=True))
        print(f"{way:<14} {'bf16' if half else 'fp32':<10} {statistics.median(speeds):>9,.0f} {ratio:>6.2f}")


if __name__ == "__main__":
    main()
