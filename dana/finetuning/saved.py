"""Save and open fine-tuned classifiers; transformers opens their folders, except for poolings that it lacks.

A classifier with another pooling is a :class:`dana.models.classifier.PooledClassifier`:
``backbone/`` with config, weights and tokenizer, and ``head.safetensors``. :func:`open_classifier`
and ``dana predict`` open both forms.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dana.core.artifacts import Draft, write_text
from dana.core.errors import ArtifactError
from dana.finetuning.encoded_split import MOST_WINDOWS
from dana.finetuning.results import SeedResult, scores_of
from dana.models.classifier import BACKBONE, Classifier, PooledClassifier, auto_class
from dana.models.folder import (
    licence_line,
    load_complete,
    load_tokenizer,
    loading,
    model_name,
    quiet_transformers,
)
from dana.models.heads import positions_of
from dana.tasks.card import TaskCard
from dana.tasks.examples import Example
from dana.tasks.kinds import KINDS, kind_of_model
from dana.tasks.kinds.base import Kind
from dana.tasks.tables import collapse_warning, collapsed_seeds

CARD = """---
{licence}library_name: transformers
pipeline_tag: {pipeline}
tags: [dana]
---

# {base}, fine-tuned on {card.name} by dana

{card.title}

{warning}| | |
|---|---|
| base | {base} |
| task | {card.name}, version {card.version} |
| labels | {labels} |
| texts | {data} |
| seed | {result.seed}: the best of its run on the development data, after epoch {result.epoch} |
| {card.metric} | {result.dev_score:.4f} on the development data, {test:.4f} on the test data |
| {card.metric} of all seeds | {metrics[mean]:.4f}{spread} on the test data, n = {metrics[n]} |
| licence | {terms}. Terms of the task's data: {notes} |
| longest text | {tokenizer.model_max_length} tokens |

`dana predict FOLDER FILE` labels text with it. {how}{pairs}
"""
LEAST_TOKENS = 2  # the special tokens
ALONE = (
    'It opens with `{auto}.from_pretrained`, or `pipeline("{pipeline}")` with `truncation=True`.'
)
PAIRS = " It reads pairs of texts: `tokenizer(text, text_pair)`."
PARTS = "Its head, `head.safetensors`, takes the mean of all tokens or two markers; `backbone/` opens with `AutoModel`."
IN_WINDOWS = (
    "It labels in dana alone: `dana predict` reads a long text in windows and averages what the model "
    "says of them; by itself, transformers would read the first window only."
)
MAKE = "make one with: dana finetune --save"


@dataclass(frozen=True)
class SavedClassifier:
    """A classifier ready to label texts.

    Attributes:
        module: Computes logits of shape (rows, labels) from token ids, attention mask and, if used,
            token types.
        tokenizer: Its tokenizer.
        kind: Kind of the labels.
        max_tokens: Longer texts are truncated to so many tokens, special tokens included.
        markers: Marks before the entities, for a model that pools texts at them.
        windows: Whether longer texts are read in windows of ``max_tokens``.
    """

    module: Classifier
    tokenizer: Any
    kind: Kind
    max_tokens: int
    markers: Sequence[str] = ()
    windows: bool = False

    @property
    def longest(self) -> int:
        """The most tokens of a text that it reads."""
        return self.max_tokens * (MOST_WINDOWS if self.windows else 1)


def write_model(
    draft: Draft,
    classifier: Classifier,
    result: SeedResult,
    card: TaskCard,
    tokenizer: Any,
    splits: dict[str, list[Example]],
    model: str,
    metrics: dict[str, Any],
) -> str:
    """Write a classifier, its tokenizer and its model card into a draft.

    Args:
        draft: Draft of the artifact.
        classifier: The tested classifier.
        result: Result of its seed.
        card: The task.
        tokenizer: Its tokenizer, with the ``model_max_length`` of the training.
        splits: Examples of all splits.
        model: The base checkpoint, a folder or a Hub name.
        metrics: ``metrics.json`` of all seeds.

    Returns:
        Why not to trust it; empty if there is no reason.
    """
    save_classifier(classifier, tokenizer, card.label_kind, draft.path)
    warning = collapse_warning(metrics) if result.seed in collapsed_seeds(metrics) else ""
    licence = licence_line(model)
    pipeline, auto = card.label_kind.pipeline, auto_class(card.label_kind.per_word).__name__
    text = CARD.format(
        pipeline=pipeline,
        base=model_name(model),
        licence=licence,
        card=card,
        result=result,
        metrics=metrics,
        tokenizer=tokenizer,
        labels=", ".join(card.label_kind.outputs),
        test=scores_of(result, card, splits["test"])[0][card.metric],
        spread="" if metrics["std"] is None else f" \u00b1 {metrics['std']:.4f}",
        data=", ".join(f"{len(part):,} in {name}" for name, part in splits.items()),
        terms=f"that of {model_name(model)}, {licence.split()[1]}"
        if licence
        else f"see {model_name(model)}",
        notes=" ".join(card.notes.split()) or "its card has no notes",
        how=_how_to_open(classifier.model, auto, pipeline),
        pairs=PAIRS if card.text_pair else "",
        warning=f"**{warning}**\n\n" if warning else "",
    )
    write_text(draft.path / "README.md", text)
    draft.seeds["seed"] = result.seed
    return warning


def _how_to_open(model: Any, auto: str, pipeline: str) -> str:
    """Say how a classifier is opened."""
    if getattr(model.config, "windows", None) is not None:
        return IN_WINDOWS
    if isinstance(model, PooledClassifier):
        return PARTS
    return ALONE.format(auto=auto, pipeline=pipeline)


def save_classifier(classifier: Classifier, tokenizer: Any, kind: Kind, folder: Path) -> None:
    """Write a classifier with its tokenizer and the names of its labels.

    Args:
        classifier: Fine-tuned classifier of texts or of words.
        tokenizer: Its tokenizer, with the ``model_max_length`` of the training.
        kind: Kind of the labels.
        folder: Target folder; must exist.
    """
    model = classifier.model
    model.config.id2label = dict(enumerate(kind.outputs))
    model.config.label2id = {label: position for position, label in enumerate(kind.outputs)}
    model.config.problem_type = kind.problem_type
    with quiet_transformers():
        model.save_pretrained(folder)
    if tokenizer.is_fast:  # it remembers its last call, which a resumed run did not make
        tokenizer.backend_tokenizer.no_truncation()
    tokenizer.save_pretrained(folder / BACKBONE if isinstance(model, PooledClassifier) else folder)


def open_classifier(model: str) -> SavedClassifier:
    """Open a classifier of ``dana finetune --save``, or any sequence classifier of transformers.

    Args:
        model: A folder, or a Hub name.

    Raises:
        ArtifactError: If it is not a classifier of a kind that dana supports, or cannot be loaded.
    """
    parts = (Path(model) / BACKBONE).is_dir()
    if not parts and Path(model).is_dir() and not (Path(model) / "config.json").is_file():
        raise ArtifactError(f"{model}: no classifier here (no config.json); {MAKE}")
    folder = str(Path(model) / BACKBONE) if parts else model
    config, tokenizer = load_tokenizer(folder)
    with loading(model):
        labels = [str(config.id2label[number]) for number in range(config.num_labels)]
        kind = _kind(model, labels, config, parts)
        max_tokens = min(tokenizer.model_max_length, positions_of(config))
        if not (isinstance(max_tokens, int) and max_tokens > LEAST_TOKENS):
            raise ValueError(
                f"model_max_length={max_tokens}: must be a whole number above {LEAST_TOKENS}"
            )
    if parts:
        network: Any = PooledClassifier.from_pretrained(Path(model), len(labels))
    else:
        network = load_complete(auto_class(kind.per_word), model)
    markers = getattr(config, "markers", ()) if parts else ()
    windows = getattr(config, "windows", None) == "mean"
    return SavedClassifier(
        Classifier(network, kind.per_word).eval(), tokenizer, kind, max_tokens, markers, windows
    )


def _kind(model: str, labels: list[str], config: Any, parts: bool) -> Kind:
    """Determine the kind of a model's labels.

    Raises:
        ArtifactError: If dana does not support it.
    """
    architectures = config.architectures or ["a model of unknown architecture"]
    per_word = any(name.endswith("ForTokenClassification") for name in architectures)
    if not (
        parts
        or per_word
        or any(name.endswith("ForSequenceClassification") for name in architectures)
    ):
        raise ArtifactError(
            f"{model}: holds {', '.join(architectures)}, not a sequence classifier; {MAKE}"
        )
    kind = kind_of_model(labels, config.problem_type, per_word)
    if kind is None:
        what = f"num_labels={config.num_labels}, problem_type={config.problem_type}"
        raise ArtifactError(
            f"{model}: {what}: must be a model for one of the kinds {', '.join(KINDS)}; {MAKE}"
        )
    return kind
