"""The corpus artifact: sources of general text to distinct, cleaned documents in Parquet, each record counted."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dana.core.artifacts import Artifact, Draft, make
from dana.core.errors import DataError
from dana.core.known_sources import KnownSources
from dana.core.launch import first
from dana.core.logging import get_logger, tracked
from dana.core.schemas import DOCUMENTS, write_parts
from dana.corpus.documents import Tally, document_tables, read_documents, source_digests
from dana.corpus.hub import forget_rows, is_hub
from dana.corpus.inputs import Inputs
from dana.corpus.places import expand, find_files
from dana.corpus.slices import reading_processes
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
    found = first(lambda: find_files(sources, folder.parent))
    known = KnownSources(folder)

    def identity() -> dict[str, Any]:
        files = source_digests(found, known.digest)
        known.tell()
        described = {"files": files, "order": list(files), "on_bad_record": on_bad_record, **inputs.identity()}
        return described | cleaner.identity(general=True)

    def write(draft: Draft) -> None:
        tally = Tally()
        cut = [file for source in found if not is_hub(source) for file in expand(source)]
        read = read_documents(found, on_bad_record, tally, reading_processes(cut), inputs, draft.path)
        documents = tracked(read, what="reading", unit="documents")
        write_parts(document_tables(cleaner.filter_general(documents, tally, draft)), draft.path, DOCUMENTS)
        if not tally.kept:
            raise DataError(f"{', '.join(sources)}: no document left: {tally}")
        draft.counts.update(tally.as_dict())
        log.info("corpus    %s", tally)

    made = make(folder, "corpus", first(identity), write)
    first(known.keep)
    first(lambda: forget_rows(found))
    return made
