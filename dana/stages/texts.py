"""Settings of a run to its task and corpus artifacts, after every component that they name has been looked up."""

from pathlib import Path

from dana.core.artifacts import MANIFEST
from dana.core.config import require
from dana.core.launch import first
from dana.core.logging import get_logger
from dana.core.registry import DETECTORS
from dana.corpus.hub import is_hub
from dana.corpus.places import expand
from dana.corpus.units import has_rules
from dana.models.folder import check_checkpoint
from dana.scoring.inputs import GeneralCorpus, TaskText
from dana.scoring.scoring import build_selector
from dana.stages.corpus import corpus_stage
from dana.stages.settings import RunSettings
from dana.stages.task import task_stage
from dana.tasks.examples import find_task
from dana.tasks.hygiene import Cleaner

log = get_logger(__name__)


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
    task = first(lambda: task_stage(settings.task, out / "task", settings.data, seed, cleaner, inputs))
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
    if not is_named and first(lambda: (folder / MANIFEST).is_file()):
        return GeneralCorpus.open(folder)
    require(bool(settings.general), "general", settings.general, "at least one file, folder, glob, URL or hf: name")
    return _read_general(settings, Cleaner(settings.hygiene, settings.data, settings.selection.language))


def _read_general(settings: RunSettings, cleaner: Cleaner) -> GeneralCorpus:
    folder, bad = Path(settings.out) / "corpus", settings.on_bad_record
    return GeneralCorpus(first(lambda: corpus_stage(settings.general, folder, bad, cleaner, settings.inputs)))
