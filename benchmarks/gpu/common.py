"""Give the scripts their data, shapes, counts of operations, and one JSON line a measurement."""

import json
import os
import time
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import AutoConfig

from dana.models import varlen
from dana.train.operations import OperationCount, peak_of

# Of pack.py, beside the packed scripts, or made up by made_up.py.
DATA = Path(os.environ.get("GPU_DATA", Path(__file__).parent.parent / "data"))
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
TINY = not CUDA  # without a GPU: shapes of a second, to see that each script runs to its end
OUT = Path(os.environ.get("OUT", "."))
VOCABULARY = json.loads((DATA / "minilm" / "config.json").read_text())["vocab_size"]
# Dense, by the datasheet; 798e12 was measured on one H100 SXM, on an 8192 x 8192 product.
BF16_PEAK = peak_of(DEVICE) or 989e12
transformers.logging.set_verbosity_error()
torch.set_num_threads(4 if CUDA else 1)


def say(**values):
    """Print a measurement and append it to $OUT/results.jsonl."""
    line = json.dumps(values)
    print(line, flush=True)
    with (OUT / "results.jsonl").open("a") as file:
        file.write(line + "\n")


def attempt(name, function, *arguments, **more):
    """Run a part of a script; an error is said in one line and the script goes on."""
    try:
        return function(*arguments, **more)
    except Exception as error:
        import traceback

        traceback.print_exc()
        first_line = str(error).partition("\n")[0][:160]
        say(what=name, error=f"{type(error).__name__}: {first_line}")
        if CUDA:
            torch.cuda.empty_cache()
    return None


def sync():
    """Wait until the GPU has done all that it was given."""
    if CUDA:
        torch.cuda.synchronize()


def rows_of(width):
    """Read the texts' token ids, cut at a width: paragraphs for 128, documents for 512.

    Special tokens are included.
    """
    packed = np.load(DATA / f"rows{width}.npz")
    return packed["tokens"], packed["offsets"]


PACKAGED = Path(varlen.__file__).parent / "dana-mini"
LOCAL = {"mini": PACKAGED, "minilm": DATA / "minilm"}


def config_of(arch, dropout):
    """Return BERT-base (110 M), ModernBERT-base (149 M), dana-mini (5 M) or MiniLM's shape (23 M).

    On a CPU it has a few neurons.

    Args:
        arch: bert, modernbert, mini or minilm.
        dropout: Of every layer; None for that of the shape as it is published.
    """
    kind = "bert" if arch in ("bert", "minilm") else "modernbert"
    shape = {"hidden_size": 768, "num_attention_heads": 12}
    if arch in LOCAL:
        shape = AutoConfig.from_pretrained(LOCAL[arch]).to_dict()
        del shape["model_type"]  # which `kind` names
    if TINY:
        shape = {
            "hidden_size": 32,
            "num_attention_heads": 2,
            "num_hidden_layers": 2,
            "intermediate_size": 48,
        }
    names = ("embedding_dropout", "mlp_dropout", "attention_dropout")
    if kind == "bert":
        names = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    rates = {} if dropout is None else dict.fromkeys(names, dropout)
    ids = {"pad_token_id": 0, "vocab_size": VOCABULARY, "max_position_embeddings": 512}
    if kind == "modernbert":
        ids |= {"cls_token_id": 101, "sep_token_id": 102, "bos_token_id": None}
        ids |= {"eos_token_id": None, "vocab_size": VOCABULARY if TINY or arch == "mini" else 50368}
    return AutoConfig.for_model(kind, **{**shape, **ids, **rates})


def new_model(arch, dropout, seed=0):
    """Make a model of random weights on the device."""
    torch.manual_seed(seed)
    with DEVICE:  # two seconds less than on the processor
        return transformers.AutoModelForMaskedLM.from_config(config_of(arch, dropout))


def operations(model, lengths, rate=0.15):
    """Count the floating-point operations a token that a training step needs."""
    labels = round(rate * float(lengths.sum()))
    return OperationCount.of_model(model).of_step(lengths, labels) / float(lengths.sum())


def masking():
    """Return the masking of BERT's vocabulary."""
    from dana.train.objectives.masked import Masking

    special = np.zeros(VOCABULARY, dtype=bool)
    special[[0, 100, 101, 102, 103]] = True
    return Masking(103, special, 0)


def examples_of(width, limit=None):
    """Return the rows as dana's examples of weight 1, and the collator.

    The rows bring their special tokens, so none are added.
    """
    from dana.train.examples import Examples, SpecialTokens
    from dana.train.objectives.masked import MaskedCollator

    tokens, offsets = rows_of(width)
    count = min(limit or 10**9, offsets.size - 1)
    starts, sizes = offsets[:count].astype(np.int64), np.diff(offsets)[:count].astype(np.int64)
    ids = np.random.default_rng(0).integers(0, 2**63, count).astype(np.uint64)
    none = SpecialTokens(np.zeros(0, np.int32), np.zeros(0, np.int32))
    return Examples(tokens, starts, sizes, ids, np.ones(count, np.float32), none), MaskedCollator(
        masking(), none
    )


def busy_share(step, steps=2):
    """Measure the share of time in which the GPU computes, and kernels a step; None on a CPU."""
    if not CUDA:
        return None, None
    from torch.profiler import ProfilerActivity, profile

    sync()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        start = time.monotonic()
        for _ in range(steps):
            step()
        sync()
        seconds = time.monotonic() - start
    kernels = [
        event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA
    ]
    total = sum(event.self_device_time_total for event in kernels) / 1e6
    return round(total / seconds, 3), round(len(kernels) / steps)
