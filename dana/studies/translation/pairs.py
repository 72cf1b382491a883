"""Read the pairs of each domain, and keep training text apart from test text."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dana.core.artifacts import Artifact, Draft, make, write_text
from dana.core.errors import DataError
from dana.core.files import file_digest
from dana.core.text_table import csv_text
from dana.corpus.text import words
from dana.studies.splits.aligned import AlignedText, open_aligned
from dana.studies.splits.stage import Outcome, hash_lines, keep_first
from dana.studies.translation.settings import TranslationSettings

PAIRS = "translation-pairs"
AUDIT = "audit.csv"
COLUMNS = ("source", "target")
SPLITS = ("train", "dev", "test")
Key = tuple[str, str]  # split and domain
REASONS = ("repeated", "held_out", "long")
ENOUGH = 1000  # lines whose letters are counted
LATIN_CODES = "cs da de en es et fi fr hu it lt lv nl no pl pt ro sk sl sv tr vi"
SCRIPTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(LATIN_CODES.split(), ("LATIN",)),
    "bg": ("CYRILLIC",),
    "ru": ("CYRILLIC",),
    "uk": ("CYRILLIC",),
    "el": ("GREEK",),
    "he": ("HEBREW",),
    "ar": ("ARABIC",),
    "fa": ("ARABIC",),
    "hi": ("DEVANAGARI",),
    "ko": ("HANGUL",),
    "zh": ("CJK",),
    "ja": ("HIRAGANA", "KATAKANA", "CJK"),
    "th": ("THAI",),
}


def pairs_stage(settings: TranslationSettings, folder: Path) -> Artifact:
    """Read all text and write the pairs of each domain and an audit.

    The pairs are in ``DOMAIN/{train,dev,test}.parquet`` (doc_id, source, target).
    ``audit.csv`` has a row per domain and split: pairs read, dropped by reason and kept, words of
    each side, and the share of the source words that the domain's training text lacks (oov). A
    training pair is dropped if its source or target is that of an earlier pair, or of a pair of
    development or test text of any domain; or if a side is longer than ``longest``. A pair
    of development text that was given is dropped if its source or target is that of a pair of test
    text.

    Raises:
        DataError: If files are not aligned, a side is empty or the same as the other, the letters
            of a side are of another script than its language's, or too few pairs are left.
        ConfigError: If names of files or sides are invalid.
    """
    texts = _open_texts(settings)
    file_digests = {}
    for (split, name), text in texts.items():
        file_digests[f"{split}/{name}"] = [file_digest(file) for file in text.files]
    depends_on: dict[str, Any] = {
        "files": file_digests,
        "method": 3,
        "sides": settings.sides,
        "held_out": settings.held_out,
        "longest": settings.longest,
    }

    def write(draft: Draft) -> None:
        frames = {key: read_pairs(text) for key, text in texts.items()}
        _check_scripts({texts[key]: frame for key, frame in frames.items()}, settings.sides)
        pairs_read = {key: len(frame) for key, frame in frames.items()}
        drops = keep_apart(frames, settings)
        for (split, name), frame in frames.items():
            _write_pairs(frame, name, split, draft.path / name)
            draft.counts[f"{split}/{name}"] = len(frame)
        write_text(draft.path / AUDIT, csv_text(_audit(frames, pairs_read, drops)))

    return make(folder, PAIRS, depends_on, write)


def _open_texts(settings: TranslationSettings) -> dict[Key, AlignedText]:
    """Open the files of every split and domain, without reading them."""
    texts = {}
    for split in SPLITS:
        for name, files in getattr(settings, split).items():
            texts[split, name] = open_aligned([Path(file) for file in files], settings.sides)
    return texts


def _write_pairs(frame: pd.DataFrame, name: str, split: str, folder: Path) -> None:
    """Write the pairs of one domain and split, with ids."""
    folder.mkdir(exist_ok=True)
    table = frame[list(COLUMNS)].copy()
    table.insert(0, "doc_id", [f"{name}-{split}-{row}" for row in range(len(frame))])
    table.to_parquet(folder / f"{split}.parquet", compression="zstd", index=False)


def open_pairs(pairs: Path, domain: str, split: str) -> pd.DataFrame:
    """Read the pairs of a domain: doc_id, source, target."""
    return pd.read_parquet(pairs / domain / f"{split}.parquet")


def read_pairs(text: AlignedText) -> pd.DataFrame:
    """Read aligned text without pairs that have an empty side: source, target.

    Raises:
        DataError: If no pair has both sides, or most pairs have the same text on both.
    """
    rows = []
    for _, sides in text.rows():
        rows.append(tuple(" ".join(side.split()) for side in sides))
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    files = ", ".join(map(str, text.files))
    has_text = frame != ""
    for column, side in zip(COLUMNS, text.sides, strict=True):
        if not has_text[column].any():
            raise DataError(f"{files}: every line of the side {side} is empty")
    frame = frame[has_text.all(axis=1)].reset_index(drop=True)
    if frame.empty:
        raise DataError(f"{files}: no line has text on both sides")
    same = int((frame["source"] == frame["target"]).sum())
    if 2 * same > len(frame):
        both_sides = " and ".join(text.sides)
        raise DataError(
            f"{files}: {same:,} of {len(frame):,} lines are the same as {both_sides};"
            " give the translation"
        )
    return frame


def script_of(texts: Iterable[str]) -> str:
    """Return the script of most letters of the first texts, as Unicode names it.

    Returns:
        For example ``LATIN``, ``CYRILLIC`` or ``CJK``; ``UNKNOWN`` if there are no letters.
    """
    scripts = Counter[str]()
    for text in islice(texts, ENOUGH):
        scripts.update(_letter_script(letter) for letter in text if letter.isalpha())
    return scripts.most_common(1)[0][0] if scripts else "UNKNOWN"


def _letter_script(letter: str) -> str:
    """Return the first word of a letter's Unicode name, which is its script."""
    return re.split("[ -]", unicodedata.name(letter, "UNKNOWN"))[0]


def _check_scripts(frames: Mapping[AlignedText, pd.DataFrame], sides: Sequence[str]) -> None:
    """Refuse a side that is not in a script of its language.

    All text of a side whose language is unknown must have the script of the first.
    """
    for index, (column, side) in enumerate(zip(COLUMNS, sides, strict=True)):
        scripts = SCRIPTS.get(side, ())
        for text, frame in frames.items():
            script = script_of(frame[column])
            scripts = scripts or (script,)
            if script not in scripts:
                names = " or ".join(name.title() for name in scripts)
                file = text.files[min(index, len(text.files) - 1)]
                raise DataError(
                    f"{file}: its side {side} is in {script.title()} letters,"
                    f" must be in {names} ones"
                )


def keep_apart(
    frames: dict[Key, pd.DataFrame], settings: TranslationSettings
) -> dict[Key, Counter[str]]:
    """Drop pairs that repeat lines of others, and take missing development text of training text.

    Args:
        frames: Pairs by split and domain; changed in place.
        settings: Numbers of pairs and words.

    Returns:
        For each split and domain the pairs that are dropped, by reason.

    Raises:
        DataError: If a domain has too few pairs.
    """
    drops: dict[Key, Counter[str]] = {}

    def keep(key: Key, reasons: np.ndarray) -> None:
        drops[key] = Counter(reason for reason in reasons.tolist() if reason)
        frames[key] = frames[key][reasons == ""]
        if frames[key].empty:
            raise DataError(f"{' '.join(key)}: no pair is left ({dict(drops[key])})")

    given_dev = [key for key in frames if key[0] == "dev"]
    for key in given_dev:
        is_test_text = _has_line_of(frames[key], _join(frames, "test"))
        keep(key, np.where(is_test_text, "held_out", ""))
    held_out = _join(frames, "dev", "test")
    # New development text joins `frames` last: a domain's depends on no other's.
    new_dev: dict[Key, pd.DataFrame] = {}
    for name in settings.domains:
        if ("dev", name) not in frames:
            train, dev = _take_dev(frames["train", name], held_out, name, settings)
            frames["train", name] = train
            new_dev["dev", name] = dev
    frames |= new_dev
    held_out = _join(frames, "dev", "test")
    for name in settings.domains:
        keep(("train", name), _reasons(frames["train", name], held_out, settings))
    return drops


def _take_dev(
    train: pd.DataFrame, held_out: pd.DataFrame, name: str, settings: TranslationSettings
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Take the pairs with the lowest hashes of the source as development text.

    Args:
        train: Training text of a domain.
        held_out: Development and test text that is given, of all domains.
        name: Name of the domain.
        settings: Numbers of pairs and words.

    Returns:
        The rest of the training text, and the development text.

    Raises:
        DataError: If no training text would be left.
    """
    rows = np.flatnonzero(_reasons(train, held_out, settings) == "")
    if rows.size <= settings.held_out:
        raise DataError(
            f"train {name}: {rows.size:,} pairs are left, held_out={settings.held_out} pairs of"
            " development text leave none; lower it, or give dev text"
        )
    source_hashes = _hashes(train)[0]
    order = np.argsort(source_hashes[rows], kind="stable")
    rows = rows[order[: settings.held_out]]
    return train.drop(train.index[rows]), train.iloc[rows]


def _join(frames: Mapping[Key, pd.DataFrame], *splits: str) -> pd.DataFrame:
    """Concatenate the pairs of some splits of all domains."""
    return pd.concat([frame for (split, _), frame in frames.items() if split in splits])


def _hashes(frame: pd.DataFrame) -> tuple[np.ndarray, ...]:
    """Hash source and target of each pair, shape (pairs,) each."""
    return hash_lines(zip(frame["source"], frame["target"], strict=True))


def _has_line_of(frame: pd.DataFrame, others: pd.DataFrame) -> np.ndarray:
    """Tell of each pair whether its source or its target is that of another table's pair."""
    sources, targets = _hashes(frame)
    other_sources, other_targets = _hashes(others)
    return np.isin(sources, other_sources) | np.isin(targets, other_targets)


def _reasons(
    frame: pd.DataFrame, held_out: pd.DataFrame, settings: TranslationSettings
) -> np.ndarray:
    """Return why each pair is dropped: shape (pairs,), empty for one that is kept."""
    is_long = np.zeros(len(frame), bool)
    for column in COLUMNS:
        is_long |= _lengths(frame[column]) > settings.longest
    is_repeat = keep_first(*_hashes(frame)) != Outcome.TRAIN
    conditions = [
        is_repeat,
        _has_line_of(frame, held_out),
        is_long,
    ]
    return np.select(conditions, REASONS, "")


def _lengths(texts: pd.Series) -> np.ndarray:
    """Count the words of texts whose words are separated by single spaces."""
    return texts.str.count(" ").to_numpy() + 1


def _audit(
    frames: Mapping[Key, pd.DataFrame],
    pairs_read: Mapping[Key, int],
    drops: Mapping[Key, Counter[str]],
) -> pd.DataFrame:
    """Tabulate the audit, one row per domain and split; see :func:`pairs_stage`."""
    rows = []
    for split, name in sorted(frames, key=lambda key: (key[1], SPLITS.index(key[0]))):
        key = (split, name)
        frame = frames[key]
        train = frames.get(("train", name))
        oov = None
        if split != "train" and train is not None:
            oov = unknown_share(train["source"], frame["source"])
        reasons = drops.get(key, Counter())
        row: dict[str, Any] = {
            "domain": name,
            "split": split,
            "read": pairs_read.get(key),
            "kept": len(frame),
            **{reason: reasons[reason] for reason in REASONS},
            **{f"{column}_words": _lengths(frame[column]).sum() for column in COLUMNS},
            "oov": oov,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def unknown_share(train: Iterable[str], texts: Iterable[str]) -> float:
    """Compute the share of running words that do not occur in training texts (OOV), in [0, 1]."""
    vocabulary = _count_words(train).keys()
    counts = _count_words(texts)
    unknown = sum(count for word, count in counts.items() if word not in vocabulary)
    return unknown / max(1, counts.total())


def _count_words(texts: Iterable[str]) -> Counter[str]:
    counts = Counter[str]()
    for text in texts:
        counts.update(words(text).split())
    return counts
