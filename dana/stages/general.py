"""The general corpus of a command: text that is named, read and cleaned, or what the run's folder has already."""

from pathlib import Path

from dana.core.artifacts import MANIFEST
from dana.core.config import require
from dana.core.launch import first
from dana.scoring.inputs import GeneralCorpus
from dana.stages.corpus import corpus_stage
from dana.stages.settings import RunSettings
from dana.tasks.hygiene import Cleaner


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
    if not is_named and first(lambda: (folder / MANIFEST).is_file()):
        return GeneralCorpus.open(folder)
    require(bool(settings.general), "general", settings.general, "at least one file, folder, glob, URL or hf: name")
    cleaner = Cleaner(settings.hygiene, settings.data, settings.selection.language)
    bad, inputs, share = settings.on_bad_record, settings.inputs, settings.shared
    read = first(lambda: corpus_stage(settings.general, folder, bad, cleaner, inputs, share))
    return GeneralCorpus(read)
