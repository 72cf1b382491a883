"""Compare the speed of dana's training of vectors with a plain loop of transformers.

    DANA_DATA=... python benchmarks/train_vectors.py --objective position --model dana-mini --threads 1

Two arms adapt the same base on the same documents by the same objective, with 64 documents a step,
at most 48 tokens a piece and equal threads. ``stock`` is the loop that one writes first: it draws
two sentences (``crops``: two pieces of two sentences) of each document, tokenises them, pads them
to the longest of the step, and calls the loss of torch, clipping and ``torch.optim.AdamW`` with its
fused kernel. ``dana`` is :func:`dana.train.loop.train`. The arms take turns, each turn in its own
process. Reported are the medians of tokens per second (without padding) and their ratio.
"""

import argparse
import gzip
import json
import os
import random
import re
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from train_mlm import take_turns

DOCUMENTS = 64  # a step
BINS = 5
TEMPERATURE = 0.05
HEAD_RATE = 10
RECORDS = 1_500  # read of each source


def read_documents(count: int) -> list[list[str]]:
    """Sample documents of the pool that have at least four sentences, as lists of sentences."""
    documents = []
    for path in sorted((Path(os.environ["DANA_DATA"]) / "general").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in islice(lines, RECORDS):
                pieces = re.split(r"(?<=[.!?])\s+", json.loads(line)["text"])
                sentences = [piece for piece in pieces if len(piece.split()) > 4]
                if len(sentences) >= 4:
                    documents.append(sentences)
    order = np.random.default_rng(0).permutation(len(documents))[:count]
    return [documents[row] for row in order]


def train_dana(
    model: Any, tokenizer: Any, texts: list[list[str]], options: argparse.Namespace
) -> tuple[float, int]:
    """Train with dana's loop; return seconds and tokens after the warm-up."""
    from accelerate import Accelerator

    from dana.train.evaluation import HeldOut
    from dana.train.loop import prepare, train
    from dana.train.planner import choose_execution
    from dana.train.records import StepRecord
    from dana.train.settings import TrainSettings

    settings = TrainSettings(
        objective=options.objective,
        batch_size=DOCUMENTS,
        steps=options.steps,
        max_tokens=options.max_tokens,
        learning_rate=options.learning_rate,
        evaluations=0,
    )
    objective: Any = settings.make_objective()
    documents = to_documents(texts, tokenizer, objective.draw(0), options.max_tokens)
    accelerator = Accelerator(cpu=True)
    shape, _ = choose_execution(model, documents, settings, accelerator)
    state = prepare(model, settings, accelerator, shape)
    collator = objective.collator(tokenizer, 0)
    few = to_documents(texts[:4], tokenizer, objective.heldout_draw(), options.max_tokens)
    heldout = HeldOut({"target": few, "pool": few}, objective.heldout_collator(tokenizer))
    records = list(train(state, documents, [collator], settings, heldout))
    steps = [record for record in records if isinstance(record, StepRecord)]
    first = steps[options.warmup - 1]
    last = steps[-1]
    return last.seconds - first.seconds, last.tokens - first.tokens


def to_documents(texts: list[list[str]], tokenizer: Any, draw: Any, max_tokens: int) -> Any:
    """Tokenise documents into dana's examples with weight 1."""
    from dana.train.documents import Documents
    from dana.train.examples import SpecialTokens

    sentences = [sentence for document in texts for sentence in document]
    encoded = tokenizer(sentences, add_special_tokens=False, verbose=False)["input_ids"]
    sizes = np.array([len(ids) for ids in encoded])
    totals = np.array([len(document) for document in texts])
    special_tokens = SpecialTokens.from_tokenizer(tokenizer)
    return Documents(
        stream=np.concatenate([np.array(ids, dtype=np.int32) for ids in encoded]),
        firsts=np.append(0, np.cumsum(totals)),
        starts=np.cumsum(sizes) - sizes,
        sizes=sizes,
        numbers=np.concatenate([np.arange(total) for total in totals]),
        sentence_weights=np.ones(sizes.size),
        totals=totals,
        ids=np.random.default_rng(1).integers(0, 2**63, totals.size).astype(np.uint64),
        special_tokens=special_tokens,
        draw=draw,
        room=max_tokens - special_tokens.size,
    )


def draw_pieces(
    objective: str, documents: list[list[str]], generator: random.Random
) -> tuple[list[str], list[int]]:
    """Draw two pieces of each document; return the first of all, then the second of all, and their fifths."""
    pieces: tuple[list[str], list[str]] = ([], [])
    fifths: tuple[list[int], list[int]] = ([], [])
    for sentences in documents:
        count = len(sentences)
        if objective == "crops":
            first = generator.randrange(count - 3)
            second = generator.choice([at for at in range(count - 1) if abs(at - first) > 1])
            width = 2
        else:
            first, second = generator.sample(range(count), 2)
            width = 1
        for side, place in enumerate((first, second)):
            pieces[side].append(" ".join(sentences[place : place + width]))
            fifths[side].append(min(BINS - 1, BINS * place // count))
    return pieces[0] + pieces[1], fifths[0] + fifths[1]


def train_stock(
    model: Any, tokenizer: Any, texts: list[list[str]], options: argparse.Namespace
) -> tuple[float, int]:
    """Train with a plain loop; return seconds and tokens after the warm-up."""
    import torch
    from torch.nn import functional

    generator = random.Random(0)
    head = torch.nn.Linear(model.config.hidden_size, BINS)
    rates = [options.learning_rate, HEAD_RATE * options.learning_rate]
    groups = [
        {"params": list(model.parameters()), "lr": rates[0]},
        {"params": list(head.parameters()), "lr": rates[1]},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01, fused=True)
    model.train()
    tokens = 0
    start = 0.0
    for step in range(options.steps):
        if step == options.warmup:
            start = time.monotonic()
            tokens = 0
        part = [texts[(step * DOCUMENTS + row) % len(texts)] for row in range(DOCUMENTS)]
        pieces, fifths = draw_pieces(options.objective, part, generator)
        batch = tokenizer(
            pieces,
            padding=True,
            truncation=True,
            max_length=options.max_tokens,
            return_tensors="pt",
        )
        mask = batch["attention_mask"]
        tokens += int(mask.sum())
        states = model.base_model(input_ids=batch["input_ids"], attention_mask=mask)[0]
        vectors = (states * mask[..., None]).sum(1) / mask.sum(1)[:, None]
        if options.objective == "crops":
            units = functional.normalize(vectors, dim=-1)
            similarities = units[:DOCUMENTS] @ units[DOCUMENTS:].T / TEMPERATURE
            loss = functional.cross_entropy(similarities, torch.arange(DOCUMENTS))
        else:
            loss = functional.cross_entropy(head(vectors), torch.tensor(fifths))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return time.monotonic() - start, tokens


def one_turn(options: argparse.Namespace) -> dict[str, float]:
    """Train one arm in this process and return its measure."""
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    from dana.models.folder import resolve_model

    torch.set_num_threads(options.threads)
    folder = resolve_model(options.model)
    model = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = read_documents(options.documents)
    run = train_dana if options.arm == "dana" else train_stock
    seconds, tokens = run(model, tokenizer, texts, options)
    return {"tokens_per_second": tokens / seconds, "tokens": tokens}


def main() -> None:
    """Run the arms in turns; print medians and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--objective", choices=["position", "crops"], default="position")
    parser.add_argument("--model", default="dana-mini", help="name or folder of an encoder")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--warmup", type=int, default=3, help="first steps, which are not timed")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--documents", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--arm", choices=["stock", "dana"], help="train this arm only, and print JSON"
    )
    options = parser.parse_args()
    if options.arm:
        print(json.dumps(one_turn(options)))
        return
    take_turns(__file__, options)


if __name__ == "__main__":
    main()
