"""``dana score --rank-only``: rank detectors by how well they find held-out target text in pool text."""

from pathlib import Path
from typing import Any

import pandas as pd

from dana.core.artifacts import (
    MANIFEST,
    Artifact,
    Draft,
    make,
    open_artifact,
    write_json,
    write_text,
)
from dana.core.logging import get_logger
from dana.core.registry import ENCODERS
from dana.core.text_table import csv_text
from dana.encoders.base import encoder_identity
from dana.scoring.inputs import PoolText, TargetText
from dana.scoring.ranking.comparison import compare_detectors, detector_origins, texts_to_rank
from dana.scoring.ranking.measures import is_below_chance as is_below_chance  # for cli
from dana.scoring.ranking.measures import refuse_below_chance, warn_of_length
from dana.scoring.scoring import SAMPLES
from dana.scoring.settings import RankSettings, Selection
from dana.stages.settings import RunSettings
from dana.stages.texts import open_texts

log = get_logger(__name__)

RANKING = "ranking"
VERSION = 2  # raise it when other numbers follow from the same settings
TABLE = "ranking.csv"
HIDDEN = ["f1_std", "tied"]  # columns that are not printed


def run_rank(settings: RunSettings) -> Artifact:
    """Read the target and pool text of a run and rank its detectors; see :func:`rank_stage`."""
    encoder_identity(ENCODERS.create(settings.selection.encoder))
    target, pool = open_texts(settings)
    folder = Path(settings.out) / RANKING
    return rank_stage(
        target, pool, settings.selection, settings.ranking, folder, settings.weigh.share
    )


def rank_stage(
    target: TargetText,
    pool: PoolText,
    selection: Selection,
    settings: RankSettings,
    folder: Path,
    budget: float,
) -> Artifact:
    """Write the ranking artifact: ``ranking.csv``, and a manifest with the rows, the choice and its rule.

    Args:
        target: Target text.
        pool: Pool text.
        selection: How text is cut and embedded, as in scoring.
        settings: Detectors and protocol of the ranking.
        folder: Folder of the artifact. ``__dana__/samples.json`` gets the ids of the sampled
            pool units.
        budget: Share of pool units to select, β.

    Raises:
        ArtifactError: If the folder holds another ranking.
        DataError: If the task has too few units.
        PluginError: If a detector named in the settings fails, or none is left.
    """
    specs = settings.specs()
    texts = {"target": target.artifact.fingerprint, "pool": pool.artifact.fingerprint}
    units = {**selection.identity(), "encoder": selection.context("").encoder_identity()}
    depends_on = {
        **texts,
        "selection": units,
        **settings.identity(),
        "detectors": specs,
        "version": VERSION,
    }
    depends_on |= {
        "code": detector_origins(specs),
        "budget": budget if settings.protocol == "grouped" else None,
    }

    def write(draft: Draft) -> None:
        texts = texts_to_rank(target, pool, selection, settings)
        rows, best, failures = compare_detectors(specs, texts, settings, budget, selection.seed)
        warn_of_length({row["name"]: row["length"] for row in rows})
        write_text(draft.path / TABLE, csv_text(pd.DataFrame(rows)))
        write_json(
            draft.path / SAMPLES, {name: sample.ids for name, sample in texts.samples.items()}
        )
        draft.counts = texts.counts
        draft.notes = {"chosen": best, "detectors": rows, "left_out": failures}
        draft.notes |= {"protocol": settings.protocol, "budget": depends_on["budget"]}
        draft.notes |= {
            name: row[name]
            for row in rows
            if row["name"] == best
            for name in ("auroc_low", "auroc_high")
        }

    return make(folder, "ranking", depends_on, write)


def chosen_detector(folder: Path, allowed: bool) -> str:
    """Return the spec that a ranking chose.

    Args:
        folder: Folder of the ranking artifact.
        allowed: Whether one that ranks the task below chance is only warned of.

    Raises:
        ArtifactError: If the ranking is missing or damaged.
        DataError: If the detector ranks the task below chance.
    """
    ranking = open_ranking(folder)
    chosen: str = ranking["chosen"]
    refuse_below_chance(f"{folder}: detector {chosen}", ranking, allowed)
    log.info("detector  %s, chosen of %d", chosen, len(ranking["detectors"]))
    return chosen


def open_ranking(folder: Path) -> dict[str, Any]:
    """Open a ranking artifact; return its manifest, with ``chosen`` and ``detectors``.

    Raises:
        ArtifactError: If it is missing or damaged.
    """
    return open_artifact(
        folder, "ranking", "dana score --rank-only --task ... --pool ... --out DIR"
    ).manifest


def ranking_budget(folder: Path, otherwise: float) -> float:
    """Return the budget of an existing ranking, so that another β does not require another ranking.

    Args:
        folder: Folder of the ranking artifact.
        otherwise: Budget if there is no ranking, or one without a budget.
    """
    budget = open_ranking(folder)["budget"] if (folder / MANIFEST).is_file() else None
    if budget is not None and budget != otherwise:
        log.warning(
            "ranking   chose by recall at %g of the pool units, but β is now %g",
            budget,
            otherwise,
        )
    return otherwise if budget is None else budget


def comparison_text(ranking: dict[str, Any]) -> str:
    """Format a ranking's manifest as aligned columns with the chosen detector marked."""
    frame = pd.DataFrame(ranking["detectors"])
    near = frame.get("tied", pd.Series(False, frame.index)).map({True: "=", False: ""})
    below = frame.apply(is_below_chance, axis="columns")
    frame.insert(0, "", near.mask(frame["name"] == ranking["chosen"], "*").mask(below, "!"))
    table = frame.drop(columns=HIDDEN, errors="ignore").dropna(axis="columns", how="all")
    text = table.to_string(index=False, float_format=lambda value: f"{value:.3f}")
    near_note = (
        "; =: within one standard error of the best recall"
        if ranking["protocol"] == "grouped"
        else ""
    )
    below_note = (
        "; !: target text ranks below chance: used only with --allow-below-chance"
        if below.any()
        else ""
    )
    return f"{text}\n\n*: chosen{near_note}{below_note}"
