"""Fine-tune an encoder on pairs of labelled texts, then fit a linear head to its vectors.

A batch has equally many texts of each class, and the pairs are all pairs of its texts. The encoder is trained so
that the cosine of the vectors of two texts comes near 1 if they have the same class, and near 0 if they do not
(Tunstall et al. 2022, Efficient few-shot learning without prompts, section 3: SetFit). SetFit encodes two texts
for each pair. Here each text of a batch is encoded once, and n texts give n (n - 1) / 2 pairs.
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

LEAST_OF_CLASS = 2  # texts of a class that make a pair
UNSEEN_LOGIT = -30.0  # logit of a class without a training text, which gives a probability of 1e-13


class ContrastiveTraining(SeedTraining):
    """The training of one seed by pairs.

    The arguments are those of :class:`dana.finetuning.loop.SeedTraining`.

    Attributes:
        classes: Class number of each training text, int64 of shape (texts,).
        rows_of_classes: Rows of the training texts of each class that has any, by ascending class.

    Raises:
        ConfigError: If the training texts do not give both kinds of pairs (:meth:`lacks`).
    """

    version = 1  # raise when the training computes other numbers
    auto_preset: ClassVar[Mapping[str, Any]] = {
        "epochs": 3,
        "steps": 100,
        "batch_size": 32,
        "learning_rate": 1e-4,
        "pooling": "mean",
    }

    @classmethod
    def trains(cls, kind: Kind) -> bool:
        """Return whether each text has one class of several, so that a pair has one class or two."""
        return isinstance(kind, SingleLabel) and len(kind.outputs) > 1

    @classmethod
    def lacks(cls, labels: Sequence[Any]) -> str:
        """Say that training texts lack a pair of one class or a pair of two; empty if they have both.

        Args:
            labels: Class of each training text.
        """
        _, sizes = np.unique(np.asarray(labels), return_counts=True)
        has_two_classes = len(sizes) > 1
        if has_two_classes and sizes.max() >= LEAST_OF_CLASS:
            return ""
        texts = f"{len(labels)} training texts, in classes: {len(sizes)}"
        return f"{texts}, have no pair of one class and another of two"

    @classmethod
    def check_task(cls, card: TaskCard, preset: Preset) -> None:
        """Refuse a task whose texts do not have one class each, and a pooling of one token.

        Raises:
            ConfigError: If the task or the pooling is such a one.
        """
        # The message is "method='contrastive': must be left out for ...".
        left_out = f"left out for kind={card.kind}: pairs are told by the one class of each text"
        require(cls.trains(card.label_kind), "method", "contrastive", left_out)
        require(preset.pooling != "cls", "pooling", preset.pooling, "mean or markers")

    @classmethod
    def make_classifier(
        cls, model: str, card: TaskCard, kind: Kind, preset: Preset, seed: int
    ) -> Classifier:
        """Load a checkpoint with a linear head over pooled tokens.

        The head is 0, whatever the seed, until it is fitted to the vectors of the tuned encoder.

        Raises:
            ArtifactError: If the checkpoint cannot be used.
        """
        return new_linear_classifier(model, len(kind.outputs), preset.pooling)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.classes = self.train_labels
        classes_with_texts = np.unique(self.classes)
        self.rows_of_classes = [
            np.flatnonzero(self.classes == number) for number in classes_with_texts
        ]
        lack = self.lacks(self.classes.tolist())
        require(not lack, "method", "contrastive", f"left out: {lack}")

    def batches(self) -> Iterator[np.ndarray]:
        """Yield the rows of the training split that each step reads.

        A step has equally many texts of each class; a class with fewer gives all it has. If the
        classes are too many for two texts of each, only some of them are drawn.
        """
        size = max(self.preset.batch_size, 2 * LEAST_OF_CLASS)
        most_classes = size // LEAST_OF_CLASS
        for step in range(self.epochs * self.steps_of_epoch):
            random = generator(self.seed, "finetune", "pairs", step)
            drawn_classes = random.permutation(len(self.rows_of_classes))[:most_classes]
            texts_of_class = size // drawn_classes.size
            parts = []
            for number in drawn_classes:
                shuffled_rows = random.permutation(self.rows_of_classes[number])
                parts.append(shuffled_rows[:texts_of_class])
            yield np.concatenate(parts)

    def losses(self, batch: tuple[int, np.ndarray]) -> list[Tensor]:
        """Compute the loss of all pairs of a step as a list of one scalar, with dropout.

        It puts the model into training mode, and calls ``check_in``, which may raise.

        Args:
            batch: Number of the step, from 0, and its rows.
        """
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
        """Fit the head, then compute the task's metric on the development split with it.

        Every epoch needs a head of its own, as the encoder has changed since the last one. The head
        that is fitted here is the one that the model ends with.

        Raises:
            ArtifactError: If outputs of the development split are not finite.
        """
        self._fit_head()
        return super().dev_score()

    def _fit_head(self) -> None:
        """Fit the head to the vectors of the training texts by logistic regression, in place.

        The vectors are divided by their mean length, so that a penalty of strength 1 means the same
        for every encoder. No other strength is chosen: the encoder was tuned on the same texts, and
        they no longer say how it does on others.
        """
        from sklearn.linear_model import LogisticRegression

        vectors = self._training_vectors()
        scale = float(np.linalg.norm(vectors, axis=1).mean())
        model = LogisticRegression(max_iter=1000, class_weight=self.card.class_weight)
        model.fit(vectors / scale, self.classes)
        weights = model.coef_
        biases = model.intercept_
        if len(model.classes_) == 2:
            # scikit-learn then has one logit z, of the second class. The softmax of -z / 2 and z / 2
            # gives the same probabilities.
            weights = np.concatenate([-weights / 2, weights / 2])
            biases = np.concatenate([-biases / 2, biases / 2])
        out = self.classifier.out
        fitted_classes = torch.from_numpy(model.classes_).to(out.weight.device)
        with torch.no_grad():
            out.weight.zero_()
            out.bias.fill_(UNSEEN_LOGIT)
            # The head reads vectors that are not divided, so its weights are.
            out.weight[fitted_classes] = torch.from_numpy(weights / scale).to(out.weight)
            out.bias[fitted_classes] = torch.from_numpy(biases).to(out.bias)

    @torch.no_grad()
    def _training_vectors(self) -> np.ndarray:
        """Encode the training texts without dropout, float64 of shape (texts, width).

        It leaves the model in evaluation mode.
        """
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

    The error of a pair is the squared difference of its cosine from 1 if its texts have one class,
    else from 0. The errors of the pairs of one class are averaged, and so are those of the pairs of
    two; the loss is the mean of both averages. If the batch has pairs of one kind alone, it is
    their average.

    Args:
        vectors: Shape (texts, width), of at least two texts.
        classes: int64 of shape (texts,).

    Returns:
        A scalar.
    """
    unit_vectors = torch.nn.functional.normalize(vectors, dim=1)
    cosines = unit_vectors @ unit_vectors.T
    first, second = torch.triu_indices(len(classes), len(classes), 1, device=classes.device)
    is_same = classes[first] == classes[second]
    targets = is_same.float()
    errors = (cosines[first, second] - targets) ** 2
    averages = []
    for is_of_kind in (is_same, ~is_same):
        if bool(is_of_kind.any()):
            averages.append(errors[is_of_kind].mean())
    return torch.stack(averages).mean()
