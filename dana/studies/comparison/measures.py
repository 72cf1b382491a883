"""Measures of what a selector keeps of a pool: planted recall beside its ceiling, sources, divergence, perplexity."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.metrics import average_precision_score, roc_auc_score

from dana.core.artifacts import Artifact, Draft, make, open_artifact, write_json, write_text
from dana.core.launch import Share
from dana.core.rng import generator
from dana.core.schemas import iterate_documents, read_table
from dana.core.statistics import draw_counts, percentile_interval
from dana.models.ngram.kneser_ney import train_ngrams
from dana.models.ngram.model import text_entropies
from dana.models.ngram.vocabulary import Vocabulary, WordIds
from dana.scoring.inputs import GeneralCorpus, TaskText
from dana.scoring.ranking.folds import groups_of
from dana.scoring.scoring import Scoring, build_selector
from dana.scoring.settings import Selection
from dana.studies.comparison.planting import PLANTED
from dana.studies.comparison.settings import COUNTED, ORACLE
from dana.weighting.settings import parse_amount

MEASURES, RANKED, COST = "measures.csv", "documents.parquet", "cost.json"
REPLICATES = 500
BUCKETS = 10_000  # of hashed n-grams, as in DSIR
PRIOR = 2000  # counts of the pool's distribution that are added to a set's
ORDER, LEAST = 3, 2  # of the n-gram models; words that the pool holds less often are unknown to them
COMPARED = 5000  # kept documents that are looked at for duplicates, because comparing them takes memory
RANDOM_SETS = 5  # random sets of the same size, whose mean the divergence is compared with


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
        planted: bool of shape (documents,), at least one of each kind.
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


def precision_interval(scores: Sequence[np.ndarray], planted: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """95 % percentile interval of the mean precision at R, by a bootstrap over the documents of the pool.

    Every replicate draws documents with replacement, the same for all rankings, so what seeds have in common is not
    averaged away. R is the number of plants drawn; ties stand in the order of the pool.

    Args:
        scores: One ranking of the same pool a seed, each of shape (documents,).
        planted: Shape (documents,), bool.
        seed: Of the draws.
    """
    drawn = draw_counts(generator(seed, "comparison", "interval"), np.ones(planted.size), REPLICATES)
    means = np.zeros(REPLICATES)
    for values in scores:
        order = np.argsort(values, kind="stable")
        times = drawn[:, order]
        plants, reached = np.cumsum(times * planted[order], axis=1), np.cumsum(times, axis=1)
        last = np.minimum((reached < plants[:, -1:]).sum(1), planted.size - 1)[:, None]
        means += (np.take_along_axis(plants, last, 1) / np.maximum(np.take_along_axis(reached, last, 1), 1))[:, 0]
    return percentile_interval(means / len(scores))


def divergence(target: np.ndarray, counts: np.ndarray, pool: np.ndarray) -> float:
    """KL(target || counts) in nats, the latter smoothed towards the pool by a Dirichlet prior of 2,000 counts.

    A small set is smoothed to what the pool says, not to equal shares, so its size alone brings it no nearer.

    Args:
        target: Counts of shape (buckets,).
        counts: The same.
        pool: The same, of the whole pool; its own share has one count a bucket more.

    References:
        Zhai and Lafferty 2004, A study of smoothing methods for language models, section 3.3.
    """
    task = target / target.sum()
    shares = (counts + PRIOR * (pool + 1) / (pool.sum() + pool.size)) / (counts.sum() + PRIOR)
    present = task > 0
    return float((task[present] * np.log(task[present] / shares[present])).sum())


@dataclass(frozen=True)
class PoolText:
    """What is measured on the text of a pool once, for every selector.

    Attributes:
        texts: The documents.
        sources: Of each.
        held_out: Task text that nothing was fitted on.
    """

    texts: Sequence[str]
    sources: Sequence[str]
    held_out: Sequence[str]

    @cached_property
    def words(self) -> np.ndarray:
        """Words of each document, int64."""
        return np.array([len(text.split()) for text in self.texts], dtype=np.int64)

    @cached_property
    def _counts(self) -> tuple[csr_matrix, np.ndarray, np.ndarray]:
        """Hashed words and pairs of words: of each document, of all, and of the held-out task text."""
        vectorizer = HashingVectorizer(
            n_features=BUCKETS, ngram_range=(1, 2), alternate_sign=False, norm=None, token_pattern=r"\w+|[^\w\s]"
        )
        counts, target = vectorizer.transform(self.texts), vectorizer.transform(self.held_out)
        return counts, np.asarray(counts.sum(0)).ravel(), np.asarray(target.sum(0)).ravel()

    @cached_property
    def _numbered(self) -> tuple[Vocabulary, WordIds, WordIds]:
        """The words that the pool holds twice, the same for every selector; documents and held-out text as numbers."""
        vocabulary = Vocabulary.of_texts(self.texts, min_count=LEAST)
        return vocabulary, vocabulary.encode(self.texts), vocabulary.encode(self.held_out)

    def reduction(self, kept: np.ndarray, seed: int) -> float:
        """KL(task || random) - KL(task || kept) in nats; random is the mean over five sets of as many documents.

        Positive: the kept text is nearer to the task than random text. Sets of one size are compared because a small
        set is far from anything.

        Args:
            kept: Rows of the documents that are kept.
            seed: Decides the random sets.

        References:
            Xie et al. 2023, Data selection for language models via importance resampling, section 5 (KL reduction).
        """
        counts, whole, target = self._counts
        draws = generator(seed, "comparison", "kl")
        sets = [kept, *(draws.permutation(self.words.size)[: kept.size] for _ in range(RANDOM_SETS))]
        divergences = [divergence(target, np.asarray(counts[rows].sum(0)).ravel(), whole) for rows in sets]
        return float(np.mean(divergences[1:])) - divergences[0]

    def perplexity(self, kept: np.ndarray) -> float:
        """Perplexity a word of held-out task text under a 3-gram model of the kept text; lower is nearer.

        Every selector's model knows the same words and takes the others for one unknown word.

        Args:
            kept: Rows of the documents that are kept.

        References:
            Moore and Lewis 2010, Intelligent selection of language model training data, section 3.
        """
        vocabulary, documents, held_out = self._numbered
        return text_entropies(train_ngrams(documents.rows(kept), ORDER, vocabulary), held_out).perplexity

    def measures(self, kept: np.ndarray, seed: int) -> list[tuple[str, str, float]]:
        """(metric, detail, value) of the kept documents; the detail is the source, where it is of one.

        Args:
            kept: Rows of the documents that are kept; near duplicates are looked for among the first 5,000.
            seed: See :meth:`reduction`.
        """
        some, sources = kept[:COMPARED], np.array(self.sources)
        groups = groups_of([self.texts[row] for row in some], [str(row) for row in some])
        values = {
            "kept_documents": float(kept.size),
            "kept_tokens": float(self.words[kept].sum()),
            "kl_reduction": self.reduction(kept, seed),
            "length_ratio": float(self.words[kept].mean() / self.words.mean()),
            "duplicate_share": 1 - np.unique(groups).size / some.size,
            "perplexity": self.perplexity(kept),
        }
        shares = [("source_share", source, float((sources[kept] == source).mean())) for source in np.unique(sources)]
        return [(metric, "", value) for metric, value in values.items()] + shares


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
        budgets: How much is kept, see :func:`best_documents`.
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
        sources, ids = ([getattr(document, name) for document in documents] for name in ("source", "doc_id"))
        held_out = [document.text for document in iterate_documents(task / "held_out")]
        text = PoolText([document.text for document in documents], sources, held_out)
        planted = np.array([source.endswith(PLANTED) for source in sources])
        values = document_scores(scores, ids) if scores else np.where(planted, 0.0, 1.0)
        draft.notes["metrics"] = ranking_measures(values, planted) if planted.any() else {}
        rows = [("", metric, "", value) for metric, value in draft.notes["metrics"].items()]
        for budget in budgets:
            kept = best_documents(values, text.words, budget)
            if planted.any():
                of_plants = budget_measures(values, planted, kept.size)
                rows += [(budget, metric, "", value) for metric, value in of_plants.items()]
            rows += [(budget, *measured) for measured in text.measures(np.sort(kept), seed)]
        frame = pd.DataFrame(rows, columns=["budget", "metric", "detail", "value"])
        write_text(draft.path / MEASURES, frame.to_csv(index=False))
        ranked = {"doc_id": ids, "source": sources, "planted": planted, "words": text.words, "score": values}
        pq.write_table(pa.table(ranked), draft.path / RANKED, compression="zstd")
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
