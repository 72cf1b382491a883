"""What fitted topics are: documents and their topics to tables of words, sources and example documents."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dana.corpus.unit_stream import Units
from dana.studies.topics.base import Topics
from dana.studies.topics.coherence import COHERENT_WORDS, DIVERSE_WORDS, top_words, topic_coherence
from dana.studies.topics.vocabulary import Bags

EXAMPLES = 3
EXCERPT = 160  # characters
TOPICS, WORDS, SOURCES, EXAMPLE_DOCUMENTS = "topics.csv", "words.csv", "sources.csv", "examples.csv"


def topic_tables(topics: Topics, documents: Units, bags: Bags) -> dict[str, pd.DataFrame]:
    """Tables of what topics are, by file name.

    Args:
        topics: Fitted.
        documents: With a word of the vocabulary each.
        bags: Theirs.

    Returns:
        ``topics.csv``: a row a topic: topic, coherence, share (mean over documents), documents (of which it is the
        largest topic), words (the ten most probable). ``words.csv``: topic, rank, word, probability, 25 a topic.
        ``sources.csv``: topic, source, share (mean over the source's documents), documents (of the source).
        ``examples.csv``: topic, rank, doc_id, source, share, text: of the largest share, how they begin.
    """
    theta = topics.fitted.theta(bags.counts)
    return {
        TOPICS: _topic_rows(topics, theta, bags),
        WORDS: _word_rows(topics),
        SOURCES: _source_rows(theta, documents.sources),
        EXAMPLE_DOCUMENTS: _example_rows(theta, documents),
    }


def _topic_rows(topics: Topics, theta: np.ndarray, bags: Bags) -> pd.DataFrame:
    top = top_words(topics.beta, COHERENT_WORDS)
    largest = np.bincount(theta.argmax(1), minlength=len(top))
    columns = {"topic": np.arange(len(top)), "coherence": topic_coherence(top, bags.counts)}
    columns |= {"share": theta.mean(0, dtype=np.float64), "documents": largest}
    return pd.DataFrame(columns | {"words": [" ".join(topics.words[place] for place in row) for row in top]})


def _word_rows(topics: Topics) -> pd.DataFrame:
    beta = topics.beta
    return pd.DataFrame(
        {"topic": topic, "rank": rank, "word": topics.words[place], "probability": beta[topic, place]}
        for topic, row in enumerate(top_words(beta, DIVERSE_WORDS))
        for rank, place in enumerate(row, start=1)
    )


def _source_rows(theta: np.ndarray, sources: Sequence[str]) -> pd.DataFrame:
    frame = pd.DataFrame(theta.astype(np.float64)).assign(source=sources).groupby("source")
    means, counts = frame.mean(), frame.size()
    return pd.DataFrame(
        {"topic": topic, "source": source, "share": means.loc[source, topic], "documents": counts[source]}
        for topic in range(theta.shape[1])
        for source in means.index
    )


def _example_rows(theta: np.ndarray, documents: Units) -> pd.DataFrame:
    names = np.array(documents.doc_ids)
    rows = []
    for topic, shares in enumerate(theta.T):
        for rank, place in enumerate(np.lexsort((names, -shares))[:EXAMPLES].tolist(), start=1):
            text = " ".join(documents.texts[place][: 2 * EXCERPT].split())[:EXCERPT]
            row = {"topic": topic, "rank": rank, "doc_id": names[place], "source": documents.sources[place]}
            rows.append(row | {"share": shares[place], "text": text})
    return pd.DataFrame(rows)
