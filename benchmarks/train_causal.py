"""Compare the speed and memory of dana's training of a decoder with the Trainer of transformers.

    DANA_DATA=... python benchmarks/train_causal.py --model smollm2 --rounds 3

Both arms train the same decoder in the same precision on the same short documents, whole batches at
the same rate, padded to the longest of a micro-batch. The Trainer runs a whole batch at once, dana
micro-batches of similar length. The arms take turns, each turn in its own process. Reported are the
medians of tokens per second (without padding), their ratio, and peak memory.
"""

import argparse
import json
import os
import resource
import tempfile
import time
from typing import Any

import numpy as np
from train_mlm import read_texts, take_turns, to_examples

SKIPPED = 1  # first step, which is not timed


def train_dana(model: Any, ids: list[list[int]], options: argparse.Namespace) -> tuple[float, int]:
    """Train with dana's loop; return seconds and tokens after the first step."""
    from accelerate import Accelerator

    from dana.train.evaluation import HeldOut
    from dana.train.examples import SpecialTokens
    from dana.train.loop import prepare, train
    from dana.train.objectives.causal import CausalCollator
    from dana.train.planner import choose_execution
    from dana.train.records import StepRecord
    from dana.train.settings import Execution, TrainSettings

    settings = TrainSettings(
        objective="causal",
        steps=options.steps,
        batch_size=options.batch_size,
        max_tokens=options.max_tokens,
        learning_rate=1e-5,
        warmup=0.0,
        denominator="token_count",
        evaluations=0,
        execution=Execution(micro_batch_tokens=options.micro_batch_tokens),
    )
    examples, accelerator = to_examples(ids, 0), Accelerator(cpu=True)
    nothing = np.zeros(0, np.int32)
    collator, few = CausalCollator(SpecialTokens(nothing, nothing)), examples.rows(np.arange(1))
    shape, _ = choose_execution(model, examples, settings, accelerator)
    state, heldout = (
        prepare(model, settings, accelerator, shape),
        HeldOut({"target": few, "pool": few}, collator),
    )
    steps = [
        one
        for one in train(state, examples, [collator], settings, heldout)
        if isinstance(one, StepRecord)
    ]
    return steps[-1].seconds - steps[SKIPPED - 1].seconds, steps[-1].tokens - steps[
        SKIPPED - 1
    ].tokens


def train_stock(
    model: Any, tokenizer: Any, ids: list[list[int]], options: argparse.Namespace
) -> tuple[float, int]:
    """Train with the Trainer; return seconds and tokens after the first step."""
    from transformers import (
        DataCollatorForLanguageModeling,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.times: list[float] = []

        def on_step_end(self, *arguments: Any, **keywords: Any) -> None:
            self.times.append(time.monotonic())

    clock, counts = Clock(), list[int]()
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    pad = DataCollatorForLanguageModeling(tokenizer, mlm=False)

    def collate(rows: list[dict[str, Any]]) -> Any:
        counts.append(sum(len(row["input_ids"]) for row in rows))
        return pad(rows)

    values = {
        "max_steps": options.steps,
        "per_device_train_batch_size": options.batch_size,
        "learning_rate": 1e-5,
    }
    quiet = {
        "report_to": [],
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
    }
    quiet["bf16"] = options.bf16
    arguments = TrainingArguments(tempfile.mkdtemp(), **values, **quiet)
    rows = [{"input_ids": one, "attention_mask": [1] * len(one)} for one in ids]
    Trainer(model, arguments, train_dataset=rows, data_collator=collate, callbacks=[clock]).train()
    return clock.times[-1] - clock.times[SKIPPED - 1], sum(counts[SKIPPED : options.steps])


def one_turn(options: argparse.Namespace) -> dict[str, float]:
    """Train one arm in this process and return its measures."""
    import torch

    from dana.train.hf_trainer import load_model

    torch.set_num_threads(options.threads)
    model, tokenizer = load_model(options.model)
    texts = [text for text in read_texts(20_000, 0, False) if len(text) < 8 * options.max_tokens]
    ids = tokenizer(
        texts[: options.batch_size * options.steps], truncation=True, max_length=options.max_tokens
    )
    ids = ids["input_ids"]
    order = np.random.default_rng(0).permutation(len(ids))
    ids = [ids[row] for row in order]
    arm = (
        train_dana(model, ids, options)
        if options.arm == "dana"
        else train_stock(model, tokenizer, ids, options)
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"tokens_per_second": arm[1] / arm[0], "peak_mb": peak / 1024}


def main() -> None:
    """Run the arms in turns; print medians and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", default="smollm2", help="a decoder: a folder, a Hub name, or smollm2"
    )
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--micro-batch-tokens", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bf16", action="store_true", help="by autocast; else float32")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--arm", choices=["stock", "dana"], help="train this arm only, and print JSON"
    )
    options = parser.parse_args()
    if options.arm:
        print(json.dumps(one_turn(options)))
        return
    take_turns(__file__, options, ACCELERATE_MIXED_PRECISION="bf16" if options.bf16 else "no")


if __name__ == "__main__":
    main()
