"""What every selection step shares: the settings, the task's text and the general corpus, opened once."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dana.artifacts import Artifact, open_artifact
from dana.config import require
from dana.encoders.rounding import DTYPES
from dana.geometry import parse_geometry
from dana.registry import ENCODERS
from dana.rng import generator
from dana.schemas import parts
from dana.selectors.base import Units
from dana.stages.unit_stream import corpus_units
from dana.units import Splitter, parse_units


@dataclass(frozen=True)
class Selection:
    """How text is cut, embedded and placed.

    Attributes:
        units: ``sentence`` or ``window:N`` word-pieces of the encoder's tokenizer.
        encoder: Encoder spec, for example ``minilm`` or ``transformer:bert-base-uncased``.
        geometry: ``none``, ``l2``, ``center+l2`` or ``whiten:K`` (docs/design.md, Geometry).
        max_task_units: Fit on at most so many task units, drawn at random; fitting kNN, LOF and one-class SVM
            grows with them, and beyond some thousand the scores hardly change.
        seed: Root seed of every split, sample and detector.
        store: Folder of an embedding store: what was encoded once, for any task or corpus, is looked up.
        store_dtype: ``float16`` or ``int8``: how the store rounds.
    """

    units: str = "sentence"
    encoder: str = "minilm"
    geometry: str = "center+l2"
    max_task_units: int = 4000
    seed: int = 0
    store: str | None = None
    store_dtype: str = "float16"

    def __post_init__(self) -> None:
        require(self.store_dtype in DTYPES, "store_dtype", self.store_dtype, f"one of {', '.join(DTYPES)}")
        require(not Path(self.store or "").is_file(), "store", self.store, "a folder, or a place for a new one")
        require(self.max_task_units >= 1, "max_task_units", self.max_task_units, "at least 1")
        parse_geometry(self.geometry)
        parse_units(self.units)

    def identity(self) -> dict[str, Any]:
        """Plain values for a fingerprint; the encoder is added by whoever loads it. Where a store is does not count."""
        left_out = ("store",) if self.store else ("store", "store_dtype")
        return {key: value for key, value in asdict(self).items() if key not in left_out}

    def splitter(self) -> Splitter:
        """Text to character spans of its units. Windows need the encoder's tokenizer."""
        spec = parse_units(self.units)
        tokenizer = getattr(ENCODERS.create(self.encoder), "tokenizer", None) if spec.needs_tokenizer else None
        return spec.splitter(tokenizer)


@dataclass(frozen=True)
class TaskText:
    """A task artifact: documents to fit on, and held-out ones that nothing is fitted on."""

    artifact: Artifact

    @classmethod
    def open(cls, path: Path) -> "TaskText":
        """Open what :func:`dana.stages.task.task_stage` wrote."""
        return cls(open_artifact(path, "task", "dana rank --task ... --general ... --out DIR"))

    @property
    def name(self) -> str:
        """Card name or file stem."""
        return self.artifact.manifest["depends_on"]["name"]

    @property
    def fingerprint(self) -> str:
        """Digest of its content and settings."""
        return self.artifact.fingerprint

    @property
    def held_out(self) -> Path:
        """Folder of documents that nothing is fitted on."""
        return self.artifact.path / "held_out"

    def units(self, selection: Selection) -> list[str]:
        """Texts of the units to fit on, at most ``max_task_units``, distinct, in a seeded order."""
        batches = corpus_units(self.artifact.path / "fit", selection.splitter())
        return _some([text for batch in batches for text in batch.texts], selection)

    def held_out_units(self, selection: Selection) -> Iterator[Units]:
        """Batches of units of the held-out documents."""
        return corpus_units(self.held_out, selection.splitter())


def _some(texts: list[str], selection: Selection) -> list[str]:
    """Distinct texts: repeated ones (marked-up relation data) would vote twice and leak over the split."""
    distinct = list(dict.fromkeys(texts))
    order = generator(selection.seed, "task", "units").permutation(len(distinct))
    return [distinct[row] for row in order[: selection.max_task_units]]


@dataclass(frozen=True)
class GeneralCorpus:
    """A corpus artifact."""

    artifact: Artifact

    @classmethod
    def open(cls, path: Path) -> "GeneralCorpus":
        """Open what :func:`dana.stages.corpus.corpus_stage` wrote."""
        return cls(open_artifact(path, "corpus", "dana score --task ... --general ... --out DIR"))

    @property
    def fingerprint(self) -> str:
        """Digest of its content and settings."""
        return self.artifact.fingerprint

    @cached_property
    def documents(self) -> int:
        """Number of documents."""
        return sum(pq.read_metadata(part).num_rows for part in parts(self.artifact.path))

    def units(self, selection: Selection) -> Iterator[Units]:
        """Batches of units, in corpus order."""
        return corpus_units(self.artifact.path, selection.splitter())
