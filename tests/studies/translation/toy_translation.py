"""Toy parallel text: every word of one language has one of the other; a domain has words of its own."""

import random
from pathlib import Path

from dana.studies.translation.settings import TranslationSettings

WORDS = {
    "kitchen": [
        ("apfel", "apple"),
        ("birne", "pear"),
        ("messer", "knife"),
        ("gabel", "fork"),
        ("suppe", "soup"),
    ],
    "garden": [
        ("baum", "tree"),
        ("rose", "rose"),
        ("spaten", "spade"),
        ("zaun", "fence"),
        ("hecke", "hedge"),
    ],
}
ADJECTIVES = [("rot", "red"), ("alt", "old"), ("neu", "new"), ("leer", "empty"), ("warm", "warm")]


def toy_lines(domain: str, count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """German and English lines: a number, adjectives and nouns in the same order."""
    generator, sides = random.Random(f"{domain} {seed}"), ([], [])
    for number in range(count):
        words = [
            generator.choice(part)
            for part in (ADJECTIVES, WORDS[domain], ADJECTIVES, WORDS[domain])
        ]
        for side, beginning in enumerate((f"Satz {seed}{number}", f"Line {seed}{number}")):
            sides[side].append(" ".join([beginning, *(word[side] for word in words)]))
    return sides


def write_sides(folder: Path, name: str, sides: tuple[list[str], list[str]]) -> list[str]:
    """Two aligned files; their paths."""
    files = [folder / f"{name}.{language}" for language in ("de", "en")]
    for file, lines in zip(files, sides, strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [str(file) for file in files]


def toy_settings(
    folder: Path, train: int = 40, test: int = 6, **changes: object
) -> TranslationSettings:
    """Two domains and a translator of one narrow layer."""
    texts = {
        part: {
            name: write_sides(folder, f"{name}-{part}", toy_lines(name, count, seed))
            for name in WORDS
        }
        for seed, (part, count) in enumerate({"train": train, "test": test}.items())
    }
    small = {
        "held_out": 20,
        "layers": 1,
        "width": 64,
        "vocabulary": 300,
        "max_tokens": 80,
        "batch_tokens": 400,
    }
    small |= {"micro_batch_tokens": 400, "epochs": 2, "dev_pairs": 2, "beams": 2, "warmup_steps": 2}
    return TranslationSettings(**{**texts, **small, **changes})
