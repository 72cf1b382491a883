"""Measures of what a selector keeps of a pool: planted recall beside its ceiling, sources, perplexity, length."""

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
from dana.core.statistics import draw_counts, percentile_interval
from dana.models.ngram.kneser_ney import train_ngrams
from dana.models.ngram.model import text_entropies
from dana.models.ngram.vocabulary import Vocabulary
from dana.scoring.inputs import GeneralCorpus, TaskText
from dana.scoring.scoring import Scoring, build_selector
from dana.scoring.settings import Selection
from dana.studies.comparison.planting import PLANTED
from dana.studies.comparison.settings import COUNTED, ORACLE
from dana.weighting.settings import parse_amount

MEASURES, RANKED, COST = "measures.csv", "documents.parquet", "cost.json"
REPLICATES = 500
ORDER, LEAST = 3, 2  # of the n-gram models; words that the pool holds less often are unknown to them


def best_documents(scores: np.ndarray, words: np.ndarray, budget: str) -> np.ndarray:
    """Rows of the documents that a budget keeps, the best first, at least one; equal scores in the order of the pool.

    Args:
        scores: float64 of shape (documents,), higher = more foreign.
        words: Words of each document.
        budget: ``0.05`` (of the documents), ``300 documents`` or ``2e4 tokens`` (words between white space).

    Raises:
        ConfigError: If the budget is none of these.
    """
    amount, kind = parse_amount(budget, "budgets", COUNTED)
    order = np.argsort(scores, kind="stable")
    if kind == "tokens":
        count = int(np.searchsorted(np.cumsum(words[order]), amount, side="right"))
    else:
        count = min(words.size, round(amount * words.size if kind == "share" else amount))
    return order[: max(1, count)]


def planted_precision(scores: np.ndarray, planted: np.ndarray, count: int) -> float:
    """Share of plants among the `count` documents with the lowest scores, ties broken at random (its expectation).

    Args:
        scores: float64 of shape (documents,), higher = more foreign.
        planted: bool of shape (documents,).
        count: How many documents are looked at, at least 1.
    """
    threshold = np.partition(scores, count - 1)[count - 1]
    below, tied = scores < threshold, scores == threshold
    plants = planted[below].sum() + (count - below.sum()) * planted[tied].mean()
    return float(plants / count)


def ranking_measures(scores: np.ndarray, planted: np.ndarray) -> dict[str, float]:
    """Precision at R (R = number of plants), AUROC and average precision of the plants against all others.

    Args:
        scores: float64 of shape (documents,), higher = more foreign.
        planted: bool of shape (documents,).
    """
    return {
        "precision_at_r": planted_precision(scores, planted, int(planted.sum())),
        "auroc": float(roc_auc_score(planted, -scores)),
        "average_precision": float(average_precision_score(planted, -scores)),
        "chance": float(planted.mean()),
    }


def budget_measures(scores: np.ndarray, planted: np.ndarray, count: int) -> dict[str, float]:
    """Precision and recall of the plants among the `count` best documents, each with its ceiling.

    The best precision of `count` documents is min(1, plants / count), the best recall min(1, count / plants).
    """
    plants = int(planted.sum())
    precision = planted_precision(scores, planted, count)
    return {
        "precision": precision,
        "precision_ceiling": min(1.0, plants / count),
        "recall": precision * count / plants,
        "recall_ceiling": min(1.0, count / plants),
    }


def precision_interval(scores: Sequence[np.ndarray], planted: np.ndarray) -> tuple[float, float]:
    """95 % percentile interval of the mean precision at R, by a bootstrap over the documents of the pool.

    Every replicate draws documents with replacement, the same for all rankings, so what seeds have in common is not
    averaged away. R is the number of plants drawn; ties stand in the order of the pool.

    Args:
        scores: One ranking of the same pool a seed, each of shape (documents,).
        planted: Shape (documents,), bool.
    """
    drawn = draw_counts(generator(0, "comparison", "interval"), np.ones(planted.size), REPLICATES)
    means = np.zeros(REPLICATES)
    for values in scores:
        order = np.argsort(values, kind="stable")
        times = drawn[:, order]
        plants, reached = np.cumsum(times * planted[order], axis=1), np.cumsum(times, axis=1)
        last = np.minimum((reached < plants[:, -1:]).sum(1), planted.size - 1)[:, None]
        means += (np.take_along_axis(plants, last, 1) / np.maximum(np.take_along_axis(reached, last, 1), 1))[:, 0]
    return percentile_interval(means / len(scores))


class PoolWords:
    """What is measured on the words of the kept documents of a pool, for every budget.

    Every selector's model knows the same words, those that the pool holds twice, and takes the others for one.

    Args:
        texts: The documents of the pool.
        held_out: Task text that nothing was fitted on.
    """

    def __init__(self, texts: Sequence[str], held_out: Sequence[str]) -> None:
        self.words = np.array([len(text.split()) for text in texts], dtype=np.int64)
        self.held_out = held_out
        self._vocabulary = Vocabulary.of_texts(texts, min_count=LEAST)
        self._documents = self._vocabulary.encode(texts)

    def measures(self, kept: np.ndarray) -> dict[str, float]:
        """Documents and words kept, their mean length over the pool's, and a perplexity; lower is nearer the task.

        It is that of held-out task text, a word, under a 3-gram model of the kept text.

        Args:
            kept: Rows of the documents that are kept, ascending.

        References:
            Moore and Lewis 2010, Intelligent selection of language model training data, section 3.
        """
        model = train_ngrams(self._documents.rows(kept), ORDER, self._vocabulary)
        return {
            "kept_documents": float(kept.size),
            "kept_tokens": float(self.words[kept].sum()),
            "length_ratio": float(self.words[kept].mean() / self.words.mean()),
            "perplexity": text_entropies(model, self.held_out).perplexity,
        }


def score_pool(task: Path, pool: Path, selector: str, detector: str, selection: Selection, folder: Path) -> Artifact:
    """Score a pool by one selector, as ``dana score`` does, and note beside the scores what that cost.

    Args:
        task: Of :func:`dana.studies.comparison.planting.fit_stage`.
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
    return scoring.run()


def measure_stage(pool: Path, task: Path, scores: Path | None, budgets: list[str], folder: Path) -> Artifact:
    """Measure what a selector keeps of a pool at every budget.

    A document's score is the mean of its units', as a segment's is. The texts of the pool are in memory.

    Args:
        pool: A corpus; documents whose source ends in ``(planted)`` are plants.
        task: Task text; its held-out part is what the kept text is compared with.
        scores: Of the pool; None takes the plants first and the rest in the pool's order.
        budgets: How much is kept, see :func:`best_documents`.
        folder: Where ``measures.csv`` (budget, metric, detail, value) and ``documents.parquet`` (doc_id, source,
            planted, score) go.
    """
    depends_on = {
        "pool": open_artifact(pool, "corpus").fingerprint,
        "task": open_artifact(task, "task").fingerprint,
        "scores": open_artifact(scores, "scores").fingerprint if scores else ORACLE,
        "budgets": budgets,
    }

    def write(draft: Draft) -> None:
        documents = read_table(pool, ["doc_id", "source", "text"]).to_pandas()
        held_out = read_table(task / "held_out", ["text"])["text"].to_pylist()
        text = PoolWords(documents["text"].tolist(), held_out)
        planted, sources = documents["source"].str.endswith(PLANTED).to_numpy(), documents["source"].to_numpy(str)
        values = document_scores(scores, documents["doc_id"].tolist()) if scores else np.where(planted, 0.0, 1.0)
        rows = [("", metric, "", value) for metric, value in ranking_measures(values, planted).items()]
        for budget in budgets:
            kept = np.sort(best_documents(values, text.words, budget))
            measured = budget_measures(values, planted, kept.size) | text.measures(kept)
            rows += [(budget, metric, "", value) for metric, value in measured.items()]
            rows += [(budget, "source_share", name, (sources[kept] == name).mean()) for name in np.unique(sources)]
        frame = pd.DataFrame(rows, columns=["budget", "metric", "detail", "value"])
        write_text(draft.path / MEASURES, frame.to_csv(index=False))
        ranked = documents[["doc_id", "source"]].assign(planted=planted, score=values)
        ranked.to_parquet(draft.path / RANKED, compression="zstd", index=False)
        draft.counts |= {"documents": len(documents), "planted": int(planted.sum()), "held_out": len(held_out)}

    return make(folder, "comparison", depends_on, write)


def document_scores(scores: Path, ids: list[str]) -> np.ndarray:
    """Mean score of each document's units, float64 of shape (documents,); infinite for a document without units.

    Args:
        scores: Folder of a table of scores.
        ids: The documents wanted.
    """
    units = read_table(scores, ["doc_id", "score"]).to_pandas()
    return units.groupby("doc_id")["score"].mean().reindex(ids, fill_value=np.inf).to_numpy()
