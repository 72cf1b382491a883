"""Fine-tune an encoder on pairs of labelled texts, then fit a linear head to its vectors.

The pairs are all pairs of a batch, whose texts are drawn evenly from the classes. The cosine of the vectors of
two texts is drawn to 1 if they have the same class and to 0 if they do not (Tunstall et al. 2022, Efficient
few-shot learning without prompts, section 3: SetFit). SetFit encodes two texts for each pair; a batch of n texts
that are encoded once has n (n - 1) / 2.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dana.core.config import require
from dana.core.rng import derive_seed, generator, torch_seed
from dana.finetuning.loop import SeedTraining, passes_of
from dana.models.classifier import Classifier, new_linear_classifier
from dana.tasks.card import TaskCard
from dana.tasks.kinds.base import Kind
from dana.tasks.kinds.single_label import SingleLabel
from dana.tasks.settings import Preset

LEAST_OF_CLASS = 2  # texts that have a pair
UNSEEN_LOGIT = -30.0  # of a class without a training text: a probability of 1e-13


class ContrastiveTraining(SeedTraining):
    """The training of one seed by pairs; see :class:`dana.finetuning.loop.SeedTraining`."""

    version = 1
    auto_preset: ClassVar[Mapping[str, Any]] = {
        "epochs": 3,
        "steps": 100,
        "batch_size": 32,
        "learning_rate": 1e-4,
        "pooling": "mean",
    }

    @classmethod
    def trains(cls, kind: Kind) -> bool:
        """Return whether each text has one class of several, which tells the pairs."""
        return isinstance(kind, SingleLabel) and len(kind.outputs) > 1

    @classmethod
    def lacks(cls, labels: Sequence[Any]) -> str:
        """Say that there is no pair of texts of one class, or none of two classes; else empty."""
        _, sizes = np.unique(np.asarray(labels), return_counts=True)
        if len(sizes) > 1 and sizes.max() >= LEAST_OF_CLASS:
            return ""
        texts = f"{len(labels)} training texts, in classes: {len(sizes)}"
        return f"{texts}, have no pair of one class and another of two"

    @classmethod
    def check_task(cls, card: TaskCard, preset: Preset) -> None:
        """Refuse a task whose texts do not have one class each, and a pooling of one token.

        Raises:
            ConfigError: Says why.
        """
        left_out = f"left out for kind={card.kind}: pairs are told by the one class of each text"
        require(cls.trains(card.label_kind), "method", "contrastive", left_out)
        require(preset.pooling != "cls", "pooling", preset.pooling, "mean or markers")

    @classmethod
    def make_classifier(
        cls, model: str, card: TaskCard, kind: Kind, preset: Preset, seed: int
    ) -> Classifier:
        """Load a checkpoint with a linear head over pooled tokens, which is fitted after the encoder.

        Raises:
            ArtifactError: If the checkpoint cannot be used.
        """
        return new_linear_classifier(model, len(kind.outputs), preset.pooling)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.classes = self.train_labels
        present = np.unique(self.classes)
        self.rows_of_classes = [np.flatnonzero(self.classes == one) for one in present]
        lack = self.lacks(self.classes.tolist())
        require(not lack, "method", "contrastive", f"left out: {lack}")

    def batches(self) -> Iterator[np.ndarray]:
        """Yield the rows of every step: equally many texts of each class, as far as it has them.

        Of more classes than half the batch, so many are drawn that each has two texts.
        """
        size = max(self.preset.batch_size, 2 * LEAST_OF_CLASS)
        for step in range(self.epochs * self.steps_of_epoch):
            random = generator(self.seed, "finetune", "pairs", step)
            drawn = random.permutation(len(self.rows_of_classes))[: size // LEAST_OF_CLASS]
            share = size // drawn.size
            parts = [random.permutation(self.rows_of_classes[number])[:share] for number in drawn]
            yield np.concatenate(parts)

    def losses(self, batch: tuple[int, np.ndarray]) -> list[Tensor]:
        """Compute the loss of the pairs of a step, given its number and rows."""
        step, rows = batch
        self.calls.check_in()
        self.classifier.train()
        device = self.precision.device
        classes = torch.from_numpy(self.classes[rows]).to(device)
        dropout_seed = derive_seed(self.seed, "finetune", "dropout", step)
        with torch_seed(dropout_seed, device), self.precision.autocast():
            vectors = self.classifier.vectors(*self.train.batch(rows, device))
        return [pair_loss(vectors.float(), classes)]

    def dev_score(self) -> float:
        """Fit the head to the vectors of the training texts, and score the development split."""
        self._fit_head()
        return super().dev_score()

    def _fit_head(self) -> None:
        """Fit the head by logistic regression.

        The vectors are divided by their mean length, so that the strength of the regularisation, 1, means the
        same for every encoder; on the texts that the encoder was tuned on, no strength could be chosen.
        """
        from sklearn.linear_model import LogisticRegression

        vectors = self._training_vectors()
        scale = float(np.linalg.norm(vectors, axis=1).mean())
        head = LogisticRegression(max_iter=1000, class_weight=self.card.class_weight)
        head.fit(vectors / scale, self.classes)
        weights = head.coef_
        biases = head.intercept_
        if len(head.classes_) == 2:  # one logit, of the second class
            weights = np.concatenate([-weights / 2, weights / 2])
            biases = np.concatenate([-biases / 2, biases / 2])
        out = self.classifier.out
        seen = torch.from_numpy(head.classes_).to(out.weight.device)
        with torch.no_grad():
            out.weight.zero_()
            out.bias.fill_(UNSEEN_LOGIT)
            out.weight[seen] = torch.from_numpy(weights / scale).to(out.weight)
            out.bias[seen] = torch.from_numpy(biases).to(out.bias)

    @torch.no_grad()
    def _training_vectors(self) -> np.ndarray:
        """Encode the training texts, in their order."""
        self.classifier.eval()
        device = self.precision.device
        texts = len(self.train.tokens)
        vectors: np.ndarray = np.empty((texts, self.classifier.out.in_features))
        for rows in passes_of(self.train):
            self.calls.check_in()
            with self.precision.autocast():
                encoded = self.classifier.vectors(*self.train.batch(rows, device))
            vectors[rows] = encoded.float().cpu().numpy()
        return vectors


def pair_loss(vectors: Tensor, classes: Tensor) -> Tensor:
    """Compute the loss of all pairs of a batch.

    The squared error of a pair's cosine from 1, or from 0, is averaged over the pairs of one class and over
    those of two, and both means count alike; without pairs of a kind, the other is the loss.

    Args:
        vectors: Shape (texts, width).
        classes: int64 of shape (texts,).

    Returns:
        A scalar.
    """
    unit = torch.nn.functional.normalize(vectors, dim=1)
    cosines = unit @ unit.T
    first, second = torch.triu_indices(len(classes), len(classes), 1, device=classes.device)
    is_same = classes[first] == classes[second]
    errors = (cosines[first, second] - is_same.float()) ** 2
    means = [errors[part].mean() for part in (is_same, ~is_same) if bool(part.any())]
    return torch.stack(means).mean()
