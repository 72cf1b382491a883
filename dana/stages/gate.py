"""Measure, before a model is adapted on selected text, what that text could teach it."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from scipy.spatial.distance import jensenshannon

from dana.core.artifacts import Artifact, Draft, make_on_all_ranks, read_manifest
from dana.core.schemas import DOCUMENTS, iterate_documents, table_identity
from dana.core.scripts import WordPattern
from dana.models.folder import model_identity
from dana.models.known_text import read_known_text
from dana.stages.training import TrainingData, folder_text
from dana.train.examples import Examples
from dana.train.execution import make_accelerator
from dana.train.loop import prepare
from dana.train.run import base_losses, heldout_examples
from dana.train.settings import AdaptSettings

WORDS = 20_000  # of each text, so that the distances of tasks have the same bias
_WORD = WordPattern(r"\w+")


def gate_stage(
    model: str,
    pool: Path,
    weights: Path,
    target_heldout: Path,
    pool_heldout: Path,
    settings: AdaptSettings,
    out: Path,
) -> Artifact:
    """Measure what selected text could teach a model, and write it into a manifest.

    Whether any of this predicts the outcome has not been shown; docs/results/adaptation.md has
    both.

    Args:
        model: Folder with safetensors, or Hub name.
        pool: Folder of a pool artifact.
        weights: Folder of its weights.
        target_heldout: Folder of held-out target documents; the task's other text is in the folder
            ``fit`` beside it.
        pool_heldout: Folder of held-out pool documents.
        settings: Settings of the training, of which the model's masks and lengths are used.
        out: Folder of the artifact.

    Returns:
        The artifact. Its manifest has ``base_losses`` (:func:`dana.train.run.base_losses`),
        ``known_to_base``, the share of the text that the model was trained on, ``in_domain``, the
        share of the pool that scores like the task, and ``vocabulary``, the distance of the words
        of target and pool text (:func:`word_distance`); None is unknown.

    Raises:
        ArtifactError: If an input is missing or damaged.
    """
    data = TrainingData(pool, weights, target_heldout, pool_heldout, {"selected": 1.0})
    objective, fit = settings.make_objective(), data.task
    of_loss = {
        name: getattr(settings, name) for name in ("seed", "max_tokens", "evaluation_tokens")
    }
    depends_on = {
        "model": model_identity(model),
        **data.identity(),
        "fit": table_identity(fit, DOCUMENTS),
    }

    def write(draft: Draft | None) -> None:
        documents = read_known_text(model)
        losses = {}
        if not objective.has_own_head:
            losses = _losses_of_base(model, data, settings)
        if draft is not None:
            share_of_pool = read_manifest(weights).get("in_domain", {}).get("pool", {}).get("value")
            share = None if documents is None else data.overlap(documents)[0]
            draft.notes |= {**losses, "known_to_base": share, "in_domain": share_of_pool}
            draft.notes["vocabulary"] = word_distance(fit, pool_heldout)

    return make_on_all_ranks(
        out, "gate", {**depends_on, "settings": of_loss | objective.decisive()}, write
    )


def _losses_of_base(model: str, data: TrainingData, settings: AdaptSettings) -> dict[str, Any]:
    """Measure the loss of the base on the selected text and on random text of the pool."""
    objective = settings.make_objective()
    language_model = objective.prepare_model(model, settings.seed)
    tokenizer = language_model.tokenizer
    pool = folder_text(data.pool_heldout, tokenizer)
    heldout = heldout_examples({"pool": pool}, objective, tokenizer, settings)
    make = partial(objective.examples, tokenizer=tokenizer, max_tokens=settings.max_tokens)
    examples, _ = data.examples(tokenizer, make)
    assert isinstance(examples, Examples)  # of an objective without a head of its own
    state = prepare(language_model.model, settings, make_accelerator())
    return base_losses(state, heldout.with_selected(examples, settings.evaluation_tokens))


def word_distance(first: Path, second: Path) -> float | None:
    """Compute the Jensen-Shannon distance of the words of two folders of documents: 0 alike, 1 none in common.

    It is None if one of them has no word.

    References:
        Endres and Schindelin 2003, A new metric for probability distributions.
    """
    counts = [Counter(islice(_words(folder), WORDS)) for folder in (first, second)]
    if not all(counts):
        return None
    words = counts[0] | counts[1]
    return float(jensenshannon(*([count[word] for word in words] for count in counts), base=2))


def _words(folder: Path) -> Iterator[str]:
    for document in iterate_documents(folder):
        yield from _WORD.findall(document.text.lower())
