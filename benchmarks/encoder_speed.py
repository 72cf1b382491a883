"""How many sentences a second does a transformer encoder take, and how long does the device wait for tokens?

    python benchmarks/encoder_speed.py [MODEL ...] [--sentences N] [--dtype bfloat16] [--batch-tokens N ...]

MODEL: ``minilm`` (packaged weights), ``bert-base`` and ``tiny`` (random weights, MiniLM's tokenizer); on a GPU the
first two, on a CPU ``minilm`` and ``tiny``, by which tokenising takes much of the time. Sentences are generated: words
of the vocabulary, 20 on average. They are encoded 8,192 at a time, as ``dana score`` does; then each vector is scored
by kNN against 1,000 of them, on the same device.

``one by one``: a batch is tokenised, then computed. ``ahead``: a thread tokenises the next ones meanwhile. Both take
turns; medians. ``busy``: time of encoder and detector over time by the clock; on a GPU theirs is the time between CUDA
events before and after each batch, so gaps between its kernels count as busy. ``real``: tokens that are neither padding
nor fillers, of all that are computed.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from dana.core.device import device_named
from dana.core.prefetch import prefetch
from dana.core.registry import DETECTORS
from dana.encoders import batches
from dana.encoders.minilm import minilm, minilm_folder
from dana.encoders.transformer import TransformerEncoder

SHAPES = {"bert-base": (768, 12, 12), "tiny": (32, 1, 2)}  # width, layers, heads
BLOCK = 8192
FITTED = 1000


def sentences(count: int) -> list[str]:
    """Generated ones, the same on every machine."""
    random = np.random.default_rng(0)
    words = np.array(sorted(word for word in minilm().tokenizer.get_vocab() if word.isalpha() and len(word) > 2))
    lengths = np.clip(random.lognormal(2.8, 0.6, count), 3, 200).astype(int)
    return [" ".join(random.choice(words, length)) for length in lengths]


def folder_of(model: str, work: Path) -> str:
    """The checkpoint of a name, made where it has random weights."""
    if model == "minilm":
        return str(minilm_folder())
    from transformers import BertConfig, BertModel

    width, layers, heads = SHAPES[model]
    shape = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    torch.manual_seed(0)
    BertModel(BertConfig(**shape, intermediate_size=4 * width)).save_pretrained(work / model)
    minilm().tokenizer.save_pretrained(work / model)
    return str(work / model)


@contextmanager
def made(ahead: bool, device: torch.device) -> Iterator[None]:
    """Batches made by a thread or not, whatever the device."""
    plain = batches.token_batches
    if ahead and device.type == "cpu":
        with patch.object(batches, "token_batches", lambda *given: prefetch(plain(*given), batches.AHEAD)):
            yield
    elif not ahead and device.type != "cpu":
        with patch.object(batches, "prefetch", lambda items, depth: items):
            yield
    else:
        yield


class Clock:
    """Seconds that a device spends between the begin and the end of each call of a function."""

    def __init__(self, device: torch.device) -> None:
        self.on_gpu, self.spans = device.type == "cuda", []

    def _now(self) -> Any:
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def watch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, its calls on the clock."""

        def watched(*given: Any) -> Any:
            begin = self._now()
            found = function(*given)
            self.spans.append((begin, self._now()))
            return found

        return watched

    def seconds(self) -> float:
        """Of all calls; the device has finished them."""
        return sum(begin.elapsed_time(end) / 1000 if self.on_gpu else end - begin for begin, end in self.spans)


def turn(encoder: TransformerEncoder, texts: list[str], fitted: Any, device: torch.device) -> tuple[float, float]:
    """Seconds by the clock to scores in the host's memory, and the share of them that model and detector take."""
    clock = Clock(device)
    with patch.dict(encoder.__dict__, {"_pool": clock.watch(encoder._pool)}):
        started = time.perf_counter()
        for first in range(0, len(texts), BLOCK):
            clock.watch(fitted.score)(encoder.encode(texts[first : first + BLOCK])).cpu()
        spent = time.perf_counter() - started
    return spent, clock.seconds() / spent


def real_share(encoder: TransformerEncoder, texts: list[str], most: int) -> float:
    """Share of the computed tokens that are of a text."""
    real = computed = 0
    for first in range(0, len(texts), BLOCK):
        for batch in batches.token_batches(encoder.tokenizer, texts[first : first + BLOCK], encoder.max_tokens, most):
            real += int(batch.mask[: len(batch.rows)].sum())
            computed += batch.mask.numel()
    return real / computed


def main() -> None:
    """Print a row a model, size of batches and way."""
    device = device_named()
    on_gpu = device.type == "cuda"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["minilm", "bert-base" if on_gpu else "tiny"])
    parser.add_argument("--sentences", type=int, default=65_536 if on_gpu else 1024)
    parser.add_argument("--batch-tokens", type=int, nargs="+", default=[8192])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    texts = sentences(options.sentences)
    print(torch.cuda.get_device_name() if on_gpu else f"CPU, {torch.get_num_threads()} threads", options.dtype)
    print(f"{'model':<10} {'batch':>7} {'real':>6} {'way':>11} {'sent./s':>9} {'busy':>6}")
    with tempfile.TemporaryDirectory() as work:
        for model in options.models:
            folder = folder_of(model, Path(work))
            for most in options.batch_tokens:
                encoder = TransformerEncoder(folder, batch_tokens=most, dtype=options.dtype)
                real = real_share(encoder, texts, most if on_gpu else min(most, batches.CPU_TOKENS))
                fitted = DETECTORS.create("knn").fit(encoder.encode(texts[:FITTED]), 0).to(device)
                found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
                for _ in range(options.turns):
                    for ahead, seen in found.items():
                        with made(ahead, device):
                            seen.append(turn(encoder, texts, fitted, device))
                for ahead, seen in found.items():
                    seconds, busy = (statistics.median(column) for column in zip(*seen, strict=True))
                    way = "ahead" if ahead else "one by one"
                    row = f"{model:<10} {most:>7} {real:>6.1%} {way:>11} {len(texts) / seconds:>9,.0f} {busy:>6.1%}"
                    print(row, flush=True)


if __name__ == "__main__":
    main()
