"""Make the text that ships for the quickstart: labelled sentences, a pool and three new sentences.

    DANA_DATA=... python recipes/quickstart_text.py [--out dana/quickstart]

The labelled sentences are those of csabstruct, whole abstracts in the order of a hash. An abstract
that shares a sentence with another is left out, so no text is on both sides of the split. The pool
takes, from each of four sources, the first documents of at least four sentences, cut to whole
sentences. The same data gives the same bytes.
"""

import argparse
import csv
import gzip
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from dana.core.files import text_digest, write_gzip_lines
from dana.corpus.text import wording
from dana.corpus.units import sentences

TRAIN = 500  # labelled sentences to learn from
TEST = 1_500
OF_EACH_SOURCE = 300  # documents
SOURCES = {
    "arxiv": "arXiv abstracts",
    "tech_peps": "Python PEPs",
    "legal_uscode": "US Code",
    "fiction": "ELTeC novels",
}
FEWEST_SENTENCES = 4
MOST_CHARACTERS = 1_500
Row = dict[str, str]


def main() -> None:
    """Write the three files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("dana/quickstart"))
    out = parser.parse_args().out
    data = Path(os.environ["DANA_DATA"])
    out.mkdir(parents=True, exist_ok=True)
    texts = labelled_sentences(data / "tasks" / "csabstruct")
    write_gzip_lines(out / "texts.jsonl.gz", texts)
    pool, new = [], []
    for name, source in SOURCES.items():
        documents = whole_sentences(data / "general" / f"{name}.jsonl.gz", source)
        pool += [next(documents) for _ in range(OF_EACH_SOURCE)]
        if name == "arxiv":
            new = sentences_of(next(documents)["text"])
    pool.sort(key=lambda row: text_digest(row["id"]))
    write_gzip_lines(out / "pool.jsonl.gz", pool)
    with (out / "new.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["text"])
        rows.writerows([text] for text in (new[0], new[len(new) // 2], new[-1]))
    print(f"{len(texts):,} labelled sentences, {len(pool):,} documents")
    for path in sorted(out.iterdir()):
        print(f"{path.stat().st_size:>9,} bytes  {path}")


def labelled_sentences(folder: Path) -> list[dict[str, str | int]]:
    """Return the sentences to learn from and to test on, with their abstracts as groups.

    Args:
        folder: Folder of csabstruct, whose ids end in the number of the sentence.
    """
    abstracts: dict[str, list[Row]] = defaultdict(list)
    for split in ("train", "dev", "test"):
        for row in read_rows(folder / f"{split}.jsonl.gz"):
            abstracts[row["id"].rpartition("-")[0]].append(row)
    counts = Counter(wording(row["text"]) for rows in abstracts.values() for row in rows)
    alone = {
        name: rows
        for name, rows in abstracts.items()
        if all(counts[wording(row["text"])] == 1 for row in rows)
    }
    order = iter(sorted(alone, key=text_digest))
    labelled: list[dict[str, str | int]] = []
    for fold, size in ((0, TEST), (-1, TRAIN)):
        chosen: list[dict[str, str | int]] = []
        while len(chosen) < size:
            name = next(order)
            chosen += [{**row, "abstract": name, "fold": fold} for row in alone[name]]
        labelled += chosen[:size]
    return labelled


def whole_sentences(path: Path, source: str) -> Iterator[Row]:
    """Yield the documents of a source that have enough sentences, cut after a whole one.

    Args:
        path: File of the source.
        source: Name of the source.
    """
    for row in read_rows(path):
        text = row["text"]
        if source == SOURCES["arxiv"]:
            if not row["sub"].startswith("cs."):
                continue
            text = text.partition("\n\n")[2]  # without the title
        ends = [end for _, end in sentences(text, "en") if end <= MOST_CHARACTERS]
        if len(ends) >= FEWEST_SENTENCES:
            yield {"id": row["id"], "text": text[: ends[-1]].strip(), "source": source}


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [text[start:end].strip() for start, end in sentences(text, "en")]


def read_rows(path: Path) -> Iterable[Row]:
    """Yield the records of a compressed file of JSON lines."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


if __name__ == "__main__":
    main()
