"""Fit topics to pool text, choose their number, describe them, and compute documents' shares."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.metrics.pairwise import cosine_similarity

from dana.core.artifacts import (
    META_DIR,
    Artifact,
    Draft,
    fingerprint,
    make,
    open_artifact,
    write_text,
)
from dana.core.logging import get_logger, monitor
from dana.core.rng import derive_seed
from dana.core.schemas import table_schema, write_parts
from dana.core.text_table import csv_text
from dana.corpus.unit_stream import Units, draw
from dana.corpus.units import WholeDocuments
from dana.scoring.inputs import PoolText
from dana.scoring.sharded import ShardedTable
from dana.stages.settings import RunSettings
from dana.stages.texts import open_pool
from dana.studies.frame_text import frame_text
from dana.studies.topics.model import (
    Bags,
    Topics,
    choose_vocabulary,
    count_known_words,
    fit_topics,
    require_documents,
)
from dana.studies.topics.settings import TOPIC_MODELS

log = get_logger(__name__)

MODEL = "topic-model"
SHARES = "topics"
HINT = "dana studies topics fit --pool FILES --out DIR"
COHERENT_WORDS = 10  # most probable words of a topic that its coherence is of
DIVERSE_WORDS = 25  # and that the topics' diversity is of
TWIN = 0.9  # cosine above which a topic is a twin of another
TOPICS = "topics.csv"

# topic: the largest one, from 0.  share: its share of the document.  words: number of words of the
# document that are in the vocabulary.  theta: shares of all topics, which sum to 1; equal for a
# document without such words.
TOPIC_SHARES = table_schema(
    doc_id=pa.string(),
    source=pa.string(),
    topic=pa.int32(),
    share=pa.float32(),
    words=pa.int64(),
    theta=pa.list_(pa.float32()),
)


def top_words(beta: np.ndarray, count: int) -> np.ndarray:
    """Rank the words of each topic by probability; ties in the order of the vocabulary.

    Args:
        beta: Shape (topics, words).
        count: Number of words to return.

    Returns:
        Indices into the vocabulary, int64 of shape (topics, min(count, words)).
    """
    return np.argsort(-beta, axis=1, kind="stable")[:, :count]


def topic_coherence(top: np.ndarray, counts: Any) -> np.ndarray:
    """Compute the coherence of each topic.

    It is the mean normalised pointwise mutual information of all pairs of the topic's words:
    NPMI(v, w) = log(p(v, w) / (p(v) p(w))) / −log p(v, w), with p the share of documents that
    contain the word, or both words. It is −1 for words that never co-occur, and set to 0 (from 0/0)
    for words that every document contains.

    Args:
        top: From :func:`top_words`, int of shape (topics, words per topic).
        counts: Word counts, sparse of shape (documents, vocabulary).

    Returns:
        float64 of shape (topics,) in [-1, 1]; higher if the words occur in the same documents. NaN
        for one word per topic.

    References:
        Bouma 2009, Normalized (pointwise) mutual information in collocation extraction. Dieng, Ruiz
        and Blei 2020, section 6: the ten most likely words; their release takes eleven.
    """
    word_ids, positions = np.unique(top, return_inverse=True)
    present = (counts[:, word_ids] > 0).astype(np.float64)
    together = np.asarray((present.T @ present).todense()) / counts.shape[0]
    alone = together.diagonal()
    with np.errstate(divide="ignore", invalid="ignore"):
        npmi = np.log(together / np.outer(alone, alone)) / -np.log(together)
    npmi[together == 0] = -1.0
    npmi[together == 1] = 0.0
    topics, words = top.shape
    first, second = np.triu_indices(words, k=1)  # all pairs of words
    if not first.size:
        return np.full(topics, np.nan)
    rows = positions.reshape(top.shape)
    return np.array([npmi[row[first], row[second]].mean() for row in rows])


def measure_topics(beta: np.ndarray, counts: Any) -> dict[str, float]:
    """Measure topics: mean coherence, diversity, and their product, ``quality``.

    Diversity is the share of distinct words among the 25 most probable of each topic; 1 if topics
    share none.

    Args:
        beta: Probability of each word in each topic, shape (K, V).
        counts: Word counts of documents, sparse of shape (documents, V).
    """
    coherence = float(topic_coherence(top_words(beta, COHERENT_WORDS), counts).mean())
    diverse = top_words(beta, DIVERSE_WORDS)
    diversity = np.unique(diverse).size / diverse.size
    return {
        "coherence": coherence,
        "diversity": diversity,
        "quality": coherence * diversity,
    }


def measure_collapse(beta: np.ndarray, theta: np.ndarray) -> dict[str, int]:
    """Count collapsed topics: ``unused``, the largest topic of no document, and ``twins``.

    Args:
        beta: Probability of each word in each topic, shape (K, V). A topic is a twin if the cosine
            with another is above 0.9.
        theta: Shares of topics, shape (documents, K).
    """
    cosines = cosine_similarity(beta) - 2 * np.eye(len(beta))  # a topic is no twin of itself
    return {
        "unused": len(beta) - np.unique(theta.argmax(1)).size,
        "twins": int((cosines.max(1) > TWIN).sum()),
    }


def choose_topics(fits: pd.DataFrame) -> tuple[int, int, str]:
    """Choose the number of topics with the best mean quality over seeds, and its best fit.

    Ties go to the smallest number.

    Args:
        fits: One row per fit: k, seed, and the entries of :func:`measure_topics`.

    Returns:
        The number; the seed of its best fit; the reason, in a sentence.

    References:
        Dieng, Ruiz and Blei 2020, section 6: coherence times diversity is the quality of topics.
    """
    means = fits.groupby("k")["quality"].mean()
    k = int(means.index.to_numpy()[means.argmax()])
    qualities = fits[fits["k"] == k].set_index("seed")["quality"].sort_index()
    seed = int(qualities.index.to_numpy()[qualities.argmax()])
    numbers = ", ".join(map(str, means.index))
    reason = (
        f"{k} topics, the best of {numbers}: mean coherence x diversity {means[k]:.3f}"
        f" over {len(qualities)} fits; seed {seed} is used"
    )
    return k, seed, reason


def describe_topics(topics: Topics, bags: Bags) -> pd.DataFrame:
    """Tabulate topics, one row each: topic, coherence, share, documents, words.

    This is the table ``topics.csv``.

    Args:
        topics: Fitted topics.
        bags: Documents, each with a word of the vocabulary.

    Returns:
        ``share`` is the mean over documents, ``documents`` counts those whose largest topic it is,
        ``words`` are the ten most probable.
    """
    theta = topics.model.theta(bags.counts)
    top = top_words(topics.beta, COHERENT_WORDS)
    words = np.array(topics.words, dtype=object)[top]
    return pd.DataFrame(
        {
            "topic": np.arange(len(top)),
            "coherence": topic_coherence(top, bags.counts),
            "share": theta.mean(0, dtype=np.float64),
            "documents": np.bincount(theta.argmax(1), minlength=len(top)),
            "words": [" ".join(row) for row in words],
        }
    )


def run_topic_fit(settings: RunSettings, is_named: bool = True) -> Artifact:
    """Fit topics to a sample of a run's pool text, and save the best.

    There is a fit for every number of topics and seed. A run that was killed resumes with the
    missing fits.

    Args:
        settings: Settings of the run.
        is_named: False to use the pool in the run's folder as it is, if there is one.

    Returns:
        The artifact ``OUT/topic-model``: the model (:meth:`dana.studies.topics.model.Topics.save`),
        ``topics.csv`` (:func:`describe_topics`) and ``fits.csv`` (one row per fit: k, seed,
        :func:`measure_topics` and :func:`measure_collapse`); its manifest has the measures of the
        fit that is used.

    Raises:
        ConfigError: If there is no pool text, or there are fewer documents than topics.
        DataError: If the vocabulary has fewer than two words.
    """
    out = Path(settings.out)
    limits = settings.section("topics")
    identity = limits.identity()  # fail on missing files before any text is read
    pool = open_pool(settings, is_named)
    depends_on = {
        "pool": pool.artifact.fingerprint,
        "topics": identity,
        "seed": settings.selection.seed,
    }
    fits = out / f"{MODEL}-fits-{fingerprint(depends_on)[:12]}"
    write = partial(_write_model, pool=pool, settings=settings, depends_on=depends_on, folder=fits)
    choice = {"k": sorted(limits.k), "seeds": limits.seeds}
    artifact = make(out / MODEL, MODEL, depends_on | choice, write)
    shutil.rmtree(fits, ignore_errors=True)
    return artifact


def _write_model(
    draft: Draft,
    pool: PoolText,
    settings: RunSettings,
    depends_on: dict[str, Any],
    folder: Path,
) -> None:
    """Draw the sample, fit every number of topics with every seed to it, and write the best fit.

    Args:
        draft: Draft of the model's artifact.
        pool: The pool.
        settings: Settings of the run.
        depends_on: What all fits depend on.
        folder: Folder of the fits, an artifact each.
    """
    limits = settings.section("topics")
    seed = derive_seed(settings.selection.seed, "topics", "sample")
    units = monitor(pool.units(WholeDocuments()), what="reading words", unit="blocks")
    sample = draw(units, {"topics": (seed, limits.fit)})["topics"]
    bags = choose_vocabulary(sample.texts, limits, TOPIC_MODELS.create(limits.model).known_words)
    rows = np.flatnonzero(bags.sizes)
    log.info(
        "topics    %s words in %s of %s documents",
        f"{len(bags.words):,}",
        f"{rows.size:,}",
        f"{len(sample):,}",
    )
    bags = bags.rows(rows)
    require_documents(max(limits.k), bags)
    fits = {}
    measures = []
    for k, number in product(sorted(limits.k), range(limits.seeds)):
        write = partial(_write_fit, bags=bags, settings=settings, k=k, number=number)
        fit_depends_on = {**depends_on, "k": k, "number": number}
        fit = make(folder / f"k{k}-{number}", "topic-fit", fit_depends_on, write)
        fits[k, number] = fit
        measures.append({"k": k, "seed": number, **fit.manifest["measures"]})
    table = pd.DataFrame(measures)
    k, number, reason = choose_topics(table)
    best = fits[k, number]
    topics = Topics.load(best.path)
    topics.save(draft.path)
    write_text(draft.path / TOPICS, csv_text(describe_topics(topics, bags)))
    write_text(draft.path / "fits.csv", csv_text(table))
    draft.notes["reason"] = reason
    draft.notes["measures"] = best.manifest["measures"]
    draft.counts = {"documents": pool.documents, "fitted_on": rows.size, "words": len(bags.words)}
    draft.seeds = {"sample": seed}


def _write_fit(draft: Draft, bags: Bags, settings: RunSettings, k: int, number: int) -> None:
    """Fit so many topics with one seed, and write and measure them."""
    seed = derive_seed(settings.selection.seed, "topics", number)
    topics = fit_topics(settings.section("topics").model, bags, k, seed)
    topics.save(draft.path)
    draft.seeds = {"fit": seed}
    measures = measure_topics(topics.beta, bags.counts)
    collapse = measure_collapse(topics.beta, topics.model.theta(bags.counts))
    draft.notes["measures"] = measures | collapse
    text = "  ".join(f"{name} {value:.3f}" for name, value in measures.items())
    log.info("topics    k=%d seed %d: %s", k, number, text)


def open_topics(folder: Path) -> Artifact:
    """Open the topics that :func:`run_topic_fit` wrote to a run's folder."""
    return open_artifact(folder / MODEL, MODEL, HINT)


@dataclass(frozen=True)
class Assignment(ShardedTable):
    """Topic shares of each document of a pool, computed in shards.

    Attributes:
        pool: The pool.
        model: Artifact of ``dana studies topics fit``.
        folder: Folder of ``part-*.parquet`` (:data:`TOPIC_SHARES`, one row per document, pool
            order).
        selection: Splitter of units; a unit is a document.
    """

    pool: PoolText
    model: Artifact
    folder: Path
    selection: WholeDocuments = field(default_factory=WholeDocuments)
    kind: ClassVar[str] = "topics"
    model_name: ClassVar[str] = "topic-model"
    schema: ClassVar[pa.Schema] = TOPIC_SHARES
    command: ClassVar[str] = "dana studies topics assign"

    @property
    def depends_on(self) -> dict[str, Any]:
        """Inputs of the fingerprint."""
        return {"pool": self.pool.artifact.fingerprint, "topics": self.model.fingerprint}

    def fit(self, draft: Draft) -> None:
        """Copy the fitted topics beside the shards."""
        Topics.load(self.model.path).save(draft.path / META_DIR / self.model_name)

    def load(self, folder: Path) -> Topics:
        return Topics.load(folder)

    def rows(self, units: Units, topics: Topics) -> pa.Table:
        bags = count_known_words(units.texts, topics.words)
        theta = topics.model.theta(bags.counts)
        largest = theta.argmax(1).astype(np.int32)
        doc_ids, sources = units.key_columns()[:2]
        shares = pa.FixedSizeListArray.from_arrays(pa.array(theta.ravel()), theta.shape[1])
        columns = [
            doc_ids,
            sources,
            pa.array(largest),
            pa.array(theta[np.arange(len(units)), largest]),
            pa.array(bags.sizes),
            shares.cast(pa.list_(pa.float32())),
        ]
        return pa.Table.from_arrays(columns, schema=TOPIC_SHARES)

    def join(self, draft: Draft, model: Artifact, shards: Iterator[pa.Table]) -> int:
        return write_parts(shards, draft.path, TOPIC_SHARES)


def run_topic_assign(settings: RunSettings, topics: Path, is_named: bool = True) -> Artifact:
    """Compute the topic shares of every document of a run's pool text; processes share the shards.

    Args:
        settings: Settings of the run.
        topics: Folder of the run with the topics.
        is_named: See :func:`run_topic_fit`.

    Returns:
        The artifact ``OUT/topics`` (:data:`TOPIC_SHARES`).

    Raises:
        ArtifactError: If there are no topics in that folder.
        ConfigError: If there is no pool text.
    """
    model = open_topics(topics)
    return Assignment(open_pool(settings, is_named), model, Path(settings.out) / SHARES).run()


def topics_text(folder: Path) -> str:
    """Format the topics in a run's folder: share, coherence and words of each, the largest first.

    Raises:
        ArtifactError: If the folder has no topics.
    """
    artifact = open_topics(folder)
    topics = pd.read_csv(artifact.path / TOPICS, keep_default_na=False)
    topics = topics.sort_values(["share", "topic"], ascending=[False, True])
    table = frame_text(topics[["topic", "share", "coherence", "words"]])
    counts = artifact.manifest["counts"]
    text = (
        f"{table}\n\n{artifact.manifest['reason']};"
        f" {counts['fitted_on']:,} documents, vocabulary of {counts['words']:,} words"
    )
    measures = artifact.manifest.get("measures", {})
    unused = measures.get("unused", 0)
    twins = measures.get("twins", 0)
    if unused or twins:
        text += (
            f"\ncollapse: {unused} topics are the largest of no document, {twins} have a twin"
            f" (cosine above {TWIN}); try a smaller --k"
        )
    return text
