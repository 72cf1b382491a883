"""The task's own text as an artifact: ``fit/`` to learn from, ``held_out/`` that nothing is ever fitted on."""

from glob import has_magic
from pathlib import Path

import numpy as np

from dana.artifacts import Artifact, Draft, make
from dana.corpus.documents import Tally, read_documents, source_digests
from dana.corpus.readers import HUB
from dana.errors import DataError, suggestion
from dana.finetune.card import TaskCard, card_names, find_card
from dana.finetune.data import read_split
from dana.rng import derive_seed, hash_uniform
from dana.schemas import DOCUMENTS, Document, write_parts
from dana.stages.corpus import document_tables
from dana.stages.hygiene import Cleaner, Hygiene
from dana.stages.unit_stream import unit_keys
from dana.text import document_id, normalise

HELD_OUT_SHARE = 0.1
HELD_OUT_AT_MOST = 1000  # documents; enough for a standard error of a hundredth of a nat
_FIRST = np.zeros(1, dtype=np.int64)


def task_stage(
    task: str, folder: Path, data: str | None = None, seed: int = 0, cleaner: Cleaner | None = None
) -> Artifact:
    """Make the task artifact.

    Args:
        task: A task card's name, a card's YAML file, or text: a file, glob or folder. Of a card, the training
            texts are fitted on and the development texts held out; of plain text, a tenth of the documents
            is held out by a hash of their id.
        folder: Where the artifact goes.
        data: Folder that holds a card's data, where it is not under ``DANA_DATA``.
        seed: Decides which documents of plain text are held out.
        cleaner: Leaves out of the text to fit on what evaluation splits hold; None keeps every text.

    Raises:
        DataError: If there is no text to fit on or to hold out.
    """
    cleaner = cleaner or Cleaner(Hygiene())
    card = find_task(task)
    name = card.name if card else Path(task).name.split(".")[0]
    if card:
        depends_on = {
            "name": name,
            "version": card.version,
            "files": source_digests(card.files(data, ("train", "dev"))),
        }
    else:
        depends_on = {"name": name, "files": source_digests([task]), "seed": seed, "held_out": HELD_OUT_SHARE}
    depends_on |= cleaner.identity(near_duplicates=False)

    def write(draft: Draft) -> None:
        fit, held_out = _from_card(card, data) if card else _from_text(task, seed, draft)
        fit = cleaner.target(fit, draft)
        draft.counts["fit"] = write_parts(document_tables(fit), draft.path / "fit", DOCUMENTS)
        draft.counts["held_out"] = write_parts(
            document_tables(held_out[:HELD_OUT_AT_MOST]), draft.path / "held_out", DOCUMENTS
        )
        draft.counts["held_out_unused"] = max(0, len(held_out) - HELD_OUT_AT_MOST)
        for part in ("fit", "held_out"):
            if not draft.counts[part]:
                raise DataError(
                    f"task {task}: {len(fit) + len(held_out)} distinct documents are too few to fit on most and hold"
                    " out some; a line (or a paragraph) is a document"
                )

    return make(folder, "task", depends_on, write)


def find_task(task: str) -> TaskCard | None:
    """The card that `task` names; None if it names text.

    Raises:
        DataError: If it is neither.
    """
    card = find_card(task)
    if card is None and not (Path(task).exists() or task.startswith(HUB) or has_magic(task)):
        raise DataError(f"task {task!r}: neither a file nor a task card{suggestion(task, card_names())}")
    return card


def _from_card(card: TaskCard, data: str | None) -> tuple[list[Document], list[Document]]:
    """Training texts, and development texts that are not among them."""
    fit = {text: None for example in read_split(card, "train", data) if (text := normalise(example.text))}
    held_out = {text: None for example in read_split(card, "dev", data) if (text := normalise(example.text))}
    return (
        [Document(document_id(card.name, text), card.name, text) for text in fit],
        [Document(document_id(card.name, text), card.name, text) for text in held_out if text not in fit],
    )


def _from_text(task: str, seed: int, draft: Draft) -> tuple[list[Document], list[Document]]:
    tally = Tally()
    documents = list(read_documents([task], "fail", tally))
    draft.counts["documents"] = tally.as_dict()
    parts: tuple[list[Document], list[Document]] = ([], [])
    key = derive_seed(seed, "task", "held_out")
    places = [float(hash_uniform(key, unit_keys(document.doc_id, _FIRST))[0]) for document in documents]
    share = max(HELD_OUT_SHARE, min(places, default=0.0))  # of a handful of documents chance may hold out none
    for document, place in zip(documents, places, strict=True):
        parts[int(place <= share)].append(document)
    return parts
