"""Stages of a comparison's numbers: a pool and a selector to scores, scores to what is measured of the kept text."""

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import Artifact, Draft, make, open_artifact, write_json, write_text
from dana.core.launch import Share
from dana.core.schemas import iterate_documents, read_table
from dana.scoring.inputs import GeneralCorpus, TaskText
from dana.scoring.scoring import Scoring, build_selector
from dana.scoring.settings import Selection
from dana.studies.comparison.kept import PoolText
from dana.studies.comparison.planting import PLANTED
from dana.studies.comparison.recall import DocumentBudget, budget_measures, ranking_measures
from dana.studies.comparison.settings import ORACLE
from dana.weighting.pool import document_starts

MEASURES, RANKED, COST = "measures.csv", "documents.parquet", "cost.json"


def score_pool(task: Path, pool: Path, selector: str, detector: str, selection: Selection, folder: Path) -> Artifact:
    """Score a pool by one selector, as ``dana score`` does, and note beside the scores what that cost.

    Args:
        task: Of :func:`dana.studies.comparison.planting_stage.fit_stage`.
        pool: A corpus.
        selector: The selector's spec.
        detector: Spec of the detector, for a selector that takes the run's.
        selection: How text is cut and embedded.
        folder: Where the scores go; ``cost.json`` beside it has the CPU seconds that fitting and scoring took.
    """
    built = build_selector(selector, detector, selection)
    scoring = Scoring(TaskText.open(task), GeneralCorpus.open(pool), selection, built, folder, selector)
    if not scoring.is_done:
        begun = time.process_time()
        fitted = scoring.prepare()
        between = time.process_time()
        scoring.score(fitted, Share())
        seconds = {"fit_seconds": between - begun, "score_seconds": time.process_time() - between}
        write_json(folder.with_name(COST), seconds)
    return scoring.whole()


def measure_stage(
    pool: Path, task: Path, scores: Path | None, budgets: list[str], folder: Path, seed: int = 0
) -> Artifact:
    """Measure what a selector keeps of a pool at every budget.

    A document's score is the mean of its units', as a segment's is. The texts of the pool are in memory.

    Args:
        pool: A corpus; documents whose source ends in ``(planted)`` are plants.
        task: Task text; its held-out part is what the kept text is compared with.
        scores: Of the pool; None takes the plants first and the rest in the pool's order.
        budgets: How much is kept (:meth:`dana.studies.comparison.recall.DocumentBudget.parse`).
        folder: Where ``measures.csv`` (budget, metric, detail, value) and ``documents.parquet`` (doc_id, source,
            planted, words, score) go.
        seed: Of the random sets that the divergence is compared with.
    """
    depends_on = {
        "pool": open_artifact(pool, "corpus").fingerprint,
        "task": open_artifact(task, "task").fingerprint,
        "scores": open_artifact(scores, "scores").fingerprint if scores else ORACLE,
        "budgets": budgets,
        "seed": seed,
    }

    def write(draft: Draft) -> None:
        documents = list(iterate_documents(pool))
        held_out = [document.text for document in iterate_documents(task / "held_out")]
        planted = np.array([document.source.endswith(PLANTED) for document in documents])
        sources = [document.source for document in documents]
        about = PoolText.of([document.text for document in documents], sources, held_out)
        ids = [document.doc_id for document in documents]
        values = document_scores(scores, ids) if scores else np.where(planted, 0.0, 1.0)
        order = np.argsort(values, kind="stable")  # equal scores in the order of the pool, a hash
        rows: list[tuple[str, str, str, float]] = []
        if planted.any():
            rows += [("", metric, "", value) for metric, value in ranking_measures(values, planted)]
        for budget in budgets:
            kept = order[: DocumentBudget.parse(budget).count(about.words[order])]
            if planted.any():
                rows += [(budget, metric, "", value) for metric, value in budget_measures(values, planted, kept.size)]
            rows += [(budget, *found) for found in about.measures(np.sort(kept), seed)]
        frame = pd.DataFrame(rows, columns=["budget", "metric", "detail", "value"])
        write_text(draft.path / MEASURES, frame.to_csv(index=False))
        ranked = {"doc_id": ids, "source": sources, "planted": planted, "words": about.words, "score": values}
        pq.write_table(pa.table(ranked), draft.path / RANKED, compression="zstd")
        draft.counts |= {"documents": len(documents), "planted": int(planted.sum()), "held_out": len(held_out)}
        draft.notes["metrics"] = {metric: value for budget, metric, _, value in rows if not budget}

    return make(folder, "comparison", depends_on, write)


def document_scores(scores: Path, ids: list[str]) -> np.ndarray:
    """Mean score of each document's units, float64 of shape (documents,); infinite for a document without units.

    Args:
        scores: Folder of a table of scores.
        ids: The documents wanted.
    """
    table = read_table(scores, ["doc_id", "unit", "score"])
    starts = document_starts(table)
    means = np.add.reduceat(table["score"].to_numpy(), starts) / np.diff(starts, append=table.num_rows)
    found = dict(zip(table["doc_id"].take(starts).to_pylist(), means.tolist(), strict=True))
    return np.array([found.get(doc_id, np.inf) for doc_id in ids])
