"""Read the pairs of each domain, keep training text apart from test text, and read message catalogues as IT text."""

import gettext
import re
import struct
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dana.core.artifacts import Artifact, Draft, make, write_text
from dana.core.config import require
from dana.core.errors import DataError
from dana.core.files import file_digest
from dana.core.logging import get_logger
from dana.core.text_table import csv_text
from dana.corpus.overlap import OverlapIndex
from dana.corpus.text import one_line, words
from dana.studies.splits.aligned import AlignedText, open_aligned
from dana.studies.splits.stage import Outcome, hash_lines, keep_first
from dana.studies.translation.settings import TranslationSettings

log = get_logger(__name__)

PAIRS, AUDIT, CATALOGUES = "translation-pairs", "audit.csv", "catalogues.csv"
COLUMNS, SPLITS = ("source", "target"), ("train", "dev", "test")
Key = tuple[str, str]  # split and domain
REASONS = ("repeated", "held_out", "long", "overlap")
FOLDERS = (
    "/usr/share/locale",
    "/usr/share/locale-langpack",
)  # of the system, if Python is not the system's
ORIGIN = "en"  # language of the messages that programs are written with
LEAST_WORDS = 3  # of each side of a message
RUN, SENTENCE = (
    8,
    4,
)  # words of a run, or of a whole sentence, that a message must not share with test text
ENOUGH = 1000  # lines whose letters are counted
CODES = "cs da de en es et fi fr hu it lt lv nl no pl pt ro sk sl sv tr vi"
SCRIPTS: dict[str, tuple[str, ...]] = dict.fromkeys(CODES.split(), ("LATIN",))
SCRIPTS |= {
    "bg": ("CYRILLIC",),
    "ru": ("CYRILLIC",),
    "uk": ("CYRILLIC",),
    "el": ("GREEK",),
    "he": ("HEBREW",),
}
SCRIPTS |= {
    "ar": ("ARABIC",),
    "fa": ("ARABIC",),
    "hi": ("DEVANAGARI",),
    "ko": ("HANGUL",),
    "zh": ("CJK",),
}
SCRIPTS |= {"ja": ("HIRAGANA", "KATAKANA", "CJK"), "th": ("THAI",)}


def pairs_stage(settings: TranslationSettings, folder: Path) -> Artifact:
    """Read all text and write ``DOMAIN/{train,dev,test}.parquet`` (doc_id, source, target), audit and catalogues.

    ``audit.csv`` has a row per domain and split: pairs read, dropped by reason and kept, words of
    each side, and the share of the source words that the domain's training text lacks (oov). A
    training pair is dropped if its source or target is that of an earlier pair, or of a pair of
    development or test text of any domain; or if a side is longer than ``longest``. A message is
    also dropped if a side shares a run of eight words, or a whole sentence of four, with that of
    such text. A pair of development text that was given is dropped if its source or target is that
    of a pair of test text. The digests of the catalogues decide the fingerprint: with others the
    folder is refused.

    Raises:
        DataError: If files are not aligned, a side is empty or the same as the other, the letters
            of a side are of another script than its language's, or too few pairs are left.
        ConfigError: If names of files or sides are invalid, or there are no catalogues.
    """
    texts = {
        (split, name): open_aligned([Path(file) for file in files], settings.sides)
        for split in SPLITS
        for name, files in getattr(settings, split).items()
    }
    catalogues = find_catalogues(settings.sides) if settings.catalogues else []
    digests = {
        f"{split}/{name}": [file_digest(file) for file in text.files]
        for (split, name), text in texts.items()
    }
    depends_on: dict[str, Any] = {"files": digests, "method": 2}
    depends_on |= {name: getattr(settings, name) for name in ("sides", "held_out", "longest")}
    depends_on["catalogues"] = {
        settings.catalogues: {path.name: file_digest(path) for path in catalogues}
    }

    def write(draft: Draft) -> None:
        frames = {key: read_pairs(text) for key, text in texts.items()}
        _check_scripts({texts[key]: frame for key, frame in frames.items()}, settings.sides)
        if catalogues:
            messages, table = read_catalogues(catalogues, settings.sides)
            key = ("train", settings.catalogues)
            frames[key] = pd.concat(
                [frames.get(key), messages], ignore_index=True
            )  # which ignores a None
            write_text(draft.path / CATALOGUES, csv_text(table))
        read = {key: len(frame) for key, frame in frames.items()}
        counts = keep_apart(frames, settings)
        for (split, name), frame in frames.items():
            (draft.path / name).mkdir(exist_ok=True)
            table = frame[list(COLUMNS)].copy()
            table.insert(0, "doc_id", [f"{name}-{split}-{row}" for row in range(len(frame))])
            table.to_parquet(
                draft.path / name / f"{split}.parquet", compression="zstd", index=False
            )
        write_text(draft.path / AUDIT, csv_text(_audit(frames, read, counts)))
        draft.counts = {f"{split}/{name}": len(frame) for (split, name), frame in frames.items()}

    return make(folder, PAIRS, depends_on, write)


def open_pairs(pairs: Path, domain: str, split: str) -> pd.DataFrame:
    """Read the pairs of a domain: doc_id, source, target."""
    return pd.read_parquet(pairs / domain / f"{split}.parquet")


def read_pairs(text: AlignedText) -> pd.DataFrame:
    """Read aligned text without pairs that have an empty side: source, target.

    Raises:
        DataError: If no pair has both sides, or most pairs have the same text on both.
    """
    rows = [tuple(" ".join(side.split()) for side in sides) for _, sides in text.rows()]
    frame, files = pd.DataFrame(rows, columns=list(COLUMNS)), ", ".join(map(str, text.files))
    has_text = frame != ""
    for column, side in zip(COLUMNS, text.sides, strict=True):
        if not has_text[column].any():
            raise DataError(f"{files}: every line of the side {side} is empty")
    frame = frame[has_text.all(axis=1)].reset_index(drop=True)
    if frame.empty:
        raise DataError(f"{files}: no line has text on both sides")
    same = int((frame["source"] == frame["target"]).sum())
    if 2 * same > len(frame):
        sides = " and ".join(text.sides)
        raise DataError(
            f"{files}: {same:,} of {len(frame):,} lines are the same as {sides}; give the translation"
        )
    return frame


def script_of(texts: Iterable[str]) -> str:
    """Return the script of most letters of the first texts, as Unicode names it: ``LATIN``, ``CYRILLIC``, ``CJK``."""
    letters = (letter for text in islice(texts, ENOUGH) for letter in text if letter.isalpha())
    scripts = Counter(
        re.split("[ -]", unicodedata.name(letter, "UNKNOWN"))[0] for letter in letters
    )
    return scripts.most_common(1)[0][0] if scripts else "UNKNOWN"


def _check_scripts(frames: Mapping[AlignedText, pd.DataFrame], sides: Sequence[str]) -> None:
    for column, side in zip(COLUMNS, sides, strict=True):
        scripts = SCRIPTS.get(side, ())
        for text, frame in frames.items():
            script = script_of(frame[column])
            scripts = scripts or (script,)
            if script not in scripts:
                names = " or ".join(name.title() for name in scripts)
                file = text.files[min(COLUMNS.index(column), len(text.files) - 1)]
                raise DataError(
                    f"{file}: its side {side} is in {script.title()} letters, must be in {names} ones"
                )


def find_catalogues(sides: Sequence[str]) -> list[Path]:
    """Find the message catalogues of the other language than English in the search paths of Python's gettext.

    Raises:
        ConfigError: If no side is ``en``, or there is no catalogue.
    """
    require(
        ORIGIN in sides,
        "sides",
        list(sides),
        f"with {ORIGIN}, the language of messages, to use catalogues",
    )
    [language] = [side for side in sides if side != ORIGIN]
    folders = dict.fromkeys([gettext.bindtextdomain("messages"), *FOLDERS])
    files = {
        path.name: path
        for root in folders
        for path in Path(root, language, "LC_MESSAGES").glob("*.mo")
    }
    require(
        bool(files),
        "catalogues",
        language,
        "a language with message catalogues (*.mo) on this machine",
    )
    return [files[name] for name in sorted(files)]


def read_catalogues(
    files: Sequence[Path], sides: Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read messages of three words and more with their translations; marks of menus (``_Open``) are dropped.

    Returns:
        The pairs, with a column ``message`` that is True; and a table of the files: name, digest,
        pairs. A file that gettext cannot read has no pairs.

    Raises:
        DataError: If no file has a pair.
    """
    pairs, table = list[list[str]](), list[dict[str, Any]]()
    for file in files:
        before = len(pairs)
        try:
            with file.open("rb") as stream:
                catalogue = gettext.GNUTranslations(stream)._catalog  # type: ignore[attr-defined]
        except (OSError, ValueError, LookupError, struct.error) as error:
            log.warning("catalogue %s cannot be read and is left out: %s", file, error)
            catalogue = {}
        for message, translation in catalogue.items():
            if isinstance(message, str) and message:
                both = {ORIGIN: _plain(message.rpartition("\x04")[2])}  # a context may stand before
                pair = [both.get(side, _plain(translation)) for side in sides]
                if min(len(words(text).split()) for text in pair) >= LEAST_WORDS:
                    pairs.append(pair)
        table.append(
            {"catalogue": file.name, "digest": file_digest(file), "pairs": len(pairs) - before}
        )
    if not pairs:
        raise DataError(
            f"{file.parent}: no message catalogue has a translation of {LEAST_WORDS} words"
        )
    return pd.DataFrame(pairs, columns=list(COLUMNS)).assign(message=True), pd.DataFrame(table)


def _plain(message: str) -> str:
    return " ".join(one_line(re.sub(r"(?<!\w)[_&](?=\w)", "", message)).split())


def keep_apart(
    frames: dict[Key, pd.DataFrame], settings: TranslationSettings
) -> dict[Key, Counter[str]]:
    """Drop pairs that repeat lines of others, in place; take development text of training text where there is none.

    Args:
        frames: Pairs by split and domain.
        settings: Numbers of pairs and words.

    Returns:
        For each split and domain the pairs that are dropped, by reason.

    Raises:
        DataError: If a domain has too few pairs.
    """
    dev, counts = dict[Key, pd.DataFrame](), dict[Key, Counter[str]]()

    def keep(key: Key, reasons: np.ndarray) -> None:
        counts[key] = Counter(reason for reason in reasons.tolist() if reason)
        frames[key] = frames[key][reasons == ""]
        if frames[key].empty:
            raise DataError(f"{' '.join(key)}: no pair is left ({dict(counts[key])})")

    for key in [key for key in frames if key[0] == "dev"]:
        keep(key, np.where(_has_line_of(frames[key], _join(frames, "test")), "held_out", ""))
    held_out = _join(frames, "dev", "test")
    for name in settings.domains:
        if ("dev", name) not in frames:
            frame = frames["train", name]
            rows = np.flatnonzero(_reasons(frame, held_out, settings) == "")
            if rows.size <= settings.held_out:
                problem = f"{rows.size:,} pairs are left, held_out={settings.held_out} pairs of development text"
                raise DataError(f"train {name}: {problem} leave none; lower it, or give dev text")
            rows = rows[np.argsort(_hashes(frame)[0][rows], kind="stable")[: settings.held_out]]
            dev["dev", name], frames["train", name] = (
                frame.iloc[rows],
                frame.drop(frame.index[rows]),
            )
    frames |= dev
    held_out = _join(frames, "dev", "test")
    for name in settings.domains:
        keep(("train", name), _reasons(frames["train", name], held_out, settings))
    return counts


def _join(frames: Mapping[Key, pd.DataFrame], *splits: str) -> pd.DataFrame:
    return pd.concat([frame for (split, _), frame in frames.items() if split in splits])


def _hashes(frame: pd.DataFrame) -> tuple[np.ndarray, ...]:
    return hash_lines(zip(frame["source"], frame["target"], strict=True))


def _has_line_of(frame: pd.DataFrame, others: pd.DataFrame) -> np.ndarray:
    return np.logical_or(*map(np.isin, _hashes(frame), _hashes(others)))


def _reasons(
    frame: pd.DataFrame, held_out: pd.DataFrame, settings: TranslationSettings
) -> np.ndarray:
    """Say of each pair why it is dropped: shape (pairs,), empty for one that is kept."""
    long, overlap = np.zeros(len(frame), bool), np.zeros(len(frame), bool)
    messages = np.flatnonzero(frame["message"].eq(True)) if "message" in frame else np.zeros(0, int)
    for column in COLUMNS:
        long |= _lengths(frame[column]) > settings.longest
        if messages.size:
            index = OverlapIndex.build({"": held_out[column]}, RUN, SENTENCE)
            overlap[
                messages[[hit.row for hit in index.find(frame[column].iloc[messages].tolist())]]
            ] = True
    repeats = keep_first(*_hashes(frame)) != Outcome.TRAIN
    return np.select([repeats, _has_line_of(frame, held_out), long, overlap], REASONS, "")


def _lengths(texts: pd.Series) -> np.ndarray:
    return texts.str.count(" ").to_numpy() + 1


def _audit(
    frames: Mapping[Key, pd.DataFrame], read: Mapping[Key, int], counts: Mapping[Key, Counter[str]]
) -> pd.DataFrame:
    rows = []
    for name, rank in sorted((name, SPLITS.index(split)) for split, name in frames):
        key = SPLITS[rank], name
        frame, train, drops = frames[key], frames.get(("train", name)), counts.get(key, Counter())
        row: dict[str, Any] = {
            "domain": name,
            "split": key[0],
            "read": read.get(key),
            "kept": len(frame),
        }
        row |= {reason: drops[reason] for reason in REASONS}
        row |= {f"{column}_words": _lengths(frame[column]).sum() for column in COLUMNS}
        row["oov"] = (
            None
            if key[0] == "train" or train is None
            else unknown_share(train["source"], frame["source"])
        )
        rows.append(row)
    return pd.DataFrame(rows)


def unknown_share(train: Iterable[str], texts: Iterable[str]) -> float:
    """Compute the share of the running words of texts that do not occur in training texts (OOV), in [0, 1]."""
    vocabulary = {word for text in train for word in words(text).split()}
    counts = Counter(word for text in texts for word in words(text).split())
    return sum(count for word, count in counts.items() if word not in vocabulary) / max(
        1, counts.total()
    )
