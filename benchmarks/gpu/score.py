"""Measure sentences a second of MiniLM's shape, by dana's encoder and sentence-transformers.

The weights are random; speed does not depend on them.
"""

import gzip
import json
import tempfile
import time
from pathlib import Path

import torch
from common import CUDA, DATA, DEVICE, attempt, say, sync
from transformers import AutoConfig, AutoModel, AutoTokenizer

from dana.encoders.transformer import TransformerEncoder, token_batches

MANY = 40_000 if CUDA else 40


def best_of(function, times=2):
    """Return the seconds of the fastest call, after one that is not counted."""
    function()
    seconds = []
    for _ in range(times):
        sync()
        start = time.monotonic()
        function()
        sync()
        seconds.append(time.monotonic() - start)
    return min(seconds)


def main():
    """Measure tokenising alone, dana and sentence-transformers."""
    with gzip.open(DATA / "sentences.json.gz", "rt", encoding="utf-8") as file:
        sentences = json.load(file)[:MANY]
    tokenizer = AutoTokenizer.from_pretrained(DATA / "minilm")
    few = sentences[: 256 if CUDA else 4]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.manual_seed(0)
        AutoModel.from_config(AutoConfig.from_pretrained(DATA / "minilm")).save_pretrained(folder)
        tokenizer.save_pretrained(folder)

        def tokenise():
            seconds = best_of(lambda: list(token_batches(tokenizer, sentences, 256, 8192)), 1)
            say(
                what="score",
                arm="tokens and batches alone",
                sentences_per_second=round(len(sentences) / seconds),
            )

        attempt("tokenise", tokenise)
        for dtype, tokens in (("float32", 8192), ("bfloat16", 8192), ("bfloat16", 65536)):

            def ours(dtype=dtype, tokens=tokens):
                encoder = TransformerEncoder(str(folder), dtype=dtype, batch_tokens=tokens)
                encoder.encode(few)
                seconds = best_of(lambda: encoder.encode(sentences))
                say(
                    what="score",
                    arm="dana",
                    dtype=dtype,
                    batch_tokens=tokens,
                    sentences_per_second=round(len(sentences) / seconds),
                )

            attempt(f"dana {dtype} {tokens}", ours)

        def theirs():
            from sentence_transformers import SentenceTransformer

            kinds = {"torch_dtype": torch.bfloat16 if CUDA else torch.float32}
            model = SentenceTransformer(
                str(folder), device=str(DEVICE), model_kwargs=kinds
            )  # mean pooling by default
            model.max_seq_length = 256
            seconds = best_of(
                lambda: model.encode(
                    sentences, batch_size=512, convert_to_tensor=True, show_progress_bar=False
                ),
                1,
            )
            say(
                what="score",
                arm="sentence-transformers",
                dtype="bfloat16",
                batch_tokens="512 sentences",
                sentences_per_second=round(len(sentences) / seconds),
            )

        attempt("sentence-transformers", theirs)


main()
