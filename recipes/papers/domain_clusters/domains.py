"""Domains of the paper's tables: a file each to so many distinct sentences, and sentences to vectors kept on disk."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dana.core.artifacts import Draft, make
from dana.core.errors import DanaError, DataError
from dana.core.rng import derive_seed
from dana.core.schemas import DOCUMENTS, Document, iterate_documents, write_parts
from dana.corpus.documents import Tally, document_tables, read_documents, source_digests
from dana.corpus.text import distinct_rows
from dana.corpus.unit_stream import draw, split_documents
from dana.corpus.units import parse_units
from dana.encoders.base import encode
from dana.encoders.cache import StoredEncoder, create_encoder

AT_ONCE = 1024  # sentences, after which their vectors are on the disk


@dataclass(frozen=True)
class Domains:
    """Sentences of known domains.

    Attributes:
        names: Of the domains.
        documents: A sentence each; its source is its domain.
        fingerprint: Of the sentences.
    """

    names: tuple[str, ...]
    documents: list[Document]
    fingerprint: str

    @property
    def texts(self) -> list[str]:
        """The sentences."""
        return [document.text for document in self.documents]

    @property
    def own(self) -> np.ndarray:
        """int64 of shape (sentences,), the domain of each, from 0."""
        return np.array([self.names.index(document.source) for document in self.documents])


def domain_command(description: str | None) -> ArgumentParser:
    """The command line of a table or figure of domains: their files, sentences of each, seed and folder."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a domain each")
    parser.add_argument("--most", type=int, default=2000, help="sentences of each domain (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    return parser


def run_command(
    parser: ArgumentParser, arguments: Sequence[str] | None, act: Callable[[Domains, Namespace], None]
) -> None:
    """Read the domains that a command line names and act on them; what dana refuses is told in one line."""
    given = parser.parse_args(arguments)
    try:
        act(read_domains(given.files, given.most, given.out / "texts"), given)
    except DanaError as error:
        parser.error(str(error))


def read_domains(files: Sequence[Path], most: int, folder: Path) -> Domains:
    """So many distinct sentences of each file; what was read once is kept.

    Args:
        files: One a domain, which is named by its file up to the first dot. Of plain text (``.txt``, ``.txt.gz``) each
            line is a sentence and the first ones are taken; of JSONL sentences are drawn by a hash.
        most: Sentences of each.
        folder: Where they are kept.

    Raises:
        DataError: If a file has too few.
    """
    by_name = {path.name.split(".")[0]: path for path in files}
    if len(by_name) < 2 or len(by_name) < len(files):
        raise DataError(f"files={' '.join(map(str, files))}: needed are two or more, each of another name")
    names = sorted(by_name)

    def write(draft: Draft) -> None:
        documents = [document for name in names for document in _sentences(name, by_name[name], most)]
        draft.counts["sentences"] = write_parts(document_tables(documents), draft.path, DOCUMENTS)

    digests = source_digests([str(by_name[name]) for name in names])
    made = make(folder, "domains", {"files": digests, "most": most}, write)
    return Domains(tuple(names), list(iterate_documents(made.path)), made.fingerprint)


def _sentences(name: str, path: Path, most: int) -> list[Document]:
    documents = read_documents([str(path)], "fail", Tally())
    if ".txt" in path.suffixes:
        texts = [document.text for document in islice(documents, most)]
    else:
        wanted = {name: (derive_seed(0, "domains", name), 2 * most)}  # some of them come again
        drawn = draw(split_documents(documents, parse_units("sentence").splitter()), wanted)[name]
        texts = [drawn.texts[row] for row in distinct_rows(drawn.texts)[:most]]
    if len(texts) < most:
        raise DataError(f"{path}: {len(texts):,} distinct sentences; {most:,} are wanted of each domain")
    return [Document(f"{name}-{number}", name, text) for number, text in enumerate(texts)]


def vectors_of(texts: Sequence[str], spec: str, store: Path) -> Tensor:
    """Vectors of shape (texts, dims); those that were made before are looked up.

    Args:
        texts: One a row.
        spec: An encoder's.
        store: Folder of an embedding store.
    """
    encoder = create_encoder(spec, str(store))
    found = []
    for start in range(0, len(texts), AT_ONCE):
        found.append(encode(encoder, texts[start : start + AT_ONCE], spec))
        if isinstance(encoder, StoredEncoder):
            encoder.close()
    return torch.cat(found)


def published(table: str) -> pd.DataFrame:
    """What the paper prints in a table: row, column, value, std; ``meant`` is the correction where one is known."""
    frame = pd.read_csv(Path(__file__).with_name("published.csv"))
    return frame[frame["table"] == table].assign(meant=lambda rows: rows["corrected"].fillna(rows["value"]))
