"""Synthetic texts: labelled texts, and keywords of documents on a topic, to texts of every label with their origin.

The keywords of a document are the words that carry its topics. A prompt holds those of one document: of one on a topic,
from a pool of text without labels and without test text; of a labelled text at random; or none. Each label's texts may
be kept in a folder of their own, so that a killed run goes on.
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
from typing import Any

import numpy as np

from dana.core.artifacts import Draft, fingerprint, make, write_text
from dana.core.config import require
from dana.core.errors import DataError, PluginError
from dana.core.files import json_lines
from dana.core.registry import blamed, origin_of
from dana.core.rng import derive_seed, generator
from dana.core.schemas import Document
from dana.corpus.text import normalise, wording
from dana.studies.augmentation.generators import GENERATORS, FittedGenerator, Generator, Keywords, Pair
from dana.studies.topics.model import WORD, Topics, count_known_words

ATTEMPTS = 3  # at a text that is empty
SYNTHETIC = "synthetic.jsonl"
PAPER, RELEASE = "paper", "release"
TOPIC, NONE, RANDOM = "topic", "none", "random"
RELEASE_WORDS = 1000  # of each topic, that the released code reads
AT_ONCE = 1024  # documents


@dataclass(frozen=True)
class AugmentSettings:
    """Which synthetic texts are written, from which words of a document.

    Attributes:
        keywords: Keep so many different words of a document, each with all its occurrences.
        reading: ``paper``: a topic's words count by the topic's share of the document; ``release``: they do not, and
            only the 1,000 most probable words of a topic count for it, as in the paper's released code.
        ratio: Synthetic texts of a label for each real one of it.
        generator: A generator's spec, for example ``embedded`` or ``t5:model=t5-small,epochs=16``.
        control: Where keywords are from: ``topic``: documents on the topic; ``random``: labelled texts, drawn at random
            of any label; ``none``: there are none.
        shuffle_labels: Give the synthetic texts each other's labels, at random.
        seed: Of generators, texts and draws.
    """

    keywords: int = 10
    reading: str = PAPER
    ratio: float = 1.0
    generator: str = "embedded"
    control: str = TOPIC
    shuffle_labels: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.keywords >= 1, "keywords", self.keywords, "at least 1")
        require(self.reading in (PAPER, RELEASE), "reading", self.reading, f"{PAPER} or {RELEASE}")
        require(self.ratio > 0, "ratio", self.ratio, "above 0")
        require(self.control in (TOPIC, RANDOM, NONE), "control", self.control, f"{TOPIC}, {RANDOM} or {NONE}")


@dataclass(frozen=True)
class LabelledText:
    """A text with a label; a subclass says in further fields where it is from.

    Attributes:
        id: Its name.
        text: Never empty.
        label: Its label's name.
    """

    id: str
    text: str
    label: str


@dataclass(frozen=True)
class Prompt:
    """What a synthetic text is to be about.

    Attributes:
        keywords: In order, with repeats; empty leaves it to the generator.
        keywords_of: Id of the document that they are from; empty where there is none.
        topic: Number of the topic that this document was chosen for, from 0; None where it was not.
    """

    keywords: Keywords = ()
    keywords_of: str = ""
    topic: int | None = None


def extract_keywords(topics: Topics, texts: Sequence[str], settings: AugmentSettings) -> list[Keywords]:
    """The keywords of texts: the best words of each by :func:`score_words`; all others are dropped.

    Of equally good words the one that is first in the text is kept. A word with score 0 is never one. A text's keywords
    do not depend on the other texts.

    Args:
        topics: The topic model.
        texts: Documents.
        settings: How many words, by which score.

    Returns:
        For each text its keywords in lower case, in the order of the text, with repeats; empty where the model knows
        none of its words.

    References:
        Roussinov and Sharoff 2023, BERT goes off-topic, section 3.2.1.
    """
    keywords = []
    for text, scores in zip(texts, score_words(topics, texts, settings.reading), strict=True):
        ranked = sorted((word for word in scores if scores[word] > 0), key=lambda word: -scores[word])  # stable
        best = set(ranked[: settings.keywords])
        keywords.append(tuple(word for word in _words(text) if word in best))
    return keywords


def score_words(topics: Topics, texts: Sequence[str], reading: str = PAPER) -> list[dict[str, float]]:
    """How strongly each word of a document stands for the document's topics.

    score(w, D) = Σ over the occurrences of w in D, Σ over topics t, L(D, t) · L(w, t), where L(D, t) is θ, the share of
    t in D, and L(w, t) is β, the probability of w in t. By the reading ``release`` L(D, t) is 1, and L(w, t) is 0
    unless w is one of the 1,000 most probable words of t (of equally probable ones the first of the vocabulary).

    Args:
        topics: The topic model.
        texts: Documents.
        reading: ``paper`` or ``release``.

    Returns:
        For each text the scores of its words that the model knows, in the order of their first occurrence.

    References:
        Roussinov and Sharoff 2023, section 3.2.1, the equation; its released code, ``process-both.py``, for the other
        reading.
    """
    number = {word: place for place, word in enumerate(topics.words)}
    beta = topics.beta.astype(np.float64)
    if reading == RELEASE:
        rest = np.argsort(-beta, axis=1, kind="stable")[:, RELEASE_WORDS:]
        np.put_along_axis(beta, rest, 0.0, 1)
        weights = np.ones((len(texts), len(beta)))
    else:
        weights = topics.theta(texts).astype(np.float64)
    scores = []
    for text, weight in zip(texts, weights, strict=True):
        times = Counter(word for word in _words(text) if word in number)
        columns = beta[:, [number[word] for word in times]]
        of_word = (weight[:, None] * columns).sum(0)  # no matrix product: equal words get equal bits
        scores.append({word: times[word] * score for word, score in zip(times, of_word.tolist(), strict=True)})
    return scores


def _words(text: str) -> list[str]:
    """The words of a text as topic models count them, in order and with repeats."""
    return re.findall(WORD, text.lower())


def choose_prompts(topics: Topics, rows: Sequence[LabelledText], settings: AugmentSettings) -> list[Prompt]:
    """Prompts that are not of a topic: for ``random`` the keywords of all texts in random order, for ``none`` empty.

    Raises:
        DataError: If no text has a keyword.
    """
    if settings.control == NONE:
        return [Prompt()]
    order = generator(settings.seed, "augmentation", "random keywords").permutation(len(rows))
    prompts = _prompts(topics, [(rows[at].id, rows[at].text) for at in order.tolist()], settings)
    if not prompts:
        raise DataError(f"control={RANDOM}: none of the {len(rows):,} labelled texts has a word that the topics know")
    return prompts


def find_on_topic(documents: Iterable[Document], topics: Topics, topic: int, most: int) -> list[Document]:
    """The documents that are on a topic: it is the largest of theirs; those with the largest shares of it.

    A document without any word that the topics know is on none. The documents are streamed, and at most twice as many
    as are kept, and those read at once, are in memory.

    Args:
        documents: Any text.
        topics: The topic model.
        topic: Its number, from 0.
        most: At most so many documents.

    Returns:
        Documents by falling share, of equal ones by id.
    """
    ranked: list[tuple[float, str, Document]] = []
    stream = iter(documents)
    while part := list(islice(stream, AT_ONCE)):
        bags = count_known_words([document.text for document in part], topics.words)
        theta = topics.model.theta(bags.counts)
        for document, size, shares in zip(part, bags.sizes.tolist(), theta, strict=True):
            if size and shares.argmax() == topic:
                ranked.append((-float(shares[topic]), document.doc_id, document))
        ranked = sorted(ranked, key=lambda one: one[:2])[:most]
    return [document for *_, document in ranked]


def on_topic_prompts(
    topics: Topics, topic: int, documents: Sequence[Document], settings: AugmentSettings, count: int
) -> list[Prompt]:
    """Prompts of the documents on a topic, from the first document on, again at its end.

    Args:
        topics: The topic model.
        topic: Its number, from 0.
        documents: Those on it, see :func:`find_on_topic`.
        settings: Of keywords.
        count: How many prompts.

    Raises:
        DataError: If no document has a keyword.
    """
    prompts = _prompts(topics, [(document.doc_id, document.text) for document in documents], settings, topic)
    if not prompts:
        raise DataError(f"topic {topic}: the keyword pool has no document of which it is the largest; give more text")
    return [prompts[place % len(prompts)] for place in range(count)]


def _prompts(
    topics: Topics, texts: Sequence[tuple[str, str]], settings: AugmentSettings, topic: int | None = None
) -> list[Prompt]:
    """A prompt a text, given with its id, that has a keyword."""
    keywords = extract_keywords(topics, [text for _, text in texts], settings)
    return [Prompt(words, name, topic) for (name, _), words in zip(texts, keywords, strict=True) if words]


def refuse_test_text(documents: Iterable[Document], test: Sequence[LabelledText]) -> Iterator[Document]:
    """The documents, as long as none of them is a test text, by its id or by its words.

    Args:
        documents: Of a keyword pool.
        test: Texts that it must not hold. Texts with the same words, whatever their case, punctuation and spaces, are
            the same.

    Raises:
        DataError: Naming the document and the test text.
    """
    ids = {row.id for row in test}
    by_words = {wording(row.text): row.id for row in test}
    for document in documents:
        same = document.doc_id if document.doc_id in ids else by_words.get(wording(document.text))
        if same is not None:
            by_id = ", by its id (give them other ids if they are two texts)" if document.doc_id in ids else ""
            raise DataError(
                f"keyword pool: document {document.doc_id!r} is the test text {same!r}{by_id}; leave it out, or allow "
                "test text as a source of keywords (transductive)"
            )
        yield document


@dataclass(frozen=True)
class SyntheticRow(LabelledText):
    """A synthetic text, ``synthetic-LABEL-NUMBER``, and where it comes from.

    Attributes:
        topic: See :class:`Prompt`.
        keywords: See there.
        keywords_of: See there.
        generator: Its spec.
        seed: That its text was drawn with.
        written_for: Label whose generator wrote it; another than `label` where labels were shuffled.
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
    """Synthetic texts of every label: a generator a label, fitted to the label's texts and their keywords.

    Args:
        topics: Finds the keywords of the texts.
        rows: Real texts.
        prompts: In turn those of each label's synthetic texts, the same for all labels; beginning again at the end.
        settings: See :class:`AugmentSettings`.
        folder: Gets an artifact a label: killed, the same call goes on with the labels that are missing. Calls with
            other texts, prompts or settings may share it.

    Returns:
        Rows label by label, in the order of the labels' names.

    Raises:
        DataError: If the ratio leaves nothing to write, or a generator writes nothing.
    """
    counts, written = counts_by_label(rows, settings.ratio), list[SyntheticRow]()
    identity = generator_identity(settings.generator)
    for label, pairs in pairs_by_label(topics, rows, settings).items():
        count = counts[label]
        used = [asdict(prompt) for prompt in prompts[:count]]
        depends_on = {"label": label, "texts": fingerprint(pairs), "prompts": fingerprint(used), "count": count}
        depends_on |= {"generator": identity, "spec": settings.generator, "seed": settings.seed}
        write = partial(write_texts, label=label, pairs=pairs, prompts=prompts, count=count, settings=settings)
        part = make(folder / fingerprint(depends_on)[:16], "synthetic-label", depends_on, write)
        written += read_synthetic(part.path)
    if settings.shuffle_labels:  # dealt out anew: as many of each label as before
        order = generator(settings.seed, "augmentation", "shuffled labels").permutation(len(written)).tolist()
        return [replace(row, label=written[place].label) for row, place in zip(written, order, strict=True)]
    return written


def generator_identity(spec: str) -> dict[str, Any]:
    """What decides a generator's texts besides what it is given: its settings and its code.

    Raises:
        DanaError: If there is no such generator, or it lacks something.
    """
    component = GENERATORS.create(spec)
    with blamed("generator", spec, component):
        return {"settings": component.identity(), **origin_of(component)}


def read_synthetic(folder: Path) -> list[SyntheticRow]:
    """The synthetic texts in an artifact's folder."""
    lines = (folder / SYNTHETIC).read_text(encoding="utf-8").split("\n")[:-1]
    return [SyntheticRow(**{**row, "keywords": tuple(row["keywords"])}) for row in map(json.loads, lines)]


def counts_by_label(rows: Sequence[LabelledText], ratio: float) -> dict[str, int]:
    """How many synthetic texts each label gets: its real ones times the ratio, rounded, half up.

    Raises:
        DataError: If that is none for any label.
    """
    real = Counter(row.label for row in rows)
    counts = {label: floor(real[label] * ratio + 0.5) for label in sorted(real)}
    least = min(counts, key=lambda label: counts[label])
    if not counts[least]:
        raise DataError(f"ratio={ratio:g}: leaves no synthetic text for label {least!r}, which has {real[least]:,}")
    return counts


def pairs_by_label(topics: Topics, rows: Sequence[LabelledText], settings: AugmentSettings) -> dict[str, list[Pair]]:
    """What a generator of each label learns from: texts with their own keywords, by label in the order of names.

    Where it will be given no keywords, ``control: none``, it learns without them.
    """
    texts = [row.text for row in rows]
    keywords = [()] * len(rows) if settings.control == NONE else extract_keywords(topics, texts, settings)
    pairs: dict[str, list[Pair]] = {label: [] for label in sorted({row.label for row in rows})}
    for row, own in zip(rows, keywords, strict=True):
        pairs[row.label].append((own, row.text))
    return pairs


def write_texts(
    draft: Draft, label: str, pairs: Sequence[Pair], prompts: Sequence[Prompt], count: int, settings: AugmentSettings
) -> None:
    """Fit a generator to the texts of one label and write its synthetic texts into an artifact.

    Args:
        draft: Of the label's artifact.
        label: Its name.
        pairs: See :func:`pairs_by_label`.
        prompts: See :func:`synthesize`.
        count: How many texts.
        settings: Generator and seed.

    Raises:
        DataError: If a text stays empty.
        PluginError: If a generator of another package fails, or gives no text.
    """
    spec, root = settings.generator, derive_seed(settings.seed, "augmentation", label)
    component: Generator = GENERATORS.create(spec)
    chosen = [prompts[number % len(prompts)] for number in range(count)]
    with blamed("generator", spec, component):
        fitted = component.fit(pairs, derive_seed(root, "fit"))
        texts, seeds = _generate(fitted, [prompt.keywords for prompt in chosen], root)
    rows = []
    for number, (text, seed, prompt) in enumerate(zip(texts, seeds, chosen, strict=True)):
        if not text:
            about = " ".join(prompt.keywords) or "no keywords"
            raise DataError(f"generator {spec!r}: wrote an empty text of {label!r} for {about}")
        origin = (prompt.topic, prompt.keywords, prompt.keywords_of, spec, seed, label)
        rows.append(SyntheticRow(f"synthetic-{label}-{number}", text, label, *origin))
    write_text(draft.path / SYNTHETIC, json_lines(map(asdict, rows)))
    draft.counts["synthetic"] = count


def _generate(fitted: FittedGenerator, keywords: Sequence[Keywords], root: int) -> tuple[list[str], list[int]]:
    """A text for each keyword sequence and the seed it was drawn with; what is empty is drawn anew, some times."""
    texts, seeds = [""] * len(keywords), [0] * len(keywords)
    for attempt in range(ATTEMPTS):
        missing = [number for number, text in enumerate(texts) if not text]
        drawn = [derive_seed(root, number, attempt) for number in missing]
        written = fitted.generate([keywords[number] for number in missing], drawn) if missing else []
        if len(written) != len(missing):
            raise PluginError(f"a generator gave {len(written)} texts for {len(missing)} keyword sequences")
        for number, text, seed in zip(missing, written, drawn, strict=True):
            texts[number], seeds[number] = normalise(text), seed
    return texts, seeds
