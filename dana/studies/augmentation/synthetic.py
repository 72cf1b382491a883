"""Synthetic rows: labelled texts and prompts of keywords to texts of every label, each with where it comes from."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor

from dana.core.config import require
from dana.core.errors import DataError, PluginError
from dana.core.origin import blamed
from dana.core.rng import derive_seed, generator
from dana.corpus.text import normalise
from dana.studies.augmentation.base import GENERATORS, FittedGenerator, Generator, Pair
from dana.studies.augmentation.keywords import Keywords, KeywordSettings, extract_keywords
from dana.studies.topics.model import Topics

TOPIC, NONE, RANDOM = "topic", "none", "random"
ATTEMPTS = 3  # at a text that is empty


@dataclass(frozen=True)
class AugmentSettings(KeywordSettings):
    """Which synthetic texts are written.

    Attributes:
        ratio: Synthetic texts of a label for each real one of it.
        generator: A generator's spec, for example ``embedded`` or ``t5:model=t5-small,epochs=16``.
        control: Where keywords are from: ``topic``: documents on the topic; ``random``: labelled texts, drawn at random
            of any label; ``none``: there are none.
        shuffle_labels: Give the synthetic texts each other's labels, at random.
        seed: Of generators, texts and draws.
    """

    ratio: float = 1.0
    generator: str = "embedded"
    control: str = TOPIC
    shuffle_labels: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.ratio > 0, "ratio", self.ratio, "above 0")
        require(self.control in (TOPIC, RANDOM, NONE), "control", self.control, f"{TOPIC}, {RANDOM} or {NONE}")


@dataclass(frozen=True)
class LabelledText:
    """A real text.

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


@dataclass(frozen=True)
class SyntheticRow:
    """A synthetic text and where it comes from.

    Attributes:
        id: ``synthetic-LABEL-NUMBER``.
        text: Never empty.
        label: What it counts as.
        topic: See :class:`Prompt`.
        keywords: See :class:`Prompt`.
        keywords_of: See :class:`Prompt`.
        generator: Its spec.
        seed: That its text was drawn with.
        written_for: Label whose generator wrote it; another than `label` where labels were shuffled.
    """

    id: str
    text: str
    label: str
    topic: int | None
    keywords: Keywords
    keywords_of: str
    generator: str
    seed: int
    written_for: str


def synthesize(
    topics: Topics, rows: Sequence[LabelledText], prompts: Sequence[Prompt], settings: AugmentSettings
) -> list[SyntheticRow]:
    """Synthetic texts of every label in memory: a generator a label, fitted to the label's texts and their keywords.

    Args:
        topics: Finds the keywords of the texts.
        rows: Real texts.
        prompts: In turn those of each label's synthetic texts, the same for all labels; beginning again at the end.
            :func:`choose_prompts` makes those of the controls ``random`` and ``none``.
        settings: See :class:`AugmentSettings`.

    Returns:
        Rows label by label, in the order of the labels' names.

    Raises:
        DataError: If the ratio leaves nothing to write, or a generator writes nothing.
    """
    pairs, counts = pairs_by_label(topics, rows, settings), counts_by_label(rows, settings.ratio)
    made = [row for label, own in pairs.items() for row in write_texts(label, own, prompts, counts[label], settings)]
    return shuffle_labels(made, settings.seed) if settings.shuffle_labels else made


def counts_by_label(rows: Sequence[LabelledText], ratio: float) -> dict[str, int]:
    """How many synthetic texts each label gets: its real ones times the ratio, rounded, half up.

    Raises:
        DataError: If that is none for any label.
    """
    counts = Counter(row.label for row in rows)
    wanted = {label: floor(counts[label] * ratio + 0.5) for label in sorted(counts)}
    if not all(wanted.values()):
        least = min(wanted, key=lambda label: wanted[label])
        raise DataError(f"ratio={ratio:g}: leaves no synthetic text for label {least!r}, which has {counts[least]:,}")
    return wanted


def pairs_by_label(topics: Topics, rows: Sequence[LabelledText], settings: AugmentSettings) -> dict[str, list[Pair]]:
    """What a generator of each label learns from: texts with their own keywords, by label in the order of names.

    Where it will be given no keywords, ``control: none``, it learns without them.
    """
    texts = [row.text for row in rows]
    keywords = [()] * len(rows) if settings.control == NONE else extract_keywords(topics, texts, settings)
    return {
        label: [(own, row.text) for row, own in zip(rows, keywords, strict=True) if row.label == label]
        for label in sorted({row.label for row in rows})
    }


def choose_prompts(topics: Topics, rows: Sequence[LabelledText], settings: AugmentSettings) -> list[Prompt]:
    """Prompts that are not of a topic: for ``random`` the keywords of all texts in random order, for ``none`` empty.

    Raises:
        DataError: If no text has a keyword.
    """
    if settings.control == NONE:
        return [Prompt()]
    order = generator(settings.seed, "augmentation", "random keywords").permutation(len(rows))
    drawn = [rows[place] for place in order.tolist()]
    found = extract_keywords(topics, [row.text for row in drawn], settings)
    prompts = [Prompt(keywords, row.id) for row, keywords in zip(drawn, found, strict=True) if keywords]
    if not prompts:
        raise DataError(f"control={RANDOM}: none of the {len(rows):,} labelled texts has a word that the topics know")
    return prompts


def write_texts(
    label: str,
    pairs: Sequence[Pair],
    prompts: Sequence[Prompt],
    count: int,
    settings: AugmentSettings,
) -> list[SyntheticRow]:
    """Fit a generator to the texts of one label and write its synthetic texts.

    Args:
        label: Its name.
        pairs: See :func:`pairs_by_label`.
        prompts: See :func:`synthesize`.
        count: How many texts.
        settings: Generator and seed.

    Raises:
        DataError: If a text stays empty.
        PluginError: If a generator of another package fails, or gives no text.
    """
    made: Generator = GENERATORS.create(settings.generator)
    root = derive_seed(settings.seed, "augmentation", label)
    chosen = [prompts[number % len(prompts)] for number in range(count)]
    with blamed("generator", settings.generator, made):
        fitted = made.fit(pairs, derive_seed(root, "fit"))
        texts, seeds = _generate(fitted, [prompt.keywords for prompt in chosen], root)
    for text, prompt in zip(texts, chosen, strict=True):
        if not text:
            about = " ".join(prompt.keywords) or "no keywords"
            raise DataError(f"generator {settings.generator!r}: wrote an empty text of {label!r} for {about}")
    return [
        SyntheticRow(
            id=f"synthetic-{label}-{number}",
            text=texts[number],
            label=label,
            topic=prompt.topic,
            keywords=prompt.keywords,
            keywords_of=prompt.keywords_of,
            generator=settings.generator,
            seed=seeds[number],
            written_for=label,
        )
        for number, prompt in enumerate(chosen)
    ]


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


def shuffle_labels(rows: Sequence[SyntheticRow], seed: int) -> list[SyntheticRow]:
    """The rows with their labels dealt out at random: as many of each label as before."""
    order = generator(seed, "augmentation", "shuffled labels").permutation(len(rows)).tolist()
    return [replace(row, label=rows[place].label) for row, place in zip(rows, order, strict=True)]
