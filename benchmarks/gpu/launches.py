"""Count what a GPU would be given to do in a training step, on a CPU: operators, waits, calls of attention.

    python benchmarks/gpu/launches.py

A step of one pass in bfloat16, for each architecture at the dropout that it is published with and
its number of layers, a few neurons wide. One operator stands in for torch's attention kernel, forward
and backward. The optimizer's operators are in the counts.
"""

import logging
import tempfile
from collections import Counter
from contextlib import nullcontext

import numpy as np
import torch
import transformers
from accelerate import Accelerator
from torch.utils._python_dispatch import TorchDispatchMode

from dana.models import varlen
from dana.models.classifier import new_classifier
from dana.train.examples import Examples, SpecialTokens
from dana.train.half_weights import HalfWeights
from dana.train.layout import BatchLayout
from dana.train.loop import passes_of, prepare, take_step
from dana.train.objectives.causal import CausalCollator
from dana.train.objectives.masked import MaskedCollator, Masking
from dana.train.settings import TrainSettings
from dana.train.supervised import make_optimizer, train_supervised

VOCABULARY = 60
ENDS = SpecialTokens(np.array([2], dtype=np.int32), np.array([3], dtype=np.int32))
MASKED = MaskedCollator(Masking(4, np.arange(VOCABULARY) < 5, seed=0), ENDS)
NO_ENDS = {"bos_token_id": None, "eos_token_id": None}
ROTARY = {**NO_ENDS, "num_key_value_heads": 12, "head_dim": 8, "pad_token_id": 0}
# Layers of the checkpoint, and what its configuration needs at this size.
ENCODERS = {
    "bert": (12, {}),
    "roberta": (12, {"pad_token_id": 1}),
    "xlm-roberta": (12, {"pad_token_id": 1}),
    "electra": (12, {"embedding_size": 96}),
    "distilbert": (6, {"n_layers": 6, "n_heads": 12, "dim": 96, "hidden_dim": 32}),
    "modernbert": (22, {**NO_ENDS, "pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3}),
    "eurobert": (12, {**ROTARY, "mask_token_id": 4}),
}
DECODERS = {
    "llama": (30, ROTARY),
    "qwen3": (28, ROTARY),
    "mistral": (32, ROTARY),
    "gemma": (18, ROTARY),
    "gpt2": (12, NO_ENDS),
}
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique", "bincount", "equal")
NO_WORK = ("empty", "detach", "_unsafe_view", "reshape")


class Kernel(torch.autograd.Function):
    """Stand in for the kernel."""

    @staticmethod
    def forward(context, query, key, value):
        """Return something of the result's shape."""
        return query.clone()

    @staticmethod
    def backward(context, gradient):
        """Return something of the gradients' shapes."""
        return gradient.clone(), gradient, gradient


def kernel_attention(query, key, value, *others):
    """Take the place of :func:`dana.models.varlen.kernel_attention`."""
    return Kernel.apply(*(part[0].transpose(0, 1) for part in (query, key, value))).unsqueeze(0)


class Count(TorchDispatchMode):
    """Count operators that compute something."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Count one call."""
        name = func.overloadpacket.__name__
        if not func.is_view and not name.startswith(NO_WORK):
            self.counts[name] += 1
        if name.startswith("index") and any(map(_is_mask, _indices(args))):
            self.counts["nonzero"] += 1  # within it
        return func(*args, **(kwargs or {}))

    @property
    def launches(self):
        """Operators; a CPU's dropout is three of them, a GPU's one."""
        return sum(self.counts.values()) - 2 * self.counts["bernoulli_"]

    @property
    def waits(self):
        """Operators that the CPU waits for, and the one reading of the loss."""
        return 1 + sum(count for name, count in self.counts.items() if name.startswith(WAITS))


def made_up_examples(count=24):
    """Make examples of random tokens."""
    random = np.random.default_rng(0)
    sizes = random.integers(2, 14, count)
    stream = random.integers(5, VOCABULARY, int(sizes.sum())).astype(np.uint16)
    ids = np.arange(count, dtype=np.uint64)
    return Examples(stream, np.cumsum(sizes) - sizes, sizes, ids, np.ones(count, np.float32), ENDS)


def _indices(arguments):
    return arguments[1] if len(arguments) > 1 and isinstance(arguments[1], list) else []


def _is_mask(part):
    return isinstance(part, torch.Tensor) and part.dtype == torch.bool


def count_step(name, layers, options, objective):
    """Count one step of an architecture; return launches, waits, and calls of attention."""
    shape = {"hidden_size": 96, "num_attention_heads": 12, "intermediate_size": 32}
    shape |= {"max_position_embeddings": 64, "num_hidden_layers": layers, "vocab_size": VOCABULARY}
    config = transformers.AutoConfig.for_model(name, **{**shape, **options})
    auto = transformers.AutoModelForMaskedLM
    collator = MASKED
    if objective == "causal":
        auto = transformers.AutoModelForCausalLM
        collator = CausalCollator(ENDS)
    model = auto.from_config(config)
    varlen.register()
    model.set_attn_implementation(varlen.NAME)
    settings = TrainSettings(max_tokens=16, objective=objective)
    batch = collator.step_batch(made_up_examples().take(np.arange(24)), 0, "batch")
    accelerator = Accelerator(cpu=True)
    shape_of_pass = BatchLayout.from_config(config, 1 << 20, "unpadded", True)
    rows = []
    for half in (False, True):
        state = prepare(model, settings, accelerator, shape_of_pass)
        if half:
            state.half = HalfWeights(state.model)
        passes = passes_of(state, batch)
        take_step(state, batch, 1e-4, 0, settings, passes)
        varlen.calls.clear()
        with Count() as counter:
            take_step(state, batch, 1e-4, 1, settings, passes)
        rows.append(counter)
    plain, half = rows
    return plain.launches, half.launches, half.waits, dict(varlen.calls)


def count_finetuning(name, layers, options):
    """Count one step of fine-tuning of eight texts; return launches by autocast and with half weights, and waits."""
    shape = {"hidden_size": 96, "num_attention_heads": 12, "intermediate_size": 32}
    shape |= {"max_position_embeddings": 64, "num_hidden_layers": layers, "vocab_size": VOCABULARY}
    config = transformers.AutoConfig.for_model(name, **{**shape, **options})
    with tempfile.TemporaryDirectory() as folder:
        transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
        classifier = new_classifier(folder, 3, 0, False, "mean").train()
    optimizer = make_optimizer(classifier, 1e-4, 0.01)
    ids = torch.randint(5, VOCABULARY, (8, 20))
    mask = torch.ones_like(ids)
    mask[0, 15:] = 0
    labels = torch.randint(0, 3, (8,))

    def losses(batch):
        with torch.autocast("cpu", torch.bfloat16):
            logits = classifier(ids, mask)
        return [torch.nn.functional.cross_entropy(logits.float(), labels)]

    counts = []
    for half in (None, HalfWeights(classifier)):
        for counter in (
            nullcontext(),
            Count(),
        ):  # in the first step the optimizer makes its moments
            with counter:
                list(train_supervised(optimizer, [0], losses, lambda step: 1e-4, "step", 1.0, half))
        counts.append(counter.launches)
    return [*counts, counter.waits]


def main():
    """Print a table of all architectures."""
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    varlen.kernel_attention = kernel_attention
    varlen.has_kernel = lambda device: True
    print(f"{'model':<12} layers  launches, autocast  half weights  waits  kernel  product")
    for objective, models in (("masked", ENCODERS), ("causal", DECODERS)):
        for name, (layers, options) in models.items():
            plain, half, waits, calls = count_step(name, layers, options, objective)
            kernel, product = calls.get("kernel", 0), calls.get("product", 0)
            print(
                f"{name:<12} {layers:>6}  {plain:>18}  {half:>12}  {waits:>5}  {kernel:>6}  {product:>7}"
            )
    print("\nfine-tuning, a step of eight texts: launches, autocast and half weights, and waits")
    for title, name, layers in (("MiniLM's layers", "bert", 6), ("dana-mini's", "modernbert", 4)):
        print(f"{title:<16}", *count_finetuning(name, layers, ENCODERS[name][1]))


if __name__ == "__main__":
    main()
