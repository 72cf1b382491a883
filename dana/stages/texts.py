"""Read the texts of a run into artifacts, each once, and hold out documents of the pool.

They are the task, the pool, and the task's texts without labels where there are some.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.artifacts import MANIFEST, Artifact, Draft, make, open_artifact
from dana.core.config import require
from dana.core.errors import DataError
from dana.core.launch import on_rank_0
from dana.core.logging import get_logger, monitor
from dana.core.raw_files import RAW_FILES, RawFiles
from dana.core.registry import DETECTORS
from dana.core.rng import derive_seed, hash_uniform, unit_keys
from dana.core.schemas import DOCUMENTS, iterate_documents, write_parts
from dana.corpus.documents import Tally, document_tables, read_documents, source_digests
from dana.corpus.hub import forget_rows, is_hub
from dana.corpus.inputs import Inputs
from dana.corpus.slices import reading_processes
from dana.corpus.sources import expand, find_files
from dana.corpus.units import has_rules
from dana.models.folder import check_checkpoint
from dana.scoring.inputs import PoolText, TargetText
from dana.scoring.scoring import build_selector
from dana.stages.settings import RunSettings
from dana.tasks.card import SPLITS, TaskCard, find_card, load_card
from dana.tasks.examples import HELD_OUT_SHARE, card_texts, find_task, plain_texts
from dana.tasks.hygiene import Cleaner, with_folds
from dana.tasks.settings import Hygiene
from dana.train.settings import UNLABELLED

log = get_logger(__name__)


def pool_stage(
    sources: Sequence[str],
    folder: Path,
    on_bad_record: str = "fail",
    cleaner: Cleaner | None = None,
    inputs: Inputs | None = None,
    setting: str = "pool",
) -> Artifact:
    """Read, clean, de-duplicate and store documents as a stream.

    Args:
        sources: Files, folders, globs, URLs or ``hf:`` names.
        folder: Folder for ``part-*.parquet`` (:data:`dana.core.schemas.DOCUMENTS`). If a source
            contains the run's folder, nothing in the run's folder is read.
        on_bad_record: ``fail`` or ``skip``.
        cleaner: Removes text according to the hygiene settings; None keeps every text.
        inputs: How records become documents.
        setting: The setting that named the sources, for errors and the log.

    Raises:
        ConfigError: If a source is empty or the run's own folder.
        DataError: If a source is missing or empty, a record is bad, or no document is left.
    """
    cleaner = cleaner or Cleaner(Hygiene())
    inputs = inputs or Inputs()
    files = on_rank_0(lambda: find_files(sources, folder.parent))
    raw_files = RawFiles(folder)

    def identity() -> dict[str, Any]:
        digests = source_digests(files, raw_files.digest)
        reading = {
            "files": digests,
            "order": list(digests),
            "on_bad_record": on_bad_record,
            **inputs.identity(),
        }
        return reading | cleaner.identity(pool=True, digest=raw_files.digest)

    def write(draft: Draft) -> None:
        tally = Tally()
        cut = [file for source in files if not is_hub(source) for file in expand(source)]
        read = read_documents(files, on_bad_record, tally, reading_processes(cut), inputs)
        documents = monitor(read, what="reading", unit="documents")
        write_parts(
            document_tables(cleaner.filter_pool(documents, tally, draft)), draft.path, DOCUMENTS
        )
        raw_files.check_unchanged()
        if not tally.document_count:
            raise DataError(
                f"{', '.join(sources)}: no document left: {tally}; name other text by {setting} (--{setting})"
            )
        draft.counts.update(tally.as_dict())
        draft.notes[RAW_FILES] = raw_files.records()
        log.info("%-9s %s", setting, tally)

    artifact = make(folder, "pool", on_rank_0(identity), write)
    on_rank_0(lambda: forget_rows(files))
    return artifact


HELD_OUT_AT_MOST = 1000  # documents; enough for a standard error of a hundredth of a nat


def target_stage(
    task: str,
    folder: Path,
    data: str | None = None,
    seed: int = 0,
    cleaner: Cleaner | None = None,
    inputs: Inputs | None = None,
    fold: int = 0,
) -> Artifact:
    """Read the text of a task and split it into text to fit on and held-out text.

    Args:
        task: A task card's name, a card's YAML file, or text: a file, glob or folder. The training
            texts of a card are fitted on and its development texts held out; of plain text, a tenth
            of the documents is held out by a hash of their id.
        folder: Folder of the artifact.
        data: Folder with a card's data, if it is not under ``DANA_DATA``.
        seed: Seed of the choice of held-out documents of plain text.
        cleaner: Removes texts of evaluation splits from the text to fit on; None keeps every text.
        inputs: How records of plain text become documents; a card defines this itself.
        fold: Fold that is tested, of a card with ``folds``.

    Raises:
        DataError: If there is no text to fit on or to hold out.
    """
    cleaner = cleaner or Cleaner(Hygiene())
    card, inputs = find_task(task), inputs or Inputs()
    sources = [] if card else find_files([task], folder.parent)
    files = card.files(data, SPLITS if card.test else ("train", "dev")) if card else sources
    raw_files = RawFiles(folder)
    digests = source_digests(files, raw_files.digest)
    name = card.name if card else Path(task).name.split(".")[0]
    if card:
        depends_on = {"name": name, **card.text_identity, "files": digests}
        if card.folds is not None:
            depends_on["fold"] = fold
    else:
        depends_on = {
            "name": name,
            "files": digests,
            "seed": seed,
            "held_out": HELD_OUT_SHARE,
        }
        depends_on |= inputs.identity()
    depends_on |= cleaner.identity(pool=False, digest=raw_files.digest)

    def write(draft: Draft) -> None:
        tally = Tally()
        if card:
            fit, held_out = card_texts(card, data, fold)
        else:
            fit, held_out = plain_texts(sources, inputs, seed, tally)
        raw_files.check_unchanged()
        draft.notes[RAW_FILES] = raw_files.records()
        if not card:
            draft.counts["documents"] = tally.as_dict()
        fit = cleaner.filter_target(fit, draft)
        for part, documents in {"fit": fit, "held_out": held_out[:HELD_OUT_AT_MOST]}.items():
            draft.counts[part] = write_parts(
                document_tables(documents), draft.path / part, DOCUMENTS
            )
            if not draft.counts[part]:
                raise DataError(
                    f"task {task}: {len(fit) + len(held_out)} distinct documents are too few: some to fit on and some"
                    " to hold out are needed; a line (or a paragraph) is a document"
                )
        draft.counts["held_out_unused"] = max(0, len(held_out) - HELD_OUT_AT_MOST)

    artifact = make(folder, "target", depends_on, write)
    forget_rows(sources)
    return artifact


def unlabelled_folder(pool: Path) -> Path:
    """Return the folder of the task's texts without labels, which lies beside that of the pool."""
    return pool.with_name(UNLABELLED)


DOCUMENTS_AT_MOST = 500
SHARE = 0.05  # of a pool too small to spare 500 documents
_FIRST = np.zeros(1, dtype=np.int64)


def held_out_folders(run: Path) -> tuple[Path, Path]:
    """Return the folders of held-out target documents and held-out pool documents of a run."""
    return run / "target" / "held_out", run / "held_out"


def held_out_stage(pool: Path, folder: Path, seed: int = 0) -> Artifact:
    """Hold out documents of a pool by a hash of their id: 500 or a twentieth, whichever is fewer, at least one.

    They stay in the pool and are scored like all others; training leaves them out.

    Args:
        pool: Folder of a pool artifact.
        folder: Folder for ``part-*.parquet`` (:data:`dana.core.schemas.DOCUMENTS`).
        seed: Seed of the choice.
    """
    artifact = open_artifact(pool, "pool")
    depends_on = {
        "pool": artifact.fingerprint,
        "seed": seed,
        "at_most": DOCUMENTS_AT_MOST,
        "share": SHARE,
    }

    def write(draft: Draft) -> None:
        key = derive_seed(seed, "general", "held_out")
        ids = [document.doc_id for document in iterate_documents(pool)]
        ranks = hash_uniform(key, np.concatenate([unit_keys(doc_id, _FIRST) for doc_id in ids]))
        count = max(1, min(DOCUMENTS_AT_MOST, int(SHARE * len(ids))))
        sample = {ids[row] for row in np.argsort(ranks, kind="stable")[:count]}
        rows = [document for document in iterate_documents(pool) if document.doc_id in sample]
        count = write_parts(document_tables(rows), draft.path, DOCUMENTS)
        draft.counts["documents"] = {"in": len(ids), "held_out": count}
        draft.seeds["held_out"] = key

    return make(folder, "held_out", depends_on, write)


def check_names(settings: RunSettings) -> None:
    """Check that every named component exists, before any text is read: encoder, detectors, selector, model.

    Raises:
        ConfigError: If a component has no such parameter.
        PluginError: If a component is unknown; suggests the nearest name.
        ArtifactError: If the checkpoint of a component is missing.
    """
    if not settings.ranking.is_all:  # "all" skips those that do not load
        settings.ranking.specs()
    settings.selection.splitter()  # a window needs an encoder with a tokenizer
    detector = "knn" if settings.detector == "auto" else settings.detector
    if settings.detector != "auto":
        DETECTORS.create(detector)
    build_selector(
        settings.selector_spec, detector, settings.selection
    ).identity()  # makes its encoders and detectors
    if settings.model:
        check_checkpoint(settings.model)


def check_sources(sources: Sequence[str], run: Path) -> None:
    """Look for the files of sources, before any is read; data sets of the Hub are not looked up.

    Args:
        sources: Files, folders, globs, URLs and ``hf:`` names.
        run: Folder of the run, whose files are not read.

    Raises:
        ConfigError: If a source is empty, or is the run's own folder.
        DataError: See :func:`dana.corpus.sources.expand`.
    """
    for source in sources:
        if not is_hub(source):
            expand(source, run)


def open_texts(settings: RunSettings, selects: bool = True) -> tuple[TargetText, PoolText]:
    """Read the texts of a run and store them in its folder.

    The texts without labels, if there are some, are in ``OUT/unlabelled``.

    Args:
        settings: Settings of the run.
        selects: True if text will be selected; then the selector's components are checked first.

    Returns:
        The task and the pool.

    Raises:
        ConfigError: If the task or the pool is not named.
    """
    require(
        bool((settings.task or "").strip()), "task", settings.task, "a task card or a text file"
    )
    require(
        bool(settings.pool),
        "pool",
        settings.pool,
        "at least one file, folder, glob, URL or hf: name",
    )
    out, language = Path(settings.out), settings.selection.language
    if not has_rules(language):
        log.info(
            "language  %s has no rules for sentences; using those of a related language or of English",
            language,
        )
    find_task(
        settings.task
    )  # a misspelt name fails before anything is read, and so does a missing file
    if selects:
        check_names(settings)
    check_sources([*settings.pool, *settings.unlabelled], out)
    # The task comes first: it is read quickly, and its errors should not appear after an hour of
    # reading the pool.
    target = TargetText(read_target(settings, out / "target"))
    if settings.unlabelled:
        _read_unlabelled(settings)
    return target, _read_pool(settings)


def read_target(settings: RunSettings, folder: Path, fold: int = 0) -> Artifact:
    """Read the text of a run's task, without that of its other cards with ``folds``.

    Args:
        settings: Settings of the run.
        folder: Folder of the artifact.
        fold: See :func:`target_stage`.
    """
    hygiene = with_folds(settings.hygiene, _cards(settings), find_task(settings.task))
    cleaner = Cleaner(hygiene, settings.data, settings.selection.language)
    return on_rank_0(
        lambda: target_stage(
            settings.task,
            folder,
            settings.data,
            settings.selection.seed,
            cleaner,
            settings.inputs,
            fold,
        )
    )


def open_pool(settings: RunSettings, is_named: bool) -> PoolText:
    """Open the pool of a run, or read it if it is missing or pool text was named.

    Args:
        settings: Settings of the run.
        is_named: True if this command named the pool.

    Raises:
        ConfigError: If there is neither a pool in the folder nor a named one.
        DataError: If a record is bad, or no document is left.
    """
    folder = Path(settings.out) / "pool"
    if not is_named and on_rank_0(lambda: (folder / MANIFEST).is_file()):
        return PoolText.open(folder)
    require(
        bool(settings.pool),
        "pool",
        settings.pool,
        "at least one file, folder, glob, URL or hf: name",
    )
    return _read_pool(settings)


def _cards(settings: RunSettings) -> list[TaskCard]:
    names = [name for name in (settings.task, *settings.cards) if name]
    cards = [find_card(name) for name in names]
    return [card for card in cards if card is not None]


def _read_unlabelled(settings: RunSettings) -> Artifact:
    """Read the task's texts without labels, without the evaluation texts of every card of the run.

    They are stored as a pool is, and neither sampled nor thinned out.
    """
    cards = [*settings.hygiene.decontaminate]
    cards += [str(card.origins[0]) for card in _cards(settings)]
    names = {load_card(card).name: card for card in cards}
    hygiene = replace(
        settings.hygiene, decontaminate=list(names.values()), sample=None, near_duplicates=None
    )
    cleaner = Cleaner(hygiene, settings.data, settings.selection.language)
    folder = unlabelled_folder(Path(settings.out) / "pool")
    return on_rank_0(
        lambda: pool_stage(
            settings.unlabelled,
            folder,
            settings.on_bad_record,
            cleaner,
            settings.inputs,
            setting=UNLABELLED,
        )
    )


def _read_pool(settings: RunSettings) -> PoolText:
    """Read the pool of a run, without that of its cards with ``folds``."""
    hygiene = with_folds(settings.hygiene, _cards(settings))
    cleaner = Cleaner(hygiene, settings.data, settings.selection.language)
    folder, bad = Path(settings.out) / "pool", settings.on_bad_record
    return PoolText(
        on_rank_0(lambda: pool_stage(settings.pool, folder, bad, cleaner, settings.inputs))
    )
