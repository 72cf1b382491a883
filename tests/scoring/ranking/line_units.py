"""Documents whose units are their lines."""

import numpy as np

from dana.core.schemas import Document
from dana.corpus.unit_stream import Units, split_documents


def lines(text):
    ends = np.cumsum([len(line) + 1 for line in text.split("\n")]) - 1
    return [
        (int(end) - len(line), int(end)) for line, end in zip(text.split("\n"), ends, strict=True)
    ]


def numbered(count, sizes, name="d"):
    """Documents of so many units, in turn, each of its own words."""
    texts = (
        "\n".join(f"{name}{n:03d}{u:02d}" for u in range(sizes[n % len(sizes)]))
        for n in range(count)
    )
    return [Document(f"{name}{n}", "s", text) for n, text in enumerate(texts)]


def units_of(documents):
    return Units.join(list(split_documents(documents, lines, 50)))
