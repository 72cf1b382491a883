"""``dana rank``: task and general text to ``ranking/``, a row a detector and the name of the chosen one."""

from pathlib import Path
from typing import Any

import pandas as pd

from dana.core.artifacts import MANIFEST, Artifact, Draft, make, open_artifact, write_json
from dana.core.logging import get_logger
from dana.core.registry import ENCODERS
from dana.encoders.base import encoder_identity
from dana.scoring.inputs import GeneralCorpus, TaskText
from dana.scoring.ranking.comparison import RULES, compare_detectors, detector_origins, texts_to_rank
from dana.scoring.scoring import SAMPLES
from dana.scoring.settings import RankSettings, Selection
from dana.stages.settings import RunSettings
from dana.stages.texts import open_texts

log = get_logger(__name__)

RANKING = "ranking"
TABLE = "ranking.csv"
HIDDEN = ["f1_std", "tied"]  # of the table for people


def run_rank(settings: RunSettings) -> Artifact:
    """Rank the detectors of a run on its task and general text, both read first; see :func:`rank_stage`."""
    encoder_identity(ENCODERS.create(settings.selection.encoder))
    task, general = open_texts(settings)
    folder = Path(settings.out) / RANKING
    return rank_stage(task, general, settings.selection, settings.ranking, folder, settings.weigh.share)


def rank_stage(
    task: TaskText, general: GeneralCorpus, selection: Selection, settings: RankSettings, folder: Path, budget: float
) -> Artifact:
    """Make the ranking artifact: ``ranking.csv``, and in the manifest the rows, the choice and the rule behind it.

    Args:
        task: What to look for.
        general: Where.
        selection: As in the scoring that the ranking is for.
        settings: What is ranked, and how.
        folder: Where the artifact goes. ``__dana__/samples.json`` gets the ids of the general units that were drawn.
        budget: Share of the general units that will be kept, β.

    Raises:
        ArtifactError: If the folder holds a ranking of something else.
        DataError: If the task has too few units.
        PluginError: If a detector that was asked for by name fails, or none is left.
    """
    specs = settings.specs()
    depends_on = {
        "task": task.artifact.fingerprint,
        "general": general.artifact.fingerprint,
        "selection": {**selection.identity(), "encoder": selection.context("").encoder_identity()},
        **settings.identity(),
        "detectors": specs,
        "code": detector_origins(specs),
        "budget": budget if settings.protocol == "grouped" else None,
    }

    def write(draft: Draft) -> None:
        texts = texts_to_rank(task, general, selection, settings)
        rows, chosen, failed = compare_detectors(specs, texts, settings, budget, selection.seed)
        pd.DataFrame(rows).to_csv(draft.path / TABLE, index=False)
        write_json(draft.path / SAMPLES, {name: sample.ids for name, sample in texts.samples.items()})
        draft.counts = texts.counts
        draft.notes = {
            "chosen": chosen,
            "detectors": rows,
            "left_out": failed,
            **{name: getattr(selection, name) for name in ("geometry", "encoder", "units", "general_share")},
            "repetitions": settings.seeds,
            "protocol": settings.protocol,
            "budget": depends_on["budget"],
            "prevalence": settings.prevalence,
            "task": task.artifact.manifest["depends_on"]["name"],
            "rule": RULES[settings.protocol],
        }

    return make(folder, "ranking", depends_on, write)


def open_ranking(folder: Path) -> dict[str, Any]:
    """The manifest of a ranking artifact, with ``chosen`` and ``detectors``.

    Raises:
        ArtifactError: If it is missing or damaged.
    """
    return open_artifact(folder, "ranking", "dana rank --task ... --general ... --out DIR").manifest


def budget_there(folder: Path, otherwise: float) -> float:
    """The budget that an existing ranking was made for: scores do not depend on what is kept of them.

    Args:
        folder: Of the ranking artifact.
        otherwise: Where there is no ranking, or one without a budget.
    """
    there = open_ranking(folder)["budget"] if (folder / MANIFEST).is_file() else None
    if there is not None and there != otherwise:
        log.warning("ranking   chose by recall at %g of the general units; %g of them will be kept", there, otherwise)
    return otherwise if there is None else there


def comparison_text(ranking: dict[str, Any]) -> str:
    """A ranking's manifest as aligned columns with the chosen detector marked, for people."""
    frame = pd.DataFrame(ranking["detectors"])
    near = frame.get("tied", pd.Series(False, frame.index)).map({True: "=", False: ""})
    frame.insert(0, "", near.mask(frame["name"] == ranking["chosen"], "*"))
    shown = frame.drop(columns=HIDDEN, errors="ignore").dropna(axis="columns", how="all")
    text = shown.to_string(index=False, float_format=lambda value: f"{value:.3f}")
    tied = "; =: within one standard error of the best recall, either would do"
    return f"{text}\n\n*: chosen{tied if ranking['protocol'] == 'grouped' else ''}"
