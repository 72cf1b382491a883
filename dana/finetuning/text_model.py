"""Label texts with any saved model: the result of a run, or a classifier that was fine-tuned alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dana.core.errors import ArtifactError, PluginError
from dana.core.files import read_unmixed, restore_folder
from dana.core.logging import get_logger
from dana.finetuning.encoded_split import EncodedSplit
from dana.finetuning.likeness import HASHED_WORDS, Likeness
from dana.finetuning.loop import predict, two_rows
from dana.finetuning.result_model import ResultModel, is_result, open_result
from dana.finetuning.saved import SavedClassifier, open_classifier
from dana.models.classifier import Classifier
from dana.tasks.columns import Columns
from dana.tasks.examples import Example, joined_texts
from dana.tasks.kinds.base import Kind
from dana.train.execution import Precision, make_accelerator
from dana.train.trial import try_precision

log = get_logger(__name__)

MODEL = "model"  # in a run's folder
FILES_OF_A_RUN = ("recipe.yaml", "card.yaml", "steps")


class Answers(NamedTuple):
    """What a model says of some texts.

    Attributes:
        outputs: Probabilities or values, float32 of shape (units, outputs).
        sizes: Units of each text: 1, or its words.
        unlike: Whether each text is unlike what the model was trained on; None where it cannot say.
        cut: Number of texts that were longer than the model reads, or as long.
    """

    outputs: np.ndarray
    sizes: np.ndarray
    unlike: np.ndarray | None
    cut: int


@dataclass
class TextModel:
    """A model that labels texts.

    Attributes:
        name: Folder or Hub name.
        kind: Kind of its labels.
        columns: Where texts stand in the table that it was trained on.
        reads_pairs: Whether it reads two texts; None if that is not known.
        warning: Why not to trust it; empty if there is no reason.
        linear: A scikit-learn pipeline.
        classifier: A fine-tuned model, if there is no pipeline.
        likeness: Tells which texts are unlike those that it was trained on.
    """

    name: str
    kind: Kind
    columns: Columns
    reads_pairs: bool | None
    warning: str = ""
    linear: ResultModel | None = None
    classifier: SavedClassifier | None = None
    likeness: Likeness | None = None
    _tried: Precision | None = field(default=None, init=False, repr=False, compare=False)

    @cached_property
    def _launched(self) -> Precision:
        """Device and precision of this process."""
        return Precision.without_scaler(make_accelerator())

    def _precision(self, module: Classifier, inputs: EncodedSplit) -> Precision:
        """Return the precision in which the fine-tuned model runs, tried on the first texts."""
        if self._tried is None:
            forward = two_rows(module, inputs, self._launched.device)
            self._tried = try_precision(self._launched, module, forward, trains=False)
        return self._tried

    @property
    def longest(self) -> int | None:
        """The most tokens of a text that it reads; None if there is no limit."""
        if self.classifier is not None:
            return self.classifier.longest
        assert self.linear is not None
        if self.linear.description.windows is not None:
            return None
        return self.linear.description.max_tokens

    def label(self, examples: Sequence[Example]) -> Answers:
        """Label texts.

        Args:
            examples: The texts; their labels are not read.
        """
        if self.classifier is not None:
            return self._label_by_classifier(self.classifier, examples)
        assert self.linear is not None
        texts = joined_texts(examples)
        encoder = self.linear.encoder
        inputs: Any = texts
        cut = 0
        if encoder is not None:
            inputs = encoder.encode(texts).cpu().numpy()
            cut = encoder.count_cut(texts)
        outputs = self.linear.linear_outputs(inputs)
        unlike = None
        if self.likeness is not None:
            is_encoded = encoder is not None
            unlike = self.likeness.is_unlike(inputs if is_encoded else _hashed(texts))
        return Answers(outputs, np.ones(len(texts), dtype=np.int64), unlike, cut)

    def _label_by_classifier(
        self, classifier: SavedClassifier, examples: Sequence[Example]
    ) -> Answers:
        """Label texts by a fine-tuned model."""
        module = classifier.module.to(self._launched.device)
        inputs = EncodedSplit.from_examples(
            list(examples),
            classifier.tokenizer,
            classifier.max_tokens,
            classifier.markers,
            classifier.windows,
        )
        precision = self._precision(module, inputs)
        outputs = predict(module, inputs, self.kind, precision)
        cut = inputs.count_cut(classifier.max_tokens)
        unlike = None
        if self.likeness is not None:
            unlike = self.likeness.is_unlike(_hashed(joined_texts(examples)))
        return Answers(outputs, inputs.sizes, unlike, cut)


def _hashed(texts: Sequence[str]) -> np.ndarray:
    return HASHED_WORDS.encode(texts).numpy()


def find_model(name: str) -> str:
    """Return the folder of the model that a name means: a run's folder, a model's, or a name of the Hub.

    A model whose replacement was killed is restored.

    Raises:
        ArtifactError: If a run has no model yet.
    """
    folder = restore_folder(Path(name))
    if is_result(folder):
        return str(folder)
    inside = restore_folder(folder / MODEL)
    if is_result(inside):
        return str(inside)
    if any((folder / file).exists() for file in FILES_OF_A_RUN):
        raise ArtifactError(f"{name}: this run has no {MODEL} yet; make it with: dana run {name}")
    return str(folder) if folder != Path(name) else name


def open_text_model(name: str) -> TextModel:
    """Open the model of a run, a model that ``dana finetune --save`` kept, or a classifier of transformers.

    Args:
        name: Folder of a run or of a model, or Hub name.

    Raises:
        ArtifactError: If there is none, or a file of it is missing or damaged.
    """
    where = find_model(name)
    return read_unmixed(Path(where), lambda: _open(where))


def _open(where: str) -> TextModel:
    """Open a model whole, so that nothing of it is read later, when another may be in its place."""
    folder = Path(where)
    if not is_result(folder):
        classifier = open_classifier(where)
        return TextModel(where, classifier.kind, Columns(), None, classifier=classifier)
    result = open_result(folder)
    if result.encoder is not None:
        result.encoder.encode([])  # loads the network, which it would do at the first text
    description = result.description
    columns = description.columns
    return TextModel(
        where,
        description.label_kind,
        columns,
        columns.text_pair is not None,
        str(description.notes.get("warning", "")),
        None if result.classifier is not None else result,
        result.classifier,
        _open_likeness(folder),
    )


def _open_likeness(folder: Path) -> Likeness | None:
    """Open the detector of unlike texts; None if there is none, or its package is not here."""
    try:
        return Likeness.load(folder)
    except PluginError as error:
        log.warning("%s: which texts are unlike its training texts is not said: %s", folder, error)
        return None
