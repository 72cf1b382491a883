"""Texts of a training run: corpus, weights and held-out folders in, examples to train and to measure on out."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.logging import get_logger
from dana.core.schemas import iterate_documents
from dana.core.statistics import effective_sample_size
from dana.train.evaluation import HeldOut, heldout_sample
from dana.train.examples import Examples, SpecialTokens, build_examples
from dana.train.objectives.base import Objective
from dana.train.plan import Plan
from dana.train.settings import TrainSettings
from dana.train.tokens import Tokens

log = get_logger(__name__)

OVERFIT_FROM = 20  # times through the same text, from which on it is learnt by heart rather than learnt from
MANY_EPOCHS = (
    "the run goes {epochs:,.0f} times through the {examples:,} examples that were kept: it will know them by heart. "
    "Keep more text (a larger beta), train shorter (epochs=3), or mix in general text (replay=0.5)"
)


def training_examples(
    tokens: Tokens,
    weights: Path | None,
    exclude: Collection[str],
    special_tokens: SpecialTokens,
    settings: TrainSettings,
) -> tuple[Examples, dict[str, int]]:
    """What the weights keep of a corpus, with what is replayed of the rest.

    Returns:
        The examples, and counts of documents, runs, windows and tokens; see
        :func:`dana.train.examples.build_examples`, which also says what is refused.
    """
    examples, counts = build_examples(tokens, weights, special_tokens, settings.max_tokens, exclude)
    if settings.replay and weights is None:
        log.info("replay    none: without weights the run is on the corpus as it is")
    elif settings.replay:
        general, _ = build_examples(tokens, None, special_tokens, settings.max_tokens, exclude)
        examples, counts = examples.with_replay(general), {**counts, "windows_to_replay": len(general)}
    return examples, counts


def heldout_examples(
    folders: Mapping[str, Path], objective: Objective, tokenizer: Any, settings: TrainSettings
) -> HeldOut:
    """A fixed sample of at most ``evaluation_tokens`` tokens of each folder of documents, for an objective."""
    collator, texts = objective.heldout_collator(tokenizer), {}
    for name, folder in folders.items():
        tokens = Tokens.of(iterate_documents(folder), tokenizer)
        everything, _ = build_examples(tokens, None, collator.special_tokens, settings.max_tokens)
        texts[name] = heldout_sample(everything, settings.evaluation_tokens)
    return HeldOut(texts, collator)


def about_examples(examples: Examples, plan: Plan) -> dict[str, Any]:
    """What the manifest says of a run's examples and of how often it goes through them; warns of very often."""
    kept, epochs = examples.kept_weights, plan.epochs
    histogram, _ = np.histogram(kept, bins=10, range=(0.0, 1.0))
    size = effective_sample_size(kept)
    log.info("weights   %d examples count as %.0f; by tenths from 0 to 1: %s", kept.size, size, histogram)
    warnings = [MANY_EPOCHS.format(epochs=epochs, examples=kept.size)] if epochs >= OVERFIT_FROM else []
    for warning in warnings:
        log.warning("%s", warning)
    return {
        "effective_sample_size": size,
        "weight_histogram": histogram.tolist(),
        "epochs": round(epochs, 3),
        "warnings": warnings,
    }
