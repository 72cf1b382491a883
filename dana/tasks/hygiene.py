"""Remove documents that share text with evaluation splits (decontamination).

Near duplicates are removed here, too, and documents that are not sampled.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dana.core.artifacts import META_DIR, Draft
from dana.core.errors import ConfigError, DataError
from dana.core.files import text_digest, to_json_lines
from dana.core.logging import get_logger
from dana.core.schemas import Document
from dana.corpus.documents import Tally, source_digests
from dana.corpus.overlap import MINHASH_SHINGLE, PERMUTATIONS, NearDuplicates, Overlap, OverlapIndex
from dana.corpus.text import words
from dana.tasks.card import TaskCard, load_card
from dana.tasks.examples import read_folds, read_split
from dana.tasks.settings import Hygiene

log = get_logger(__name__)

REMOVED = f"{META_DIR}/removed.jsonl"
DOCUMENTS_AT_ONCE = 256
Remover = Callable[..., None]  # takes a document, the reason, and its matches
CHARACTERS_AT_ONCE = 1 << 19  # a block ends with the document that exceeds this


def with_folds(
    settings: Hygiene, cards: Iterable[TaskCard], task: TaskCard | None = None
) -> Hygiene:
    """Add the cards with ``folds`` or ``test: rest`` to those whose evaluation texts are removed.

    Args:
        settings: Settings of a run.
        cards: Its cards.
        task: Card of the text that is cleaned; it keeps its test texts out itself.
    """
    names = {load_card(name).name: name for name in settings.decontaminate}
    for card in cards:
        if card.is_divided:
            names[card.name] = str(card.origins[0])
    if task is not None and task.is_divided:
        names.pop(task.name, None)
    return replace(settings, decontaminate=list(names.values()))


class Cleaner:
    """Filters the documents of one run.

    Evaluation texts are read once, before the first document.
    """

    def __init__(self, settings: Hygiene, data: str | None = None, language: str = "en") -> None:
        """Find the tasks' cards and files.

        Args:
            settings: Tasks and thresholds.
            data: See :meth:`dana.tasks.card.TaskCard.files`.
            language: ISO 639-1 code, to split evaluation texts into sentences.

        Raises:
            ConfigError: If a card is unknown, or two tasks would read the same file.
            DataError: If the evaluation splits of a task are missing.
        """
        self._settings = settings
        self._data = data
        self._language = language
        cards = {card.name: card for card in map(load_card, settings.decontaminate)}
        self._cards = dict(sorted(cards.items()))
        self._files = {
            name: card.files(data, card.evaluation_splits) for name, card in self._cards.items()
        }
        self._check_files()

    def _check_files(self) -> None:
        """Refuse two tasks that would read the same file.

        Raises:
            ConfigError: If there are such.
        """
        readers: dict[str, str] = {}
        for name, files in self._files.items():
            for file in files:
                other = readers.setdefault(file, name)
                if other != name:
                    remedy = f"data={self._data!r} must be the parent of the tasks' folders"
                    raise ConfigError(
                        f"decontaminate: {other} and {name} would both read {file}: {remedy}"
                    )

    def identity(self, pool: bool, digest: Callable[[Path], str] | None = None) -> dict[str, Any]:
        """Return the inputs of the fingerprint; empty if nothing is filtered.

        Args:
            pool: True for pool text; only that is sampled and deduplicated.
            digest: See :func:`dana.corpus.documents.source_digests`.
        """
        rule = self._settings
        depends_on: dict[str, Any] = {}
        if self._cards:
            tasks = {}
            for name, card in self._cards.items():
                files = source_digests(self._files[name], digest)
                tasks[name] = {**card.text_identity, "files": files}
            depends_on["tasks"] = tasks
            depends_on["ngram"] = rule.ngram
            depends_on["sentence"] = rule.sentence
            depends_on["language"] = self._language
        if pool and rule.sample is not None:
            depends_on["sample"] = rule.sample
        if pool and rule.near_duplicates is not None:
            depends_on["near_duplicates"] = {
                "threshold": rule.near_duplicates,
                "shingle": MINHASH_SHINGLE,
                "permutations": PERMUTATIONS,
            }
        if not depends_on:
            return {}
        return {"hygiene": depends_on}

    @cached_property
    def _texts(self) -> dict[str, list[str]]:
        """The evaluation texts of each task.

        Of a card with ``folds`` these are all texts, each of which is tested once.
        """
        texts = {}
        for name, card in self._cards.items():
            if card.folds:
                examples = read_folds(card, self._data)
            else:
                dev = read_split(card, "dev", self._data)
                test = read_split(card, "test", self._data)
                examples = [*dev, *test]
            texts[name] = [text for example in examples for text in example.texts]
        return texts

    @cached_property
    def _index(self) -> OverlapIndex:
        return OverlapIndex.build(
            self._texts, self._settings.ngram, self._settings.sentence, self._language
        )

    @cached_property
    def _tasks_by_text(self) -> dict[str, str]:
        """The texts of cards that divide their texts anew, however short, each with its task."""
        tasks = {}
        for name, card in self._cards.items():
            if card.is_divided:
                for text in self._texts[name]:
                    tasks[words(text)] = name
        return tasks

    def filter_pool(
        self, documents: Iterable[Document], tally: Tally, draft: Draft, pool: bool = True
    ) -> Iterator[Document]:
        """Stream the documents of the pool that pass the filters.

        Memory is that of the evaluation splits, plus 9 KB per document if near duplicates are
        removed. Each removed document is logged in ``__dana__/removed.jsonl`` of the draft, with
        ``doc_id`` and ``match``. For ``ngram`` and ``sentence`` there is one line per task, with
        ``task``, its ``tokens`` and a ``digest`` of the words, never the words; for
        ``near_duplicate``, ``of`` is the earlier document. The draft's counts get ``overlap``: for
        each task, the number of documents that share text with it, and of those dropped for it (for
        the first such task by name, so these add up).

        Args:
            documents: Documents so far, all counted in `tally`.
            tally: Removed documents are subtracted here.
            draft: Draft of the artifact.
            pool: Also sample the documents and remove near duplicates.
        """
        threshold = self._settings.near_duplicates if pool else None
        if pool and self._settings.sample is not None:
            documents = _sample(documents, self._settings.sample, tally)
        if not self._cards and threshold is None:
            yield from documents
            return
        sharing: Counter[str] = Counter()
        drops: Counter[str] = Counter()
        with (draft.path / REMOVED).open("w", encoding="utf-8") as stream:

            def remove(document: Document, reason: str, *matches: dict[str, Any]) -> None:
                tally.drop(document, reason)
                lines = [{"doc_id": document.doc_id, **match} for match in matches]
                stream.write(to_json_lines(lines))

            if self._cards:
                documents = self._without_overlap(documents, remove, sharing, drops)
            if threshold is not None:
                documents = _without_near_duplicates(documents, threshold, remove)
            yield from documents
        if self._cards:
            draft.counts["overlap"] = {
                task: {"shared": sharing[task], "dropped": drops[task]} for task in self._cards
            }
            by_task = ", ".join(f"{sharing[task]:,} {task}" for task in self._cards)
            message = "hygiene   %s documents share text with evaluation splits (%s)"
            log.info(message, f"{drops.total():,}", by_task)

    def filter_target(self, documents: list[Document], draft: Draft) -> list[Document]:
        """Remove documents of the task that share text with evaluation splits.

        Counts go into the draft. Near duplicates stay: a task may label one sentence several times.

        Raises:
            DataError: If no document remains.
        """
        if not self._cards:
            return documents
        tally = Tally(record_count=len(documents))
        for document in documents:
            tally.add(document)
        remaining = list(self.filter_pool(documents, tally, draft, pool=False))
        if documents and not remaining:
            raise DataError(
                "every document to fit on shares text with evaluation splits of "
                f"{', '.join(self._cards)}"
            )
        counts = tally.as_dict()
        draft.counts["fit_documents"] = {key: counts[key] for key in ("in", "kept", "dropped")}
        return remaining

    def _without_overlap(
        self,
        documents: Iterable[Document],
        remove: Remover,
        sharing: Counter[str],
        drops: Counter[str],
    ) -> Iterator[Document]:
        """Stream the documents that share no text with evaluation splits, and count the others."""
        for block in document_blocks(documents):
            overlaps_by_row = self._find_overlaps(block)
            for row, document in enumerate(block):
                if row not in overlaps_by_row:
                    yield document
                    continue
                overlaps = overlaps_by_row[row]
                drops[overlaps[0].task] += 1
                sharing.update(overlap.task for overlap in overlaps)
                matches = [
                    {
                        "match": overlap.kind,
                        "task": overlap.task,
                        "tokens": overlap.tokens,
                        "digest": overlap.digest,
                    }
                    for overlap in overlaps
                ]
                remove(document, "overlap", *matches)

    def _find_overlaps(self, block: list[Document]) -> dict[int, list[Overlap]]:
        """Return the overlaps of the documents of a block that have any, by row."""
        overlaps: dict[int, list[Overlap]] = {}
        for overlap in self._index.find([document.text for document in block]):
            overlaps.setdefault(overlap.row, []).append(overlap)
        for row, document in enumerate(block):
            text = words(document.text)
            task = self._tasks_by_text.get(text)
            if row not in overlaps and task:
                tokens = text.count(" ") + 1
                digest = text_digest(text).hex()
                overlaps[row] = [Overlap(row, task, "sentence", tokens, digest)]
        return overlaps


def _sample(documents: Iterable[Document], share: float, tally: Tally) -> Iterator[Document]:
    """Stream a share of the documents, chosen by a hash of their text."""
    for document in documents:
        position = int.from_bytes(text_digest(document.text)[:8], "big")
        if position < share * 2**64:
            yield document
        else:
            tally.drop(document, "not sampled")


def _without_near_duplicates(
    documents: Iterable[Document], threshold: float, remove: Remover
) -> Iterator[Document]:
    index = NearDuplicates(threshold)
    for document in documents:
        first = index.add(document.doc_id, document.text)
        if first is None:
            yield document
        else:
            remove(document, "near duplicate", {"match": "near_duplicate", "of": first})


def document_blocks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Group consecutive documents: at most 256, or about 500,000 characters, in a block."""
    block: list[Document] = []
    characters = 0
    for document in documents:
        block.append(document)
        characters += len(document.text)
        if len(block) == DOCUMENTS_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            yield block
            block = []
            characters = 0
    yield block
