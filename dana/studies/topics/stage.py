"""``dana topics``: general text to topics, the number to take, what they are in tables, and each document's shares."""

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

from dana.core.artifacts import OWN, Artifact, Draft, fingerprint, make, open_artifact
from dana.core.logging import get_logger, tracked
from dana.core.rng import derive_seed
from dana.core.schemas import table_schema, write_parts
from dana.core.text_table import aligned
from dana.corpus.unit_stream import Units, draw
from dana.corpus.units import WholeDocuments
from dana.scoring.inputs import GeneralCorpus
from dana.scoring.sharded import ShardedTable, key_columns
from dana.stages.settings import RunSettings
from dana.stages.texts import open_general
from dana.studies.topics.model import (
    Bags,
    Topics,
    count_known_words,
    count_words_of_topics,
    fit_topics,
    require_documents,
)
from dana.studies.topics.settings import TOPIC_MODELS

log = get_logger(__name__)

MODEL, SHARES = "topic-model", "topics"
HINT = "dana topics fit --general FILES --out DIR"
COHERENT_WORDS, DIVERSE_WORDS = 10, 25
MEASURES = ["coherence", "diversity", "quality"]
TOPICS = "topics.csv"

# topic: the largest one, from 0.  share: its share of the document.  words: how many words of the document are in the
# topics' vocabulary.  theta: the share of every topic; they sum to 1, and are equal for a document without such words.
TOPIC_SHARES = table_schema(
    doc_id=pa.string(),
    source=pa.string(),
    topic=pa.int32(),
    share=pa.float32(),
    words=pa.int64(),
    theta=pa.list_(pa.float32()),
)


def top_words(beta: np.ndarray, count: int) -> np.ndarray:
    """The most probable words of each topic, the first of equally probable ones first.

    Args:
        beta: Shape (topics, words).
        count: How many; fewer where there are fewer words.

    Returns:
        int64 of shape (topics, count), places in the vocabulary.
    """
    return np.argsort(-beta, axis=1, kind="stable")[:, :count]


def topic_coherence(top: np.ndarray, counts: Any) -> np.ndarray:
    """Mean normalised pointwise mutual information of all pairs of each topic's words, by documents.

    NPMI(v, w) = log(p(v, w) / (p(v) p(w))) / −log p(v, w), where p is the share of the documents that have the word,
    or both words. −1 for two words that no document has together, 0 for two that every document has, where it is 0/0.

    Args:
        top: int of shape (topics, words a topic), of :func:`top_words`.
        counts: Sparse, shape (documents, vocabulary).

    Returns:
        float64 of shape (topics,), in [-1, 1]; higher = its words are in the same documents. nan with one word a topic.

    References:
        Bouma 2009, Normalized (pointwise) mutual information in collocation extraction. Dieng, Ruiz and Blei 2020,
        section 6: the ten most likely words; their release takes eleven.
    """
    used, places = np.unique(top, return_inverse=True)
    present = (counts[:, used] > 0).astype(np.float64)
    together = np.asarray((present.T @ present).todense()) / counts.shape[0]
    alone = together.diagonal()
    with np.errstate(divide="ignore", invalid="ignore"):
        npmi = np.log(together / np.outer(alone, alone)) / -np.log(together)
    npmi[together == 0] = -1.0
    npmi[together == 1] = 0.0
    one, other = np.triu_indices(top.shape[1], k=1)
    return np.array([npmi[row[one], row[other]].mean() if one.size else np.nan for row in places.reshape(top.shape)])


def measure_topics(beta: np.ndarray, counts: Any) -> dict[str, float]:
    """Mean coherence of the topics, their diversity, and the product of both, ``quality``.

    Diversity is the share of distinct words among the 25 most probable of all topics: 1 = no two topics share one.

    Args:
        beta: Of the fit, shape (K, V).
        counts: Documents in which words count as together, sparse of shape (documents, V).
    """
    coherence = float(topic_coherence(top_words(beta, COHERENT_WORDS), counts).mean())
    diverse = top_words(beta, DIVERSE_WORDS)
    diversity = np.unique(diverse).size / diverse.size
    return dict(zip(MEASURES, (coherence, diversity, coherence * diversity), strict=True))


def choose_topics(fits: pd.DataFrame) -> tuple[int, int, str]:
    """Choose the number with the best mean quality over seeds, of equals the smallest; and its best fit.

    Args:
        fits: A row a fit: k, seed, and :func:`measure_topics`.

    Returns:
        The number; the seed of its best fit; the reason, in a sentence.

    References:
        Dieng, Ruiz and Blei 2020, section 6: coherence times diversity is the quality of topics.
    """
    means = fits.groupby("k")["quality"].mean()
    k = int(means.index.to_numpy()[means.argmax()])
    qualities = fits[fits["k"] == k].set_index("seed")["quality"].sort_index()
    seed = int(qualities.index.to_numpy()[qualities.argmax()])
    mean = f"coherence x diversity is {means[k]:.3f} as mean of {len(qualities)} fits"
    reason = f"{k} topics, the best of {', '.join(map(str, means.index))}: {mean}; seed {seed} is kept"
    return k, seed, reason


def describe_topics(topics: Topics, bags: Bags) -> pd.DataFrame:
    """A row a topic: topic, coherence, share, documents, words; the table ``topics.csv``.

    ``share`` is the mean over documents, ``documents`` is of how many it is the largest, ``words`` are the ten most
    probable.

    Args:
        topics: Fitted.
        bags: Documents, with a word of the vocabulary each.
    """
    theta, top = topics.fitted.theta(bags.counts), top_words(topics.beta, COHERENT_WORDS)
    table = pd.DataFrame({"topic": np.arange(len(top)), "coherence": topic_coherence(top, bags.counts)})
    table["share"] = theta.mean(0, dtype=np.float64)
    table["documents"] = np.bincount(theta.argmax(1), minlength=len(top))
    table["words"] = [" ".join(row) for row in np.array(topics.words, dtype=object)[top]]
    return table


def run_topic_fit(settings: RunSettings, is_named: bool = True) -> Artifact:
    """Fit topics to a sample of a run's general text, for every number of topics and seed, and keep the best.

    Killed, the same command goes on with the fits that are missing.

    Args:
        settings: Of the run.
        is_named: Whether the general text was named now; else the corpus in the run's folder is taken.

    Returns:
        The artifact ``OUT/topic-model``: the model (:meth:`dana.studies.topics.model.Topics.save`), ``topics.csv``
        (:func:`describe_topics`) and ``fits.csv`` (a row a fit: k, seed and measures).

    Raises:
        ConfigError: If there is no general text, or there are fewer documents than topics.
        DataError: If too few words are left.
    """
    out, limits = Path(settings.out), settings.section("topics")
    identity = limits.identity()  # files that it names are looked at before any text is read
    corpus = open_general(settings, is_named)
    depends_on = {"general": corpus.artifact.fingerprint, "topics": identity, "seed": settings.selection.seed}
    fits = out / f"{MODEL}-fits-{fingerprint(depends_on)[:12]}"
    write = partial(_write_model, corpus=corpus, settings=settings, depends_on=depends_on, folder=fits)
    artifact = make(out / MODEL, MODEL, depends_on | {"k": sorted(limits.k), "seeds": limits.seeds}, write)
    shutil.rmtree(fits, ignore_errors=True)
    return artifact


def _write_model(
    draft: Draft, corpus: GeneralCorpus, settings: RunSettings, depends_on: dict[str, Any], folder: Path
) -> None:
    limits, seed = settings.section("topics"), derive_seed(settings.selection.seed, "topics", "sample")
    units = tracked(corpus.units(WholeDocuments()), what="reading words", unit="blocks")
    sample = draw(units, {"topics": (seed, limits.fit)})["topics"]
    bags = count_words_of_topics(sample.texts, limits, TOPIC_MODELS.create(limits.model).known_words)
    rows = np.flatnonzero(bags.sizes)
    log.info("topics    %s words in %s of %s documents", *(f"{n:,}" for n in (len(bags.words), rows.size, len(sample))))
    bags = bags.rows(rows)
    require_documents(max(limits.k), bags)
    parts = {}
    for k, number in product(sorted(limits.k), range(limits.seeds)):
        write = partial(_write_fit, bags=bags, settings=settings, k=k, number=number)
        given = {**depends_on, "k": k, "number": number}
        parts[k, number] = make(folder / f"k{k}-{number}", "topic-fit", given, write)
    fits = pd.DataFrame({"k": k, "seed": number, **fit.manifest["measures"]} for (k, number), fit in parts.items())
    k, number, draft.notes["reason"] = choose_topics(fits)
    topics = Topics.load(parts[k, number].path)
    topics.save(draft.path)
    describe_topics(topics, bags).to_csv(draft.path / TOPICS, index=False)
    fits.to_csv(draft.path / "fits.csv", index=False)
    draft.counts = {"documents": corpus.documents, "fitted_on": rows.size, "words": len(bags.words)}
    draft.seeds = {"sample": seed}


def _write_fit(draft: Draft, bags: Bags, settings: RunSettings, k: int, number: int) -> None:
    seed = derive_seed(settings.selection.seed, "topics", number)
    topics = fit_topics(settings.section("topics").model, bags, k, seed)
    topics.save(draft.path)
    draft.seeds = {"fit": seed}
    draft.notes["measures"] = measures = measure_topics(topics.beta, bags.counts)
    log.info("topics    k=%d seed %d: %s", k, number, "  ".join(f"{name} {of:.3f}" for name, of in measures.items()))


def fitted_topics(folder: Path) -> Artifact:
    """The topics that :func:`run_topic_fit` left in a run's folder."""
    return open_artifact(folder / MODEL, MODEL, HINT)


@dataclass(frozen=True)
class Assignment(ShardedTable):
    """Assignment of topics: a corpus and fitted topics to a table of each document's shares, in shards.

    Attributes:
        general: The corpus.
        model: What ``dana topics fit`` wrote.
        folder: Where ``part-*.parquet`` goes (:data:`TOPIC_SHARES`, one row a document, corpus order).
        selection: A unit is a document.
    """

    general: GeneralCorpus
    model: Artifact
    folder: Path
    selection: WholeDocuments = field(default_factory=WholeDocuments)
    kind: ClassVar[str] = "topics"
    model_name: ClassVar[str] = "topic-model"
    schema: ClassVar[pa.Schema] = TOPIC_SHARES
    command: ClassVar[str] = "dana topics assign"

    @property
    def depends_on(self) -> dict[str, Any]:
        """All that decides the shares."""
        return {"general": self.general.artifact.fingerprint, "topics": self.model.fingerprint}

    def learn(self, draft: Draft) -> None:
        """Nothing: what was fitted is put beside the shards."""
        Topics.load(self.model.path).save(draft.path / OWN / self.model_name)

    def load(self, folder: Path) -> Topics:
        """The fitted topics."""
        return Topics.load(folder)

    def rows(self, units: Units, fitted: Topics) -> pa.Table:
        """Documents and their topics."""
        bags = count_known_words(units.texts, fitted.words)
        theta = fitted.fitted.theta(bags.counts)
        largest = theta.argmax(1).astype(np.int32)
        columns = [largest, theta[np.arange(len(units)), largest], bags.sizes]
        shares = pa.FixedSizeListArray.from_arrays(pa.array(theta.ravel()), theta.shape[1]).cast(pa.list_(pa.float32()))
        return pa.Table.from_arrays([*key_columns(units)[:2], *map(pa.array, columns), shares], schema=TOPIC_SHARES)

    def join(self, draft: Draft, prepared: Artifact, shards: Iterator[pa.Table]) -> int:
        """The table alone."""
        return write_parts(shards, draft.path, TOPIC_SHARES)


def run_topic_assign(settings: RunSettings, fitted: Path, is_named: bool = True) -> Artifact:
    """Say of every document of a run's general text how much of it is of each topic; processes share the shards.

    Args:
        settings: Of the run.
        fitted: A run's folder with topics.
        is_named: See :func:`run_topic_fit`.

    Returns:
        The artifact ``OUT/topics`` (:data:`TOPIC_SHARES`).

    Raises:
        ArtifactError: If there are no topics in that folder.
        ConfigError: If there is no general text.
    """
    model = fitted_topics(fitted)
    return Assignment(open_general(settings, is_named), model, Path(settings.out) / SHARES).run()


def topics_text(folder: Path) -> str:
    """What the topics in a run's folder are: share, coherence and words of each, largest first.

    Raises:
        ArtifactError: If there are none.
    """
    artifact = fitted_topics(folder)
    topics = pd.read_csv(artifact.path / TOPICS, keep_default_na=False)
    topics = topics.sort_values(["share", "topic"], ascending=[False, True])
    names = ("topic", "share", "coherence", "words")
    rows = [{name: row[name] for name in names} for row in topics.to_dict("records")]
    counts = artifact.manifest["counts"]
    about = f"of {counts['fitted_on']:,} documents with a word of the vocabulary of {counts['words']:,}"
    return f"{aligned(rows)}\n\n{artifact.manifest['reason']}; {about}"
