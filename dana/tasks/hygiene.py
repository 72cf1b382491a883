"""Remove documents that share text with evaluation splits (decontamination), near duplicates, and unsampled ones."""

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
    """Add the cards that have ``folds`` or ``test: rest`` to those whose evaluation texts are removed.

    Args:
        settings: Settings of a run.
        cards: Its cards.
        task: Card of the text that is cleaned; it keeps its test texts out itself.
    """
    names = {load_card(name).name: name for name in settings.decontaminate}
    names |= {card.name: str(card.origins[0]) for card in cards if card.is_divided}
    if task is not None and task.is_divided:
        names.pop(task.name, None)
    return replace(settings, decontaminate=list(names.values()))


class Cleaner:
    """Filters the documents of one run. Evaluation texts are read once, before the first document."""

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
        self._settings, self._data, self._language = settings, data, language
        cards = {card.name: card for card in map(load_card, settings.decontaminate)}
        self._cards = {name: cards[name] for name in sorted(cards)}
        self._files = {
            name: card.files(data, card.evaluation_splits) for name, card in self._cards.items()
        }
        readers: dict[str, str] = {}
        for name, files in self._files.items():
            for file in files:
                other = readers.setdefault(file, name)
                if other != name:
                    remedy = f"data={data!r} must be the parent of the tasks' folders"
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
            files = {name: source_digests(files, digest) for name, files in self._files.items()}
            tasks = {
                name: {**card.text_identity, "files": files[name]}
                for name, card in self._cards.items()
            }
            depends_on = {
                "tasks": tasks,
                "ngram": rule.ngram,
                "sentence": rule.sentence,
                "language": self._language,
            }
        if pool and rule.sample is not None:
            depends_on["sample"] = rule.sample
        if pool and rule.near_duplicates is not None:
            signature = {"shingle": MINHASH_SHINGLE, "permutations": PERMUTATIONS}
            depends_on["near_duplicates"] = {"threshold": rule.near_duplicates, **signature}
        return {"hygiene": depends_on} if depends_on else {}

    @cached_property
    def _texts(self) -> dict[str, list[str]]:
        """The evaluation texts of each task: all texts of a card with ``folds``, each of which is tested once."""
        texts = {}
        for name, card in self._cards.items():
            splits = [read_folds(card, self._data)] if card.folds else []
            splits = splits or [read_split(card, split, self._data) for split in ("dev", "test")]
            texts[name] = [text for split in splits for example in split for text in example.texts]
        return texts

    @cached_property
    def _index(self) -> OverlapIndex:
        return OverlapIndex.build(
            self._texts, self._settings.ngram, self._settings.sentence, self._language
        )

    @cached_property
    def _tasks_by_text(self) -> dict[str, str]:
        """The texts of cards that divide their texts anew, however short, each with its task."""
        names = [name for name, card in self._cards.items() if card.is_divided]
        return {words(text): name for name in names for text in self._texts[name]}

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
                stream.write(
                    to_json_lines({"doc_id": document.doc_id, **match} for match in matches)
                )

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
            log.info(
                "hygiene   %s documents share text with evaluation splits (%s)",
                f"{drops.total():,}",
                by_task,
            )

    def filter_target(self, documents: list[Document], draft: Draft) -> list[Document]:
        """Remove documents of the task that share text with evaluation splits; counts go into the draft.

        Near duplicates stay: a task may label one sentence several times.

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
                f"every document to fit on shares text with evaluation splits of {', '.join(self._cards)}"
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
        for block in document_blocks(documents):
            overlaps: dict[int, list[Overlap]] = {}
            for overlap in self._index.find([document.text for document in block]):
                overlaps.setdefault(overlap.row, []).append(overlap)
            for row, text in enumerate(words(document.text) for document in block):
                if row not in overlaps and (task := self._tasks_by_text.get(text)):
                    overlaps[row] = [
                        Overlap(row, task, "sentence", text.count(" ") + 1, text_digest(text).hex())
                    ]
            for row, document in enumerate(block):
                if row not in overlaps:
                    yield document
                    continue
                drops[overlaps[row][0].task] += 1
                sharing.update(overlap.task for overlap in overlaps[row])
                names = ("task", "tokens", "digest")
                matches = [
                    {"match": shared.kind, **{name: getattr(shared, name) for name in names}}
                    for shared in overlaps[row]
                ]
                remove(document, "overlap", *matches)


def _sample(documents: Iterable[Document], share: float, tally: Tally) -> Iterator[Document]:
    for document in documents:
        if int.from_bytes(text_digest(document.text)[:8], "big") < share * 2**64:
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
    """Group consecutive documents into blocks of at most 256 documents, or about 500,000 characters."""
    block: list[Document] = []
    characters = 0
    for document in documents:
        block.append(document)
        characters += len(document.text)
        if len(block) == DOCUMENTS_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            yield block
            block, characters = [], 0
    yield block
