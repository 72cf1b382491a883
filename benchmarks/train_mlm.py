"""Compare the speed and memory of dana's training with the masked-language-model example of transformers.

    DANA_DATA=... python benchmarks/train_mlm.py --size mini --rounds 5

Two arms train the same untrained BERT on the same real text with the same batch size, learning
rate, mask rate and threads. ``stock`` is the loop of transformers' masked-LM example (its collator,
dynamic padding, the model's own loss over the whole vocabulary, ``torch.optim.AdamW`` with its
defaults); ``dana`` is :func:`dana.train.loop.train`. The arms take turns, each turn in its own
process, so that other load affects both and peak memory is measured per arm. Reported are the
medians of tokens per second (without padding), their ratio, peak memory, and the loss on held-out
text after equal tokens, measured by the same function.
"""

import argparse
import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

HELD_OUT = 400  # texts


def read_texts(count: int, seed: int, long: bool) -> list[str]:
    """Sample paragraphs (``long``: whole documents) of the pool."""
    texts = []
    for path in sorted((Path(os.environ["DANA_DATA"]) / "general").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line, _ in zip(lines, range(1500), strict=False):
                text = json.loads(line)["text"]
                texts += (
                    [text] if long else [piece for piece in text.split("\n") if len(piece) >= 40]
                )
    order = np.random.default_rng(seed).permutation(len(texts))[:count]
    return [texts[row] for row in order]


def make_model(size: str, max_tokens: int) -> tuple[Any, Any]:
    """Create an untrained BERT with MiniLM's tokenizer and vocabulary of 30,522."""
    from dana.core.registry import ENCODERS
    from dana.models.language_model import new_encoder

    tokenizer = ENCODERS.create("minilm").tokenizer
    tokenizer.model_max_length = max_tokens
    return new_encoder("bert", size, tokenizer, 0.0, 0).model, tokenizer


def windows(texts: list[str], tokenizer: Any, max_tokens: int) -> list[list[int]]:
    """Tokenize texts and cut long ones into windows, the input of both arms."""
    length = max_tokens - 2
    result = []
    for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]:
        result += [
            [tokenizer.cls_token_id, *ids[start : start + length], tokenizer.sep_token_id]
            for start in range(0, len(ids), length)
        ]
    return [ids for ids in result if len(ids) > 3]


def to_examples(ids: list[list[int]], seed: int) -> Any:
    """Convert windows to dana's examples with weight 1."""
    from dana.train.examples import Examples, SpecialTokens

    sizes = np.array([len(one) for one in ids])
    keys = np.random.default_rng(seed).integers(0, 2**63, sizes.size).astype(np.uint64)
    stream = np.concatenate([np.array(one, dtype=np.int32) for one in ids])
    none = np.zeros(0, dtype=np.int32)
    weights = np.ones(sizes.size, dtype=np.float32)
    return Examples(
        stream, np.cumsum(sizes) - sizes, sizes, keys, weights, SpecialTokens(none, none)
    )


def train_dana(
    model: Any, tokenizer: Any, ids: list[list[int]], heldout: Any, options: argparse.Namespace
) -> float:
    """Train with dana's loop and return the seconds after the warm-up."""
    from accelerate import Accelerator

    from dana.train.evaluation import HeldOut
    from dana.train.loop import prepare, train
    from dana.train.objectives.masked import MaskedTokens
    from dana.train.planner import choose_execution
    from dana.train.records import StepRecord

    settings, accelerator = dana_settings(options), Accelerator(cpu=options.device == "cpu")
    texts = {"target": heldout, "pool": heldout.rows(np.arange(1))}
    evaluation = HeldOut(texts, MaskedTokens().heldout_collator(tokenizer))
    collator, examples = MaskedTokens().collator(tokenizer, 0), to_examples(ids, 0)
    shape, reasons = choose_execution(model, examples, settings, accelerator)
    print(*reasons, sep="\n", file=sys.stderr)
    state = prepare(model, settings, accelerator, shape)
    records = list(train(state, examples, [collator], settings, evaluation))
    steps = [record for record in records if isinstance(record, StepRecord)]
    return steps[-1].seconds - steps[options.warmup - 1].seconds


def dana_settings(options: argparse.Namespace) -> Any:
    """Convert the options to dana's training settings."""
    from dana.train.settings import Execution, TrainSettings

    return TrainSettings(
        steps=options.steps,
        batch_size=options.batch_size,
        max_tokens=options.max_tokens,
        learning_rate=options.learning_rate,
        warmup=0.0,
        denominator="token_count",
        evaluations=0,
        execution=Execution(micro_batch_tokens=options.micro_batch_tokens, layout=options.layout),
    )


def train_stock(
    model: Any, tokenizer: Any, ids: list[list[int]], options: argparse.Namespace
) -> tuple[float, int]:
    """Train with the loop of transformers' example; return seconds and tokens after the warm-up."""
    import torch
    from transformers import DataCollatorForLanguageModeling, get_scheduler

    device = torch.device(options.device)
    model.to(device).train()
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    loader = torch.utils.data.DataLoader(
        [{"input_ids": one} for one in ids],
        batch_size=options.batch_size,
        shuffle=True,
        collate_fn=collator,
        generator=torch.Generator().manual_seed(0),
    )
    no_decay = ("bias", "LayerNorm.weight")
    groups = [
        {
            "params": [p for n, p in model.named_parameters() if not n.endswith(no_decay)],
            "weight_decay": 0.01,
        },
        {
            "params": [p for n, p in model.named_parameters() if n.endswith(no_decay)],
            "weight_decay": 0.0,
        },
    ]
    optimizer = torch.optim.AdamW(groups, lr=options.learning_rate)
    schedule = get_scheduler(
        "linear", optimizer, num_warmup_steps=0, num_training_steps=options.steps
    )
    step = tokens = 0
    start = 0.0
    torch.manual_seed(0)
    while step < options.steps:
        for batch in loader:
            if step == options.warmup:
                start, tokens = time.monotonic(), 0
            if step == options.steps:
                break
            tokens += int(batch["attention_mask"].sum())
            loss = model(**{name: value.to(device) for name, value in batch.items()}).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
    return time.monotonic() - start, tokens


def one_turn(options: argparse.Namespace) -> dict[str, float]:
    """Train one arm in this process and return its measures."""
    import torch
    from accelerate import Accelerator

    from dana.models.heads import SelectedLogits
    from dana.train.evaluation import measure_loss
    from dana.train.layout import BatchLayout
    from dana.train.objectives.masked import MaskedTokens
    from dana.train.plan import Plan

    torch.set_num_threads(options.threads)
    model, tokenizer = make_model(options.size, options.max_tokens)
    texts = read_texts(options.texts + HELD_OUT, 0, options.long)
    heldout = to_examples(windows(texts[:HELD_OUT], tokenizer, options.max_tokens)[:HELD_OUT], 1)
    ids = windows(texts[HELD_OUT:], tokenizer, options.max_tokens)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if options.arm == "dana":
        seconds = train_dana(model, tokenizer, ids, heldout, options)
        examples = to_examples(ids, 0)
        plan = Plan.from_settings(examples, dana_settings(options))
        tokens = sum(
            int(examples.lengths[plan[step].rows].sum())
            for step in range(options.warmup, options.steps)
        )
    else:
        seconds, tokens = train_stock(model, tokenizer, ids, options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    accelerator = Accelerator(cpu=options.device == "cpu")
    collator = MaskedTokens().heldout_collator(tokenizer)
    loss = measure_loss(SelectedLogits(model), heldout, collator, BatchLayout(), accelerator).mean
    result = {
        "tokens_per_second": tokens / seconds,
        "peak_mb": peak / 1024,
        "before_mb": before / 1024,
        "loss": loss,
    }
    if torch.cuda.is_available():
        result["gpu_peak_mb"] = torch.cuda.max_memory_allocated() / 2**20
    return result


def take_turns(
    script: str, options: argparse.Namespace, **environment: str
) -> dict[str, list[dict[str, float]]]:
    """Run a script's arms in turns, each in its own process; print medians and their ratio, return all measures."""
    turns: dict[str, list[dict[str, float]]] = {"stock": [], "dana": []}
    variables = {**os.environ, "OMP_NUM_THREADS": str(options.threads), **environment}
    for _ in range(options.rounds):
        for arm, rows in turns.items():
            command = [sys.executable, script, *sys.argv[1:], "--arm", arm]
            answer = subprocess.run(
                command, env=variables, check=True, stdout=subprocess.PIPE, text=True
            )
            rows.append(json.loads(answer.stdout.splitlines()[-1]))
            print(arm, {name: round(value, 3) for name, value in rows[-1].items()}, file=sys.stderr)
    for arm, rows in turns.items():
        median = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        print(f"{arm:<6}" + "".join(f"  {name} {value:,.3f}" for name, value in median.items()))
    pairs = zip(turns["dana"], turns["stock"], strict=True)
    ratios = [dana["tokens_per_second"] / stock["tokens_per_second"] for dana, stock in pairs]
    print(
        f"ratio of tokens per second, median of {len(ratios)} turns: {statistics.median(ratios):.2f}"
    )
    return turns


def main() -> None:
    """Run the arms in turns; print medians and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", default="mini", help="tiny, mini, small, medium or base")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--micro-batch-tokens", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=5, help="first steps, which are not timed")
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--texts", type=int, default=4000)
    parser.add_argument(
        "--long", action="store_true", help="whole documents cut into full windows, not paragraphs"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--layout", default="auto", help="auto, padded or unpadded")
    parser.add_argument(
        "--arm", choices=["stock", "dana"], help="train this arm only, and print JSON"
    )
    parser.add_argument("--out", type=Path, help="also write the measures of all turns as JSON")
    options = parser.parse_args()
    if options.arm:
        print(json.dumps(one_turn(options)))
        return
    turns = take_turns(__file__, options)
    if options.out:
        options.out.write_text(
            json.dumps({"options": vars(options), "turns": turns}, default=str, indent=2)
        )


if __name__ == "__main__":
    main()
