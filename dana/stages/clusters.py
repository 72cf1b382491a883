"""``dana clusters``: general text to clusters of its units, and what each of them is."""

from pathlib import Path

from dana.core.artifacts import MANIFEST, Artifact
from dana.core.config import require
from dana.core.launch import first
from dana.core.logging import get_logger
from dana.scoring.clustering import Clustering
from dana.scoring.inputs import GeneralCorpus
from dana.stages.corpus import corpus_stage
from dana.stages.settings import RunSettings
from dana.tasks.hygiene import Cleaner

log = get_logger(__name__)

CLUSTERS = "clusters"


def run_clusters(settings: RunSettings, is_named: bool = True) -> Artifact:
    """Cluster the units of a run's general text; the processes of one launch share the shards.

    Args:
        settings: Of the run.
        is_named: Whether the general text was named now; else the corpus in the run's folder is taken as it is, if
            there is one.

    Returns:
        The clusters artifact, ``OUT/clusters``.

    Raises:
        ConfigError: If there is no general text.
        DataError: If it has too few units for so many clusters.
    """
    selection, out = settings.selection, Path(settings.out)
    selection.splitter()  # what is named is looked up before any text is read
    selection.context("").encoder_identity()
    corpus = GeneralCorpus.open(out / "corpus") if _is_there(out) and not is_named else _read(settings)
    return Clustering(corpus, selection, settings.clusters, out / CLUSTERS).whole()


def _is_there(out: Path) -> bool:
    return first(lambda: (out / "corpus" / MANIFEST).is_file())


def _read(settings: RunSettings) -> GeneralCorpus:
    require(bool(settings.general), "general", settings.general, "at least one file, folder, glob or hf: name")
    cleaner = Cleaner(settings.hygiene, settings.data, settings.selection.language)
    folder = Path(settings.out) / "corpus"
    read = first(lambda: corpus_stage(settings.general, folder, settings.on_bad_record, cleaner, settings.inputs))
    return GeneralCorpus(read)
