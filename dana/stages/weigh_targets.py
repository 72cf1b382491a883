"""``dana weigh RUN RUN ... --proportions``: scores of several targets over one pool to one table of weights."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from dana.core.artifacts import OWN, Artifact, Draft, make, open_artifact
from dana.core.errors import ConfigError
from dana.core.schemas import WEIGHTS, write_parts
from dana.stages.weigh import scored_pool, weights_table
from dana.weighting.kept_text import KEPT_TEXT, KeptText
from dana.weighting.pool import Pool, alongside
from dana.weighting.purity import KeptPool, TargetSide, held_out_task, purity, warn_of_low_purity
from dana.weighting.settings import WeighSettings
from dana.weighting.tally import SourceTally, UnitTally
from dana.weighting.targets import Target, TargetsRule, check_targets, make_targets_rule, warn_of_nothing
from dana.weighting.tokens import CountingTokenizer, count_tokens, with_tokens

TABLE = WEIGHTS.append(pa.field("target", pa.string()))  # null: no target takes the unit


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
    tokenizer = CountingTokenizer.of(settings)
    if tokenizer is not None:
        depends_on["tokenizer"] = tokenizer.digest
    corpus = runs[0] / "corpus"

    def write(draft: Draft) -> None:
        with TemporaryDirectory(dir=draft.path / OWN) as scratch:
            pool, targets = _pools(runs, scored, names, proportions, tokenizer, Path(scratch))
            rule = make_targets_rule(targets, settings, Path(scratch))
            kept = _write_weights(pool, rule, names, settings, draft, Path(scratch))
            if settings.policy != "sigmoid":
                folders = {name: artifact.path for name, artifact in zip(names, scored, strict=True)}
                draft.counts["selected_texts"] = KeptText(draft.path, folders, corpus).write(draft.path / KEPT_TEXT)
            of_targets = {
                name: {
                    "proportion": shares[name],
                    "weight": own.weight,
                    "in_domain": purity(held_out_task(artifact.path), own, settings, shrunk),
                }
                for name, own, artifact, shrunk in zip(names, kept, scored, rule.components, strict=True)
            }
        draft.notes["targets"] = dict(sorted(of_targets.items()))

    artifact = make(folder, "weights", depends_on, write)
    for name, about in artifact.manifest["targets"].items():
        warn_of_low_purity(about["in_domain"], name)
    return artifact


def _pools(
    runs: Sequence[Path],
    scored: Sequence[Artifact],
    names: Sequence[str],
    proportions: Sequence[float],
    tokenizer: CountingTokenizer | None,
    folder: Path,
) -> tuple[Pool, list[Target]]:
    """The first run's units, with a column of scores a target, and each target's own."""
    pools = [scored_pool(artifact.path) for artifact in scored]
    together = pools[0]
    for row, (run, pool) in enumerate(zip(runs, pools, strict=True)):
        said = f"{run}: cut into other units than {runs[0]}; score both with the same --units"
        together = alongside(together, pool, "score", _column(row), said)
    for _ in together.read([*map(_column, range(len(runs)))]):
        pass  # that the units are the same is known before anything is written
    if tokenizer is not None:
        tokens = count_tokens(scored[0].path, runs[0] / "corpus", tokenizer, folder)
        pools = [with_tokens(pool, tokens) for pool in pools]
    return together, [Target(*about) for about in zip(names, map(float, proportions), pools, strict=True)]


def _column(row: int) -> str:
    return f"score of target {row}"


def _write_weights(
    pool: Pool, rule: TargetsRule, names: Sequence[str], settings: WeighSettings, draft: Draft, scratch: Path
) -> list[KeptPool]:
    """The table, and what is kept for each target."""
    tally, sources = UnitTally(pool.rows), SourceTally()
    sides = [TargetSide(pool.rows, settings.seed, scratch / f"by-value-{row}") for row in range(len(names))]
    columns = [_column(row) for row in range(len(names))]
    labels = np.array([*names, None], dtype=object)

    def weighed() -> Iterator[pa.Table]:
        for block in pool.blocks([*WEIGHTS.names[:5], *columns], settings):
            found = rule.weigh(block, [block.table[column].to_numpy() for column in columns])
            table = weights_table(block, found.weight, settings).append_column(
                TABLE.field("target"), pa.array(labels[found.target], pa.string())
            )
            tally.add(found.weight, block.inside)
            sources.add(table)
            for row, (side, values) in enumerate(zip(sides, found.values, strict=True)):
                side.add(values, block.documents, found.weight * (found.target == row))
            yield table

    write_parts(weighed(), draft.path, TABLE)
    draft.counts = {**rule.counts, "units": tally.counts, "by_source": sources.by_source}
    draft.notes = {**rule.notes, **tally.notes}
    kept = [side.kept() for side in sides]
    warn_of_nothing(names, [own.weight > 0 for own in kept])
    return kept


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
