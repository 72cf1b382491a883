"""Save a fitted selector and load it again to score any text.

This needs neither the run nor its target text or pool. The folder holds the fitted state
(safetensors, JSON, n-gram counts; no pickle) and ``saved.json``: specs of selector, detector and
encoder, how text is cut, digests of encoder and code, and a digest that identifies all this and the
fitted state. The encoder's weights are not in the folder; they are loaded by spec and verified by
digest.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dana.core.artifacts import (
    META_DIR,
    canonical,
    fingerprint,
    list_differences,
    read_json,
    write_json,
)
from dana.core.config import require
from dana.core.errors import ArtifactError, DataError, nearest_path
from dana.core.files import file_digest
from dana.core.logging import get_logger
from dana.core.registry import OURS, origin_of, package_versions
from dana.core.schemas import DOCUMENTS_PER_SHARD, SCORES, Document
from dana.core.storage import is_url
from dana.corpus.text import document_id, normalise
from dana.corpus.unit_stream import split_documents
from dana.corpus.units import Splitter
from dana.scoring.settings import Selection
from dana.selectors.base import (
    FittedSelector,
    Selector,
    as_units,
    fill_short,
    largest_score,
    score_table,
)
from dana.selectors.build import create_selector

if TYPE_CHECKING:
    import pandas as pd

log = get_logger(__name__)

SAVED = "saved.json"
FORMAT = 2  # raise it with every incompatible change
LEARNED = f"{META_DIR}/selector"  # in a folder of scores
SUBFOLDERS = (".", LEARNED, f"scores/{LEARNED}")
SHARED = (
    "units",
    "language",
    "encoder",
    "geometry",
    "min_words",
    "pool_share",
    "store_dtype",
)


@dataclass(frozen=True)
class SavedSelector:
    """A fitted selector and its splitter.

    They score text exactly as ``dana score`` scored the pool.

    Attributes:
        model: Fitted selector; higher scores are more foreign to the target text.
        splitter: Cuts a text into the spans of its units.
        description: Content of ``saved.json``.
    """

    model: FittedSelector
    splitter: Splitter
    description: dict[str, Any]

    def score(self, texts: Sequence[str], ids: Sequence[str] | None = None) -> "pd.DataFrame":
        """Score the units of texts.

        Args:
            texts: Documents. Each is normalised and cut as in the run; a blank one has no row.
            ids: Document ids, normalised; a blank or missing id becomes a hash of the text. A
                cross-fitted selector needs the ids of the pool to score each of its documents by
                the fit that excluded it.

        Returns:
            One row per unit, in the order of the texts, with the columns of
            :data:`dana.core.schemas.SCORES`; higher scores are more foreign to the target text.

        Raises:
            DataError: If a text or id is not a string (names its index), or there are more or fewer
                ids than texts.
        """
        clean_texts = [normalise(text) for text in as_units(texts, "texts").texts]
        names: Sequence[str] = [""] * len(clean_texts)
        if ids is not None:
            names = as_units(ids, "ids").texts
        if len(names) != len(clean_texts):
            raise DataError(
                f"ids: expected one per text, got {len(names)} for {len(clean_texts)} texts"
            )
        documents = []
        for name, text in zip(names, clean_texts, strict=True):
            doc_id = normalise(name) or document_id("", text)
            documents.append(Document(doc_id, "", text))
        table = pa.concat_tables([SCORES.empty_table(), *self.tables(documents)])
        scores: pd.DataFrame = fill_short(table, largest_score([table])).to_pandas()
        return scores

    def tables(self, documents: Iterable[Document]) -> Iterator[pa.Table]:
        """Score a stream of normalised documents; yield one table per 1,024.

        Their schema is :data:`dana.core.schemas.SCORES`. The tables are the shards of a pool of
        these documents, so scores equal those of ``dana score`` bit for bit. Short units alone have
        the selector's own score here, not the largest of all tables.
        """
        stream = iter(documents)
        min_words = self.description["selection"]["min_words"]
        while True:
            shard = list(islice(stream, DOCUMENTS_PER_SHARD))
            if not shard:
                return
            tables = [SCORES.empty_table()]
            for units in split_documents(shard, self.splitter):
                tables.append(score_table(units, self.model, min_words))
            yield pa.concat_tables(tables).combine_chunks()


def describe(folder: Path, spec: str, selector: Selector, selection: Selection) -> None:
    """Write ``saved.json``, which :func:`load_selector` needs, beside a selector's fitted state.

    Args:
        folder: Folder of :meth:`dana.selectors.base.FittedSelector.save`.
        spec: Spec of the selector.
        selector: Selector of this spec, in the context of the selection.
        selection: How text was cut and embedded.
    """
    settings = {name: getattr(selection, name) for name in SHARED}
    if not selection.store:
        settings["store_dtype"] = None
    description = {
        "format": FORMAT,
        "selector": spec,
        "detector": selector.context.detector,
        "selection": settings,
        "identity": {**selector.identity(), "code": origin_of(selector)},
        "dana": package_versions().get(OURS),
    }
    digests = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digests[path.relative_to(folder).as_posix()] = file_digest(path)
    digest = fingerprint({"description": description, "files": digests})
    write_json(folder / SAVED, {**description, "digest": digest})


def load_selector(folder: str | Path, encoder: str | None = None) -> SavedSelector:
    """Open a saved selector.

    Args:
        folder: Folder of a saved selector (it may have been moved), of a run or of its scores.
        encoder: Spec of the same encoder if its checkpoint has moved; verified by its digest.

    Raises:
        ArtifactError: If the folder holds no selector, a file is missing or damaged, the format is
            unknown, or the encoder is not the one that the selector was fitted with.
        ConfigError: If the folder is a URL or not a path.
        PluginError: If the package of the selector, detector or encoder is not installed.
    """
    allowed = "the path of a saved selector, a run or its scores"
    require(isinstance(folder, str | Path), "folder", folder, allowed)
    require(not is_url(str(folder)), "folder", folder, "a local folder; copy it here first")
    path = _find(Path(folder))
    description = _read(path / SAVED)
    settings = description["selection"]
    settings = {name: value for name, value in settings.items() if value is not None}
    settings["encoder"] = encoder or settings["encoder"]
    # A run with a store rounds vectors to its precision; the empty path rounds alike and stores
    # nothing.
    store = "" if "store_dtype" in settings else None
    selection = Selection(**settings, store=store)
    selector = create_selector(description["selector"], selection.context(description["detector"]))
    _check_same(path, description, {**selector.identity(), "code": origin_of(selector)})
    return SavedSelector(selector.load(path), selection.splitter(), description)


def _find(folder: Path) -> Path:
    """Return the folder of the saved selector in a folder.

    Raises:
        ArtifactError: If there is none.
    """
    for name in SUBFOLDERS:
        if (folder / name / SAVED).is_file():
            return folder / name
    raise ArtifactError(
        f"{folder}: no saved selector here (no {SAVED}){nearest_path(folder)}; "
        "make one with: dana score --task ... --pool ... --out DIR"
    )


def _read(path: Path) -> dict[str, Any]:
    """Read ``saved.json`` and check its format.

    Raises:
        ArtifactError: If it is of another format, or damaged.
    """
    description = read_json(path)
    if not isinstance(description, dict) or "digest" not in description:
        raise ArtifactError(f"{path}: damaged: no digest; score again or copy it again")
    if description.get("format") != FORMAT:
        writer = f"format {description.get('format')}, written by dana {description.get('dana')}"
        raise ArtifactError(f"{path}: {writer}; this dana reads format {FORMAT}; score again")
    return description


def _check_same(path: Path, description: dict[str, Any], identity: dict[str, Any]) -> None:
    """Refuse an encoder or parameters that differ from the description.

    Warn if only the code differs.

    Raises:
        ArtifactError: Names the first difference.
    """
    now = json.loads(canonical(identity))
    before = description["identity"]
    for difference in list_differences(_without_code(before), _without_code(now)):
        encoder = description["selection"]["encoder"]
        raise ArtifactError(
            f"{path}: {difference}; it needs the encoder {encoder!r}, the same to the last weight"
        )
    code_differences = ", ".join(list_differences(before, now))
    if code_differences:
        log.warning("%s: fitted by other code (%s); scores may differ", path, code_differences)


def _without_code(value: Any) -> Any:
    """Remove the entries that identify a component's code from JSON values."""
    if isinstance(value, list):
        return [_without_code(part) for part in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, part in value.items():
        if key != "code" and not key.endswith("_code"):
            kept[key] = _without_code(part)
    return kept
