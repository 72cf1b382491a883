"""Extract keywords of documents by a topic model, and write synthetic texts from them.

The keywords of a document are the words that carry its topics. A prompt has the keywords of one
document: of an unlabelled one on a topic, or of a random labelled text; or it has none. The texts
of each label are an artifact, so that a killed run resumes.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from math import floor
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd

from dana.core.artifacts import Draft, fingerprint, make, write_text
from dana.core.errors import DataError, PluginError
from dana.core.files import to_json_lines
from dana.core.registry import origin_of, plugin_errors
from dana.core.rng import derive_seed, generator
from dana.core.schemas import Document
from dana.core.settings import Bool, Count, Int, OneOf, Positive, settings_model
from dana.corpus.text import normalise, wording
from dana.report.tables import auroc
from dana.selectors.hashed_words import LexicalSelector
from dana.studies.augmentation.generators import (
    GENERATORS,
    FittedGenerator,
    Generator,
    Keywords,
    Pair,
)
from dana.studies.topics.model import WORD, Topics, count_known_words

ATTEMPTS = 3  # before an empty text is an error
SYNTHETIC = "synthetic.jsonl"
PAPER = "paper"
RELEASE = "release"
TOPIC = "topic"
NONE = "none"
RANDOM = "random"
RELEASE_WORDS = 1000  # most probable words of each topic that the released code uses
AT_ONCE = 1024  # documents per batch


@settings_model
class AugmentSettings:
    """Keywords, generator and number of synthetic texts.

    Attributes:
        keywords: Number of distinct keywords of a document, each with all its occurrences.
        reading: ``paper`` weights the words of a topic by its share of the document; ``release``
            does not, and uses only the 1,000 most probable words of a topic, as the paper's code.
        ratio: Synthetic texts of a label per real one.
        generator: Spec of a generator, for example ``embedded``, ``chat:smollm2`` or
            ``t5:model=t5-small,epochs=16``.
        control: Source of keywords: ``topic`` (documents on the topic), ``random`` (random labelled
            texts of any label), or ``none``.
        shuffle_labels: Shuffle the labels of the synthetic texts.
        seed: Seed of generators, texts and draws.
    """

    keywords: Count = 10
    reading: Annotated[str, OneOf((PAPER, RELEASE))] = PAPER
    ratio: Positive = 1.0
    generator: str = "embedded"
    control: Annotated[str, OneOf((TOPIC, RANDOM, NONE))] = TOPIC
    shuffle_labels: Bool = False
    seed: Int = 0


@dataclass(frozen=True)
class LabelledText:
    """A text with a label; subclasses add fields with its origin.

    Attributes:
        id: Id of the text.
        text: Never empty.
        label: Name of its label.
    """

    id: str
    text: str
    label: str


@dataclass(frozen=True)
class Prompt:
    """Keywords for a synthetic text.

    Attributes:
        keywords: In order, with repeats; may be empty.
        keywords_of: Id of their document; empty if there is none.
        topic: Number of the topic that the document was selected for, from 0; None if it was not.
    """

    keywords: Keywords = ()
    keywords_of: str = ""
    topic: int | None = None


def extract_keywords(
    topics: Topics, texts: Sequence[str], settings: AugmentSettings
) -> list[Keywords]:
    """Extract the keywords of each text: its words with the highest scores above 0.

    Scores are those of :func:`score_words`. Ties are resolved by the first occurrence in the text.
    Texts are independent of each other.

    Args:
        topics: The topic model.
        texts: Documents.
        settings: Number of keywords and score.

    Returns:
        Keywords of each text in lower case, in the order of the text, with repeats; empty if no
        word is in the vocabulary.

    References:
        Roussinov and Sharoff 2023, BERT goes off-topic, section 3.2.1.
    """
    keywords = []
    for text, scores in zip(texts, score_words(topics, texts, settings.reading), strict=True):
        candidates = [word for word, score in scores.items() if score > 0]
        ranking = sorted(candidates, key=scores.__getitem__, reverse=True)  # ties keep their order
        best = set(ranking[: settings.keywords])
        keywords.append(tuple(word for word in _words(text) if word in best))
    return keywords


def score_words(
    topics: Topics, texts: Sequence[str], reading: str = PAPER
) -> list[dict[str, float]]:
    """Score how strongly each word of a document stands for the document's topics.

    score(w, D) = Σ over occurrences of w in D, Σ over topics t, L(D, t) · L(w, t), with L(D, t) =
    θ, the share of t in D, and L(w, t) = β, the probability of w in t. For ``release``, L(D, t) is
    1, and L(w, t) is 0 unless w is among the 1,000 most probable words of t (ties in the order of
    the vocabulary).

    Args:
        topics: The topic model.
        texts: Documents.
        reading: ``paper`` or ``release``.

    Returns:
        Scores of the words of each text that are in the vocabulary, in the order of their first
        occurrence.

    References:
        Roussinov and Sharoff 2023, the equation in section 3.2.1; ``process-both.py`` of its code
        for ``release``.
    """
    column_by_word = {word: column for column, word in enumerate(topics.words)}
    beta = topics.beta.astype(np.float64)
    if reading == RELEASE:
        others = np.argsort(-beta, axis=1, kind="stable")[:, RELEASE_WORDS:]
        np.put_along_axis(beta, others, 0.0, 1)
        weights = np.ones((len(texts), len(beta)))
    else:
        weights = topics.theta(texts).astype(np.float64)
    scores = []
    for text, weight in zip(texts, weights, strict=True):
        times = Counter(word for word in _words(text) if word in column_by_word)
        columns = beta[:, [column_by_word[word] for word in times]]
        # Not a matrix product, so that equal words get equal bits.
        word_scores = (weight[:, None] * columns).sum(0).tolist()
        scores.append(
            {word: times[word] * score for word, score in zip(times, word_scores, strict=True)}
        )
    return scores


def _words(text: str) -> list[str]:
    """Split a text into words as topic models do, in order and with repeats."""
    return re.findall(WORD, text.lower())


def choose_prompts(
    topics: Topics, rows: Sequence[LabelledText], settings: AugmentSettings
) -> list[Prompt]:
    """Make the prompts of the controls ``random`` and ``none``.

    Returns:
        For ``random``, a prompt of each text that has keywords, in random order; for ``none``, a
        single prompt without keywords.

    Raises:
        DataError: If no text has a keyword.
    """
    if settings.control == NONE:
        return [Prompt()]
    order = generator(settings.seed, "augmentation", "random keywords").permutation(len(rows))
    shuffled = [rows[number] for number in order.tolist()]
    prompts = _prompts(topics, [(row.id, row.text) for row in shuffled], settings)
    if not prompts:
        raise DataError(
            f"control={RANDOM}: none of the {len(rows):,} labelled texts has a word of the"
            " vocabulary"
        )
    return prompts


def find_on_topic(
    documents: Iterable[Document], topics: Topics, topic: int, count: int
) -> list[Document]:
    """Find the documents with the largest shares of a topic, among those whose largest topic it is.

    Documents without words of the vocabulary are skipped. Documents are streamed in batches.

    Args:
        documents: Any text.
        topics: The topic model.
        topic: Number of the topic, from 0.
        count: Maximum number of documents.

    Returns:
        Documents by descending share, ties by id.
    """
    best: list[tuple[float, str, Document]] = []  # minus the share, id, document
    stream = iter(documents)
    while batch := list(islice(stream, AT_ONCE)):
        bags = count_known_words([document.text for document in batch], topics.words)
        theta = topics.model.theta(bags.counts)
        for document, size, shares in zip(batch, bags.sizes.tolist(), theta, strict=True):
            if size and shares.argmax() == topic:
                best.append((-float(shares[topic]), document.doc_id, document))
        best.sort(key=lambda candidate: candidate[:2])
        del best[count:]
    return [document for _, _, document in best]


def on_topic_prompts(
    topics: Topics, topic: int, documents: Sequence[Document], settings: AugmentSettings, count: int
) -> list[Prompt]:
    """Make prompts from the documents on a topic, cyclically.

    Args:
        topics: The topic model.
        topic: Number of the topic, from 0.
        documents: Documents on the topic, from :func:`find_on_topic`.
        settings: Number of keywords and score.
        count: Number of prompts.

    Raises:
        DataError: If no document has a keyword.
    """
    texts = [(document.doc_id, document.text) for document in documents]
    prompts = _prompts(topics, texts, settings, topic)
    if not prompts:
        raise DataError(f"topic {topic}: the keyword pool has no document on it; give more text")
    return [prompts[number % len(prompts)] for number in range(count)]


def _prompts(
    topics: Topics,
    texts: Sequence[tuple[str, str]],
    settings: AugmentSettings,
    topic: int | None = None,
) -> list[Prompt]:
    """Make a prompt of each text, given with its id, that has a keyword."""
    prompts = []
    keywords = extract_keywords(topics, [text for _, text in texts], settings)
    for (doc_id, _), text_keywords in zip(texts, keywords, strict=True):
        if text_keywords:
            prompts.append(Prompt(text_keywords, doc_id, topic))
    return prompts


def refuse_test_text(
    documents: Iterable[Document], test: Sequence[LabelledText]
) -> Iterator[Document]:
    """Yield documents, and refuse the first one that is a test text by its id or its words.

    Args:
        documents: Documents of a keyword pool.
        test: Test texts; texts are equal if their words are, whatever case, punctuation and spaces.

    Raises:
        DataError: If a document is a test text; names both.
    """
    ids = {row.id for row in test}
    id_by_wording = {wording(row.text): row.id for row in test}
    for document in documents:
        note = ""
        test_id = id_by_wording.get(wording(document.text))
        if document.doc_id in ids:
            note = " (same id; rename it if the texts differ)"
            test_id = document.doc_id
        if test_id is not None:
            raise DataError(
                f"keyword pool: document {document.doc_id!r} is the test text {test_id!r}{note};"
                " remove it, or allow test texts (transductive)"
            )
        yield document


@dataclass(frozen=True)
class SyntheticRow(LabelledText):
    """A synthetic text with its origin; its id is ``synthetic-LABEL-NUMBER``.

    Attributes:
        topic: See :class:`Prompt`.
        keywords: See there.
        keywords_of: See there.
        generator: Spec of the generator.
        seed: Seed of the text.
        written_for: Label whose generator wrote it; differs from `label` if labels were shuffled.
    """

    topic: int | None
    keywords: Keywords
    keywords_of: str
    generator: str
    seed: int
    written_for: str


def synthesize(
    topics: Topics,
    rows: Sequence[LabelledText],
    prompts: Sequence[Prompt],
    settings: AugmentSettings,
    folder: Path,
) -> list[SyntheticRow]:
    """Fit one generator per label to its texts and their keywords, and write its synthetic texts.

    Args:
        topics: Topic model that gives the keywords of the texts.
        rows: Real texts.
        prompts: Prompts of each label's synthetic texts, the same for all labels, used cyclically.
        settings: How texts are written.
        folder: Folder of one artifact per label, from which a killed call resumes. Calls with other
            texts, prompts or settings may share it.

    Returns:
        Rows label by label, in the order of the labels' names.

    Raises:
        DataError: If a label would have no text, or a generator writes an empty one.
    """
    counts = counts_by_label(rows, settings.ratio)
    identity = generator_identity(settings.generator)
    synthetic: list[SyntheticRow] = []
    for label, pairs in pairs_by_label(topics, rows, settings).items():
        count = counts[label]
        depends_on = {
            "label": label,
            "texts": fingerprint(pairs),
            "prompts": fingerprint([asdict(prompt) for prompt in prompts[:count]]),
            "count": count,
            "generator": identity,
            "spec": settings.generator,
            "seed": settings.seed,
        }
        write = partial(
            write_texts, label=label, pairs=pairs, prompts=prompts, count=count, settings=settings
        )
        part = make(folder / fingerprint(depends_on)[:16], "synthetic-label", depends_on, write)
        synthetic += read_synthetic(part.path)
    return _shuffle_labels(synthetic, settings.seed) if settings.shuffle_labels else synthetic


def _shuffle_labels(rows: Sequence[SyntheticRow], seed: int) -> list[SyntheticRow]:
    order = generator(seed, "augmentation", "shuffled labels").permutation(len(rows))
    labels = [rows[number].label for number in order.tolist()]
    return [replace(row, label=label) for row, label in zip(rows, labels, strict=True)]


def generator_identity(spec: str) -> dict[str, Any]:
    """Return settings and origin of a generator, for a fingerprint.

    Raises:
        DanaError: If the generator is unknown, or a requirement is missing.
    """
    component = GENERATORS.create(spec)
    with plugin_errors("generator", spec, component):
        return {"settings": component.identity(), **origin_of(component)}


def read_synthetic(folder: Path) -> list[SyntheticRow]:
    """Read the synthetic texts of an artifact."""
    rows = []
    for line in (folder / SYNTHETIC).read_text(encoding="utf-8").split("\n")[:-1]:
        fields = json.loads(line)
        fields["keywords"] = tuple(fields["keywords"])
        rows.append(SyntheticRow(**fields))
    return rows


def counts_by_label(rows: Sequence[LabelledText], ratio: float) -> dict[str, int]:
    """Compute the number of synthetic texts of each label.

    It is the number of real ones times the ratio, rounded half up.

    Raises:
        DataError: If it is 0 for a label.
    """
    real = Counter(row.label for row in rows)
    counts = {label: floor(real[label] * ratio + 0.5) for label in sorted(real)}
    rarest = min(counts, key=lambda label: counts[label])
    if not counts[rarest]:
        raise DataError(
            f"ratio={ratio:g}: no synthetic text for label {rarest!r} of {real[rarest]:,}; raise it"
        )
    return counts


def pairs_by_label(
    topics: Topics, rows: Sequence[LabelledText], settings: AugmentSettings
) -> dict[str, list[Pair]]:
    """Pair the texts of each label with their keywords, to fit its generator.

    Keywords are empty for the control ``none``.
    """
    keywords: list[Keywords] = [()] * len(rows)
    if settings.control != NONE:
        keywords = extract_keywords(topics, [row.text for row in rows], settings)
    labels = sorted({row.label for row in rows})
    pairs: dict[str, list[Pair]] = {label: [] for label in labels}
    for row, row_keywords in zip(rows, keywords, strict=True):
        pairs[row.label].append((row_keywords, row.text))
    return pairs


def write_texts(
    draft: Draft,
    label: str,
    pairs: Sequence[Pair],
    prompts: Sequence[Prompt],
    count: int,
    settings: AugmentSettings,
) -> None:
    """Fit a generator to the texts of one label and write its synthetic texts to an artifact.

    Args:
        draft: Draft of the artifact.
        label: Name of the label.
        pairs: Keywords and text of each text, from :func:`pairs_by_label`.
        prompts: Prompts, used cyclically.
        count: Number of texts.
        settings: Generator and seed.

    Raises:
        DataError: If a text is empty in all attempts.
        PluginError: If a generator of another package fails.
    """
    spec = settings.generator
    root = derive_seed(settings.seed, "augmentation", label)
    component: Generator = GENERATORS.create(spec)
    text_prompts = [prompts[number % len(prompts)] for number in range(count)]
    with plugin_errors("generator", spec, component):
        writer = component.fit(pairs, derive_seed(root, "fit"))
        texts, seeds = _generate(writer, [prompt.keywords for prompt in text_prompts], root)
    rows = []
    for number, (text, seed, prompt) in enumerate(zip(texts, seeds, text_prompts, strict=True)):
        if not text:
            keywords_text = " ".join(prompt.keywords) or "no keywords"
            raise DataError(f"generator {spec!r}: empty text of {label!r} for {keywords_text}")
        row = SyntheticRow(
            id=f"synthetic-{label}-{number}",
            text=text,
            label=label,
            topic=prompt.topic,
            keywords=prompt.keywords,
            keywords_of=prompt.keywords_of,
            generator=spec,
            seed=seed,
            written_for=label,
        )
        rows.append(row)
    write_text(draft.path / SYNTHETIC, to_json_lines(map(asdict, rows)))
    draft.counts["synthetic"] = count


def _generate(
    writer: FittedGenerator, keywords: Sequence[Keywords], root: int
) -> tuple[list[str], list[int]]:
    """Write a text for each sequence of keywords, and again, with new seeds, where it is empty.

    Returns:
        The texts, which may still be empty, and their seeds.
    """
    texts = [""] * len(keywords)
    seeds = [0] * len(keywords)
    for attempt in range(ATTEMPTS):
        missing = [number for number, text in enumerate(texts) if not text]
        if not missing:
            break
        new_seeds = [derive_seed(root, number, attempt) for number in missing]
        new_texts = writer.generate([keywords[number] for number in missing], new_seeds)
        if len(new_texts) != len(missing):
            raise PluginError(
                f"a generator returned {len(new_texts)} texts for {len(missing)} keyword sequences"
            )
        for number, text, seed in zip(missing, new_texts, new_seeds, strict=True):
            texts[number] = normalise(text)
            seeds[number] = seed
    return texts, seeds


def tell_apart(
    real: Sequence[LabelledText], synthetic: Sequence[LabelledText], seed: int
) -> float | None:
    """Measure how well a classifier tells real from synthetic texts.

    The classifier sees words, word pairs and word parts. It is fitted on half of either kind and
    scores the other half, both ways. Texts on another topic are told apart by it too: with the
    control ``random`` it is the writing alone.

    Args:
        real: Real texts.
        synthetic: Synthetic texts.
        seed: Seed of the halves.

    Returns:
        The AUROC over all texts: 0.5 if they cannot be told apart, 1 if always; None below two
        texts of a kind.
    """
    if min(len(real), len(synthetic)) < 2:
        return None

    def halve(rows: Sequence[LabelledText], number: int) -> tuple[list[str], list[str]]:
        order = generator(seed, "augmentation", "halves", number).permutation(len(rows))
        texts = [rows[row].text for row in order]
        return texts[::2], texts[1::2]

    real_halves = halve(real, 0)
    synthetic_halves = halve(synthetic, 1)
    real_scores: list[float] = []
    synthetic_scores: list[float] = []
    for half, other in ((0, 1), (1, 0)):
        background = {"background": synthetic_halves[half]}
        classifier = LexicalSelector().fit(real_halves[half], background, seed)
        real_scores += classifier.score(real_halves[other]).tolist()
        synthetic_scores += classifier.score(synthetic_halves[other]).tolist()
    return auroc(pd.Series(real_scores), pd.Series(synthetic_scores))
