"""Overlap of test texts with a corpus: the test texts that share a run of words with any document, by word n-grams."""

from collections.abc import Iterable, Sequence

from dana.core.schemas import Document
from dana.core.text_table import Value
from dana.corpus.overlap import OverlapIndex
from dana.tasks.examples import Example
from dana.tasks.hygiene import document_blocks
from dana.tasks.settings import Hygiene

NAMED = 3


def corpus_row(examples: Sequence[Example], documents: Iterable[Document]) -> dict[str, Value]:
    """How many examples share a 13-gram, or a whole sentence of 8 words or more, with how many documents.

    The rule is that of :class:`dana.tasks.settings.Hygiene` with its defaults; the corpus is streamed.

    Args:
        examples: Of the test split.
        documents: The corpus.
    """
    rule = Hygiene()
    texts = {str(at): list(example.texts) for at, example in enumerate(examples)}
    index = OverlapIndex.build(texts, rule.ngram, rule.sentence)
    found: dict[int, str] = {}
    read = sharing = 0
    for block in document_blocks(documents):
        overlaps = index.find([document.text for document in block])
        read, sharing = read + len(block), sharing + len({overlap.row for overlap in overlaps})
        for overlap in overlaps:
            found.setdefault(int(overlap.task), block[overlap.row].doc_id)
    ids = ", ".join(f"{examples[at].id} = {found[at]}" for at in sorted(found)[:NAMED])
    return {
        "split": "test",
        "examples": len(found),
        "of": len(examples),
        "share": len(found) / max(1, len(examples)),
        "documents": sharing,
        "of_documents": read,
        "ids": ids,
    }
