"""``dana run``: every step of a recipe in order. Each leaves an artifact, so a rerun goes on where it was."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from dana.artifacts import Artifact, open_artifact, read_json
from dana.config import require
from dana.finetune.card import load_card
from dana.logging import get_logger
from dana.stages.adapt import adapt_stage
from dana.stages.corpus import corpus_stage
from dana.stages.finetune import finetune_stage
from dana.stages.harvest import harvest_stage
from dana.stages.head import head_stage
from dana.stages.held_out import held_out_stage
from dana.stages.hygiene import Cleaner
from dana.stages.pretrain import pretrain_stage
from dana.stages.rank import RANKING, rank_stage, table
from dana.stages.report import report_stage
from dana.stages.score import Scoring, build_selector, score_all
from dana.stages.selection import GeneralCorpus, TaskText
from dana.stages.settings import RunSettings
from dana.stages.task import find_task, task_stage
from dana.stages.team import Team
from dana.stages.training import TrainingData
from dana.stages.weigh import weigh_stage

log = get_logger(__name__)


def open_texts(settings: RunSettings) -> tuple[TaskText, GeneralCorpus]:
    """Read, count and store both piles of text under the run's folder.

    Raises:
        ConfigError: If the task or the general text is not named.
    """
    require(bool(settings.task), "task", settings.task, "a task card or a text file")
    require(bool(settings.general), "general", settings.general, "at least one file, folder, glob or hf: name")
    out = Path(settings.out)
    find_task(settings.task)  # a misspelt name fails before the corpus is read
    cleaner = Cleaner(settings.hygiene, settings.data)
    general = corpus_stage(settings.general, out / "corpus", settings.on_bad_record, cleaner)
    task = task_stage(settings.task, out / "task", settings.data, settings.selection.seed, cleaner)
    return TaskText(task), GeneralCorpus(general)


def rank(settings: RunSettings) -> dict[str, Any]:
    """``dana rank``."""
    settings.ranking.specs()
    task, general = open_texts(settings)
    return rank_stage(task, general, settings.selection, settings.ranking, Path(settings.out))


def open_scoring(settings: RunSettings, selector: str | None = None, folder: Path | None = None) -> Scoring:
    """Both texts, the detector (ranked first where it is ``auto``) and the place of the scores."""
    selector = selector or settings.selector
    if selector == "detector" and settings.detector != "auto":
        build_selector(selector, settings.detector, settings.selection)  # a misspelt name fails before any work
    task, general = open_texts(settings)
    detector = settings.detector
    if selector == "detector" and detector == "auto":
        ranking = rank_stage(task, general, settings.selection, settings.ranking, Path(settings.out))
        detector = ranking["chosen"]
        log.info("detector  %s, the best held-out F1 of %d", detector, len(ranking["detectors"]))
    built = build_selector(selector, detector, settings.selection)
    return Scoring(task, general, settings.selection, built, folder or Path(settings.out) / "scores")


def open_prepared(settings: RunSettings) -> Scoring:
    """The scoring that ``dana score --prepare`` left in the run's folder; sources are not looked at again."""
    out = Path(settings.out)
    task, general = TaskText.open(out / "task"), GeneralCorpus.open(out / "corpus")
    detector = settings.detector
    if settings.selector == "detector" and detector == "auto":
        detector = read_json(out / RANKING)["chosen"]
    built = build_selector(settings.selector, detector, settings.selection)
    return Scoring(task, general, settings.selection, built, out / "scores")


def score(settings: RunSettings, selector: str | None = None, folder: Path | None = None) -> Artifact:
    """``dana score``; the processes of one launch share the shards."""
    team = Team.of_launch()
    if team.world == 1:
        return score_all(open_scoring(settings, selector, folder))
    if team.rank == 0:
        first = open_scoring(settings, selector, folder)
        if not first.is_done:
            first.prepare()
    team.wait()
    scoring = open_scoring(settings, selector, folder)
    done = scoring.is_done
    team.wait()  # all have looked before the first one merges
    if not done:
        scoring.score(scoring.prepared(), team.share)
    team.wait()
    if team.rank == 0:
        scoring.merge()
    team.wait()
    return open_artifact(scoring.folder, "scores")


def run(settings: RunSettings) -> Path:
    """All steps; returns the report's path.

    Raises:
        ConfigError: If what to fine-tune on is not a task card (plain text has no labels).
    """
    out = Path(settings.out)
    if settings.harvest is not None:
        harvested = harvest_stage(out / "data", settings.harvest)
        settings = replace(
            settings,
            task=str(harvested.path / "card.yaml"),
            general=[str(harvested.path / "general.jsonl.gz")],
        )
    cards = {named: load_card(named) for named in settings.cards or [settings.task]}
    content = rank(settings)
    log.info("%s", table(content))
    scores = {"dana": score(settings).path}
    if "random" in settings.arms:
        scores["random"] = score(settings, "random", out / "arms" / "random" / "scores").path
    held_out = Path(settings.out) / "task" / "held_out", held_out_stage(out / "corpus", out / "held_out").path
    if settings.model:
        data = TrainingData(out / "corpus", None, *held_out)
        base = head_stage(settings.model, data, settings.adapt, out / "base")
    else:
        base = str(pretrain_stage(settings.size, out / "corpus", *held_out, settings.pretrain, out / "base").path)
    models = {"base": base}
    for arm in settings.arms:
        folder = out / "arms" / arm
        weights = None
        if arm in scores:
            weights = weigh_stage(scores[arm], out / "corpus", settings.weigh, folder / "weights").path
        adapted = adapt_stage(base, out / "corpus", weights, *held_out, settings.adapt, folder / "adapted")
        models[arm] = str(adapted.path)
    for named, card in cards.items():
        for arm, model in models.items():
            folder = out / "finetune" / card.name / arm
            finetune_stage(model, named, settings.finetune, folder, settings.data)
    return report_stage(out)
