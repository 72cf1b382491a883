"""Measure the text that a selector selects: recall of plants, sources, perplexity, length."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import average_precision_score, roc_auc_score

from dana.core.artifacts import Artifact, Draft, make, open_artifact, write_json, write_text
from dana.core.launch import Share
from dana.core.rng import generator
from dana.core.schemas import read_table
from dana.core.statistics import percentile_interval
from dana.core.text_table import csv_text
from dana.models.ngram.kneser_ney import train_ngrams
from dana.models.ngram.model import text_entropies
from dana.models.ngram.vocabulary import Vocabulary
from dana.scoring.inputs import PoolText, TargetText
from dana.scoring.scoring import Scoring, build_selector
from dana.scoring.settings import Selection
from dana.studies.comparison.planting import PLANTED
from dana.studies.comparison.settings import COUNTED, ORACLE
from dana.weighting.settings import parse_amount

MEASURES = "measures.csv"
RANKED = "documents.parquet"
COST = "cost.json"
REPLICATES = 500
ORDER = 3  # of the n-gram models
LEAST = 2  # smallest count of a word of their vocabulary in the pool


def best_documents(scores: np.ndarray, words: np.ndarray, budget: str) -> np.ndarray:
    """Select the documents with the lowest scores within a budget, at least one.

    Args:
        scores: float64 of shape (documents,); higher is more foreign.
        words: Number of words of each document.
        budget: ``0.05`` (share of the documents), ``300 documents`` or ``2e4 tokens`` (words).

    Returns:
        Indices of documents, the lowest score first; ties in the order of the pool.

    Raises:
        ConfigError: If the budget is invalid.
    """
    amount, kind = parse_amount(budget, "budgets", COUNTED)
    order = np.argsort(scores, kind="stable")
    if kind == "tokens":
        count = int(np.searchsorted(np.cumsum(words[order]), amount, side="right"))
    elif kind == "share":
        count = round(amount * words.size)
    else:
        count = round(amount)
    return order[: max(1, count)]


def planted_precision(scores: np.ndarray, is_plant: np.ndarray, count: int) -> float:
    """Compute precision at `count`: the share of plants among the documents with the lowest scores.

    Ties count by their expectation under random order.

    Args:
        scores: float64 of shape (documents,); higher is more foreign.
        is_plant: bool of shape (documents,).
        count: Number of documents, at least 1.
    """
    threshold = np.partition(scores, count - 1)[count - 1]
    is_below = scores < threshold
    is_tie = scores == threshold
    plants = is_plant[is_below].sum() + (count - is_below.sum()) * is_plant[is_tie].mean()
    return float(plants / count)


def ranking_measures(scores: np.ndarray, is_plant: np.ndarray) -> dict[str, float]:
    """Measure a ranking: precision at R, AUROC, average precision, and the share of plants.

    R is the number of plants.

    Args:
        scores: float64 of shape (documents,); higher is more foreign.
        is_plant: bool of shape (documents,).
    """
    return {
        "precision_at_r": planted_precision(scores, is_plant, int(is_plant.sum())),
        "auroc": float(roc_auc_score(is_plant, -scores)),
        "average_precision": float(average_precision_score(is_plant, -scores)),
        "chance": float(is_plant.mean()),
    }


def budget_measures(scores: np.ndarray, is_plant: np.ndarray, count: int) -> dict[str, float]:
    """Compute precision and recall of the plants among the `count` best documents.

    Each comes with its ceiling. The ceilings are min(1, plants / count) and min(1, count / plants).
    """
    plants = int(is_plant.sum())
    precision = planted_precision(scores, is_plant, count)
    return {
        "precision": precision,
        "precision_ceiling": min(1.0, plants / count),
        "recall": precision * count / plants,
        "recall_ceiling": min(1.0, count / plants),
    }


def precision_interval(scores: Sequence[np.ndarray], is_plant: np.ndarray) -> tuple[float, float]:
    """Compute the 95 % bootstrap interval of the mean precision at R.

    The bootstrap draws documents of the pool. All rankings share the documents of a replicate, so
    the interval includes the variance that seeds have in common. R is the number of plants in a
    replicate; ties count as in :func:`planted_precision`.

    Args:
        scores: Scores of the same pool by each seed, shape (documents,) each.
        is_plant: bool of shape (documents,).
    """
    random = generator(0, "comparison", "interval")
    means = []
    for _ in range(REPLICATES):
        rows = random.integers(0, is_plant.size, is_plant.size)
        plants = is_plant[rows]
        count = max(1, int(plants.sum()))
        precisions = [planted_precision(values[rows], plants, count) for values in scores]
        means.append(np.mean(precisions))
    return percentile_interval(np.array(means))


class PoolWords:
    """Measures on the words of selected documents of a pool.

    The n-gram models of all selectors share one vocabulary: words that occur twice or more in the
    pool.

    Args:
        texts: Documents of the pool.
        held_out: Target text that no selector was fitted on.
    """

    def __init__(self, texts: Sequence[str], held_out: Sequence[str]) -> None:
        self.words = np.array([len(text.split()) for text in texts], dtype=np.int64)
        self.held_out = held_out
        self._vocabulary = Vocabulary.of_texts(texts, min_count=LEAST)
        self._documents = self._vocabulary.encode(texts)

    def measures(self, rows: np.ndarray) -> dict[str, float]:
        """Measure selected documents.

        Returns:
            Number of documents and words; their mean length over the pool's; and the perplexity per
            word of the held-out target text under a 3-gram model of the selected text, which is
            lower for text nearer the task.

        Args:
            rows: Indices of the selected documents, ascending.

        References:
            Moore and Lewis 2010, Intelligent selection of language model training data, section 3.
        """
        model = train_ngrams(self._documents.rows(rows), ORDER, self._vocabulary)
        return {
            "selected_documents": float(rows.size),
            "selected_tokens": float(self.words[rows].sum()),
            "length_ratio": float(self.words[rows].mean() / self.words.mean()),
            "perplexity": text_entropies(model, self.held_out).perplexity,
        }


def score_pool(
    target: Path, pool: Path, selector: str, detector: str, selection: Selection, folder: Path
) -> Artifact:
    """Score a pool by one selector, as ``dana score`` does, and measure its cost.

    Args:
        target: Artifact of :func:`dana.studies.comparison.planting.fit_stage`.
        pool: Folder of a pool.
        selector: Spec of the selector.
        detector: Spec of the detector, for selectors that use the run's.
        selection: How text is split and embedded.
        folder: Folder of the scores; ``cost.json`` beside it has the CPU seconds of fitting and
            scoring. It is missing if scoring was interrupted: the rest of it costs too little.
    """
    built = build_selector(selector, detector, selection)
    scoring = Scoring(
        TargetText.open(target),
        PoolText.open(pool),
        selection,
        built,
        folder,
        selector,
        allowed=True,
    )
    is_fitted = (scoring.shard_folder.path / scoring.model_name).exists()
    if not scoring.is_done and not is_fitted:
        cost_file = folder.with_name(COST)
        cost_file.unlink(missing_ok=True)  # it may be of other settings
        start = time.process_time()
        fit = scoring.prepare()
        fitted_at = time.process_time()
        scoring.score(fit, Share())
        end = time.process_time()
        seconds = {"fit_seconds": fitted_at - start, "score_seconds": end - fitted_at}
        write_json(cost_file, seconds)
    return scoring.run()


def measure_stage(
    pool: Path, target: Path, scores: Path | None, budgets: list[str], folder: Path
) -> Artifact:
    """Measure the text that a selector selects from a pool at every budget.

    Holds the pool in memory.

    Args:
        pool: Folder of a pool; documents whose source ends in ``(planted)`` are plants.
        target: Task artifact with held-out text.
        scores: Folder of the pool's scores, averaged over the units of a document; None for the
            oracle, which ranks the plants first.
        budgets: Amounts of text to select, see :func:`best_documents`.
        folder: Folder of ``measures.csv`` (budget, metric, detail, value) and ``documents.parquet``
            (doc_id, source, planted, score).
    """
    depends_on = {
        "pool": open_artifact(pool, "pool").fingerprint,
        "target": open_artifact(target, "target").fingerprint,
        "scores": open_artifact(scores, "scores").fingerprint if scores else ORACLE,
        "budgets": budgets,
    }

    def write(draft: Draft) -> None:
        documents = read_table(pool, ["doc_id", "source", "text"]).to_pandas()
        held_out = read_table(target / "held_out", ["text"])["text"].to_pylist()
        text = PoolWords(documents["text"].tolist(), held_out)
        sources = documents["source"].to_numpy(str)
        is_plant = documents["source"].str.endswith(PLANTED).to_numpy()
        values = np.where(is_plant, 0.0, 1.0)
        if scores:
            values = document_scores(scores, documents["doc_id"].tolist())
        rows = []
        for metric, value in ranking_measures(values, is_plant).items():
            rows.append(("", metric, "", value))
        for budget in budgets:
            selection = np.sort(best_documents(values, text.words, budget))
            measures = budget_measures(values, is_plant, selection.size) | text.measures(selection)
            for metric, value in measures.items():
                rows.append((budget, metric, "", value))
            for source in np.unique(sources):
                share = (sources[selection] == source).mean()
                rows.append((budget, "source_share", source, share))
        frame = pd.DataFrame(rows, columns=["budget", "metric", "detail", "value"])
        write_text(draft.path / MEASURES, csv_text(frame))
        ranking = documents[["doc_id", "source"]].assign(planted=is_plant, score=values)
        ranking.to_parquet(draft.path / RANKED, compression="zstd", index=False)
        draft.counts |= {
            "documents": len(documents),
            "planted": int(is_plant.sum()),
            "held_out": len(held_out),
        }

    return make(folder, "comparison", depends_on, write)


def document_scores(scores: Path, ids: list[str]) -> np.ndarray:
    """Average the scores of each document's units.

    Args:
        scores: Folder of a scores table.
        ids: Ids of the documents.

    Returns:
        float64 of shape (documents,); infinite for a document without units.
    """
    units = read_table(scores, ["doc_id", "score"]).to_pandas()
    means = units.groupby("doc_id")["score"].mean()
    of_documents: np.ndarray = means.reindex(ids, fill_value=np.inf).to_numpy()
    return of_documents
