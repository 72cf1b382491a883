"""Synthetic rows kept label by label: each label's texts in a folder of their own, so that a killed run goes on."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dana.core.artifacts import Draft, fingerprint, make, write_text
from dana.core.files import json_lines
from dana.core.origin import blamed, origin_of
from dana.studies.augmentation.base import GENERATORS, Pair
from dana.studies.augmentation.synthetic import (
    AugmentSettings,
    LabelledText,
    Prompt,
    SyntheticRow,
    counts_by_label,
    pairs_by_label,
    write_texts,
)
from dana.studies.topics.model import Topics

SYNTHETIC = "synthetic.jsonl"


def synthesize_by_label(
    topics: Topics,
    rows: Sequence[LabelledText],
    prompts: Sequence[Prompt],
    settings: AugmentSettings,
    folder: Path,
) -> list[SyntheticRow]:
    """What :func:`~dana.studies.augmentation.synthetic.synthesize` makes, without shuffled labels; kept in a folder.

    Killed, the same call goes on with the labels that are missing. Calls with other texts, prompts or settings may
    share the folder.

    Args:
        topics: See there, as all others.
        rows: Real texts.
        prompts: Of the synthetic ones.
        settings: ``shuffle_labels`` is not looked at.
        folder: Gets an artifact a label.
    """
    counts, found = counts_by_label(rows, settings.ratio), []
    generator = generator_identity(settings.generator)
    for label, pairs in pairs_by_label(topics, rows, settings).items():
        used = [asdict(prompt) for prompt in prompts[: counts[label]]]
        depends_on = {
            "label": label,
            "texts": fingerprint(pairs),
            "prompts": fingerprint(used),
            "count": counts[label],
            "generator": generator,
            "spec": settings.generator,
            "seed": settings.seed,
        }

        def write(draft: Draft, label: str = label, pairs: Sequence[Pair] = pairs) -> None:
            made = write_texts(label, pairs, prompts, counts[label], settings)
            write_text(draft.path / SYNTHETIC, json_lines(map(asdict, made)))
            draft.counts["synthetic"] = len(made)

        part = make(folder / fingerprint(depends_on)[:16], "synthetic-label", depends_on, write)
        found += read_synthetic(part.path)
    return found


def generator_identity(spec: str) -> dict[str, Any]:
    """What decides a generator's texts besides what it is given: its settings and its code.

    Raises:
        DanaError: If there is no such generator, or it lacks something.
    """
    made = GENERATORS.create(spec)
    with blamed("generator", spec, made):
        return {"settings": made.identity(), **origin_of(made)}


def read_synthetic(folder: Path) -> list[SyntheticRow]:
    """The synthetic texts in an artifact's folder."""
    lines = (folder / SYNTHETIC).read_text(encoding="utf-8").split("\n")[:-1]
    found = map(json.loads, lines)
    return [SyntheticRow(**{**row, "keywords": tuple(row["keywords"])}) for row in found]
