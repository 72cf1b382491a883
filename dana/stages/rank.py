"""``dana rank``: which detector tells this task from this general corpus? Writes ``ranking.json``.

DANA section 3.1 and Table 1; D-04 of the requirements.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dana.artifacts import canonical, differing, fingerprint, package_versions, write_json, write_text
from dana.config import require
from dana.detectors.base import as_detector
from dana.encoders.store import create_encoder
from dana.errors import ArtifactError, ConfigError
from dana.geometry import parse_geometry
from dana.logging import get_logger, progress
from dana.ranking import HELD_OUT, Ranked, as_rows, choose, separation, split, stability, summarise
from dana.registry import DETECTORS
from dana.rng import derive_seed
from dana.selectors.detector import GEOMETRY_SAMPLE
from dana.stages.selection import GeneralCorpus, Selection, TaskText
from dana.stages.unit_stream import draw

log = get_logger(__name__)


RANKING = "ranking.json"


@dataclass(frozen=True)
class RankSettings:
    """How the zoo is ranked.

    Attributes:
        detectors: Detector specs; ``all`` is every built-in and plug-in that needs no argument.
        seeds: Repetitions, each with its own split, negatives and detector seed.
    """

    detectors: list[str] = field(default_factory=lambda: ["all"])
    seeds: int = 5

    def __post_init__(self) -> None:
        require(self.seeds >= 1, "seeds", self.seeds, "at least 1")
        require(bool(self.detectors), "detectors", self.detectors, "all, or at least one name")

    def specs(self) -> list[str]:
        """The detectors by spec; unknown names fail here, before any work."""
        if self.detectors == ["all"]:
            return [name for name in DETECTORS.entries() if name != "pyod"]
        for spec in self.detectors:
            as_detector(DETECTORS.create(spec))
        if len(set(self.detectors)) < len(self.detectors):
            raise ConfigError(f"detectors={','.join(self.detectors)}: a name is given twice")
        return list(self.detectors)


def rank_stage(
    task: TaskText, general: GeneralCorpus, selection: Selection, settings: RankSettings, out: Path
) -> dict[str, Any]:
    """Rank the detectors and write ``out/ranking.json`` and ``ranking.csv``; reused if nothing changed.

    Returns:
        The content of ``ranking.json``.

    Raises:
        ArtifactError: If ``ranking.json`` is there and was made from something else.
        DataError: If the task has too few units.
    """
    specs = settings.specs()
    encoder = create_encoder(selection.encoder, selection.store, selection.store_dtype)
    depends_on = {
        "task": task.fingerprint,
        "general": general.fingerprint,
        "selection": {**selection.identity(), "encoder": encoder.identity()},
        "detectors": specs,
        "seeds": settings.seeds,
    }
    path = out / RANKING
    if path.is_file():
        return reopen(path, depends_on)
    started = time.monotonic()
    embedded = _embed(task, general, selection, settings.seeds, encoder)
    ranked = _rank_all(specs, embedded, settings.seeds, selection.seed)
    content = {
        "chosen": choose(ranked),
        "detectors": as_rows(ranked),
        "geometry": selection.geometry,
        "encoder": selection.encoder,
        "units": selection.units,
        "seeds": settings.seeds,
        "task": task.name,
        "rule": "task is the positive class; threshold = 90th percentile of the training scores; negatives = "
        "as many general units as held-out task units, disjoint from all that is fitted",
        "counts": embedded.counts,
        "general_samples": embedded.sample_ids,
        "fingerprint": fingerprint(depends_on),
        "depends_on": depends_on,
        "versions": package_versions(),
        "seconds": round(time.monotonic() - started, 1),
    }
    write_text(out / "ranking.csv", table(content, ","))
    write_json(path, content)
    return content


def reopen(path: Path, depends_on: dict[str, Any]) -> dict[str, Any]:
    """An existing ranking, if it was made from the same things."""
    import json

    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("fingerprint") == fingerprint(depends_on):
        log.info("%-9s reused   %s", "ranking", path)
        return content
    wanted = json.loads(canonical(depends_on))
    differences = "; ".join(differing(content.get("depends_on"), wanted))
    raise ArtifactError(f"{path} was made from something else ({differences}). Remove it or choose another folder")


@dataclass(frozen=True)
class _Embedded:
    """Vectors in the detectors' geometry."""

    task: Tensor
    negatives: list[Tensor]
    stability: Tensor
    counts: dict[str, int]
    sample_ids: dict[str, Any]


def _embed(task: TaskText, general: GeneralCorpus, selection: Selection, seeds: int, encoder: Any) -> _Embedded:
    units = task.units(selection)
    split(len(units), seed=0)  # too few units fail before the encoder runs
    held_out = max(1, round(len(units) * HELD_OUT))
    wanted = {}
    for seed in range(seeds):
        wanted[f"negatives/{seed}"] = (derive_seed(selection.seed, "general", "negatives", seed), held_out)
    # Last, so that in a small corpus the sample for the mean is what shrinks.
    wanted["geometry"] = (derive_seed(selection.seed, "general", "geometry"), GEOMETRY_SAMPLE)
    samples = draw(general.units(selection), wanted)
    fewest = min(len(sample.texts) for sample in samples.values())
    require(fewest >= 2, "general", f"{fewest} units left for a sample", "a corpus with more units")
    texts = [units, *(sample.texts for sample in samples.values())]
    with progress(what="embedding", unit="units", total=sum(map(len, texts))) as bar:
        vectors = [_encode(encoder, part, bar) for part in texts]
    geometry = parse_geometry(selection.geometry).fit(vectors[-1])
    task_vectors, *negatives, general_vectors = [geometry.apply(part) for part in vectors]
    counts = {
        "task_units": len(units),
        "held_out": held_out,
        "geometry": len(texts[-1]),
        "negatives": held_out,
    }
    ids = {name: sample.ids for name, sample in samples.items()}
    return _Embedded(task_vectors, negatives, general_vectors, counts, ids)


def _encode(encoder: Any, texts: Sequence[str], bar: progress, chunk: int = 1024) -> Tensor:
    parts = []
    for start in range(0, len(texts), chunk):
        parts.append(encoder.encode(texts[start : start + chunk]))
        bar.update(len(parts[-1]))
    return torch.cat(parts)


def _rank_all(specs: Sequence[str], embedded: _Embedded, seeds: int, root: int) -> list[Ranked]:
    ranked = []
    with progress(what="ranking detectors", unit="fits", total=len(specs) * seeds) as bar:
        for spec in specs:
            detector = as_detector(DETECTORS.create(spec))
            runs, samples, fit_s, score_s = [], [], [], []
            for seed in range(seeds):
                training, held_out = (
                    torch.from_numpy(rows) for rows in split(len(embedded.task), derive_seed(root, seed))
                )
                begun = time.perf_counter()
                fitted = detector.fit(embedded.task[training], derive_seed(root, "ranking", "detector", seed))
                fit_s.append(time.perf_counter() - begun)
                parts = [
                    embedded.task[training],
                    embedded.task[held_out],
                    embedded.negatives[seed],
                    embedded.stability,
                ]
                begun = time.perf_counter()
                scores = [_score(fitted, part) for part in parts]
                score_s.append(time.perf_counter() - begun)
                runs.append(separation(*scores[:3]))
                samples.append(scores[3])
                bar.update(1)
            ranked.append(summarise(spec, runs, stability(samples), fit_s, score_s))
    return ranked


def _score(fitted: Any, vectors: Tensor) -> np.ndarray:
    with torch.inference_mode():
        return fitted.score(vectors).double().cpu().numpy()


def table(content: dict[str, Any], separator: str | None = None) -> str:
    """The ranking as text: aligned columns for people, or separated values."""
    import pandas as pd

    frame = pd.DataFrame(content["detectors"])
    if separator:
        return frame.to_csv(index=False, sep=separator)
    shown = frame[
        [
            "name",
            "f1_mean",
            "f1_std",
            "auroc_mean",
            "ap_mean",
            "best_f1_mean",
            "stability",
            "fit_s",
            "score_s",
        ]
    ]
    shown.insert(0, "", ["*" if name == content["chosen"] else "" for name in frame["name"]])
    return shown.to_string(index=False, float_format=lambda value: f"{value:.3f}")
