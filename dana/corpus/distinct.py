"""Documents to those whose text was not there before, each under a name of its own."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Self

from dana.core.files import text_digest
from dana.core.schemas import Document
from dana.corpus.seen import VALUE, Seen


class Distinct:
    """The texts and names of the documents so far, in constant memory; to be used in a ``with``."""

    def __init__(self, folder: Path | None = None) -> None:
        """Start without any.

        Args:
            folder: See :class:`dana.corpus.seen.Seen`.
        """
        self._texts, self._names = Seen(folder), Seen(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._texts.close()
        self._names.close()

    def admit(self, document: Document) -> tuple[str, str, Document | None]:
        """The next document under a name of its own; or why it is left out, and what is wrong if anything is.

        A name that another source has taken becomes ``source/name``. What is left out is forgotten.
        """
        text = text_digest(document.text)
        if self._texts.get(text) is not None:
            return "duplicate", "", None
        owner, name = _owner(document.source), text_digest(document.doc_id)
        held = self._names.get(name)
        if held not in (None, owner):
            document = replace(document, doc_id=f"{document.source}/{document.doc_id}")
            name = text_digest(document.doc_id)
            held = self._names.get(name)
        if held is not None:
            return "repeated id", f"id {document.doc_id!r} was there before, with another text", None
        self._texts.add(text)
        self._names.add(name, owner)
        return "", "", document


@lru_cache(maxsize=1)
def _owner(source: str) -> bytes:
    """What stands for a source beside the names of its documents."""
    return text_digest(source)[:VALUE]
