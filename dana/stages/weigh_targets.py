"""``dana weigh RUN RUN ... --proportions``: scores of several targets over one pool to one table of weights."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from dana.core.artifacts import Artifact, Draft, make, open_artifact
from dana.core.errors import ConfigError, DataError
from dana.core.schemas import WEIGHTS, read_table, write_parts
from dana.stages.weigh import budget_tokens, by_source
from dana.weighting.kept_text import KEPT_TEXT, write_kept_text
from dana.weighting.purity import held_out_task, purity, warn_of_low_purity
from dana.weighting.settings import WeighSettings
from dana.weighting.targets import Target, apply_targets, check_targets

TABLE = WEIGHTS.append(pa.field("target", pa.string()))  # null: no target takes the unit
SAME = ("doc_id", "unit", "start", "end")  # of the units of every target


def weigh_targets_stage(
    runs: Sequence[Path], proportions: Sequence[float], settings: WeighSettings, folder: Path
) -> Artifact:
    """Weigh one pool for several targets with a budget in common; a segment is kept for one target at most.

    Writes what :func:`dana.stages.weigh.weigh_stage` writes, with a column ``target``: the name of the target that
    each kept unit is for, its run's folder. Training reads it as any other weights. The outcome does not depend on the
    order of the runs.

    Args:
        runs: A run's folder for each target, with ``scores`` and ``corpus``; all of the same general text.
        proportions: Of the budget, one a run, summing to 1.
        settings: The policy and its parameters, the same for all; budget or beta is that of all together.
        folder: Where the weights go.

    Raises:
        ConfigError: If the proportions do not fit, a run is given twice, or the runs scored other text or other units.
        DataError: If there is no unit.
    """
    check_targets(proportions, len(runs), settings)
    scored = [open_artifact(run / "scores", "scores", "dana score --task ... --general ... --out DIR") for run in runs]
    names = _names(runs)
    _check_alike(runs, scored)
    prints = {name: artifact.fingerprint for name, artifact in zip(names, scored, strict=True)}
    shares = dict(zip(names, map(float, proportions), strict=True))
    depends_on = {"scores": prints, "proportions": shares, "settings": settings.identity()}
    corpus = runs[0] / "corpus"

    def write(draft: Draft) -> None:
        tables = [read_table(artifact.path) for artifact in scored]
        _check_units(runs, tables)
        targets = [Target(name, shares[name], table) for name, table in zip(names, tables, strict=True)]
        found = apply_targets(targets, settings, budget_tokens(tables[0], corpus, settings))
        weight = found.weighed.weight
        target = np.array([*names, None], dtype=object)[found.target]
        columns = [pa.array(found.weighed.segment, pa.int32()), pa.array(weight, pa.float32()), pa.array(target)]
        weighed = pa.Table.from_arrays([*(tables[0][name] for name in WEIGHTS.names[:5]), *columns], schema=TABLE)
        write_parts(iter([weighed]), draft.path, TABLE)
        draft.counts = {**found.weighed.counts, "by_source": by_source(weighed)}
        parts = [weight * (found.target == row) for row in range(len(runs))]
        of_targets = {
            name: {
                "proportion": shares[name],
                "weight": float(part.sum()),
                "in_domain": purity(held_out_task(artifact.path), table, part, settings, shrunk),
            }
            for name, part, artifact, table, shrunk in zip(names, parts, scored, tables, found.components, strict=True)
        }
        draft.notes = {**found.weighed.notes, "targets": dict(sorted(of_targets.items()))}
        if settings.policy != "sigmoid":
            place, own = draft.path / KEPT_TEXT, _own_scores(tables, found.target)
            draft.counts["selected_texts"] = write_kept_text(own, weight, corpus, place, target.astype(str))

    artifact = make(folder, "weights", depends_on, write)
    for name, about in artifact.manifest["targets"].items():
        warn_of_low_purity(about["in_domain"], name)
    return artifact


def _own_scores(tables: Sequence[pa.Table], target: np.ndarray) -> pa.Table:
    """The first table, each unit's score being that for the target which takes it."""
    scores = np.stack([table["score"].to_numpy() for table in tables])
    own = pa.array(scores[np.maximum(target, 0), np.arange(target.size)])
    return tables[0].set_column(tables[0].schema.get_field_index("score"), "score", own)


def _names(runs: Sequence[Path]) -> list[str]:
    """Names of the targets: the last part of each run's folder, or all of it where two are alike."""
    names = [run.resolve().name for run in runs]
    return names if len(set(names)) == len(names) else [str(run.resolve()) for run in runs]


def _check_alike(runs: Sequence[Path], scored: Sequence[Artifact]) -> None:
    """Refuse scores that are given twice or are not of the first run's corpus."""
    corpus = open_artifact(runs[0] / "corpus", "corpus").fingerprint
    seen: dict[str, Path] = {}
    for run, artifact in zip(runs, scored, strict=True):
        if artifact.manifest["depends_on"]["general"] != corpus:
            raise ConfigError(f"{run}: its scores are not of {runs[0] / 'corpus'}; score the same general text for all")
        if artifact.fingerprint in seen:
            raise ConfigError(f"{run}: the same target as {seen[artifact.fingerprint]}; give each once")
        seen[artifact.fingerprint] = run


def _check_units(runs: Sequence[Path], tables: Sequence[pa.Table]) -> None:
    if tables[0].num_rows == 0:
        raise DataError(f"{runs[0] / 'scores'}: holds no unit, so there is nothing to weigh")
    for run, table in zip(runs, tables, strict=True):
        if any(not table[name].equals(tables[0][name]) for name in SAME):
            raise ConfigError(f"{run}: cut into other units than {runs[0]}; score both with the same --units")
