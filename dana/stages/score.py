"""``dana score``: score every unit of the pool by how foreign it is to the target text."""

from pathlib import Path

from dana.core.artifacts import Artifact
from dana.scoring.inputs import PoolText, TargetText
from dana.scoring.scoring import Scoring, build_selector
from dana.scoring.settings import Selection
from dana.stages.settings import RunSettings
from dana.stages.texts import open_texts


def open_scoring(settings: RunSettings) -> Scoring:
    """Read both texts, rank the detectors if one is needed and ``auto``, and open the scoring of a run."""
    target, pool = open_texts(settings)
    if _needs_ranking(settings.selector_spec, settings.detector, settings.selection):
        from dana.stages.rank import RANKING, rank_stage, ranking_budget

        folder = Path(settings.out) / RANKING
        budget = ranking_budget(folder, settings.weigh.share)
        rank_stage(target, pool, settings.selection, settings.ranking, folder, budget)
    return open_prepared(settings)


def prepare_scoring(settings: RunSettings) -> Scoring:
    """Read the texts of a run and fit the selector, so that shares of the text can be scored."""
    scoring = open_scoring(settings)
    scoring.prepare()
    return scoring


def open_prepared(settings: RunSettings) -> Scoring:
    """Open the scoring of the texts and the ranking in a run's folder, without reading the sources again."""
    out = Path(settings.out)
    return _open(
        out,
        out,
        settings.selector_spec,
        settings.detector,
        settings.selection,
        out / "scores",
        settings.allow_below_chance,
    )


def score_read(
    out: Path,
    fold_folder: Path,
    selector: str,
    detector: str,
    selection: Selection,
    folder: Path,
    allowed: bool = False,
) -> Artifact:
    """Score the pool in a run's folder by any selector.

    Args:
        out: Folder of the run.
        fold_folder: Folder with the target text and the ranking: `out`, or that of a fold.
        selector: Spec of the selector.
        detector: Spec of the detector for selectors that use one; ``auto`` takes the choice of the
            ranking.
        selection: How text is cut and embedded.
        folder: Folder for the scores.
        allowed: Whether a ranking or scores below chance are only warned of.
    """
    return _open(out, fold_folder, selector, detector, selection, folder, allowed).run()


def _open(
    out: Path,
    fold_folder: Path,
    selector: str,
    detector: str,
    selection: Selection,
    folder: Path,
    allowed: bool,
) -> Scoring:
    """Open the scoring of :func:`score_read`."""
    target = TargetText.open(fold_folder / "target")
    pool = PoolText.open(out / "pool")
    if _needs_ranking(selector, detector, selection):
        from dana.stages.rank import RANKING, chosen_detector

        detector = chosen_detector(fold_folder / RANKING, allowed)
    built = build_selector(selector, detector, selection)
    return Scoring(target, pool, selection, built, folder, selector, allowed)


def _needs_ranking(selector: str, detector: str, selection: Selection) -> bool:
    """Return whether the selector uses a detector that the ranking chooses."""
    return detector == "auto" and "detector" in build_selector(selector, detector, selection).uses


def run_score(settings: RunSettings) -> Artifact:
    """Read the texts of a run, score its pool, and return ``OUT/scores``."""
    return open_scoring(settings).run()
