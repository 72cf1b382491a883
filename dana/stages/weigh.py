"""``dana weigh``: turn scores into weights and selected text (DANA, section 3.2)."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from dana.core.artifacts import (
    GIVEN,
    META_DIR,
    Artifact,
    Draft,
    make,
    open_artifact,
    read_manifest,
    write_text,
)
from dana.core.config import require
from dana.core.errors import ConfigError, DataError, nearest_path
from dana.core.logging import get_logger
from dana.core.schemas import (
    UNIT,
    WEIGHTS,
    count_rows,
    part_files,
    read_rows,
    read_table,
    table_identity,
    write_parts,
)
from dana.core.statistics import effective_sample_size
from dana.core.studies import studies
from dana.core.text_table import Value, csv_text, tabulate
from dana.scoring.ranking.measures import check_scores
from dana.weighting.formulas import DROPPED, effective_number
from dana.weighting.in_domain import (
    Amount,
    choose_amount,
    describe_purity,
    estimate_purity,
    held_out_target,
    split_held_out,
    warn_of_low_purity,
)
from dana.weighting.selection import (
    SELECTED_TEXT,
    Pool,
    Texts,
    UnitGroups,
    Weights,
    count_tokens,
    counting_tokenizer,
    cut_segments,
    read_units,
    segment_in_document,
    weigh_pool,
    write_selected_text,
)
from dana.weighting.settings import Balance, parse_balance
from dana.weighting.settings import WeighSettings as WeighSettings  # for api

log = get_logger(__name__)

CURVE = f"{META_DIR}/beta.csv"
MOST_SOURCES = 5  # that a first look names
BYTES_A_UNIT = 45  # at the peak, of documents of nine units
SCORE_FIRST = "dana score --task ... --pool ... --out DIR"
KEYS = ("doc_id", "unit")  # columns that a table of groups must have
GROUP = "group"  # default column of a table of groups


def weigh_stage(
    scores: Path,
    pool: Path,
    settings: WeighSettings,
    folder: Path,
    groups: Path | None = None,
    allowed: bool = False,
    given: Mapping[str, Any] | None = None,
) -> Artifact:
    """Turn scores into weights.

    Writes ``part-*.parquet`` (:data:`dana.core.schemas.WEIGHTS`, in the row order of the scores)
    and, for the two policies that select or drop, ``__dana__/selected.jsonl.gz``
    (:func:`dana.weighting.selection.write_selected_text`). The manifest estimates the in-domain
    share of the selected text from the scores of held-out target text.

    If beta is ``auto``, half of the target's held-out documents choose it and the others estimate the
    in-domain share; ``__dana__/beta.csv`` and ``beta.svg`` hold the curve
    (:func:`dana.weighting.in_domain.choose_amount`).

    Args:
        scores: Folder of a scores artifact.
        pool: Folder of its pool; if beta is ``auto``, the task artifact must lie beside it.
        settings: Policy and parameters.
        folder: Folder for the weights.
        groups: Table of groups to balance the budget over; by default the one that ``balance``
            names, in the run's folder or at a path.
        allowed: Whether scores that rank held-out target text below chance are only warned of.
        given: Settings that the call gave beside the run's recipe, for the manifest.

    Raises:
        ConfigError: If scores or groups belong to another pool or other units, a group is
            unknown, or beta is ``auto`` and the scores belong to another task.
        ArtifactError: If the tokenizer cannot be read, or the folder holds other weights.
        DataError: If there are no units, no held-out target text to choose beta with, or the scores
            are below chance.
    """
    scores_artifact = open_artifact(scores, "scores", SCORE_FIRST)
    pool_artifact = open_artifact(pool, "pool")
    if pool_artifact.fingerprint != scores_artifact.manifest["depends_on"]["pool"]:
        raise ConfigError(f"{scores} was not made from {pool}; score this pool first")
    check_scores(scores, scores_artifact.manifest, allowed)
    depends_on = {"scores": scores_artifact.fingerprint, "settings": settings.identity()}
    table = None
    if settings.balance is not None:
        table = _groups_of(pool_artifact, settings.balance, groups)
        depends_on["groups"] = table_identity(table.path)
    tokenizer = counting_tokenizer(settings)
    if tokenizer is not None:
        depends_on["tokenizer"] = tokenizer[1]
    held_out_corpus = None
    if settings.is_auto:
        held_out_corpus = _target_of(scores_artifact, pool) / "held_out"
    inputs = Inputs(scores, pool, settings, table, tokenizer and tokenizer[0], held_out_corpus)

    def write(draft: Draft) -> None:
        if given:
            draft.notes[GIVEN] = dict(given)
        _weigh(inputs, draft)

    artifact = make(folder, "weights", depends_on, write)
    warn_of_low_purity(artifact.manifest["in_domain"])
    return artifact


@dataclass(frozen=True)
class Inputs:
    """What a weighing reads.

    Attributes:
        scores: Folder of the scores.
        pool: Folder of their documents.
        settings: Policy and parameters.
        groups: Table of groups that the budget is balanced over, if it is.
        tokenizer: What counts a budget in tokens.
        held_out_corpus: Folder of held-out target documents, where beta has to be chosen.
    """

    scores: Path
    pool: Path
    settings: WeighSettings
    groups: "Groups | None"
    tokenizer: Tokenizer | None
    held_out_corpus: Path | None


def _weigh(inputs: Inputs, draft: Draft) -> None:
    """Weigh, and write the weights, the selected text and the notes of the manifest."""
    scores = inputs.scores
    pool = inputs.pool
    settings = inputs.settings
    scored = read_pool(scores)
    tokens = None
    if inputs.tokenizer is not None:
        tokens = count_tokens(scores, pool, inputs.tokenizer)
    groups = None
    if inputs.groups is not None:
        shares = inputs.groups.shares(parse_balance(str(settings.balance)))
        groups = UnitGroups(inputs.groups.of_units(scores), shares)
    held_out = held_out_target(scores)
    chose = 0
    segments = None
    if inputs.held_out_corpus is not None:
        chooses, held_out = split_held_out(held_out, settings.seed)
        chose = chooses.num_rows
        segments = cut_segments(scored, settings)
        chooses_texts = Texts(inputs.held_out_corpus).of_units(chooses)
        texts_of = partial(_unit_texts, scores, pool)
        amount = choose_amount(chooses, chooses_texts, scored, segments, texts_of, settings)
        settings = replace(settings, beta=amount.beta)
        _write_curve(amount, draft)
    weights = weigh_pool(scored, settings, tokens, groups, segments)
    _write_weights(scores, scored, weights, settings, draft)
    if settings.policy != "sigmoid":
        path = draft.path / SELECTED_TEXT
        lines, passages = write_selected_text(path, scores, pool, scored, weights.weight)
        draft.counts["selected_texts"] = lines
        draft.notes["passages"] = passages
    if inputs.groups is None or groups is None:
        draft.notes["in_domain"] = estimate_purity(held_out, scored, weights, settings, chose)
        return
    draft.notes["balance"] = _balance_notes(inputs.groups, groups, weights)
    draft.notes["in_domain"] = {
        "unknown": "with a balance more than the scores decides what is selected"
    }


def weigh_table(scores: pa.Table, settings: WeighSettings) -> tuple[np.ndarray, np.ndarray]:
    """Weigh the units of a table in memory.

    Args:
        scores: ``doc_id``, ``unit`` and ``score``, the units of a document in order; lower = more
            in-domain. And ``short``, if it is known.
        settings: Without a balance, a budget in tokens or a β to be chosen, which need a run's
            folder.

    Returns:
        Segment of each unit, int32 of shape (units,), numbered in its document, -1 = dropped tail;
        and its weight in [0, 1], float32 of shape (units,).
    """
    scored = Pool.from_tables([scores], scores.num_rows)
    weights = weigh_pool(scored, settings)
    segment = _numbered_segments(scored, weights, settings)
    return segment.astype(np.int32), weights.weight.astype(np.float32)


def read_pool(scores: Path) -> Pool:
    """Read the units of a scores artifact, and log the memory that weighing them needs.

    Raises:
        DataError: If there are none, or a score is not finite.
    """
    units = count_rows(scores)
    if units == 0:
        raise DataError(f"{scores}: holds no units to weigh")
    megabytes = math.ceil(units * BYTES_A_UNIT / 1e6)
    log.info("weights   weighing %s units needs about %s MB of memory", f"{units:,}", megabytes)
    return Pool.from_tables(read_rows(scores, ["doc_id", "unit", "score", "short"]), units)


def _unit_texts(scores: Path, pool: Path, mask: np.ndarray) -> list[str]:
    """Read the texts of the units of a mask."""
    return Texts(pool).of_units(read_units(scores, ["doc_id", "start", "end"], mask))


def _numbered_segments(scored: Pool, weights: Weights, settings: WeighSettings) -> np.ndarray:
    """Number segments within each document; with ``stream`` within the pool."""
    if settings.stream:
        return weights.segment
    return segment_in_document(scored, weights.segment)


def _write_weights(
    scores: Path, scored: Pool, weights: Weights, settings: WeighSettings, draft: Draft
) -> None:
    """Write the weights beside the columns of the scores, and their counts for the manifest."""
    draft.notes |= weights.notes
    draft.notes["effective_sample_size"] = effective_sample_size(weights.weight)
    segment = _numbered_segments(scored, weights, settings)
    weight = weights.weight.astype(np.float32, copy=False)

    def tables() -> Iterator[pa.Table]:
        row = 0
        for batch in read_rows(scores, [*UNIT]):
            rows = slice(row, row + batch.num_rows)
            columns = [*batch.columns, pa.array(segment[rows], pa.int32()), pa.array(weight[rows])]
            yield pa.Table.from_arrays(columns, schema=WEIGHTS)
            row += batch.num_rows

    write_parts(tables(), draft.path, WEIGHTS)
    is_selected = weight > 0
    is_dropped_tail = ~is_selected & (segment == DROPPED)
    selected = int(is_selected.sum())
    dropped_tails = int(is_dropped_tail.sum())
    draft.counts = {
        **weights.counts,
        "units": {
            "in": scored.units,
            "selected": selected,
            "dropped_by_weight": scored.units - selected - dropped_tails,
            "dropped_short_tail": dropped_tails,
        },
        "by_source": count_by_source(draft.path),
    }


def count_by_source(weights: Path) -> dict[str, dict[str, float]]:
    """Sum units, characters and their weights by source, in alphabetical order (DANA, Table 2).

    Args:
        weights: Folder of a table of weights.
    """
    sums = []
    for batch in read_rows(weights, ["source", "start", "end", "weight"]):
        characters = pc.cast(pc.subtract(batch["end"], batch["start"]), pa.float64())
        weight = pc.cast(batch["weight"], pa.float64())
        columns = {
            "source": batch["source"],
            "units": pa.array(np.ones(batch.num_rows)),
            "characters": characters,
            "selected_units": weight,
            "selected_characters": pc.multiply(weight, characters),
        }
        sums.append(_sum_by_source(pa.table(columns)))
    total = _sum_by_source(pa.concat_tables(sums)).sort_by("source")
    names = total["source"].to_pylist()
    rows = total.drop_columns("source").to_pylist()
    return {
        name: {key: round(value, 3) for key, value in row.items()}
        for name, row in zip(names, rows, strict=True)
    }


def _sum_by_source(table: pa.Table) -> pa.Table:
    names = [name for name in table.column_names if name != "source"]
    sums = table.group_by("source", use_threads=False).aggregate([(name, "sum") for name in names])
    return sums.select(["source", *(f"{name}_sum" for name in names)]).rename_columns(
        ["source", *names]
    )


@dataclass(frozen=True)
class Groups:
    """Table with the group of each unit.

    Attributes:
        path: Parquet file, or folder of ``part-*.parquet``: ``doc_id``, ``unit`` and the group, in
            the scores' order.
        column: Column of the group, whole numbers or text.
        values: Distinct groups, sorted.
        names: Display name of each.
        keys: Columns that identify a unit: ``doc_id``, ``unit`` and, if present, ``start`` and
            ``end``.
    """

    path: Path
    column: str
    values: list[Any]
    names: list[str]
    keys: tuple[str, ...] = KEYS

    @classmethod
    def open(cls, path: Path) -> "Groups":
        """Open a table of groups, written by a study or by hand.

        Raises:
            ConfigError: If the file is not Parquet, or its columns or types do not fit.
        """
        manifest = read_manifest(path) if path.is_dir() else {}
        if manifest:  # written by a study: check its digests
            manifest = open_artifact(path, manifest["kind"]).manifest
        column = GROUP
        for study in studies():
            column = study.groups.get(manifest.get("kind", ""), column)
        needs = f"a table of groups has the columns {', '.join((*KEYS, column))}"
        try:
            schema = pq.read_schema(part_files(path)[0])
        except (OSError, pa.ArrowException) as error:
            raise ConfigError(f"{path}: not a readable Parquet file; {needs}") from error
        if not {*KEYS, column} <= {*schema.names}:
            raise ConfigError(f"{path}: has the columns {', '.join(schema.names)}; {needs}")
        unit = schema.field("unit").type
        if not pa.types.is_integer(unit):
            raise ConfigError(f"{path}: column unit is {unit}; must be whole numbers")
        kind = schema.field(column).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if not is_text and not pa.types.is_integer(kind):
            raise ConfigError(f"{path}: column {column} is {kind}; must be whole numbers or text")
        keys = tuple(name for name in (*KEYS, "start", "end") if name in schema.names)
        if "names" in manifest:
            names = manifest["names"]
            return cls(path, column, list(range(len(names))), names, keys)
        distinct = pc.unique(_plain(read_table(path, [column])[column])).to_pylist()
        if None in distinct:
            raise ConfigError(f"{path}: column {column} has nulls; every unit needs a group")
        groups = sorted(distinct)
        return cls(path, column, groups, [str(value) for value in groups], keys)

    def shares(self, balance: Balance) -> np.ndarray:
        """Return the share of the budget of each group, float64 of shape (groups,); equal if none are named.

        Raises:
            ConfigError: If a named group does not exist.
        """
        names = [str(value) for value in self.values]
        choices = ", ".join(names[:20])
        for group in balance.shares:
            require(
                group in names,
                "balance",
                f"{balance.table}:{group}",
                f"one of its groups: {choices}",
            )
        if not balance.shares:
            return np.full(len(names), 1 / len(names))
        return np.array([balance.shares.get(name, 0.0) for name in names])

    def of_units(self, scores: Path) -> np.ndarray:
        """Return each unit's group as index into :attr:`values`, of shape (units,), in the smallest integer type.

        Args:
            scores: Folder of the units.

        Raises:
            ConfigError: If the rows are not these units.
        """
        for key in self.keys:
            expected = read_table(scores, [key])[key]
            own = read_table(self.path, [key])[key]
            if not own.cast(expected.type).equals(expected):
                remedy = "" if self.keys == KEYS else "; make both with the same --units"
                raise ConfigError(
                    f"{self.path}: its rows must be those of the scores, with the same "
                    f"{', '.join(self.keys)} in order{remedy}"
                )
        groups = _plain(read_table(self.path, [self.column])[self.column])
        index = pc.index_in(groups, pa.array(self.values, groups.type)).to_numpy()
        smallest: np.ndarray = index.astype(np.min_scalar_type(len(self.values)))
        return smallest


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decode a column of categories."""
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column


def _groups_of(pool: Artifact, balance: str, path: Path | None) -> Groups:
    """Open the table of groups that a balance names, in the run's folder or at a path."""
    name = parse_balance(balance).table
    run = pool.path.parent
    if path is None:
        path = run / name
        if not part_files(path) and part_files(Path(name)):
            path = Path(name)
    hint = ""
    if any(name in study.commands for study in studies()):
        hint = f"; make it with: dana studies {name} --out {run}"
    if not part_files(path):
        raise ConfigError(
            f"balance={balance!r}: {path}: no table of groups{nearest_path(path)}{hint}"
        )
    manifest = read_manifest(path) if path.is_dir() else {}
    source = manifest.get("depends_on", {}).get("pool", pool.fingerprint)
    if source != pool.fingerprint:
        raise ConfigError(f"{path} was not made from {pool.path}; make it of this pool{hint}")
    return Groups.open(path)


def _balance_notes(table: Groups, groups: UnitGroups, weights: Weights) -> dict[str, Any]:
    """Describe the balance for the manifest: share, units and selected units per group, effective numbers of groups."""
    count = len(table.values)
    units = np.bincount(groups.group, minlength=count)
    selected = np.bincount(groups.group, weights=weights.weight, minlength=count)
    rows = [
        {
            "group": table.values[number],
            "name": table.names[number],
            "share": float(groups.shares[number]),
            "units": int(units[number]),
            "selected_units": float(selected[number]),
        }
        for number in range(count)
    ]
    return {
        "groups": rows,
        "effective_groups": {
            "pool": effective_number(units),
            "selected": effective_number(selected),
        },
    }


def _target_of(scores: Artifact, pool: Path) -> Path:
    """Return the folder of the task that was scored."""
    target = open_artifact(pool.parent / "target", "target")
    if target.fingerprint != scores.manifest["depends_on"]["target"]:
        raise ConfigError(
            f"{scores.path} was not made from {target.path}; score this target text first"
        )
    return target.path


def _write_curve(amount: Amount, draft: Draft) -> None:
    """Write the table, the plot and the notes of a choice of beta."""
    from dana.report.figures import amount_curve

    curve = pd.DataFrame(amount.curve)
    write_text(draft.path / CURVE, csv_text(curve))
    write_text((draft.path / CURVE).with_suffix(".svg"), amount_curve(curve, amount.beta).svg)
    draft.notes["beta"] = asdict(amount)


def first_look(weights: Artifact) -> str:
    """Describe selected text by its amount, its largest sources, its likeness to the task, and passages.

    The passages are the best, the middle and the last of the whole selection by score.
    """
    counts = weights.manifest["counts"]
    by_source = {source: row["selected_characters"] for source, row in counts["by_source"].items()}
    total = sum(by_source.values()) or 1
    largest = sorted(by_source, key=by_source.__getitem__, reverse=True)
    shares = [
        f"{source} {by_source[source] / total:.0%}" for source in largest if by_source[source]
    ]
    others = len(shares) - MOST_SOURCES
    listed = ", ".join(shares[:MOST_SOURCES])
    if others > 0:
        listed += f", and {others:,} other sources"
    units = counts["units"]
    lines = [
        f"{units['selected']:,} of {units['in']:,} units (a unit is a sentence or window of text)",
        f"by source: {listed}",
        describe_purity(weights.manifest["in_domain"]),
    ]
    passages = weights.manifest.get("passages", [])
    if passages:
        lines.append(
            f"from all {counts['selected_texts']:,} passages by score (lower is more like the task):"
        )
    for passage in passages:
        head = f"{passage['place']}, {passage['score']:.3g}, {passage['source']}"
        lines.append(f"{head}: {shorten(passage['text'], 100)}")
    return "\n          ".join(lines)


def weights_text(weights: Artifact) -> str:
    """Format a weights artifact as text: selected text by source, its in-domain share, and the files."""
    manifest = weights.manifest
    text = weights.path / SELECTED_TEXT
    counts = manifest["counts"]
    lines = []
    if beta := manifest.get("beta"):
        columns = ["share", "units", "perplexity", "perplexity_random", "in_domain"]
        curve = pd.DataFrame(beta["curve"])[columns].dropna(axis="columns", how="all")
        curve_text = curve.to_string(index=False, float_format=lambda value: f"{value:.4g}")
        lines.append(f"{curve_text}\n\nbeta {beta['beta']:.3g}: {beta['reason']}\n")
    lines.append(f"{_selected_table(counts['by_source'])}\n")
    if balance := manifest.get("balance"):
        groups = pd.DataFrame(balance["groups"]).rename(
            columns={"share": "of the budget", "selected_units": "selected"}
        )
        groups = groups.assign(selected=groups["selected"].round())[
            ["group", "of the budget", "units", "selected", "name"]
        ]
        selection = balance["effective_groups"]["selected"]
        scored = balance["effective_groups"]["pool"]
        lines.append(groups.to_string(index=False, formatters={"of the budget": "{:.1%}".format}))
        lines.append(
            f"spread: {selection:.1f} groups of the selected text, {scored:.1f} of the pool (effective number)\n"
        )
    if "in_domain" in manifest:
        lines.append(describe_purity(manifest["in_domain"]))
    units = counts["units"]
    lines.append(
        f"written: {weights.path} ({units['selected']:,} of {units['in']:,} units weigh more than 0)"
    )
    if text.is_file():
        lines.append(f"text:    {text} ({counts['selected_texts']:,} passages)")
    return "\n".join(lines)


def _selected_table(by_source: dict[str, dict[str, float]]) -> str:
    selected_total = sum(row["selected_characters"] for row in by_source.values()) or 1
    total = sum(row["characters"] for row in by_source.values()) or 1
    rows: list[Mapping[str, Value]] = [
        {
            "source": source[:28],
            "units": int(row["units"]),
            "selected": round(row["selected_units"]),
            "of its units": f"{row['selected_units'] / row['units']:.1%}",
            "of the pool": f"{row['characters'] / total:.1%}",
            "of the selected text": f"{row['selected_characters'] / selected_total:.1%}",
        }
        for source, row in sorted(
            by_source.items(), key=lambda item: -item[1]["selected_characters"]
        )
    ]
    return tabulate(rows)
