"""Read the domains of the paper's tables, one file each, and embed their sentences with a cache on disk."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dana.cli.main import run_script
from dana.core.artifacts import Draft, make
from dana.core.errors import DataError
from dana.core.rng import derive_seed
from dana.core.schemas import DOCUMENTS, Document, iterate_documents, write_parts
from dana.corpus.documents import Tally, document_tables, read_documents, source_digests
from dana.corpus.text import distinct_rows
from dana.corpus.unit_stream import draw, split_documents
from dana.corpus.units import parse_units
from dana.encoders.base import encode
from dana.encoders.cache import create_encoder

BATCH = 1024  # sentences between two writes to the cache


@dataclass(frozen=True)
class Domains:
    """Sentences of known domains.

    Attributes:
        names: Names of the domains, sorted.
        documents: One per sentence; its source is its domain.
        fingerprint: Fingerprint of the sentences.
    """

    names: tuple[str, ...]
    documents: list[Document]
    fingerprint: str

    @property
    def texts(self) -> list[str]:
        """The sentences."""
        return [document.text for document in self.documents]

    @property
    def labels(self) -> np.ndarray:
        """Index into `names` of each sentence's domain: int64 of shape (sentences,)."""
        return np.array([self.names.index(document.source) for document in self.documents])


def domain_command(description: str | None) -> ArgumentParser:
    """Build the parser that all scripts share: files, sentences per domain, seed and output folder."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="one per domain")
    parser.add_argument(
        "--most", type=int, default=2000, help="sentences per domain (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    return parser


def run_command(
    parser: ArgumentParser,
    arguments: Sequence[str] | None,
    script: Callable[[Domains, Namespace], None],
    plan: Callable[[Domains, Namespace], str],
) -> int:
    """Parse the command line, read the domains and call the script; returns an exit code.

    Args:
        parser: Parser of the script.
        arguments: Words of the command line; None takes those of the process.
        script: Called with the domains and the arguments.
        plan: Says what it would do with the same; called in a dry run alone.
    """

    def run(args: Namespace) -> None:
        if args.dry_run:
            with TemporaryDirectory(prefix="dana-") as folder:
                domains = read_domains(args.files, args.most, Path(folder) / "texts")
                print(f"would {plan(domains, args)}, into {args.out}")
            return
        script(read_domains(args.files, args.most, args.out / "texts"), args)

    return run_script(parser, run, arguments)


def embedding_plan(domains: Domains, encoders: Sequence[str]) -> str:
    """Say how many sentences are embedded, and by which encoders."""
    names = ", ".join(encoders) or "nothing"
    return f"embed {len(domains.documents):,} sentences by {names} and fit to them"


def read_domains(files: Sequence[Path], limit: int, folder: Path) -> Domains:
    """Read the same number of distinct sentences from each file and store them in a folder; a second call loads them.

    Args:
        files: One per domain; the part of its name before the first dot is the domain's name. In
            plain text (``.txt``, ``.txt.gz``) each line is a sentence and the first lines are used;
            JSONL is split and sampled by a hash.
        limit: Sentences per domain.
        folder: Folder of the artifact.

    Raises:
        DataError: If there are fewer than two files, two have the same name, or one has too few
            sentences.
    """
    by_name = {path.name.split(".")[0]: path for path in files}
    if len(by_name) < 2 or len(by_name) < len(files):
        raise DataError(
            f"FILE={' '.join(map(str, files))}: expected two or more files with different names"
        )
    names = sorted(by_name)

    def write(draft: Draft) -> None:
        documents = [
            document for name in names for document in _sentences(name, by_name[name], limit)
        ]
        draft.counts["sentences"] = write_parts(document_tables(documents), draft.path, DOCUMENTS)

    digests = source_digests([str(by_name[name]) for name in names])
    artifact = make(folder, "domains", {"files": digests, "most": limit}, write)
    return Domains(tuple(names), list(iterate_documents(artifact.path)), artifact.fingerprint)


def _sentences(name: str, path: Path, limit: int) -> list[Document]:
    documents = read_documents([str(path)], "fail", Tally())
    if ".txt" in path.suffixes:
        texts = [document.text for document in islice(documents, limit)]
    else:
        request = {
            name: (derive_seed(0, "domains", name), 2 * limit)
        }  # twice as many: duplicates are dropped
        sample = draw(split_documents(documents, parse_units("sentence").splitter()), request)[name]
        texts = [sample.texts[row] for row in distinct_rows(sample.texts)[:limit]]
    if len(texts) < limit:
        raise DataError(
            f"{path}: expected {limit:,} distinct sentences (--most), got {len(texts):,}"
        )
    return [Document(f"{name}-{number}", name, text) for number, text in enumerate(texts)]


def embed(texts: Sequence[str], spec: str, store: Path) -> Tensor:
    """Embed texts, shape (texts, dims); vectors that are in the cache are not computed again.

    Args:
        texts: Sentences, one per row.
        spec: Spec of the encoder.
        store: Folder of the cache of embeddings.
    """
    encoder = create_encoder(spec, str(store))
    batches = []
    for start in range(0, len(texts), BATCH):
        batches.append(encode(encoder, texts[start : start + BATCH], spec))
    return torch.cat(batches)


def read_published(table: str) -> pd.DataFrame:
    """Read the paper's numbers of a table: row, column, value, std; ``meant`` is corrected, else as printed."""
    frame = pd.read_csv(Path(__file__).with_name("published.csv"))
    return frame[frame["table"] == table].assign(
        meant=lambda rows: rows["corrected"].fillna(rows["value"])
    )
