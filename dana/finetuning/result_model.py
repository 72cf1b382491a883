"""Save a classifier of texts into a folder, and open it; nothing is pickled.

==============  ============================================================================
``tfidf``       ``model.skops``: a scikit-learn pipeline from text to label
``vectors``     ``encoder/``: what sentence-transformers opens; ``model.skops``: a scikit-learn
                pipeline from its vectors to label
``fine-tuned``  what transformers opens (:mod:`dana.finetuning.saved`)
==============  ============================================================================

``result.json`` says which form it is, what its labels are, and where texts stand in a table;
``likeness.json`` and ``likeness.safetensors``, if they are there, which texts are unlike those that
it was trained on (:mod:`dana.finetuning.likeness`).

A pipeline predicts the names of labels; for several labels a text, rows of 0 and 1 in the order of
``labels`` in ``result.json``; or numbers. It reads one string a text: of a pair, both texts with a
line break between them (:func:`dana.tasks.examples.joined_texts`).
"""

import shutil
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.artifacts import read_json, write_json
from dana.core.config import require
from dana.core.errors import ArtifactError
from dana.core.logging import get_logger
from dana.encoders.transformer import TransformerEncoder
from dana.finetuning.saved import SavedClassifier, open_classifier
from dana.models.encoder_folder import save_encoder
from dana.tasks.card import TaskCard
from dana.tasks.columns import Columns
from dana.tasks.kinds import find_kind
from dana.tasks.kinds.base import Kind

log = get_logger(__name__)

DESCRIPTION = "result.json"
FORMAT = 1  # raise it with every incompatible change
PIPELINE = "model.skops"
ENCODER = "encoder"
TFIDF = "tfidf"
VECTORS = "vectors"
FINE_TUNED = "fine-tuned"
FORMS = (TFIDF, VECTORS, FINE_TUNED)
# What a pipeline may hold besides what skops trusts: the estimator of a label that all texts or
# none have.
TRUSTED = ("sklearn.multiclass._ConstantPredictor",)
LIBRARIES = ("scikit-learn", "skops")  # whose versions are kept
NO_WORDS = (
    "each word has a label; dana finetune --save keeps such a model, and dana predict takes it"
)


def how_to_replace(folder: Path) -> str:
    """Say how a damaged model is made again.

    A run leaves the model that it finds, so that has to be removed before.
    """
    return f"copy {folder} again, or remove it and run its command again"


def _library_versions() -> dict[str, str]:
    return {library: metadata.version(library) for library in LIBRARIES}


@dataclass(frozen=True)
class Description:
    """What ``result.json`` says of a model.

    Attributes:
        form: One of :data:`FORMS`.
        kind: Name of the kind of label.
        labels: Names of the labels; empty for numbers.
        metric: Metric by which it was chosen.
        columns: Where texts stand in a table.
        max_tokens: Longest text of the encoder, special tokens included; of ``vectors`` only.
        notes: Further JSON values, for whoever reads the file: name, score and the like.
        versions: Versions of the libraries that it was saved with.
    """

    form: str
    kind: str
    labels: tuple[str, ...]
    metric: str
    columns: Columns = field(default_factory=Columns)
    max_tokens: int | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=_library_versions)

    def __post_init__(self) -> None:
        require(self.form in FORMS, "form", self.form, f"one of {', '.join(FORMS)}")
        has_words = find_kind(self.kind).per_word and self.form != FINE_TUNED
        require(not has_words, "kind", self.kind, f"another: {NO_WORDS}")

    @classmethod
    def of_card(cls, form: str, card: TaskCard, **notes: Any) -> "Description":
        """Describe a model of a task.

        Raises:
            ConfigError: If each word has a label, and the form is not ``fine-tuned``.
        """
        columns = Columns.of_card(card)
        labels = tuple(card.labels)
        return cls(form, card.kind, labels, card.metric, columns, notes=notes)

    @property
    def windows(self) -> str | None:
        """``mean``, where longer texts are read in windows; else None."""
        return self.notes.get("windows")

    @property
    def label_kind(self) -> Kind:
        """The kind of the labels."""
        return find_kind(self.kind)(self.labels)

    @classmethod
    def read(cls, folder: Path) -> "Description":
        """Read ``result.json``.

        Raises:
            ArtifactError: If it is missing, damaged or of another format.
        """
        file = folder / DESCRIPTION
        remedy = how_to_replace(folder)
        try:
            values = read_json(file)
        except ArtifactError as error:
            raise ArtifactError(f"{error}; {remedy}") from error
        if not isinstance(values, dict) or "format" not in values:
            raise ArtifactError(f"{file}: damaged: no format; {remedy}")
        if values["format"] != FORMAT:
            writer = f"format {values['format']}, written by dana {values.get('dana')}"
            raise ArtifactError(f"{file}: {writer}; this dana reads format {FORMAT}")
        known = {one.name for one in fields(cls)}
        own = {key: value for key, value in values.items() if key in known}
        try:
            own["labels"] = tuple(own["labels"])
            own["columns"] = Columns(**own["columns"])
            return cls(**own)
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(f"{file}: damaged ({error}); {remedy}") from error

    def write(self, folder: Path) -> None:
        """Write ``result.json``; of a fine-tuned model, the only file beside the model itself."""
        head = {"format": FORMAT, "dana": metadata.version("dana-lm")}
        write_json(folder / DESCRIPTION, {**head, **asdict(self)})


def pipeline_targets(labels: Sequence[Any], kind: Kind) -> np.ndarray:
    """Return labels as a saved pipeline is fitted to them.

    Args:
        labels: Labels as the kind represents them.
        kind: Kind of the labels.

    Returns:
        Names of the labels, shape (texts,); for several labels a text, rows of 0 and 1, shape
        (texts, labels); or numbers, shape (texts,).
    """
    if not kind.has_labels:
        return np.asarray(labels, dtype=np.float64)
    if kind.dtype is object:
        return kind.loss_labels(labels).astype(np.int64)
    return np.array(kind.labels)[np.asarray(labels, dtype=np.int64)]


def save_tfidf(folder: Path, pipeline: Any, description: Description) -> None:
    """Save a scikit-learn pipeline from text to label.

    Args:
        folder: Target folder; must exist.
        pipeline: Fitted to :func:`dana.tasks.examples.joined_texts` and :func:`pipeline_targets`.
        description: What the model is; its form is ``tfidf``.
    """
    require(description.form == TFIDF, "form", description.form, TFIDF)
    _save_pipeline(folder, pipeline)
    description.write(folder)


def save_vectors(
    folder: Path, encoder: str | Path, pipeline: Any, description: Description
) -> None:
    """Save an encoder and a scikit-learn pipeline from its vectors to label.

    Args:
        folder: Target folder; must exist.
        encoder: A checkpoint: folder or name. It is written to ``FOLDER/encoder`` as a folder that
            sentence-transformers opens, unless it is there already.
        pipeline: From :func:`dana.finetuning.probe.fitted`, fitted to :func:`pipeline_targets`.
        description: What the model is; its form is ``vectors``, and ``max_tokens`` the length to
            which texts were cut for the vectors that the pipeline was fitted to.
    """
    require(description.form == VECTORS, "form", description.form, VECTORS)
    require(description.max_tokens is not None, "max_tokens", description.max_tokens, "a number")
    assert description.max_tokens is not None
    target = folder / ENCODER
    if Path(encoder).resolve() != target.resolve():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        save_encoder(str(encoder), target, description.max_tokens)
    _save_pipeline(folder, pipeline)
    description.write(folder)


def _save_pipeline(folder: Path, pipeline: Any) -> None:
    """Write a pipeline by skops, compressed."""
    import zipfile

    from skops.io import dump

    dump(pipeline, folder / PIPELINE, compression=zipfile.ZIP_DEFLATED, compresslevel=1)


@dataclass(frozen=True)
class ResultModel:
    """A saved model, ready to label texts.

    Attributes:
        folder: Its folder.
        description: What it is.
        pipeline: Its scikit-learn pipeline; None for a fine-tuned model.
        encoder: Makes the vectors of ``vectors``.
        classifier: The fine-tuned model.
    """

    folder: Path
    description: Description
    pipeline: Any = None
    encoder: TransformerEncoder | None = None
    classifier: SavedClassifier | None = None

    def linear_outputs(self, inputs: Any) -> np.ndarray:
        """Compute probabilities of all labels (or the number) by the pipeline.

        Args:
            inputs: Texts (:func:`dana.tasks.examples.joined_texts`), or their vectors.

        Returns:
            float32 of shape (texts, labels), in the order of ``description.labels``; (texts, 1) of
            numbers.
        """
        kind = self.description.label_kind
        if not kind.has_labels:
            return np.asarray(self.pipeline.predict(inputs), dtype=np.float32)[:, None]
        likely = np.asarray(self.pipeline.predict_proba(inputs), dtype=np.float32)
        if kind.dtype is object:
            return likely
        outputs = np.zeros((len(likely), len(kind.labels)), dtype=np.float32)
        columns = [kind.labels.index(str(name)) for name in self.pipeline.classes_]
        outputs[:, columns] = likely
        return outputs


def is_result(folder: Path) -> bool:
    """Return whether a folder holds a model of this module."""
    return (folder / DESCRIPTION).is_file()


def open_result(folder: Path) -> ResultModel:
    """Open a saved model.

    Raises:
        ArtifactError: If a file is missing or damaged, or the pipeline holds types that are not
            trusted.
    """
    description = Description.read(folder)
    if description.form == FINE_TUNED:
        return ResultModel(folder, description, classifier=open_classifier(str(folder)))
    now = _library_versions()
    others = [
        f"{library} {version}, here is {now[library]}"
        for library, version in description.versions.items()
        if now.get(library, version) != version
    ]
    if others:
        log.warning("%s: saved by %s; its predictions may differ", folder, ", ".join(others))
    pipeline = _load_pipeline(folder)
    _check_pipeline(folder, pipeline, description)
    if description.form == TFIDF:
        return ResultModel(folder, description, pipeline)
    longest = description.max_tokens or 256
    encoder = TransformerEncoder.of_checkpoint(str(folder / ENCODER), longest, description.windows)
    return ResultModel(folder, description, pipeline, encoder)


def _load_pipeline(folder: Path) -> Any:
    """Load a pipeline whose types are all trusted.

    Raises:
        ArtifactError: If skops or scikit-learn is missing, the file is damaged, or it holds others.
    """
    file = folder / PIPELINE
    try:
        from skops.io import load
        from skops.io.exceptions import UntrustedTypesFoundException
    except ImportError as error:
        raise ArtifactError(f"{file}: to open it: pip install skops scikit-learn") from error
    from sklearn.exceptions import InconsistentVersionWarning

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InconsistentVersionWarning)  # open_result says it
            return load(file, trusted=list(TRUSTED))
    except UntrustedTypesFoundException as error:
        raise ArtifactError(
            f"{file}: is not what dana saves: {error}; do not open it unless you know who made it"
        ) from error
    except Exception as error:  # of zipfile, json, skops or scikit-learn
        reason = " ".join(str(error).split())[:200]
        raise ArtifactError(
            f"{file}: cannot be read: {type(error).__name__}: {reason}; {how_to_replace(folder)}"
        ) from error


def _check_pipeline(folder: Path, pipeline: Any, description: Description) -> None:
    """Refuse a pipeline whose labels are not those of ``result.json``.

    Raises:
        ArtifactError: If so.
    """
    kind = description.label_kind
    has_names = kind.has_labels and kind.dtype is not object
    names = [str(name) for name in getattr(pipeline, "classes_", [])] if has_names else []
    others = sorted({*names} - {*kind.labels})
    if others or not hasattr(pipeline, "predict"):
        what = f"predicts {others[0]!r}" if others else f"holds a {type(pipeline).__name__}"
        raise ArtifactError(
            f"{folder / PIPELINE}: {what}, unlike {DESCRIPTION}; {how_to_replace(folder)}"
        )
