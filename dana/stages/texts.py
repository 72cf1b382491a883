"""Settings of a run to its task and corpus artifacts, each text read once, and documents held out of the corpus."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.artifacts import MANIFEST, Artifact, Draft, make, open_artifact
from dana.core.config import require
from dana.core.errors import DataError
from dana.core.known_sources import KnownSources
from dana.core.launch import on_rank_0
from dana.core.logging import get_logger, monitor
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
from dana.scoring.inputs import GeneralCorpus, TaskText
from dana.scoring.scoring import build_selector
from dana.stages.settings import RunSettings
from dana.tasks.examples import HELD_OUT_SHARE, card_texts, find_task, plain_texts
from dana.tasks.hygiene import Cleaner
from dana.tasks.settings import Hygiene

log = get_logger(__name__)


def corpus_stage(
    sources: Sequence[str],
    folder: Path,
    on_bad_record: str = "fail",
    cleaner: Cleaner | None = None,
    inputs: Inputs | None = None,
) -> Artifact:
    """Read, clean, de-duplicate and store documents, streamed.

    Args:
        sources: Files, folders, globs, URLs, ``hf:`` names.
        folder: Where ``part-*.parquet`` (:data:`dana.core.schemas.DOCUMENTS`) goes. Of sources around the folder that
            holds it, the run's, nothing in that one is read.
        on_bad_record: ``fail`` or ``skip``.
        cleaner: Leaves out what hygiene asks for; None keeps every text.
        inputs: How records become documents.

    Raises:
        ConfigError: If a source is empty or the run's own folder.
        DataError: If a source is missing or empty, a record is bad, or no document is left.
    """
    cleaner = cleaner or Cleaner(Hygiene())
    inputs = inputs or Inputs()
    found = on_rank_0(lambda: find_files(sources, folder.parent))
    known = KnownSources(folder)

    def identity() -> dict[str, Any]:
        files = source_digests(found, known.digest)
        described = {"files": files, "order": list(files), "on_bad_record": on_bad_record, **inputs.identity()}
        return described | cleaner.identity(general=True)

    def write(draft: Draft) -> None:
        tally = Tally()
        cut = [file for source in found if not is_hub(source) for file in expand(source)]
        read = read_documents(found, on_bad_record, tally, reading_processes(cut), inputs, draft.path)
        documents = monitor(read, what="reading", unit="documents")
        write_parts(document_tables(cleaner.filter_general(documents, tally, draft)), draft.path, DOCUMENTS)
        if not tally.document_count:
            raise DataError(f"{', '.join(sources)}: no document left: {tally}")
        draft.counts.update(tally.as_dict())
        log.info("corpus    %s", tally)

    made = make(folder, "corpus", on_rank_0(identity), write)
    on_rank_0(known.save)
    on_rank_0(lambda: forget_rows(found))
    return made


HELD_OUT_AT_MOST = 1000  # documents; enough for a standard error of a hundredth of a nat


def task_stage(
    task: str,
    folder: Path,
    data: str | None = None,
    seed: int = 0,
    cleaner: Cleaner | None = None,
    inputs: Inputs | None = None,
) -> Artifact:
    """Make the task artifact.

    Args:
        task: A task card's name, a card's YAML file, or text: a file, glob or folder. Of a card, the training
            texts are fitted on and the development texts held out; of plain text, a tenth of the documents
            is held out by a hash of their id.
        folder: Where the artifact goes.
        data: Folder that holds a card's data, where it is not under ``DANA_DATA``.
        seed: Decides which documents of plain text are held out.
        cleaner: Leaves out of the text to fit on what evaluation splits hold; None keeps every text.
        inputs: How records of plain text become documents; a card says this itself.

    Raises:
        DataError: If there is no text to fit on or to hold out.
    """
    cleaner = cleaner or Cleaner(Hygiene())
    card, inputs = find_task(task), inputs or Inputs()
    sources = [] if card else find_files([task], folder.parent)
    name = card.name if card else Path(task).name.split(".")[0]
    if card:
        depends_on = {
            "name": name,
            **card.text_identity,
            "files": source_digests(card.files(data, ("train", "dev"))),
        }
    else:
        depends_on = {"name": name, "files": source_digests(sources), "seed": seed, "held_out": HELD_OUT_SHARE}
        depends_on |= inputs.identity()
    depends_on |= cleaner.identity(general=False)

    def write(draft: Draft) -> None:
        tally = Tally()
        fit, held_out = card_texts(card, data) if card else plain_texts(sources, inputs, seed, tally)
        if not card:
            draft.counts["documents"] = tally.as_dict()
        fit = cleaner.filter_task(fit, draft)
        draft.counts["fit"] = write_parts(document_tables(fit), draft.path / "fit", DOCUMENTS)
        draft.counts["held_out"] = write_parts(
            document_tables(held_out[:HELD_OUT_AT_MOST]), draft.path / "held_out", DOCUMENTS
        )
        draft.counts["held_out_unused"] = max(0, len(held_out) - HELD_OUT_AT_MOST)
        for part in ("fit", "held_out"):
            if not draft.counts[part]:
                raise DataError(
                    f"task {task}: {len(fit) + len(held_out)} distinct documents are too few to fit on most and hold"
                    " out some; a line (or a paragraph) is a document"
                )

    made = make(folder, "task", depends_on, write)
    forget_rows(sources)
    return made


DOCUMENTS_AT_MOST = 500
SHARE = 0.05  # of a corpus too small to spare 500 documents
_FIRST = np.zeros(1, dtype=np.int64)


def held_out_folders(run: Path) -> tuple[Path, Path]:
    """The documents that a run measures losses on: the task's own, and general ones."""
    return run / "task" / "held_out", run / "held_out"


def held_out_stage(corpus: Path, folder: Path, seed: int = 0) -> Artifact:
    """Draw documents of a corpus by a hash of their id: 500, or a twentieth if that is fewer, at least one.

    They stay in the corpus, so that they are scored like all others; training leaves out what is held out.

    Args:
        corpus: Folder of a corpus artifact.
        folder: Where ``part-*.parquet`` (:data:`dana.core.schemas.DOCUMENTS`) goes.
        seed: Decides which.
    """
    opened = open_artifact(corpus, "corpus")
    depends_on = {"corpus": opened.fingerprint, "seed": seed, "at_most": DOCUMENTS_AT_MOST, "share": SHARE}

    def write(draft: Draft) -> None:
        key = derive_seed(seed, "general", "held_out")
        ids = [document.doc_id for document in iterate_documents(corpus)]
        places = hash_uniform(key, np.concatenate([unit_keys(doc_id, _FIRST) for doc_id in ids]))
        count = max(1, min(DOCUMENTS_AT_MOST, int(SHARE * len(ids))))
        chosen = {ids[row] for row in np.argsort(places, kind="stable")[:count]}
        rows = [document for document in iterate_documents(corpus) if document.doc_id in chosen]
        draft.counts["documents"] = {
            "in": len(ids),
            "held_out": write_parts(document_tables(rows), draft.path, DOCUMENTS),
        }
        draft.seeds["held_out"] = key

    return make(folder, "held_out", depends_on, write)


def check_names(settings: RunSettings) -> None:
    """Find every component that is named, before any text is read: encoder, detectors, selector, model.

    Raises:
        ConfigError: If a parameter of one is unknown.
        PluginError: If one is not known; the nearest is suggested.
        ArtifactError: If the checkpoint of one is not there.
    """
    if not settings.ranking.is_all:  # of all, those that do not load are left out
        settings.ranking.specs()
    settings.selection.splitter()  # a window needs an encoder with a tokenizer
    detector = "knn" if settings.detector == "auto" else settings.detector
    if settings.detector != "auto":
        DETECTORS.create(detector)
    build_selector(settings.selector_spec, detector, settings.selection).identity()  # makes its encoders and detectors
    if settings.model:
        check_checkpoint(settings.model)


def open_texts(settings: RunSettings, selects: bool = True) -> tuple[TaskText, GeneralCorpus]:
    """Read, count and store both piles of text under the run's folder.

    Args:
        settings: Of the run.
        selects: Whether text will be selected, so that what selects it must be there.

    Raises:
        ConfigError: If the task or the general text is not named.
    """
    require(bool((settings.task or "").strip()), "task", settings.task, "a task card or a text file")
    require(bool(settings.general), "general", settings.general, "at least one file, folder, glob, URL or hf: name")
    out, language = Path(settings.out), settings.selection.language
    if not has_rules(language):
        log.info(
            "language  %s: no rules of its own for sentences; those of a related language, or of English", language
        )
    find_task(settings.task)  # a misspelt name fails before anything is read, and so does a missing file
    if selects:
        check_names(settings)
    cleaner = Cleaner(settings.hygiene, settings.data, language)
    for source in settings.general:
        if not is_hub(source):
            expand(source, out)
    # The task first: it is read in no time, and what is wrong with it should not be said after an hour of the corpus.
    seed, inputs = settings.selection.seed, settings.inputs
    task = on_rank_0(lambda: task_stage(settings.task, out / "task", settings.data, seed, cleaner, inputs))
    return TaskText(task), _read_general(settings, cleaner)


def open_general(settings: RunSettings, is_named: bool) -> GeneralCorpus:
    """The corpus in the run's folder, read from the general text unless it is there and no text is named now.

    Args:
        settings: Of the run.
        is_named: Whether the general text was named now.

    Raises:
        ConfigError: If there is neither a corpus nor general text.
        DataError: If a record is bad, or no document is left.
    """
    folder = Path(settings.out) / "corpus"
    if not is_named and on_rank_0(lambda: (folder / MANIFEST).is_file()):
        return GeneralCorpus.open(folder)
    require(bool(settings.general), "general", settings.general, "at least one file, folder, glob, URL or hf: name")
    return _read_general(settings, Cleaner(settings.hygiene, settings.data, settings.selection.language))


def _read_general(settings: RunSettings, cleaner: Cleaner) -> GeneralCorpus:
    folder, bad = Path(settings.out) / "corpus", settings.on_bad_record
    return GeneralCorpus(on_rank_0(lambda: corpus_stage(settings.general, folder, bad, cleaner, settings.inputs)))
