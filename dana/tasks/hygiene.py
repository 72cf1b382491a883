"""Decontamination: documents to those that share no text with evaluation splits and are no near duplicates."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TextIO

from dana.core.artifacts import OWN, Draft
from dana.core.errors import ConfigError, DataError
from dana.core.files import text_digest
from dana.core.logging import get_logger
from dana.core.schemas import Document
from dana.corpus.documents import Tally, source_digests
from dana.corpus.overlap import MINHASH_SHINGLE, PERMUTATIONS, NearDuplicates, Overlap, OverlapIndex
from dana.tasks.card import load_card
from dana.tasks.examples import read_split
from dana.tasks.settings import Hygiene

log = get_logger(__name__)

EVALUATION = ("dev", "test")
REMOVED = f"{OWN}/removed.jsonl"
DOCUMENTS_AT_ONCE = 256
CHARACTERS_AT_ONCE = 1 << 19  # a block ends with the document that passes this


class Cleaner:
    """Filters the documents of one run by the settings. Evaluation texts are read once, before the first document."""

    def __init__(self, settings: Hygiene, data: str | None = None, language: str = "en") -> None:
        """Find the tasks' cards.

        Args:
            settings: What to leave out.
            data: See :meth:`dana.tasks.card.TaskCard.files`.
            language: ISO 639-1 code, for where sentences of evaluation texts end.

        Raises:
            ConfigError: If a card is unknown, or two tasks would read the same file.
            DataError: If a task's evaluation splits are nowhere.
        """
        self._settings, self._data, self._language = settings, data, language
        cards = {card.name: card for card in map(load_card, settings.decontaminate)}
        self._cards = {name: cards[name] for name in sorted(cards)}
        self._files = {name: card.files(data, EVALUATION) for name, card in self._cards.items()}
        readers: dict[str, str] = {}
        for name, files in self._files.items():
            for file in files:
                other = readers.setdefault(file, name)
                if other != name:
                    raise ConfigError(
                        f"decontaminate: {other} and {name} would both read {file}: data={data!r} must be the folder"
                        " that holds each task's folder"
                    )

    def identity(self, general: bool) -> dict[str, Any]:
        """The settings that the kept documents depend on, for a fingerprint; empty when nothing is asked for.

        Args:
            general: Of general text, which alone is sampled and rid of near duplicates.
        """
        found: dict[str, Any] = {}
        if self._cards:
            versions = {
                name: {**card.text_identity, "files": source_digests(self._files[name])}
                for name, card in self._cards.items()
            }
            found |= {"tasks": versions, "ngram": self._settings.ngram, "sentence": self._settings.sentence}
            found["language"] = self._language
        if general and self._settings.sample is not None:
            found["sample"] = self._settings.sample
        if general and self._settings.near_duplicates is not None:
            signature = {"shingle": MINHASH_SHINGLE, "permutations": PERMUTATIONS}
            found["near_duplicates"] = {"threshold": self._settings.near_duplicates, **signature}
        return {"hygiene": found} if found else {}

    @cached_property
    def _index(self) -> OverlapIndex:
        texts = {
            name: [
                text
                for split in EVALUATION
                for example in read_split(card, split, self._data)
                for text in example.texts
            ]
            for name, card in self._cards.items()
        }
        return OverlapIndex.build(texts, self._settings.ngram, self._settings.sentence, self._language)

    def filter_general(
        self, documents: Iterable[Document], tally: Tally, draft: Draft, general: bool = True
    ) -> Iterator[Document]:
        """Stream the documents of the general text that are kept.

        Memory is that of the evaluation splits, and 9 KB a document where near duplicates are looked for. Documents
        that are left out go to ``__dana__/removed.jsonl`` in the draft's folder: ``doc_id`` and ``match``; for
        ``ngram`` and ``sentence``, a line a task, with ``task``, its ``tokens`` and a ``digest`` of the words, never
        the words; for ``near_duplicate``, ``of``: the document kept. The draft's counts get ``overlap``: by task, the
        documents that share text with it, and those dropped for it (the first such task by name), which add up.

        Args:
            documents: Kept so far, and counted so in `tally`.
            tally: Where those removed are taken back.
            draft: The artifact being written.
            general: Whether to sample them and to look for near duplicates, too.
        """
        if general and self._settings.sample is not None:
            documents = _sampled(documents, self._settings.sample, tally)
        threshold = self._settings.near_duplicates if general else None
        if not self._cards and threshold is None:
            yield from documents
            return
        with (draft.path / REMOVED).open("w", encoding="utf-8") as stream:
            removed = _Removed(stream, tally)
            if self._cards:
                documents = self._without_overlap(documents, removed)
            if threshold is not None:
                documents = _without_near_duplicates(documents, threshold, removed)
            yield from documents
        if self._cards:
            draft.counts["overlap"] = removed.by_task(self._cards)
            log.info("hygiene   %s", removed.summary(self._cards))

    def filter_task(self, documents: list[Document], draft: Draft) -> list[Document]:
        """The documents of the task to fit on that share no text with evaluation splits; counted in the draft.

        Near duplicates stay: a task may well mark up one sentence several ways.

        Raises:
            DataError: If none is left.
        """
        if not self._cards:
            return documents
        tally = Tally(read=len(documents))
        for document in documents:
            tally.keep(document)
        kept = list(self.filter_general(documents, tally, draft, general=False))
        if documents and not kept:
            raise DataError(f"every document to fit on shares text with evaluation splits of {', '.join(self._cards)}")
        counts = tally.as_dict()
        draft.counts["fit_documents"] = {key: counts[key] for key in ("in", "kept", "dropped")}
        return kept

    def _without_overlap(self, documents: Iterable[Document], removed: "_Removed") -> Iterator[Document]:
        for block in document_blocks(documents):
            shared: dict[int, list[Overlap]] = {}
            for overlap in self._index.find([document.text for document in block]):
                shared.setdefault(overlap.row, []).append(overlap)
            for row, document in enumerate(block):
                if row in shared:
                    removed.overlapping(document, shared[row])
                else:
                    yield document


def _sampled(documents: Iterable[Document], share: float, tally: Tally) -> Iterator[Document]:
    """Documents whose text's digest, read as a number in [0, 1), is below the share."""
    for document in documents:
        if int.from_bytes(text_digest(document.text)[:8], "big") < share * 2**64:
            yield document
        else:
            tally.take_back(document, "not sampled")


def _without_near_duplicates(
    documents: Iterable[Document], threshold: float, removed: "_Removed"
) -> Iterator[Document]:
    seen = NearDuplicates(threshold)
    for document in documents:
        first = seen.add(document.doc_id, document.text)
        if first is None:
            yield document
        else:
            removed.near_duplicate(document, first)


def document_blocks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Consecutive documents in blocks of at most 256 documents, or some 500,000 characters."""
    block: list[Document] = []
    characters = 0
    for document in documents:
        block.append(document)
        characters += len(document.text)
        if len(block) == DOCUMENTS_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            yield block
            block, characters = [], 0
    yield block


@dataclass
class _Removed:
    """Writes a line for each document that is left out, and counts them by task."""

    stream: TextIO
    tally: Tally
    shared: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    def overlapping(self, document: Document, overlaps: list[Overlap]) -> None:
        self.tally.take_back(document, "overlap")
        self.dropped[overlaps[0].task] += 1
        for overlap in overlaps:
            self.shared[overlap.task] += 1
            found = {"task": overlap.task, "tokens": overlap.tokens, "digest": overlap.digest}
            self._write({"doc_id": document.doc_id, "match": overlap.kind, **found})

    def near_duplicate(self, document: Document, first: str) -> None:
        self.tally.take_back(document, "near duplicate")
        self._write({"doc_id": document.doc_id, "match": "near_duplicate", "of": first})

    def _write(self, line: dict[str, Any]) -> None:
        self.stream.write(json.dumps(line, ensure_ascii=False) + "\n")

    def by_task(self, tasks: Iterable[str]) -> dict[str, dict[str, int]]:
        return {task: {"shared": self.shared[task], "dropped": self.dropped[task]} for task in tasks}

    def summary(self, tasks: Iterable[str]) -> str:
        by_task = ", ".join(f"{self.shared[task]:,} {task}" for task in tasks)
        return f"{self.dropped.total():,} documents share text with evaluation splits ({by_task})"
