"""Say in words what a run chose as its model, and write the README of the model and of the encoder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dana.core.artifacts import read_json
from dana.models.folder import licence_line, model_name
from dana.tasks.card import TaskCard
from dana.tasks.kinds.multi_label import THRESHOLD, MultiLabel
from dana.train.settings import UNLABELLED

CHOICE = "choice.json"
FORMS = {
    "tfidf": "{tfidf}",
    "vectors": "vectors of {model} with {linear}",
    "finetuned": "{model}, fine-tuned",
}
ADAPTED = "the adapted model"
# What the models of arms are called; those of other arms are ADAPTED.
MODELS = {"base": "the base", UNLABELLED: "the model adapted on unlabelled texts"}
MODEL_CARD = """\
---
{licence}library_name: {library}
pipeline_tag: text-classification
tags: [dana]
---

# {title}

{what} It was fitted to {trained}.

## What to expect

{expected}

| candidate | {metric} |
|---|---|
{candidates}

{why}

{labels}## How to open it

`dana predict FOLDER NEW.csv` labels a table, where FOLDER is the folder of the run or this one. In Python:

```python
import dana

model = dana.load("FOLDER")
model.predict(["a text", "another text"])
```

{without_dana}

## Terms

{terms}
"""
OPEN_SKOPS = """\
Without dana:

```python
from skops.io import load

pipeline = load("model.skops", trusted=["sklearn.multiclass._ConstantPredictor"])
pipeline.predict(["a text", "another text"])
```"""
OPEN_VECTORS = """\
Without dana:

```python
from sentence_transformers import SentenceTransformer
from skops.io import load

encoder = SentenceTransformer("encoder")
pipeline = load("model.skops", trusted=["sklearn.multiclass._ConstantPredictor"])
pipeline.predict(encoder.encode(["a text", "another text"]))
```"""
OPEN_TRANSFORMERS = """\
Without dana:

```python
from transformers import pipeline

pipeline("text-classification", ".", truncation=True)(["a text", "another text"])
```"""
IN_WINDOWS = """\
It labels in dana alone: dana reads a long text in windows and averages what the model says of them.
By themselves, transformers and sentence-transformers would read the first window only."""
IN_PARTS = """\
It labels in dana alone: its head, `head.safetensors`, reads the mean of all tokens, or two markers.
`backbone/` opens with `AutoModel.from_pretrained`."""
OPENED_BY = {"tfidf": OPEN_SKOPS, "vectors": OPEN_VECTORS, "finetuned": OPEN_TRANSFORMERS}
LIBRARIES = {"tfidf": "sklearn", "vectors": "sklearn", "finetuned": "transformers"}
ENCODER_CARD = """\
---
{licence}library_name: sentence-transformers
pipeline_tag: feature-extraction
tags: [dana]
---

# {base}, adapted by dana

An encoder of texts: {base}, trained further on {texts}

```python
{lines}
```

It opens with `transformers`, too: `AutoModel.from_pretrained("FOLDER/encoder")`.

## Terms

{terms}
"""
ENCODER_LINES = (
    "from sentence_transformers import SentenceTransformer",
    'encoder = SentenceTransformer("{folder}")',
    'vectors = encoder.encode(["a text", "another text"])',
)


UNADAPTED = "With all labelled texts no objective was worth it, so that the adapted model is the base as it is."
TEXT_TERMS = "It was trained further on text that recipe.yaml names, under the terms of that text."


def candidate_words(kind: str, has_labels: bool = True) -> str:
    """Say in words what a candidate is, by its kind: ``tfidf``, ``vectors-base``, ``contrastive-dana``."""
    form, _, arm = kind.partition("-")
    linear = "logistic regression" if has_labels else "ridge regression"
    model = MODELS.get(arm, ADAPTED)
    words = FORMS.get(form, f"{{model}}, fine-tuned ({form})")
    return words.format(tfidf=f"TF-IDF with {linear}", model=model, linear=linear)


def metric_words(metric: str) -> str:
    """Return the name of a metric as it is written in text: ``macro-F1``."""
    return metric.replace("_", "-").replace("f1", "F1")


def expected_words(choice: Mapping[str, Any]) -> str:
    """Say which score is to be expected of the chosen model, and how sure that is.

    Args:
        choice: Content of ``choice.json``.
    """
    metric = metric_words(choice["metric"])
    words = f"{metric} {choice['expected']:.3f}"
    if choice["low"] is None:
        return f"{words}; {choice['groups']} texts or groups say too little for an interval"
    return f"{words} (95 %: {choice['low']:.3f} to {choice['high']:.3f})"


def reason_words(choice: Mapping[str, Any], has_labels: bool = True) -> str:
    """Say why a candidate was chosen.

    Args:
        choice: Content of ``choice.json``.
        has_labels: Whether the labels are names, and not numbers.
    """
    sign = 1 if choice["direction"] == "higher" else -1
    rows = choice["candidates"]
    if len(rows) == 1:
        return "It is the only candidate so far."
    best = max(rows, key=lambda row: sign * row["score"])
    [chosen] = [row for row in rows if row["kind"] == choice["choice"]]
    if best is chosen:
        return f"Of {len(rows)} candidates it has the best score."
    words = candidate_words(best["kind"], has_labels)
    return (
        f"Of {len(rows)} candidates the best is {words}, with {best['score']:.3f}. That is no more "
        f"than .005 better than {chosen['score']:.3f}, and this one is cheaper."
    )


def _with_threshold(code: str) -> str:
    """Let code ask a pipeline of scikit-learn for probabilities of the labels, and take those from one half on.

    ``OneVsRestClassifier.predict`` of scikit-learn has another threshold where each training text,
    or none, has the first label.
    """
    lines = []
    for line in code.splitlines():
        if line.startswith("pipeline.predict("):
            call = line.replace("predict", "predict_proba", 1)
            line = f"{call} >= {THRESHOLD}  # a column for each of: labels in result.json"
        lines.append(line)
    return "\n".join(lines)


def model_card(
    task: TaskCard,
    winner: Mapping[str, Any],
    choice: Mapping[str, Any],
    base: str,
    trained: int,
    is_in_parts: bool = False,
) -> str:
    """Return the README of a model.

    Args:
        task: The task.
        winner: The candidate, with its ``kind``, ``form`` and ``model``.
        choice: Content of ``choice.json``.
        base: The base model of the run.
        trained: Number of texts that the model was fitted to.
        is_in_parts: Whether it is a backbone and a head of dana's own.
    """
    has_labels = task.label_kind.has_labels
    words = candidate_words(winner["kind"], has_labels)
    licence = "" if winner["form"] == "tfidf" else licence_line(base)
    what = f"A model that labels texts of {task.name} ({', '.join(task.labels)}): {words}."
    if not has_labels:
        what = f"A model that gives texts of {task.name} a number: {words}."
    if winner["form"] != "tfidf":
        what += f" The base is {model_name(base)}."
    if winner.get("base") and winner["base"] == winner["model"]:
        what += f" {UNADAPTED}"
    without_dana = OPENED_BY[winner["form"]]
    if isinstance(task.label_kind, MultiLabel):
        without_dana = _with_threshold(without_dana)
    if winner.get("windows"):
        without_dana = IN_WINDOWS
    elif is_in_parts:
        without_dana = IN_PARTS
    return MODEL_CARD.format(
        licence=licence,
        library=LIBRARIES[winner["form"]],
        title=f"{task.name}: {words}",
        what=what,
        trained=f"{trained:,} labelled texts",
        expected=_expectation(choice, task),
        metric=metric_words(choice["metric"]),
        candidates=_candidate_lines(choice["candidates"], choice["choice"], has_labels),
        why=_reasons(choice, has_labels),
        labels=_label_section(choice["labels"]),
        without_dana=without_dana,
        terms=_terms(task, winner["kind"], base),
    )


def text_words(is_unlabelled: bool, task: str, has_folds: bool) -> str:
    """Say on what text an arm adapts its model, and which labelled texts chose it.

    Args:
        is_unlabelled: Whether the arm reads nothing but the task's texts without labels.
        task: Name of the task.
        has_folds: Whether the labelled texts have folds, each of which is tested once.
    """
    if is_unlabelled:
        return f"texts of the kind of {task}, without labels."
    choosing = "All labelled texts"
    if not has_folds:
        choosing += " but those of the test split"
    return f"text that is like the labelled texts of {task}.\n{choosing} had a part in choosing that text."


def encoder_card(model: str, base: str, texts: str, folder: Path) -> str:
    """Return the README of an encoder.

    Args:
        model: The adapted model.
        base: The base model of the run.
        texts: The text that it was trained on (:func:`text_words`).
        folder: Its folder.
    """
    terms = _base_terms(base)
    return ENCODER_CARD.format(
        licence=licence_line(model) or licence_line(base),
        base=model_name(base),
        texts=texts,
        lines="\n".join(encoder_lines(folder)),
        terms=f"{terms} {TEXT_TERMS}",
    )


def encoder_lines(folder: Path) -> list[str]:
    """Return the three lines of Python that open an encoder."""
    return [line.format(folder=folder.as_posix()) for line in ENCODER_LINES]


def result_lines(run: Path) -> list[str]:
    """Return the last lines of a run: what its model and its encoder are, and how they are used.

    Args:
        run: Folder of the run.

    Returns:
        No line for what is missing.
    """
    lines = []
    model = run / "model"
    if (model / CHOICE).is_file():
        choice = read_json(model / CHOICE)
        words = candidate_words(choice["choice"], choice["has_labels"])
        lines.append(f"model: {model}: {words}. To expect on new texts: {expected_words(choice)}.")
        lines.append(f"  {reason_words(choice, choice['has_labels'])}")
        if choice["waiting"]:
            lines.append(f"  {_waiting_words(choice['waiting'])}")
        lines.append(f"  dana predict {run} NEW.csv")
    encoder = run / "encoder"
    if (encoder / "config.json").is_file():
        lines.append(f"encoder: {encoder}: the base, adapted to text like yours")
        lines += [f"  {line}" for line in encoder_lines(encoder)]
    return lines


def _waiting_words(count: int) -> str:
    candidates = "1 further candidate is" if count == 1 else f"{count} further candidates are"
    return f"{candidates} not tested yet."


def _expectation(choice: Mapping[str, Any], task: TaskCard) -> str:
    tested = f"{choice['texts']:,} texts"
    how = "the test texts, which it was not fitted to"
    if choice["folds"]:
        how = "each predicted by a model that was fitted to other folds"
    words = (
        f"{expected_words(choice)}, on new texts of this kind. The estimate is of {tested}, {how}, "
        "and is lower than the score in the table where the choice made that too high (bootstrap of "
        "the choice itself, BBC-CV)."
    )
    is_better = (choice["expected"] - choice["constant"]) * task.sign > 0
    if is_better:
        return words
    return (
        f"**It is no better than the same answer for every text, which scores "
        f"{choice['constant']:.3f}.** {words}"
    )


def _candidate_lines(rows: Sequence[Mapping[str, Any]], chosen: str, has_labels: bool) -> str:
    lines = []
    for row in rows:
        words = candidate_words(row["kind"], has_labels)
        number = f"{row['score']:.3f}"
        if row["kind"] == chosen:
            words = f"**{words}**"
            number = f"**{number}**"
        lines.append(f"| {words} | {number} |")
    return "\n".join(lines)


def _reasons(choice: Mapping[str, Any], has_labels: bool) -> str:
    words = reason_words(choice, has_labels)
    if choice["waiting"]:
        words += f" {_waiting_words(choice['waiting'])}"
    return words


def _label_section(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the section with the scores of each label; empty for numbers."""
    if not rows:
        return ""
    lines = [
        "## By label",
        "",
        "| label | texts | precision | recall | F1 |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        measures = " | ".join(f"{row[name]:.3f}" for name in ("precision", "recall", "f1"))
        lines.append(f"| {row['label']} | {row['texts']:,} | {measures} |")
    return "\n".join([*lines, "", ""])


def _base_terms(base: str) -> str:
    licence = licence_line(base)
    if not licence:
        return f"The base, {model_name(base)}, names no licence."
    return f"The base, {model_name(base)}, is under {licence.split()[1]}."


def _terms(task: TaskCard, kind: str, base: str) -> str:
    """Say which licences hold for a model."""
    form, _, arm = kind.partition("-")
    notes = " ".join(task.notes.split()) or "its card names none"
    words = [f"Terms of the labelled texts: {notes}."]
    if form != "tfidf":
        words.insert(0, _base_terms(base))
        if arm != "base":
            words.insert(1, TEXT_TERMS)
    return " ".join(words)
