"""``dana score``: task and general text to a table of anomaly scores, a row a unit."""

from pathlib import Path

from dana.core.artifacts import Artifact
from dana.core.launch import processes
from dana.core.logging import get_logger
from dana.scoring.estimate import estimate
from dana.scoring.inputs import GeneralCorpus, TaskText
from dana.scoring.scoring import Scoring, build_selector
from dana.scoring.settings import Selection
from dana.stages.settings import RunSettings
from dana.stages.texts import check_names, find_task, open_texts

log = get_logger(__name__)


def open_scoring(settings: RunSettings) -> Scoring:
    """Both texts, the detector (ranked first where it is ``auto``) and the place of the scores."""
    task, general = open_texts(settings)
    if (
        settings.detector == "auto"
        and "detector" in build_selector(settings.selector_spec, "auto", settings.selection).uses
    ):
        from dana.stages.rank import RANKING, budget_there, rank_stage

        folder = Path(settings.out) / RANKING
        budget = budget_there(folder, settings.weigh.share)
        rank_stage(task, general, settings.selection, settings.ranking, folder, budget)
    return open_prepared(settings)


def open_prepared(settings: RunSettings) -> Scoring:
    """The scoring of the texts and the ranking in a run's folder; sources are not read again."""
    out = Path(settings.out)
    return _of_read(out, settings.selector_spec, settings.detector, settings.selection, out / "scores")


def score_read(out: Path, selector: str, detector: str, selection: Selection, folder: Path) -> Artifact:
    """Score the general text of a run, which was read before, by any selector.

    Args:
        out: Folder of the run.
        selector: The selector's spec.
        detector: Spec of the detector, or ``auto`` for the one that the ranking chose; for a selector that takes one.
        selection: How text is cut and embedded.
        folder: Where the scores go.
    """
    return _of_read(out, selector, detector, selection, folder).run()


def _of_read(out: Path, selector: str, detector: str, selection: Selection, folder: Path) -> Scoring:
    task, general = TaskText.open(out / "task"), GeneralCorpus.open(out / "corpus")
    built = build_selector(selector, detector, selection)
    if detector == "auto" and "detector" in built.uses:
        from dana.stages.rank import RANKING, open_ranking

        ranking = open_ranking(out / RANKING)
        log.info("detector  %s, chosen of %d", ranking["chosen"], len(ranking["detectors"]))
        built = build_selector(selector, ranking["chosen"], selection)
    return Scoring(task, general, selection, built, folder, selector)


def estimate_score(settings: RunSettings) -> str:
    """``dana score --dry-run``: a table of the time, memory and disk that :func:`run_score` will take here."""
    if settings.task:
        find_task(settings.task)
    check_names(settings)
    return estimate(
        settings.general,
        Path(settings.out),
        settings.selection,
        settings.inputs,
        settings.on_bad_record,
        selector=build_selector(settings.selector_spec, settings.detector, settings.selection),
        processes=processes(),
        share=settings.hygiene.sample or 1.0,
    )


def run_score(settings: RunSettings) -> Artifact:
    """Score the general text of a run against its task, both read first; returns ``OUT/scores``."""
    return open_scoring(settings).run()
