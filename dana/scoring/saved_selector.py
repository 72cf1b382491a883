"""Saved selectors: a folder that a run left to a scorer of any text, without the run, its task or its pool.

A folder has what was learned (safetensors, JSON, n-gram counts; no pickle) and ``saved.json``: how selector, detector
and encoder are named, how text is cut, digests of encoder and code, and size and digest of every file. Weights of an
encoder are not in it: it is named, and known by its digest.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dana.core.artifacts import META_DIR, add_seal, canonical, is_intact, list_differences, read_json, write_json
from dana.core.config import require
from dana.core.errors import ArtifactError, DataError, nearest_path
from dana.core.files import check_digests, seal
from dana.core.logging import get_logger
from dana.core.registry import OURS, origin_of, package_versions, plugin_errors
from dana.core.schemas import SCORES, Document
from dana.core.storage import is_url
from dana.corpus.text import document_id, normalise
from dana.corpus.unit_stream import Units, split_documents
from dana.corpus.units import Splitter
from dana.scoring.settings import Selection
from dana.scoring.sharded import DOCUMENTS_PER_SHARD, key_columns
from dana.selectors.base import FittedSelector, Selector, as_units, checked_scores
from dana.selectors.build import create_selector

if TYPE_CHECKING:
    import pandas as pd

log = get_logger(__name__)

SAVED = "saved.json"
FORMAT = 1  # raise it when a reader of the old one would go wrong
LEARNED = f"{META_DIR}/selector"  # where a scores folder has it
PLACES = (".", LEARNED, f"scores/{LEARNED}")
SHARED = ("units", "language", "encoder", "geometry", "general_share", "store_dtype")


@dataclass(frozen=True)
class SavedSelector:
    """A fitted selector and how text is cut for it. Text is scored as ``dana score`` scored the pool.

    Attributes:
        fitted: Units to anomaly scores, higher = more foreign to the task.
        splitter: Text to the spans of its units.
        description: Content of ``saved.json``.
    """

    fitted: FittedSelector
    splitter: Splitter
    description: dict[str, Any]

    def score(self, texts: Sequence[str], ids: Sequence[str] | None = None) -> "pd.DataFrame":
        """Anomaly scores of the units of texts, a row a unit, higher = more foreign to the task.

        Args:
            texts: Documents. Each is normalised and cut as the run's were; a blank one has no row.
            ids: Name of each, normalised; where it is blank, and by default, a hash of its text. Matters where a
                selector was cross-fitted: a document of the pool is scored by the fit that has not seen it, which its
                name tells.

        Returns:
            A row a unit in the order of the texts, with the columns of :data:`dana.core.schemas.SCORES`.

        Raises:
            DataError: If a text or id is none; says which.
        """
        cleaned = [normalise(text) for text in as_units(texts, "texts").texts]
        given = [""] * len(cleaned) if ids is None else as_units(ids, "ids").texts
        if len(given) != len(cleaned):
            raise DataError(f"ids: {len(given)} for {len(cleaned)} texts; give one a text")
        names = (normalise(name) or document_id("", text) for name, text in zip(given, cleaned, strict=True))
        documents = (Document(name, "", text) for name, text in zip(names, cleaned, strict=True))
        return pa.concat_tables([SCORES.empty_table(), *self.tables(documents)]).to_pandas()

    def tables(self, documents: Iterable[Document]) -> Iterator[pa.Table]:
        """Scores of a stream of normalised documents, :data:`dana.core.schemas.SCORES`, 1,024 documents a table.

        These are the shards of a corpus of these documents, so its scores have the same bits as by ``dana score``.
        """
        stream = iter(documents)
        while shard := list(islice(stream, DOCUMENTS_PER_SHARD)):
            scored = [score_table(units, self.fitted) for units in split_documents(shard, self.splitter)]
            yield pa.concat_tables([SCORES.empty_table(), *scored]).combine_chunks()


def score_table(units: Units, fitted: FittedSelector) -> pa.Table:
    """Units and their scores, :data:`dana.core.schemas.SCORES`.

    Raises:
        PluginError: If the selector gives other than a finite number a unit.
    """
    with plugin_errors("selector", type(fitted).__qualname__, fitted):
        scores = checked_scores(fitted.score(units), len(units))
    return pa.Table.from_arrays([*key_columns(units), pa.array(scores)], schema=SCORES)


def describe(folder: Path, spec: str, selector: Selector, selection: Selection) -> None:
    """Write ``saved.json`` beside what a selector learned, so that :func:`load_selector` needs nothing else.

    Args:
        folder: Where :meth:`dana.selectors.base.FittedSelector.save` wrote.
        spec: Of the selector.
        selector: Made of it, in the context of the selection.
        selection: How text was cut and embedded.
    """
    shared = {name: getattr(selection, name) for name in SHARED}
    description = {
        "format": FORMAT,
        "selector": spec,
        "detector": selector.context.detector,
        "selection": shared if selection.store else {**shared, "store_dtype": None},
        "identity": {**selector.identity(), "code": origin_of(selector)},
        "dana": package_versions().get(OURS),
        "files": seal(folder),
    }
    write_json(folder / SAVED, add_seal(description))


def load_selector(folder: str | Path, encoder: str | None = None) -> SavedSelector:
    """Open a saved selector.

    Args:
        folder: A selector's folder, wherever it was moved; or the folder of a run or of its scores.
        encoder: Spec of the same encoder, where its checkpoint lies elsewhere now; known by its digest.

    Raises:
        ArtifactError: If there is none, a file is missing or damaged, it is of another format, or the encoder is
            another one than it was fitted with.
        ConfigError: If the folder is a URL or no name.
        PluginError: If selector, detector or encoder are of a package that is not installed.
    """
    require(isinstance(folder, str | Path), "folder", folder, "a saved selector's, or that of a run or of its scores")
    require(not is_url(str(folder)), "folder", folder, "a local folder; copy it here first")
    place = next((Path(folder, place) for place in PLACES if Path(folder, place, SAVED).is_file()), None)
    if place is None:
        made_by = "make one with: dana score --task ... --general ... --out DIR"
        raise ArtifactError(f"{folder}: no saved selector here (no {SAVED}){nearest_path(folder)}; {made_by}")
    description = _read(place / SAVED)
    given = {name: value for name, value in description["selection"].items() if value is not None}
    given["encoder"] = encoder or given["encoder"]
    # The vectors of a run with a store were rounded, and so are these; they are kept nowhere.
    selection = Selection(**given, store="" if "store_dtype" in given else None)
    selector = create_selector(description["selector"], selection.context(description["detector"]))
    _check_same(place, description, {**selector.identity(), "code": origin_of(selector)})
    return SavedSelector(selector.load(place), selection.splitter(), description)


def _read(path: Path) -> dict[str, Any]:
    """The description, once it and all files are found whole.

    Raises:
        ArtifactError: Naming what is amiss.
    """
    description = read_json(path)
    if not isinstance(description, dict) or "digest" not in description or not is_intact(description):
        raise ArtifactError(f"{path}: damaged: its content is not what was written; score again or copy it again")
    if description["format"] != FORMAT:
        writer = f"format {description['format']}, written by dana {description.get('dana')}"
        raise ArtifactError(f"{path}: {writer}; this dana reads format {FORMAT}; score again")
    check_digests(path.parent, description["files"], "score again or copy the folder again")
    return description


def _check_same(place: Path, description: dict[str, Any], identity: dict[str, Any]) -> None:
    """Refuse another encoder or other parameters than a description names; warn of other code.

    Raises:
        ArtifactError: Naming the first difference.
    """
    now, before = json.loads(canonical(identity)), description["identity"]
    if difference := next(list_differences(_without_code(before), _without_code(now)), None):
        needs = f"it needs the encoder {description['selection']['encoder']!r}, the same to the last weight"
        raise ArtifactError(f"{place}: {difference}; {needs}")
    if of_code := ", ".join(list_differences(before, now)):
        log.warning("%s: fitted by other code (%s); scores may differ", place, of_code)


def _without_code(value: Any) -> Any:
    """JSON values less all that says whose code a component is."""
    if isinstance(value, dict):
        return {key: _without_code(part) for key, part in value.items() if key != "code" and not key.endswith("_code")}
    return [_without_code(part) for part in value] if isinstance(value, list) else value
