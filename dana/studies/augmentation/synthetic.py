"""Synthetic rows: labelled texts and prompts of keywords to texts of every label, each with where it comes from.

Each label's texts may be kept in a folder of their own, so that a killed run goes on.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import floor
from pathlib import Path
from typing import Any

from dana.core.artifacts import Draft, fingerprint, make, write_text
from dana.core.errors import DataError, PluginError
from dana.core.files import json_lines
from dana.core.origin import blamed, origin_of
from dana.core.rng import derive_seed, generator
from dana.corpus.text import normalise
from dana.studies.augmentation.generators import GENERATORS, FittedGenerator, Generator, Pair
from dana.studies.augmentation.keywords import (
    NONE,
    AugmentSettings,
    Keywords,
    LabelledText,
    Prompt,
    extract_keywords,
)
from dana.studies.topics.model import Topics

ATTEMPTS = 3  # at a text that is empty
SYNTHETIC = "synthetic.jsonl"


@dataclass(frozen=True)
class SyntheticRow(LabelledText):
    """A synthetic text, ``synthetic-LABEL-NUMBER``, and where it comes from.

    Attributes:
        topic: See :class:`dana.studies.augmentation.keywords.Prompt`.
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
    folder: Path | None = None,
) -> list[SyntheticRow]:
    """Synthetic texts of every label: a generator a label, fitted to the label's texts and their keywords.

    Args:
        topics: Finds the keywords of the texts.
        rows: Real texts.
        prompts: In turn those of each label's synthetic texts, the same for all labels; beginning again at the end.
        settings: See :class:`dana.studies.augmentation.keywords.AugmentSettings`.
        folder: Where given, gets an artifact a label: killed, the same call goes on with the labels that are missing.
            Calls with other texts, prompts or settings may share it.

    Returns:
        Rows label by label, in the order of the labels' names.

    Raises:
        DataError: If the ratio leaves nothing to write, or a generator writes nothing.
    """
    counts, written = counts_by_label(rows, settings.ratio), list[SyntheticRow]()
    identity = generator_identity(settings.generator) if folder else {}
    for label, pairs in pairs_by_label(topics, rows, settings).items():
        if folder is None:
            written += write_texts(label, pairs, prompts, counts[label], settings)
        else:
            written += _kept_texts(label, pairs, prompts, counts[label], settings, folder, identity)
    if settings.shuffle_labels:  # dealt out anew: as many of each label as before
        order = generator(settings.seed, "augmentation", "shuffled labels").permutation(len(written)).tolist()
        return [replace(row, label=written[place].label) for row, place in zip(written, order, strict=True)]
    return written


def _kept_texts(
    label: str,
    pairs: Sequence[Pair],
    prompts: Sequence[Prompt],
    count: int,
    settings: AugmentSettings,
    folder: Path,
    identity: dict[str, Any],
) -> list[SyntheticRow]:
    """What :func:`write_texts` writes, as an artifact in a folder."""
    depends_on = {
        "label": label,
        "texts": fingerprint(pairs),
        "prompts": fingerprint([asdict(prompt) for prompt in prompts[:count]]),
        "count": count,
        "generator": identity,
        "spec": settings.generator,
        "seed": settings.seed,
    }

    def write(draft: Draft) -> None:
        rows = write_texts(label, pairs, prompts, count, settings)
        write_text(draft.path / SYNTHETIC, json_lines(map(asdict, rows)))
        draft.counts["synthetic"] = len(rows)

    return read_synthetic(make(folder / fingerprint(depends_on)[:16], "synthetic-label", depends_on, write).path)


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
    label: str, pairs: Sequence[Pair], prompts: Sequence[Prompt], count: int, settings: AugmentSettings
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
    return rows


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
