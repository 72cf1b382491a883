"""Held-out stage: a corpus in, a fixed sample of its documents out, on which losses on general text are measured."""

from pathlib import Path

import numpy as np

from dana.core.artifacts import Artifact, Draft, make, open_artifact
from dana.core.rng import derive_seed, hash_uniform, unit_keys
from dana.core.schemas import DOCUMENTS, iterate_documents, write_parts
from dana.corpus.documents import document_tables

DOCUMENTS_AT_MOST = 500
SHARE = 0.05  # of a corpus too small to spare 500 documents
_FIRST = np.zeros(1, dtype=np.int64)


def held_out_folders(run: Path) -> tuple[Path, Path]:
    """The documents that a run measures losses on: the task's own, and general ones."""
    return run / "task" / "held_out", run / "held_out"


def held_out_stage(corpus: Path, folder: Path, seed: int = 0) -> Artifact:
    """Draw documents of a corpus by a hash of their id: 500, or a twentieth if that is fewer, at least one.

    They stay in the corpus, so that they are scored like all others; training leaves out what is held out.

    Args:
        corpus: Folder of a corpus artifact.
        folder: Where ``part-*.parquet`` (:data:`dana.core.schemas.DOCUMENTS`) goes.
        seed: Decides which.
    """
    opened = open_artifact(corpus, "corpus")
    depends_on = {"corpus": opened.fingerprint, "seed": seed, "at_most": DOCUMENTS_AT_MOST, "share": SHARE}

    def write(draft: Draft) -> None:
        key = derive_seed(seed, "general", "held_out")
        ids = [document.doc_id for document in iterate_documents(corpus)]
        places = hash_uniform(key, np.concatenate([unit_keys(doc_id, _FIRST) for doc_id in ids]))
        count = max(1, min(DOCUMENTS_AT_MOST, int(SHARE * len(ids))))
        chosen = {ids[row] for row in np.argsort(places, kind="stable")[:count]}
        rows = [document for document in iterate_documents(corpus) if document.doc_id in chosen]
        draft.counts["documents"] = {
            "in": len(ids),
            "held_out": write_parts(document_tables(rows), draft.path, DOCUMENTS),
        }
        draft.seeds["held_out"] = key

    return make(folder, "held_out", depends_on, write)
