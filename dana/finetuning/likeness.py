"""Say how much of new text is unlike the texts that a model was trained on.

A detector is fitted to vectors of the training texts. A text is unlike them if its score is above
that of 95 % of training texts which were held out of a fit. Vectors are those of the model's own
encoder; of a model without one, hashed words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dana.core import tensors
from dana.core.artifacts import read_json
from dana.core.errors import ArtifactError, DataError
from dana.core.logging import get_logger
from dana.core.registry import DETECTORS
from dana.detectors.base import fit_detector
from dana.encoders.geometry import FittedGeometry, parse_geometry
from dana.encoders.hashing import HashingEncoder
from dana.encoders.transformer import TransformerEncoder
from dana.finetuning.probe import fold_numbers, group_numbers, text_keys
from dana.finetuning.result_model import ENCODER, VECTORS, Description, how_to_replace
from dana.tasks.examples import Example, joined_texts

log = get_logger(__name__)

NAME = "likeness"
CONTRASTIVE = "density_ratio"  # where there is pool text
ONE_CLASS = "knn"
HASHED_WORDS = HashingEncoder(4096, 1)  # of 512 hashed words and pairs, it told less apart
FOLDS = 5
QUANTILE = 0.95
LONGEST = 256  # tokens of an encoder whose model does not say
FEWEST_TEXTS = 20  # with fewer held-out texts that quantile is their highest score


@dataclass(frozen=True)
class Likeness:
    """A detector of the texts that are unlike a model's training texts.

    Attributes:
        detector: Its spec.
        fitted: The fitted detector.
        geometry: What is done to vectors before.
        limit: Score above which a text is unlike: the quantile of held-out training texts.
    """

    detector: str
    fitted: Any
    geometry: FittedGeometry
    limit: float

    def is_unlike(self, vectors: np.ndarray) -> np.ndarray:
        """Return which texts are unlike the training texts.

        Args:
            vectors: Shape (texts, width), of the encoder of the training texts.
        """
        return _scores(self.fitted, self.geometry, vectors) > self.limit

    def save(self, folder: Path) -> None:
        """Write the detector as JSON and safetensors."""
        tensors.save_tensors(self.fitted, folder, NAME, detector=self.detector, limit=self.limit)
        tensors.save_tensors(self.geometry, folder, f"{NAME}-geometry")

    @classmethod
    def load(cls, folder: Path) -> "Likeness | None":
        """Read what :meth:`save` wrote; None if there is nothing.

        Raises:
            ArtifactError: If a file is missing or damaged.
            PluginError: If the detector is not installed.
        """
        file = folder / f"{NAME}.json"
        if not file.is_file():
            return None
        try:
            content = read_json(file)
            if not isinstance(content, dict) or not {"detector", "limit"} <= content.keys():
                raise ArtifactError(f"{file}: damaged: no detector")
            spec = str(content["detector"])
            fitted = tensors.load_tensors(DETECTORS.create(spec).fitted_type, folder, NAME)
            geometry = tensors.load_tensors(FittedGeometry, folder, f"{NAME}-geometry")
        except ArtifactError as error:
            raise ArtifactError(f"{error}; {how_to_replace(folder)}") from error
        return cls(spec, fitted, geometry, float(content["limit"]))


def vectors_of(folder: Path, texts: Sequence[str]) -> np.ndarray:
    """Return the vectors by which a saved model tells texts apart, shape (texts, width).

    Args:
        folder: Folder of the model (:mod:`dana.finetuning.result_model`).
        texts: Texts, of a pair both (:func:`dana.tasks.examples.joined_texts`).
    """
    description = Description.read(folder)
    encoder: Any = HASHED_WORDS
    if description.form == VECTORS:
        longest = description.max_tokens or LONGEST
        encoder = TransformerEncoder.of_checkpoint(
            str(folder / ENCODER), longest, description.windows
        )
    vectors: np.ndarray = encoder.encode(texts).cpu().numpy()
    return vectors


def save_likeness(
    folder: Path,
    examples: Sequence[Example],
    pool: Sequence[str] = (),
    detector: str | None = None,
    seed: int = 0,
) -> Likeness | None:
    """Fit a detector to the texts that a saved model was trained on, and save it beside the model.

    Args:
        folder: Folder of the model (:mod:`dana.finetuning.result_model`).
        examples: The labelled texts that it was fitted to.
        pool: Other documents, of which pieces as long as the labelled texts are the background of
            a contrastive detector; about a thousand are enough.
        detector: Spec of the detector; None takes ``density_ratio`` where there is pool text, else
            ``knn``.
        seed: Seed of the fits.

    Returns:
        The detector; None where there are too few texts to say.
    """
    texts = joined_texts(examples)
    vectors = vectors_of(folder, texts)
    background = None
    if pool:
        background = vectors_of(folder, _pieces(pool, texts))
    strata = np.zeros(len(texts), dtype=np.int64)
    folds = fold_numbers(text_keys(examples), strata, group_numbers(examples), FOLDS, seed)
    spec = detector or (ONE_CLASS if background is None else CONTRASTIVE)
    try:
        likeness = fit_likeness(vectors, folds, spec, background, seed)
    except DataError as error:  # of texts that are nearly all equal
        log.info("which texts are unlike the training texts will not be said: %s", error)
        return None
    if likeness is not None:
        likeness.save(folder)
    return likeness


def _pieces(documents: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Cut a piece out of the middle of each document, as long in words as one of the texts.

    Else a detector would tell long texts from short ones.
    """
    lengths = [max(1, len(text.split())) for text in texts]
    pieces = []
    for number, document in enumerate(documents):
        words = document.split()
        length = lengths[number % len(lengths)]
        first = max(0, (len(words) - length) // 2)
        pieces.append(" ".join(words[first : first + length]))
    return [piece for piece in pieces if piece]


def fit_likeness(
    vectors: np.ndarray,
    folds: np.ndarray,
    detector: str = ONE_CLASS,
    background: np.ndarray | None = None,
    seed: int = 0,
) -> Likeness | None:
    """Fit a detector to the vectors of training texts, and find the score that few held-out ones exceed.

    Args:
        vectors: Vectors of the training texts, shape (texts, width).
        folds: Number of each text's fold, shape (texts,); each fold is scored by a fit to the
            others. Texts of a group share one.
        detector: Spec of the detector.
        background: Vectors of pool text, for a contrastive detector.
        seed: Seed of the fits.

    Returns:
        The detector, fitted to the texts outside the last fold; None with fewer than 20 texts or
        than two folds, or where all texts are equal.

    Raises:
        PluginError: If there is no such detector.
        DataError: If a contrastive detector is given no background.
    """
    is_one_fold = len(np.unique(folds)) < 2
    if len(vectors) < FEWEST_TEXTS or is_one_fold or np.ptp(vectors, axis=0).max() == 0:
        return None
    held_out = np.empty(len(vectors))
    for fold in np.unique(folds):
        others = folds != fold
        geometry, fitted = _fit(vectors[others], detector, background, seed)
        held_out[~others] = _scores(fitted, geometry, vectors[~others])
    # A fit to all texts would find new ones nearer than those were that it is compared with.
    return Likeness(detector, fitted, geometry, float(np.quantile(held_out, QUANTILE)))


def _fit(
    vectors: np.ndarray, detector: str, background: np.ndarray | None, seed: int
) -> tuple[FittedGeometry, Any]:
    """Fit the geometry of some vectors, and a detector to them."""
    import torch

    rows = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))
    geometry = parse_geometry("center+l2").fit(rows)
    pool = None
    if background is not None:
        pool = geometry.apply(torch.from_numpy(np.ascontiguousarray(background, np.float32)))
    fitted = fit_detector(DETECTORS.create(detector), geometry.apply(rows), seed, pool)
    return geometry, fitted


def _scores(fitted: Any, geometry: FittedGeometry, vectors: np.ndarray) -> np.ndarray:
    """Score vectors; higher is more unlike."""
    import torch

    rows = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))
    scores: np.ndarray = fitted.score(geometry.apply(rows)).cpu().numpy()
    return scores
