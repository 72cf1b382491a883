"""Write the translated messages of this machine's programs as parallel text of the domain IT.

    python recipes/papers/domain_clusters/catalogues.py --sides de en --out catalogues
    dana studies translation --train it catalogues/messages.de catalogues/messages.en ...

Reads the message catalogues of gettext (``.mo``) of the language beside English. Writes
``OUT/messages.SIDE``, two aligned files with the messages of three words and more, and
``OUT/catalogues.csv``, one row per catalogue: name, digest, pairs. Marks of menus (``_Open``) are
dropped. With ``--apart SOURCE TARGET``, which repeats, messages are left out that share a run of
eight words, or a whole sentence of four, with a side of that text: development and test text.
"""

import argparse
import gettext
import re
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from dana.cli.main import run_script
from dana.core.artifacts import write_text
from dana.core.config import require
from dana.core.errors import DataError
from dana.core.files import file_digest
from dana.core.logging import get_logger
from dana.corpus.overlap import OverlapIndex
from dana.corpus.text import one_line, words
from dana.studies.splits.aligned import open_aligned

log = get_logger(__name__)

# Folders of the system's catalogues, if Python is not the system's.
FOLDERS = ("/usr/share/locale", "/usr/share/locale-langpack")
ORIGIN = "en"  # language of the messages that programs are written with
LEAST_WORDS = 3  # of each side of a message
# A message must not share a run of so many words, or a whole sentence of so many, with text apart.
RUN = 8
SENTENCE = 4


def find_catalogues(sides: Sequence[str]) -> list[Path]:
    """Find the message catalogues of the language that is not English, where gettext finds them.

    Returns:
        One file of each name, sorted by name; of equal names the one in the last folder.

    Raises:
        ConfigError: If not one of two sides is ``en``, or there is no catalogue.
    """
    languages = [side for side in sides if side != ORIGIN]
    remedy = f"{ORIGIN}, the language of messages, and another"
    require(len(languages) == 1, "sides", list(sides), remedy)
    files = {}
    for folder in dict.fromkeys([gettext.bindtextdomain("messages"), *FOLDERS]):
        for path in Path(folder, languages[0], "LC_MESSAGES").glob("*.mo"):
            files[path.name] = path
    remedy = "a language with message catalogues (*.mo) on this machine"
    require(bool(files), "sides", list(sides), remedy)
    return [files[name] for name in sorted(files)]


def read_catalogue(file: Path, sides: Sequence[str]) -> pd.DataFrame:
    """Read the messages of a catalogue and their translations: a column per side.

    A file that gettext cannot read has no messages.
    """
    try:
        with file.open("rb") as stream:
            catalogue = gettext.GNUTranslations(stream)._catalog
    except (OSError, ValueError, LookupError, struct.error) as error:
        log.warning("catalogue %s cannot be read and is left out: %s", file, error)
        catalogue = {}
    pairs = []
    for message, translation in catalogue.items():
        # A plural form has a tuple as its key; the empty message is the catalogue's header.
        if not isinstance(message, str) or not message:
            continue
        original = plain(message.rpartition("\x04")[2])  # a context may stand before
        translated = plain(translation)
        if min(len(words(text).split()) for text in (original, translated)) >= LEAST_WORDS:
            pairs.append([original if side == ORIGIN else translated for side in sides])
    return pd.DataFrame(pairs, columns=list(sides))


def plain(message: str) -> str:
    """Remove a menu's marks from a message and put it on one line."""
    return " ".join(one_line(re.sub(r"(?<!\w)[_&](?=\w)", "", message)).split())


def leave_out_overlaps(messages: pd.DataFrame, apart: Sequence[Sequence[Path]]) -> pd.DataFrame:
    """Leave out messages that share a run of words or a sentence with other text.

    Args:
        messages: A column per side.
        apart: Files of parallel text, one per side each.
    """
    sides = list(messages)
    rows = [texts for files in apart for _, texts in open_aligned(files, sides).rows()]
    if not rows:
        return messages
    overlapping = set()
    for side, texts in zip(sides, zip(*rows, strict=True), strict=True):
        index = OverlapIndex.build({"": texts}, RUN, SENTENCE)
        overlapping |= {hit.row for hit in index.find(messages[side].tolist())}
    log.info("left out  %d messages that overlap", len(overlapping))
    return messages.drop(index=messages.index[sorted(overlapping)])


def write_messages(args: argparse.Namespace) -> None:
    """Read the catalogues and write the messages and the table.

    Raises:
        DataError: If no catalogue has a translation of three words.
    """
    catalogues = find_catalogues(args.sides)
    if args.dry_run:
        print(f"would read {len(catalogues)} catalogues, into {args.out}")
        return
    tables = []
    rows = []
    for file in catalogues:
        table = read_catalogue(file, args.sides)
        tables.append(table)
        rows.append({"catalogue": file.name, "digest": file_digest(file), "pairs": len(table)})
    messages = pd.concat(tables, ignore_index=True)
    if messages.empty:
        folder = catalogues[0].parent
        raise DataError(f"{folder}: no message catalogue has a translation of {LEAST_WORDS} words")
    messages = leave_out_overlaps(messages, args.apart)
    for side in args.sides:
        write_text(args.out / f"messages.{side}", "".join(f"{text}\n" for text in messages[side]))
    write_text(args.out / "catalogues.csv", pd.DataFrame(rows).to_csv(index=False))
    print(f"{len(messages):,} messages of {len(catalogues)} catalogues\nwritten: {args.out}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sides", nargs=2, default=["de", "en"], metavar="SIDE")
    parser.add_argument("--apart", nargs=2, type=Path, action="append", default=[], metavar="FILE")
    parser.add_argument("--out", type=Path, required=True)
    return run_script(parser, write_messages, arguments)


if __name__ == "__main__":
    sys.exit(main())
