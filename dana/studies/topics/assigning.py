"""Assignment of topics: a corpus and fitted topics to a table of each document's shares, in shards."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dana.core.artifacts import OWN, Artifact, Draft
from dana.core.schemas import write_parts
from dana.corpus.unit_stream import Units
from dana.corpus.units import WholeDocuments
from dana.scoring.inputs import GeneralCorpus
from dana.scoring.sharded import ShardedTable, key_columns
from dana.studies.topics.base import Topics
from dana.studies.topics.tables import TOPICS
from dana.studies.topics.vocabulary import count_known_words


@dataclass(frozen=True)
class Assignment(ShardedTable):
    """The topics of one corpus.

    Attributes:
        general: The corpus.
        model: What ``dana topics fit`` wrote.
        folder: Where ``part-*.parquet`` goes (:data:`dana.studies.topics.tables.TOPICS`, one row a document, corpus
            order).
        selection: A unit is a document.
    """

    general: GeneralCorpus
    model: Artifact
    folder: Path
    selection: WholeDocuments = field(default_factory=WholeDocuments)
    kind: ClassVar[str] = "topics"
    learned: ClassVar[str] = "topic-model"
    schema: ClassVar[pa.Schema] = TOPICS
    command: ClassVar[str] = "dana topics assign"

    @property
    def depends_on(self) -> dict[str, Any]:
        """All that decides the shares."""
        return {"general": self.general.fingerprint, "topics": self.model.fingerprint}

    def learn(self, draft: Draft) -> None:
        """Nothing: what was fitted is put beside the shards."""
        Topics.load(self.model.path).save(draft.path / OWN / self.learned)

    def load(self, folder: Path) -> Topics:
        """The fitted topics."""
        return Topics.load(folder)

    def rows(self, units: Units, fitted: Topics) -> pa.Table:
        """Documents and their topics."""
        bags = count_known_words(units.texts, fitted.words)
        theta = fitted.fitted.theta(bags.counts)
        largest = theta.argmax(1)
        offsets = np.arange(len(units) + 1, dtype=np.int32) * theta.shape[1]
        shares = pa.ListArray.from_arrays(pa.array(offsets), pa.array(theta.ravel()))
        columns = [largest.astype(np.int32), theta[np.arange(len(units)), largest], bags.sizes]
        return pa.Table.from_arrays([*key_columns(units)[:2], *map(pa.array, columns), shares], schema=TOPICS)

    def join(self, draft: Draft, prepared: Artifact, shards: Iterator[pa.Table]) -> int:
        """The table alone."""
        return write_parts(shards, draft.path, TOPICS)
