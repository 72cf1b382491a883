"""``dana probe``: fit a linear model to the frozen vectors of a checkpoint, and search by them.

:func:`probe_stage` and :func:`retrieval_stage` are steps of a run; :mod:`dana.stages.probe_steps`
plans them.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import Artifact, Draft, make, write_json
from dana.core.config import require
from dana.core.logging import get_logger
from dana.core.raw_files import RAW_FILES, RawFiles
from dana.core.rng import derive_seed, document_key, hash_uniform
from dana.core.schemas import DOCUMENTS, iterate_documents, table_identity
from dana.corpus.documents import source_digests
from dana.corpus.units import sentences
from dana.encoders.static import StaticEncoder
from dana.encoders.transformer import TransformerEncoder
from dana.finetuning.fill_mask import fill_hidden_words, has_trained_head
from dana.finetuning.neighbours import (
    choose_number,
    nearest_rows,
    ranks_of_own,
    retrieval_scores,
    vote,
)
from dana.finetuning.probe import (
    NO_PROBE,
    VERSION,
    LabelledVectors,
    choose_strength,
    draw_labels,
    in_key_order,
    probe_scores,
)
from dana.finetuning.results import PREDICTIONS
from dana.finetuning.settings import FinetuneSettings, ProbeSettings, chosen_weight
from dana.models.convertible import is_static_model
from dana.models.encoder_folder import read_static_model
from dana.models.folder import (
    check_checkpoint,
    check_whole,
    load_tokenizer,
    model_identity,
    model_name,
)
from dana.models.pooling import read_pooling
from dana.report.probes import ALL, LINEAR, NEIGHBOURS, NEIGHBOURS_FILE
from dana.tasks.card import SPLITS, TaskCard, load_card
from dana.tasks.examples import Example, joined_texts, read_splits, subset
from dana.tasks.kinds.base import Kind
from dana.train.objectives.architectures import reads_two_texts

log = get_logger(__name__)

PROBE_FILE = "probe.json"
RETRIEVAL_FILE = "retrieval.json"
SHOWN_TEXTS = 12  # test texts whose neighbours are written
SHOWN_NEIGHBOURS = 3
LONGEST_TEXT = 400  # characters of a text that is written
CHOOSING_DRAWS = 3  # of a size, that choose the penalty
FEWEST_DOCUMENTS = 20  # fewer are too easy to search
OF_PROBE = ("sizes", "draws", "seed", "max_tokens", "windows")  # settings that decide a probe


def refuse_kind(task: TaskCard) -> None:
    """Refuse a task that a probe cannot answer.

    Raises:
        ConfigError: If each word has a label.
    """
    what = f"a task whose texts have labels: in {task.name} {NO_PROBE}; use dana finetune"
    require(not task.label_kind.per_word, "task", task.name, what)


def check_probed(model: str) -> None:
    """Check, before any work, that a model can be probed: a checkpoint, or a static model of ``dana distill``.

    Raises:
        ArtifactError: If it cannot be used.
        ConfigError: If it has a decoder that wants a text of its own.
    """
    if is_static_model(model):
        read_static_model(Path(model))  # a table of some megabytes
        return
    config, _ = load_tokenizer(model)
    check_whole(model)
    form = f"an encoder or a decoder: a model of type {config.model_type} wants a text for each of both"
    require(not reads_two_texts(config), "model", model, form)


def probe_stage(
    model: str,
    card: str,
    settings: ProbeSettings,
    out: Path,
    texts: FinetuneSettings | None = None,
    data: str | None = None,
    fold: int | None = None,
) -> Artifact:
    """Probe the frozen vectors of a checkpoint on a task: linear models on draws of labels, and neighbours.

    Args:
        model: Folder with safetensors, or Hub name; or the folder of a static model, whose texts
            are never cut.
        card: A task card's name or YAML file.
        settings: Sizes and draws.
        out: Folder for ``probe.json`` (a row per size), ``predictions.parquet`` (a row per size,
            draw and test text) and ``neighbours.json`` (the nearest labelled texts of a few,
            and what a trained head for masked tokens fills in for a hidden word of each).
        texts: Settings of fine-tuning, of which ``max_train``, the names of fields and the class
            weight are used.
        data: Folder of the card's data.
        fold: The fold that is tested, of a card with several.

    Raises:
        ConfigError: If the card is unknown, or each of its words has a label.
        DataError: If the data is missing or does not fit the card.
        ArtifactError: If the model cannot be used, or `out` holds another result.
    """
    texts = texts or FinetuneSettings()
    task = texts.fields_of(load_card(card))
    refuse_kind(task)
    task = replace(task, class_weight=chosen_weight(settings.class_weight, task.class_weight))
    check_probed(model)
    is_static = is_static_model(model)
    encoder: TransformerEncoder | StaticEncoder
    if is_static:
        encoder = StaticEncoder(model)
    else:
        encoder = TransformerEncoder.of_checkpoint(model, settings.max_tokens, settings.windows)
    raw_files = RawFiles(out)
    of_probe = {name: getattr(settings, name) for name in OF_PROBE}
    if is_static:
        of_model = {"model": encoder.identity()}
    else:
        of_model = {
            "model": model_identity(model, raw_files.digest),
            "pooling": asdict(read_pooling(model)),
        }
    depends_on = {
        **of_model,
        "task": task_identity(task, data, raw_files),
        "max_train": texts.max_train,
        "fold": fold,
        "settings": of_probe,
        "version": VERSION,
    }

    def write(draft: Draft) -> None:
        splits = read_splits(task, data, fold)
        train, test, apart = texts_apart(subset(splits["train"], texts.max_train), splits["test"])
        table, metrics, nearest = _probe(encoder, task, train, test, settings)
        details = {
            "model": model_name(model),
            "settings": of_probe,
            "fold": fold,
            "groups_in_test": apart,
        }
        write_json(draft.path / PROBE_FILE, {**_head(task), **details, **metrics})
        if not is_static and has_trained_head(model):
            shown = [text["text"] for text in nearest]
            for text, filled in zip(
                nearest, fill_hidden_words(model, shown, settings.max_tokens), strict=True
            ):
                text["filled"] = filled
        write_json(draft.path / NEIGHBOURS_FILE, {"texts": nearest})
        means = {row["size"]: row["mean"] for row in metrics["sizes"]}
        means[NEIGHBOURS] = metrics["neighbours"]["mean"]
        draft.notes["metrics"] = {f"{task.metric}_{name}": mean for name, mean in means.items()}
        pq.write_table(table, draft.path / PREDICTIONS, compression="zstd")
        draft.counts = {"train": len(train), "test": len(test), "in_group_of_test": apart}
        draft.notes[RAW_FILES] = raw_files.records()

    return make(out, "probe", depends_on, write)


def task_identity(task: TaskCard, data: str | None, raw_files: RawFiles) -> dict[str, Any]:
    """Return what of a task decides a probe: fields of its card, its groups, its division and its data."""
    digests = source_digests(task.files(data, SPLITS), raw_files.digest)
    return {**task.decisive, "group": task.group, **task.partition, "data": digests}


def _head(task: TaskCard) -> dict[str, Any]:
    return {
        "task": task.name,
        "metric": task.metric,
        "direction": task.direction,
        "kind": task.kind,
        "labels": task.labels,
    }


def texts_apart(
    train: Sequence[Example], test: Sequence[Example]
) -> tuple[list[Example], list[Example], int]:
    """Order texts by their keys, so that the order of a file decides nothing, and keep groups on one side.

    Returns:
        Training texts without those whose group is tested; test texts; how many were left out.
    """
    tested = {example.group for example in test} - {""}
    kept = [example for example in train if example.group not in tested]
    return in_key_order(kept), in_key_order(test), len(train) - len(kept)


def _probe(
    encoder: TransformerEncoder | StaticEncoder,
    task: TaskCard,
    train: list[Example],
    test: list[Example],
    settings: ProbeSettings,
) -> tuple[pa.Table, dict[str, Any], list[dict[str, Any]]]:
    """Encode both texts, fit and predict.

    Returns:
        The predictions; the entries of ``probe.json``; those of ``neighbours.json``.
    """
    kind = task.label_kind
    texts = joined_texts([*train, *test])
    vectors = encoder.encode(texts).cpu().numpy()
    if isinstance(encoder, TransformerEncoder):
        _warn_of_cut_texts(encoder, task, texts)
    labels = kind.gather([example.label for example in (*train, *test)])
    count = len(train)
    weight = task.class_weight
    known = LabelledVectors.of_examples(task, train, vectors[:count])
    tests = np.arange(count, len(labels))
    sizes = {str(size): size for size in sorted(settings.sizes) if size < count}
    sizes[ALL] = count
    rows = []
    tables = []
    for name, size in sizes.items():
        draws = range(1 if name == ALL else settings.draws)
        samples = [
            draw_labels(known.keys, known.strata, size, draw, settings.seed) for draw in draws
        ]
        strength = choose_strength(known, samples[:CHOOSING_DRAWS])
        scores = []
        for draw, sample in enumerate(samples):
            predictions = probe_scores(vectors, labels, kind, sample, tests, strength, weight)
            scores.append(kind.score(predictions, labels[count:], task.metric))
            tables.append(_table(kind, LINEAR, name, draw, test, labels[count:], predictions))
        mean = fmean(scores)
        row = {"size": name, "labels": size, "draws": len(draws), "strength": strength}
        rows.append({**row, "mean": mean, "scores": scores})
        log.info("probe     %s, %s labels: %s %.4f", task.name, name, task.metric, mean)
    left_out = [size for size in settings.sizes if size >= count]
    if left_out:
        words = " and ".join(map(str, left_out))
        log.info("probe     %s has %d training texts: %s left out", task.name, count, words)
    number = choose_number(known)
    found = nearest_rows(vectors[count:], known.vectors, number)
    predictions = vote(known.labels, kind, found)
    score = kind.score(predictions, labels[count:], task.metric)
    tables.append(_table(kind, NEIGHBOURS, ALL, 0, test, labels[count:], predictions))
    log.info("probe     %s, %d neighbours: %s %.4f", task.name, number, task.metric, score)
    metrics = {
        "train": count,
        "test": len(test),
        "sizes": rows,
        "left_out": left_out,
        "neighbours": {"number": number, "mean": score},
    }
    nearest = _nearest_texts(train, test[:SHOWN_TEXTS], vectors[:count], vectors[count:], kind)
    return pa.concat_tables(tables), metrics, nearest


def _warn_of_cut_texts(encoder: TransformerEncoder, task: TaskCard, texts: Sequence[str]) -> None:
    """Log how many texts are longer than what the encoder reads, if any are."""
    cut = encoder.count_cut(texts)
    if cut:
        log.info(
            "probe     %s: %d of %d texts fill the %d tokens that are read; text beyond was cut",
            task.name,
            cut,
            len(texts),
            encoder.longest,
        )


def _nearest_texts(
    train: Sequence[Example],
    test: Sequence[Example],
    known: np.ndarray,
    vectors: np.ndarray,
    kind: Kind,
) -> list[dict[str, Any]]:
    """Describe the labelled texts that are nearest to each test text, for people to look at.

    Args:
        train: Labelled texts.
        test: Test texts.
        known: Vectors of the labelled texts.
        vectors: Vectors of the test texts, of which there may be more.
        kind: Kind of label.
    """
    found = nearest_rows(vectors[: len(test)], known, min(SHOWN_NEIGHBOURS, len(train)))
    rows = []
    for index, (example, others) in enumerate(zip(test, found, strict=True)):
        own = vectors[index]
        neighbours = [
            {
                **_text_and_label(train[other], kind),
                "cosine": round(_cosine(own, known[other]), 4),
            }
            for other in others.tolist()
        ]
        rows.append({**_text_and_label(example, kind), "neighbours": neighbours})
    return rows


def _text_and_label(example: Example, kind: Kind) -> dict[str, str]:
    """Describe an example by the beginning of its text, and the names of its labels."""
    text = " / ".join(example.texts)
    codes = example.label if isinstance(example.label, tuple) else (example.label,)
    names = [kind.labels[int(code)] if kind.labels else f"{code:g}" for code in codes]
    return {"text": text[:LONGEST_TEXT], "label": ", ".join(names) or "none"}


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Compute the cosine of two vectors; 0 if one is zero."""
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / lengths if lengths else 0.0


def _table(
    kind: Kind,
    method: str,
    size: str,
    draw: int,
    test: Sequence[Example],
    labels: np.ndarray,
    predictions: np.ndarray,
) -> pa.Table:
    """Make the rows of one fit in ``predictions.parquet``."""
    count = len(test)
    return pa.table(
        {
            "method": pa.array([method] * count).dictionary_encode(),
            "size": pa.array([size] * count).dictionary_encode(),
            "draw": pa.array(np.full(count, draw), pa.int32()),
            "id": pa.array([example.id for example in test]),
            "label": kind.label_column(labels.tolist(), np.int32),
            "prediction": kind.label_column(predictions.tolist(), np.int32),
        }
    )


def retrieval_stage(
    model: str,
    texts: dict[str, str],
    settings: ProbeSettings,
    out: Path,
    language: str = "en",
) -> Artifact:
    """Measure how well a sentence of a held-out document finds the rest of it among the other documents.

    Args:
        model: Folder with safetensors, or Hub name.
        texts: Folder of held-out documents (:data:`dana.core.schemas.DOCUMENTS`) by the name of the text.
        settings: ``documents``, the number of documents, ``max_tokens`` and ``seed`` are used.
        out: Folder for ``retrieval.json``: for each text the number of documents, MRR@10 and nDCG@10;
            null with fewer than 20 documents of two sentences, and why.
        language: Language of the texts, ISO 639-1.

    Raises:
        ArtifactError: If model or texts are missing.
    """
    check_checkpoint(model)
    encoder = TransformerEncoder.of_checkpoint(model, settings.max_tokens)
    of_retrieval = {
        "documents": settings.documents,
        "seed": settings.seed,
        "max_tokens": settings.max_tokens,
        "language": language,
    }
    depends_on = {
        "model": model_identity(model),
        "pooling": asdict(read_pooling(model)),
        "texts": {name: table_identity(Path(path), DOCUMENTS) for name, path in texts.items()},
        "settings": of_retrieval,
        "version": VERSION,
    }

    def write(draft: Draft) -> None:
        found: dict[str, dict[str, float] | None] = {}
        for name, path in texts.items():
            pieces = cut_documents(Path(path), settings.documents, language, settings.seed)
            draft.counts[name] = len(pieces)
            if len(pieces) < FEWEST_DOCUMENTS:
                found[name] = None
                reason = f"{len(pieces)} held-out documents of two sentences or more are too few"
                log.info("retrieval %s text: %s", name, reason)
                continue
            flat = [piece for pair in pieces for piece in pair]
            vectors = encoder.encode(flat).cpu().numpy()
            scores = retrieval_scores(ranks_of_own(vectors[::2], vectors[1::2]))
            found[name] = {"documents": len(pieces), **scores}
            words = ", ".join(f"{measure} {value:.4f}" for measure, value in scores.items())
            log.info("retrieval %s text: %s among %d documents", name, words, len(pieces))
        content = {"model": model_name(model), "settings": of_retrieval, "texts": found}
        write_json(draft.path / RETRIEVAL_FILE, content)
        measured = {name: scores for name, scores in found.items() if scores}
        draft.notes["metrics"] = {
            f"{name}_{measure}": value
            for name, scores in measured.items()
            for measure, value in scores.items()
        }

    return make(out, "retrieval", depends_on, write)


def cut_documents(folder: Path, count: int, language: str, seed: int) -> list[tuple[str, str]]:
    """Cut documents into one sentence and the rest; which sentence, and which documents, a hash of the id decides.

    Args:
        folder: Folder of documents.
        count: Number of documents; fewer, if there are fewer of at least two sentences.
        language: Language of the texts.
        seed: Seed of the choice.
    """
    rows = []
    for document in iterate_documents(folder):
        spans = sentences(document.text, language)
        if len(spans) < 2:
            continue
        key = np.array([document_key(document.doc_id)], dtype=np.uint64)
        rank = float(hash_uniform(derive_seed(seed, "retrieval", "document"), key)[0])
        place = float(hash_uniform(derive_seed(seed, "retrieval", "sentence"), key)[0])
        rows.append((rank, document.doc_id, document.text, spans, int(place * len(spans))))
    pieces = []
    for _, _, text, spans, chosen in sorted(rows)[:count]:
        parts = [text[start:end] for start, end in spans]
        rest = parts[:chosen] + parts[chosen + 1 :]
        pieces.append((parts[chosen], " ".join(rest)))
    return pieces
