"""Saved selectors: a folder that a run left to a scorer of any text, without the run, its task or its pool.

A folder has what was learned (safetensors, JSON, n-gram counts; no pickle) and ``saved.json``: how selector, detector
and encoder are named, how text is cut, digests of encoder and code, and size and digest of every file. Weights of an
encoder are not in it: it is named, and known by its digest.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dana.core.artifacts import OWN, canonical, is_sealed, read_json, sealed, write_json
from dana.core.config import require
from dana.core.errors import ArtifactError, ConfigError, DataError, PluginError, nearest_path
from dana.core.files import refuse_damage, seal
from dana.core.logging import get_logger
from dana.core.registry import OURS, blamed, origin_of, package_versions
from dana.core.schemas import SCORES, Document
from dana.core.storage import is_url
from dana.corpus.text import document_id, normalise
from dana.corpus.unit_stream import Units, units_of
from dana.corpus.units import Splitter
from dana.encoders.base import Encoder
from dana.encoders.cache import StoredEncoder, create_encoder
from dana.scoring.settings import Selection
from dana.scoring.sharded import DOCUMENTS_PER_SHARD, key_columns
from dana.selectors.base import FittedSelector, Selector, SelectorContext, as_units
from dana.selectors.build import create_selector

if TYPE_CHECKING:
    import pandas as pd

log = get_logger(__name__)

SAVED = "saved.json"
FORMAT = 1  # raise it when a reader of the old one would go wrong
LEARNED = f"{OWN}/selector"  # where a scores folder has it
PLACES = (".", LEARNED, f"scores/{LEARNED}")
SHARED = ("units", "language", "encoder", "geometry", "general_share", "store_dtype")


@dataclass(frozen=True)
class RoundingContext(SelectorContext):
    """Settings of a run with a store, for use without its folder: where `store` is none, vectors are not rounded."""

    @cached_property
    def _encoder(self) -> Encoder:
        made = create_encoder(self.encoder)
        return made if self.store is None else StoredEncoder(made, None, self.store_dtype)


@dataclass(frozen=True)
class SavedSelector:
    """A fitted selector and how text is cut for it. Text is scored as ``dana score`` scored the pool.

    Attributes:
        fitted: Units to anomaly scores, higher = more foreign to the task.
        splitter: Text to the spans of its units.
        about: Content of ``saved.json``.
    """

    fitted: FittedSelector
    splitter: Splitter
    about: dict[str, Any]

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
            scored = [score_table(units, self.fitted) for units in units_of(shard, self.splitter)]
            yield pa.concat_tables([SCORES.empty_table(), *scored]).combine_chunks()


def score_table(units: Units, fitted: FittedSelector) -> pa.Table:
    """Units and their scores, :data:`dana.core.schemas.SCORES`.

    Raises:
        PluginError: If the selector gives other than a finite number a unit.
    """
    name = type(fitted).__qualname__
    with blamed("selector", name, fitted):
        scores = np.asarray(fitted.score(units), dtype=np.float64)
    if scores.shape != (len(units),):
        raise PluginError(f"{name} gave scores of shape {scores.shape} for {len(units)} units")
    if not np.isfinite(scores).all():
        bad = np.flatnonzero(~np.isfinite(scores))
        where = f"unit {units.numbers[bad[0]]} of document {units.doc_ids[bad[0]]!r}"
        raise PluginError(f"{name} gave {scores[bad[0]]} for {where} ({bad.size} of {len(units)} are not finite)")
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
    about = {
        "format": FORMAT,
        "selector": spec,
        "detector": selector.context.detector,
        "selection": shared if selection.store else {**shared, "store_dtype": None},
        "identity": {**selector.identity(), "code": origin_of(selector)},
        "dana": package_versions().get(OURS),
        "files": seal(folder),
    }
    write_json(folder / SAVED, sealed(about))


def load_selector(folder: str | Path, encoder: str | None = None, store: str | Path | None = None) -> SavedSelector:
    """Open a saved selector.

    Args:
        folder: A selector's folder, wherever it was moved; or the folder of a run or of its scores.
        encoder: Spec of the same encoder, where its checkpoint lies elsewhere now; known by its digest.
        store: Folder of an embedding store to encode through, of the kind that the run used.

    Raises:
        ArtifactError: If there is none, a file is missing or damaged, it is of another format, or the encoder is
            another one than it was fitted with.
        ConfigError: If the folder is a URL or no name, or a store is given and the run had none, whose vectors were
            not rounded.
        PluginError: If selector, detector or encoder are of a package that is not installed.
    """
    require(isinstance(folder, str | Path), "folder", folder, "a saved selector's, or that of a run or of its scores")
    require(not is_url(str(folder)), "folder", folder, "a local folder; copy it here first")
    place = next((Path(folder, place) for place in PLACES if Path(folder, place, SAVED).is_file()), None)
    if place is None:
        made_by = "make one with: dana score --task ... --general ... --out DIR"
        raise ArtifactError(f"{folder}: no saved selector here (no {SAVED}){nearest_path(folder)}; {made_by}")
    about = _read(place / SAVED)
    chosen, rounds = dict(about["selection"]), about["selection"]["store_dtype"]
    chosen["encoder"] = encoder or chosen["encoder"]
    if store is not None and rounds is None:
        raise ConfigError(f"store={str(store)!r}: {place} was fitted without a store, whose vectors are rounded")
    given = {name: value for name, value in chosen.items() if value is not None}
    selection = Selection(**given, store=None if rounds is None else str(store or place))
    context = selection.context(about["detector"])
    if store is None:
        context = RoundingContext(**{part.name: getattr(context, part.name) for part in fields(context)})
    selector = create_selector(about["selector"], context)
    _check_same(place, about, {**selector.identity(), "code": origin_of(selector)})
    return SavedSelector(selector.load(place), selection.splitter(), about)


def _read(path: Path) -> dict[str, Any]:
    """The description, once it and all files are found whole.

    Raises:
        ArtifactError: Naming what is amiss.
    """
    about = read_json(path)
    if not isinstance(about, dict) or "digest" not in about or not is_sealed(about):
        raise ArtifactError(f"{path}: damaged: its content is not what was written; score again or copy it again")
    if about["format"] != FORMAT:
        raise ArtifactError(
            f"{path}: format {about['format']}, of dana {about.get('dana')}; this dana reads {FORMAT}: score again"
        )
    refuse_damage(path.parent, about["files"], "score again or copy the folder again")
    return about


def _check_same(place: Path, about: dict[str, Any], found: dict[str, Any]) -> None:
    """Refuse another encoder or other parameters than a description names; warn of other code.

    Raises:
        ArtifactError: Naming the first difference.
    """
    before, now = dict(_leaves(about["identity"])), dict(_leaves(found))
    differing = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    for name in differing:
        if not any(part == "code" or part.endswith("_code") for part in name.split(".")):
            said = f"{place}: {name} was {before.get(name)} when it was fitted, here it is {now.get(name)}"
            needs = f"; it needs the encoder {about['selection']['encoder']!r}, the same to the last weight"
            raise ArtifactError(said + needs * name.startswith("encoder."))
    if differing:
        log.warning("%s: fitted by other code (%s); scores may differ", place, ", ".join(differing))


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Dotted names and values of nested mappings and lists, as JSON has them."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _leaves(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for place, part in enumerate(value):
            yield from _leaves(part, f"{name}.{place}")
    else:
        yield name, canonical(value)
