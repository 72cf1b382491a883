"""``dana weigh``: turn the scores of one or several targets into weights and selected text (DANA, section 3.2)."""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from tokenizers import Tokenizer

from dana.core.artifacts import (
    META_DIR,
    Artifact,
    Draft,
    make,
    open_artifact,
    read_manifest,
    write_text,
)
from dana.core.errors import ConfigError, DataError, nearest_path
from dana.core.logging import get_logger
from dana.core.rng import generator
from dana.core.schemas import WEIGHTS, part_files, table_identity, write_parts
from dana.core.studies import studies
from dana.core.text_table import Value, csv_text, tabulate
from dana.scoring.ranking.measures import check_scores
from dana.weighting.mixture import (
    describe_purity,
    estimate_purity,
    held_out_task,
    split_held_out,
    warn_of_low_purity,
)
from dana.weighting.pool import GROUP, Groups, Pool, Sample
from dana.weighting.selection import (
    WeightRule,
    check_targets,
    gather,
    make_rule,
    make_targets_rule,
    weigh_in_memory,
    within_documents,
)
from dana.weighting.settings import WeighSettings, parse_balance
from dana.weighting.tally import WeightTally
from dana.weighting.texts import ONE, SELECTED_TEXT, SelectedText, count_tokens, counting_tokenizer
from dana.weighting.weights import effective_number

if TYPE_CHECKING:
    from dana.weighting.amount import Amount

log = get_logger(__name__)

CURVE = f"{META_DIR}/beta.csv"
MOST_SHOWN = 1_000  # passages of selected text that examples are drawn from
LARGEST_POOL = 1_000_000  # units that the in-domain share is estimated from; larger pools are sampled by document
TARGETS = WEIGHTS.append(pa.field("target", pa.string()))  # null: not selected for any target
SCORE_FIRST = "dana score --task ... --general ... --out DIR"


def weigh_stage(
    scores: Path,
    corpus: Path,
    settings: WeighSettings,
    folder: Path,
    groups: Path | None = None,
    allowed: bool = False,
) -> Artifact:
    """Turn scores into weights.

    Writes ``part-*.parquet`` (:data:`dana.core.schemas.WEIGHTS`, in the row order of the scores)
    and, for the two policies that select or drop, ``__dana__/selected.jsonl.gz``
    (:class:`dana.weighting.texts.SelectedText`). The manifest estimates the in-domain share of the
    selected text from the scores of held-out task text.

    If beta is ``auto``, half of the task's held-out documents choose it and the others estimate the
    in-domain share; ``__dana__/beta.csv`` and ``beta.svg`` hold the curve
    (:func:`dana.weighting.amount.choose_amount`).

    Args:
        scores: Folder of a scores artifact.
        corpus: Folder of its corpus; if beta is ``auto``, the task artifact must lie beside it.
        settings: Policy and parameters.
        folder: Folder for the weights.
        groups: Table of groups to balance the budget over; by default the one that ``balance``
            names, in the run's folder or at a path.
        allowed: Whether scores that rank held-out task text below chance are only warned of.

    Raises:
        ConfigError: If scores or groups belong to another corpus or other units, a group is
            unknown, or beta is ``auto`` and the scores belong to another task.
        ArtifactError: If the tokenizer cannot be read, or the folder holds other weights.
        DataError: If there are no units, no held-out task text to choose beta with, or the scores
            are below chance.
    """
    scores_artifact = open_artifact(scores, "scores", SCORE_FIRST)
    corpus_artifact = open_artifact(corpus, "corpus")
    if corpus_artifact.fingerprint != scores_artifact.manifest["depends_on"]["general"]:
        raise ConfigError(f"{scores} was not made from {corpus}; score this corpus first")
    check_scores(scores, scores_artifact.manifest, allowed)
    balance = _groups_of(corpus_artifact, settings.balance, groups) if settings.balance else None
    tokenizer = counting_tokenizer(settings)
    depends_on = {"scores": scores_artifact.fingerprint, "settings": settings.identity()}
    depends_on |= {} if balance is None else {"groups": table_identity(balance.path)}
    depends_on |= {} if tokenizer is None else {"tokenizer": tokenizer[1]}
    held_out = _task_of(scores_artifact, corpus) / "held_out" if settings.is_auto else Path()

    def write(draft: Draft) -> None:
        task, final, chose, segments, shares = held_out_task(scores), settings, 0, None, None
        pool = _pool(scores, corpus, tokenizer)
        if balance is not None:
            pool = pool.with_columns(group=balance.of_pool(pool))
            shares = balance.shares(parse_balance(str(settings.balance)))
        if settings.is_auto:
            from dana.weighting.amount import choose_amount

            chooses, task = split_held_out(task, settings.seed)
            segments = gather(pool, settings)
            amount = choose_amount(chooses, held_out, pool, segments, corpus, settings)
            final, chose = replace(settings, beta=amount.beta), chooses.num_rows
            _write_curve(amount, draft)
        rule = make_rule(pool, final, shares, segments)
        totals = _write_weights({ONE: pool}, rule, final, draft, balance)
        _write_text(draft, {ONE: scores}, corpus, settings)
        draft.notes["in_domain"] = {
            "unknown": "with a balance more than the scores decides what is kept"
        }
        if balance is None:
            draft.notes["in_domain"] = estimate_purity(
                task, *totals[ONE], pool.rows, final, rule.components(0), chose
            )

    artifact = make(folder, "weights", depends_on, write)
    warn_of_low_purity(artifact.manifest["in_domain"])
    return artifact


def weigh_targets_stage(
    runs: Sequence[Path],
    proportions: Sequence[float],
    settings: WeighSettings,
    folder: Path,
    allowed: bool = False,
) -> Artifact:
    """Select text from one pool for several targets with a common budget; a segment is selected for one target at most.

    Writes the output of :func:`weigh_stage` with a column ``target``, the name of the run that a
    unit is selected for. Training reads it like other weights. The result does not depend on the
    order of the runs.

    Args:
        runs: Folder of a run for each target, with ``scores`` and ``corpus`` of the same general
            text.
        proportions: Share of the budget of each run, summing to 1.
        settings: Policy and parameters; the budget or beta is the total of all targets.
        folder: Folder for the weights.
        allowed: As for :func:`weigh_stage`.

    Raises:
        ConfigError: If the proportions are wrong, a run is given twice, or the runs scored
            different text or units.
        DataError: If there are no units.
    """
    check_targets(proportions, len(runs), settings)
    artifacts = [open_artifact(run / "scores", "scores", SCORE_FIRST) for run in runs]
    _check_alike(runs, artifacts)
    for artifact in artifacts:
        check_scores(artifact.path, artifact.manifest, allowed)
    names = [run.resolve().name for run in runs]
    names = names if len({*names}) == len(names) else [str(run.resolve()) for run in runs]
    folders = dict(sorted(zip(names, [artifact.path for artifact in artifacts], strict=True)))
    shares = dict(zip(names, map(float, proportions), strict=True))
    prints = {name: artifact.fingerprint for name, artifact in zip(names, artifacts, strict=True)}
    depends_on = {"scores": prints, "proportions": shares, "settings": settings.identity()}
    tokenizer, corpus = counting_tokenizer(settings), runs[0] / "corpus"
    depends_on |= {} if tokenizer is None else {"tokenizer": tokenizer[1]}

    def write(draft: Draft) -> None:
        pool = _pool(artifacts[0].path, corpus, tokenizer)
        for run in runs[1:]:
            error = f"{run}: cut into other units than {runs[0]}; score both with the same --units"
            for _ in pool.read_aligned(scored_pool(run / "scores"), [], error):
                pass  # compares the units of all runs before anything is written
        pools = {
            name: scored_pool(path).with_columns(**pool.columns) for name, path in folders.items()
        }
        rule = make_targets_rule(pools, shares, settings)
        totals = _write_weights(pools, rule, settings, draft)
        _write_text(draft, folders, corpus, settings)
        draft.notes["targets"] = {}
        for row, (name, of_target) in enumerate(totals.items()):
            task = held_out_task(folders[name])
            in_domain = estimate_purity(task, *of_target, pool.rows, settings, rule.components(row))
            draft.notes["targets"][name] = {
                "proportion": shares[name],
                "weight": of_target[1],
                "in_domain": in_domain,
            }
            if not of_target[1]:
                log.warning(
                    "weights   nothing is kept for target %s: others take all that it wants", name
                )

    artifact = make(folder, "weights", depends_on, write)
    for name, notes in artifact.manifest["targets"].items():
        warn_of_low_purity(notes["in_domain"], name)
    return artifact


def weigh_table(scores: pa.Table, settings: WeighSettings) -> tuple[np.ndarray, np.ndarray]:
    """Weigh the units of a table in memory.

    Args:
        scores: ``doc_id``, ``unit`` and ``score``, the units of a document in order; lower = more
            in-domain.
        settings: Without a balance, a budget in tokens or a β to be chosen, which need a run's
            folder.

    Returns:
        Segment of each unit, int32 of shape (units,), numbered in its document, -1 = dropped tail;
        and its weight in [0, 1], float32 of shape (units,).
    """
    segment, weight, _ = weigh_in_memory(Pool(scores), settings)
    return segment.astype(np.int32), weight.astype(np.float32)


def scored_pool(scores: Path) -> Pool:
    """Open the units of a scores artifact.

    Raises:
        DataError: If there are none.
    """
    pool = Pool(scores)
    if pool.rows == 0:
        raise DataError(f"{scores}: holds no units to weigh")
    return pool


def _pool(scores: Path, corpus: Path, tokenizer: tuple[Tokenizer, str] | None) -> Pool:
    """Open the scores, with token counts if the budget is in tokens."""
    pool = scored_pool(scores)
    return (
        pool
        if tokenizer is None
        else pool.with_columns(tokens=count_tokens(scores, corpus, tokenizer[0]))
    )


def _write_weights(
    pools: Mapping[str, Pool],
    rule: WeightRule,
    settings: WeighSettings,
    draft: Draft,
    groups: Groups | None = None,
) -> dict[str, tuple[Sample, float]]:
    """Write the weights, one block in memory at a time, and their counts for the manifest.

    Returns:
        Of each target a sample of the pool's units, and the weight of all its units.
    """
    rows = next(iter(pools.values())).rows
    tally = WeightTally(len(pools), len(groups.values) if groups else 0)
    samples = [Sample(rows, LARGEST_POOL, generator(settings.seed, "mixture")) for _ in pools]
    labels, schema = np.array([*pools, None], dtype=object), TARGETS if len(pools) > 1 else WEIGHTS

    def weight_tables() -> Iterator[pa.Table]:
        names = [*WEIGHTS.names[:5], "score", *([GROUP] if groups else [])]
        for blocks in zip(*(pool.blocks(names, settings) for pool in pools.values()), strict=True):
            block, result = blocks[0], rule.weigh(blocks)
            tally.add(block, result)
            for row, (sample, values) in enumerate(zip(samples, result.values, strict=True)):
                weight = np.where(result.target == row, result.weight, 0.0)
                columns = {"value": values, "weight": weight, "document": block.documents}
                sample.add(block.documents, pa.table(columns))
            outputs = [within_documents(block, settings), result.weight, labels[result.target]][
                : len(schema) - 5
            ]
            arrays = [block.table[name] for name in WEIGHTS.names[:5]]
            arrays += [
                pa.array(column, field.type)
                for column, field in zip(outputs, list(schema)[5:], strict=True)
            ]
            yield pa.Table.from_arrays(arrays, schema=schema)

    write_parts(weight_tables(), draft.path, schema)
    draft.counts = {**rule.counts, **tally.counts}
    draft.notes |= {**rule.notes, "effective_sample_size": tally.effective_sample_size}
    if groups:
        draft.notes["balance"] = _balance_notes(groups, tally.groups, str(settings.balance))
    return dict(zip(pools, zip(samples, tally.weights, strict=True), strict=True))


def _write_text(
    draft: Draft, scores: Mapping[str, Path], corpus: Path, settings: WeighSettings
) -> None:
    """Write the selected text, for policies that select or drop."""
    if settings.policy != "sigmoid":
        draft.counts["selected_texts"] = SelectedText(draft.path, scores, corpus).write(
            draft.path / SELECTED_TEXT
        )


def _groups_of(corpus: Artifact, balance: str, path: Path | None) -> Groups:
    """Open the table of groups that a balance names, in the run's folder or at a path."""
    name, run = parse_balance(balance).table, corpus.path.parent
    path = path or next(
        (candidate for candidate in (run / name, Path(name)) if part_files(candidate)), run / name
    )
    is_study = any(name in study.commands for study in studies())
    hint = f"; make it with: dana studies {name} --out {run}" if is_study else ""
    if not part_files(path):
        raise ConfigError(
            f"balance={balance!r}: {path}: no table of groups{nearest_path(path)}{hint}"
        )
    general = (
        (read_manifest(path) if path.is_dir() else {})
        .get("depends_on", {})
        .get("general", corpus.fingerprint)
    )
    if general != corpus.fingerprint:
        raise ConfigError(f"{path} was not made from {corpus.path}; make it of this corpus{hint}")
    return Groups.open(path)


def _balance_notes(groups: Groups, amounts: np.ndarray, balance: str) -> dict[str, Any]:
    """Describe the balance for the manifest: share, units and selected units per group, effective numbers of groups."""
    shares, (units, selection) = groups.shares(parse_balance(balance)).tolist(), amounts
    columns = zip(
        groups.values,
        groups.names,
        shares,
        units.astype(int).tolist(),
        selection.tolist(),
        strict=True,
    )
    rows = [
        dict(zip(("group", "name", "share", "units", "kept_units"), row, strict=True))
        for row in columns
    ]
    return {
        "groups": rows,
        "effective_groups": {"pool": effective_number(units), "kept": effective_number(selection)},
    }


def _task_of(scores: Artifact, corpus: Path) -> Path:
    """Return the folder of the task that was scored."""
    task = open_artifact(corpus.parent / "task", "task")
    if task.fingerprint != scores.manifest["depends_on"]["task"]:
        raise ConfigError(f"{scores.path} was not made from {task.path}; score this task first")
    return task.path


def _check_alike(runs: Sequence[Path], artifacts: Sequence[Artifact]) -> None:
    """Refuse scores that are given twice or belong to another corpus than the first."""
    corpus = open_artifact(runs[0] / "corpus", "corpus").fingerprint
    earlier: dict[str, Path] = {}
    for run, artifact in zip(runs, artifacts, strict=True):
        if artifact.manifest["depends_on"]["general"] != corpus:
            raise ConfigError(
                f"{run}: its scores are not of {runs[0] / 'corpus'}; score the same general text for all"
            )
        if artifact.fingerprint in earlier:
            raise ConfigError(
                f"{run}: the same target as {earlier[artifact.fingerprint]}; give each once"
            )
        earlier[artifact.fingerprint] = run


def _write_curve(amount: "Amount", draft: Draft) -> None:
    """Write the table, the plot and the notes of a choice of beta."""
    from dana.report.figures import amount_curve

    curve = pd.DataFrame(amount.curve)
    write_text(draft.path / CURVE, csv_text(curve))
    write_text((draft.path / CURVE).with_suffix(".svg"), amount_curve(curve, amount.beta).svg)
    draft.notes["beta"] = asdict(amount)


def first_look(weights: Artifact, passages: int = 5) -> str:
    """Describe selected text by its amount, its largest sources and a few passages, one a line."""
    counts, text = weights.manifest["counts"], weights.path / SELECTED_TEXT
    by_source = {source: row["kept_characters"] for source, row in counts["by_source"].items()}
    total, largest = (
        sum(by_source.values()) or 1,
        sorted(by_source, key=by_source.__getitem__, reverse=True),
    )
    shares = ", ".join(f"{source} {by_source[source] / total:.0%}" for source in largest[:passages])
    lines = [
        f"{counts['units']['kept']:,} of {counts['units']['in']:,} units; of its text {shares}"
    ]
    if text.is_file():
        with gzip.open(text, "rt", encoding="utf-8") as stream:
            records = [json.loads(line) for line in islice(stream, MOST_SHOWN)]
        step = max(1, len(records) // passages)
        lines += [
            f"{record['source']}: {shorten(record['text'], 100)}"
            for record in records[::step][:passages]
        ]
    return "\n          ".join(lines)


def weights_text(weights: Artifact) -> str:
    """Format a weights artifact as text: selected text by source, its in-domain share, and the files."""
    manifest, text = weights.manifest, weights.path / SELECTED_TEXT
    counts = manifest["counts"]
    lines = []
    if beta := manifest.get("beta"):
        columns = ["share", "units", "perplexity", "perplexity_random", "in_domain"]
        curve = pd.DataFrame(beta["curve"])[columns].dropna(axis="columns", how="all")
        curve_text = curve.to_string(index=False, float_format=lambda value: f"{value:.4g}")
        lines.append(f"{curve_text}\n\nbeta {beta['beta']:.3g}: {beta['reason']}\n")
    lines.append(f"{_kept_table(counts['by_source'])}\n")
    if balance := manifest.get("balance"):
        groups = pd.DataFrame(balance["groups"]).rename(
            columns={"share": "of the budget", "kept_units": "kept"}
        )
        groups = groups.assign(kept=groups["kept"].round())[
            ["group", "of the budget", "units", "kept", "name"]
        ]
        selection, pool = (balance["effective_groups"][side] for side in ("kept", "pool"))
        lines.append(groups.to_string(index=False, formatters={"of the budget": "{:.1%}".format}))
        lines.append(
            f"spread: {selection:.1f} groups of the kept text, {pool:.1f} of the pool (effective number)\n"
        )
    if "in_domain" in manifest:
        lines.append(describe_purity(manifest["in_domain"]))
    for name, notes in manifest.get("targets", {}).items():
        share = f"{name} ({notes['proportion']:.0%}): {notes['weight']:,.0f} units"
        lines.append(f"{share}; {describe_purity(notes['in_domain'])}")
    units = counts["units"]
    lines.append(
        f"written: {weights.path} ({units['kept']:,} of {units['in']:,} units weigh more than 0)"
    )
    if text.is_file():
        lines.append(f"text:    {text} ({counts['selected_texts']:,} passages)")
    return "\n".join(lines)


def _kept_table(by_source: dict[str, dict[str, float]]) -> str:
    selected_total = sum(row["kept_characters"] for row in by_source.values()) or 1
    total = sum(row["characters"] for row in by_source.values()) or 1
    rows: list[Mapping[str, Value]] = [
        {
            "source": source[:28],
            "units": int(row["units"]),
            "kept": round(row["kept_units"]),
            "of its units": f"{row['kept_units'] / row['units']:.1%}",
            "of the corpus": f"{row['characters'] / total:.1%}",
            "of what is kept": f"{row['kept_characters'] / selected_total:.1%}",
        }
        for source, row in sorted(by_source.items(), key=lambda item: -item[1]["kept_characters"])
    ]
    return tabulate(rows)
