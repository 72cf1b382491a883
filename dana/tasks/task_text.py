"""The task's text: a card's splits or plain text to documents to fit on and documents to hold out."""

from glob import has_magic
from pathlib import Path

import numpy as np

from dana.core.errors import DataError, nearest, nearest_path
from dana.core.rng import derive_seed, hash_uniform, unit_keys
from dana.core.schemas import Document
from dana.core.urls import is_url
from dana.corpus.documents import SKIPPING, Tally, read_documents
from dana.corpus.hub import is_hub
from dana.corpus.inputs import Inputs
from dana.corpus.places import Source
from dana.corpus.text import document_id, normalise
from dana.tasks.card import TaskCard, find_card
from dana.tasks.examples import read_split
from dana.tasks.finder import card_names

HELD_OUT_SHARE = 0.1
_FIRST = np.zeros(1, dtype=np.int64)


def find_task(task: str) -> TaskCard | None:
    """The card that `task` names; None if it names text.

    Raises:
        DataError: If it is neither.
    """
    card = find_card(task)
    if card is None and not (is_url(task) or is_hub(task) or Path(task).exists() or has_magic(task)):
        near = nearest(task, card_names()) or nearest_path(task) or "."
        raise DataError(f"task {task!r}: neither a file nor a task card{near} Known: {', '.join(card_names())}.")
    return card


def card_texts(card: TaskCard, data: str | None) -> tuple[list[Document], list[Document]]:
    """Distinct training texts of a card to fit on, and development texts that are not among them to hold out.

    Either text of a pair is a document.

    Args:
        card: The task.
        data: Folder of its data, where that is not under ``DANA_DATA``.
    """
    fit, held_out = _distinct_texts(card, "train", data), _distinct_texts(card, "dev", data)
    return (
        [Document(document_id(card.name, text), card.name, text) for text in fit],
        [Document(document_id(card.name, text), card.name, text) for text in held_out if text not in fit],
    )


def _distinct_texts(card: TaskCard, split: str, data: str | None) -> dict[str, None]:
    texts = (text for example in read_split(card, split, data) for text in example.texts)
    return dict.fromkeys(filter(None, map(normalise, texts)))


def plain_texts(
    sources: list[Source], inputs: Inputs, seed: int, tally: Tally
) -> tuple[list[Document], list[Document]]:
    """Documents of plain text to fit on, and a tenth of them, by a hash of their id, to hold out.

    Args:
        sources: Files.
        inputs: How records become documents.
        seed: Decides which documents are held out.
        tally: Counts the records.

    Raises:
        DataError: If a record is bad.
    """
    try:
        documents = list(read_documents(sources, "fail", tally, inputs=inputs))
    except DataError as error:
        raise DataError(str(error).replace(SKIPPING, " (text of the task is never skipped)")) from error
    parts: tuple[list[Document], list[Document]] = ([], [])
    key = derive_seed(seed, "task", "held_out")
    places = [float(hash_uniform(key, unit_keys(document.doc_id, _FIRST))[0]) for document in documents]
    share = max(HELD_OUT_SHARE, min(places, default=0.0))  # of a handful of documents chance may hold out none
    for document, place in zip(documents, places, strict=True):
        parts[int(place <= share)].append(document)
    return parts
