"""``dana score RUN RUN ...``: prepared runs of several tasks over one corpus, scored in one pass over its text."""

from collections.abc import Sequence
from pathlib import Path

from dana.core.artifacts import Artifact
from dana.core.config import load
from dana.core.errors import ConfigError
from dana.core.launch import Share
from dana.scoring.scoring import Scoring, with_one_memory
from dana.scoring.sharded import make_tables, score_shards
from dana.stages.remember import remembered
from dana.stages.score import open_prepared
from dana.stages.settings import RunSettings, with_store
from dana.tasks.finder import search_in


def open_targets(runs: Sequence[Path]) -> list[Scoring]:
    """The scorings of runs whose texts were read, with one memory: a text of a batch is encoded once for all of them.

    Each has the selector and settings that its folder remembers. :func:`score_targets` takes them.

    Args:
        runs: A run's folder for each target, as ``dana score --prepare`` or ``dana rank`` left it.

    Raises:
        ConfigError: If a run is given twice, or one has another corpus or other units than the first.
        ArtifactError: If a run's texts were not read.
    """
    found = list[Scoring]()
    for run in runs:
        if run.resolve() in [scoring.folder.parent.resolve() for scoring in found]:
            raise ConfigError(f"{run}: is given twice; give each run once")
        settings = with_store(load(RunSettings, {**remembered(run), "out": str(run)}, origin=str(run)))
        search_in(settings.task_path)
        scoring = open_prepared(settings)
        if found and scoring.general.fingerprint != found[0].general.fingerprint:
            raise ConfigError(f"{run}: its corpus is not that of {runs[0]}; read the same general text for all")
        if found and scoring.selection.units_identity() != found[0].selection.units_identity():
            raise ConfigError(f"{run}: cuts text into other units than {runs[0]}; prepare both with the same --units")
        found.append(scoring)
    return with_one_memory(found)


def score_targets(scorings: Sequence[Scoring], share: Share | None = None) -> list[Artifact]:
    """Score the text of :func:`open_targets` for all targets in one pass.

    Args:
        scorings: Of one corpus.
        share: Only these shards, of scorings that were prepared.

    Returns:
        The scores artifact of each; none with a share.
    """
    if share is None:
        return make_tables(scorings)
    score_shards(scorings, [scoring.prepared() for scoring in scorings], share)
    return []
