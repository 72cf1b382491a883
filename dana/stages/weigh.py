"""``dana weigh``: turn scores into weights and selected text (DANA, section 3.2)."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any, cast

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
MOST_SOURCES = 20  # sources that a first look names
BYTES_A_UNIT = 45  # measured at the peak of memory, where documents had nine units
SCORE_FIRST = "dana score --task ... --pool ... --out DIR"
KEYS = ("doc_id", "unit")  # columns that a table of groups must have beside the group
GROUP = "group"  # column of the group, where no study says another


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

    The folder gets ``part-*.parquet`` (:data:`dana.core.schemas.WEIGHTS`, in the row order of the
    scores) and, with the policies ``segments`` and ``sampled``, ``__dana__/selected.jsonl.gz``
    (:func:`dana.weighting.selection.write_selected_text`). The manifest estimates the in-domain
    share of the selected text from the scores of held-out target text; a low share is warned of.

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
        allowed: True if scores that rank held-out target text below chance are only warned of,
            and not refused.
        given: Settings that the call gave beside the run's recipe, for the manifest.

    Raises:
        ConfigError: If scores or groups belong to another pool or other units, a group is
            unknown, or beta is ``auto`` and the scores belong to another task.
        ArtifactError: If there are no scores or no pool, the tokenizer cannot be read, or the folder
            holds other weights.
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
        table = _open_groups(pool_artifact, settings.balance, groups)
        depends_on["groups"] = table_identity(table.path)
    tokenizer = None
    tokenizer_and_digest = counting_tokenizer(settings)
    if tokenizer_and_digest is not None:
        tokenizer, digest = tokenizer_and_digest
        depends_on["tokenizer"] = digest
    held_out_corpus = None
    if settings.is_auto:
        held_out_corpus = _scored_target(scores_artifact, pool) / "held_out"
    inputs = Inputs(scores, pool, settings, table, tokenizer, held_out_corpus)

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
        groups: Table of groups that the budget is balanced over; None without a balance.
        tokenizer: Tokenizer that counts a budget in tokens; None for any other budget.
        held_out_corpus: Folder of the held-out target documents that choose beta; None if beta is
            given.
    """

    scores: Path
    pool: Path
    settings: WeighSettings
    groups: "Groups | None"
    tokenizer: Tokenizer | None
    held_out_corpus: Path | None


def _weigh(inputs: Inputs, draft: Draft) -> None:
    """Weigh the units of a pool, and write weights, selected text and notes of the manifest into a draft.

    Raises:
        DataError: See :func:`weigh_stage`.
        ConfigError: If the rows of the groups are not the units, or a named group does not exist.
    """
    scores = inputs.scores
    pool = inputs.pool
    settings = inputs.settings
    scored = read_pool(scores)
    tokens = None
    if inputs.tokenizer is not None:
        tokens = count_tokens(scores, pool, inputs.tokenizer)
    groups = None
    if inputs.groups is not None:
        balance = parse_balance(str(settings.balance))  # a table of groups means that it is set
        shares = inputs.groups.shares(balance)
        groups = UnitGroups(inputs.groups.of_units(scores), shares, inputs.groups.given_names)
    held_out = held_out_target(scores)
    choosing_units = 0
    segments = None
    if inputs.held_out_corpus is not None:
        # One half of the held-out text chooses beta; the other half evaluates the choice below.
        choosing, held_out = split_held_out(held_out, settings.seed)
        choosing_units = choosing.num_rows
        segments = cut_segments(scored, settings)
        choosing_texts = Texts(inputs.held_out_corpus).of_units(choosing)
        texts_of = partial(_unit_texts, scores, pool)
        amount = choose_amount(choosing, choosing_texts, scored, segments, texts_of, settings)
        settings = replace(settings, beta=amount.beta)
        _write_curve(amount, draft)
    weights = weigh_pool(scored, settings, tokens, groups, segments)
    _write_weights(scores, scored, weights, settings, draft)
    if settings.policy != "sigmoid":
        path = draft.path / SELECTED_TEXT
        lines, passages = write_selected_text(path, scores, pool, scored, weights.weight)
        draft.counts["selected_texts"] = lines
        draft.notes["passages"] = passages
    if inputs.groups is not None and groups is not None:
        draft.notes["balance"] = _balance_notes(inputs.groups, groups, weights)
        reason = "with a balance more than the scores decides what is selected"
        draft.notes["in_domain"] = {"unknown": reason}
    else:
        purity = estimate_purity(held_out, scored, weights, settings, choosing_units)
        draft.notes["in_domain"] = purity


def weigh_table(scores: pa.Table, settings: WeighSettings) -> tuple[np.ndarray, np.ndarray]:
    """Weigh the units of a table in memory.

    Args:
        scores: Columns ``doc_id``, ``unit`` and ``score`` (lower = more in-domain), the units of a
            document in order; a column ``short`` is read if it is there.
        settings: Policy and parameters. A balance, a budget in tokens and ``beta=auto`` need a run's
            folder, so they must not be set.

    Returns:
        Segment of each unit, int32 of shape (units,), numbered in its document (in the pool with
        ``stream``), -1 = dropped tail; and its weight in [0, 1], float32 of shape (units,).

    Raises:
        DataError: If a score is not finite, no unit is in a segment, or nothing can be selected.
    """
    scored = Pool.from_tables([scores], scores.num_rows)
    weights = weigh_pool(scored, settings)
    segment = _numbered_segments(scored, weights, settings)
    return segment.astype(np.int32), weights.weight.astype(np.float32)


def read_pool(scores: Path) -> Pool:
    """Read the units of a scores artifact, and log the memory that weighing them needs.

    Raises:
        DataError: If there are no units, a score is not finite, or all units are short.
        ArtifactError: If a part of the table is damaged.
    """
    units = count_rows(scores)
    if units == 0:
        raise DataError(f"{scores}: holds no units to weigh")
    megabytes = math.ceil(units * BYTES_A_UNIT / 1e6)
    log.info("weights   weighing %s units needs about %s MB of memory", f"{units:,}", megabytes)
    return Pool.from_tables(read_rows(scores, ["doc_id", "unit", "score", "short"]), units)


def _unit_texts(scores: Path, pool: Path, mask: np.ndarray) -> list[str]:
    """Read the texts of some units of a pool.

    Args:
        scores: Folder of the units.
        pool: Folder of their documents.
        mask: Whether each unit is read, shape (units,).
    """
    return Texts(pool).of_units(read_units(scores, ["doc_id", "start", "end"], mask))


def _numbered_segments(scored: Pool, weights: Weights, settings: WeighSettings) -> np.ndarray:
    """Return the segment of each unit, numbered within its document; with ``stream`` within the pool."""
    if settings.stream:
        return weights.segment
    return segment_in_document(scored, weights.segment)


def _write_weights(
    scores: Path, scored: Pool, weights: Weights, settings: WeighSettings, draft: Draft
) -> None:
    """Write the table of weights into a draft, and the notes and counts of the manifest about them.

    A row has the columns of :data:`dana.core.schemas.UNIT`, copied from the scores, the segment and
    the weight.
    """
    draft.notes |= weights.notes
    draft.notes["effective_sample_size"] = effective_sample_size(weights.weight)
    segment = _numbered_segments(scored, weights, settings)
    weight = weights.weight.astype(np.float32, copy=False)

    def tables() -> Iterator[pa.Table]:
        row = 0
        for batch in read_rows(scores, [*UNIT]):
            rows = slice(row, row + batch.num_rows)
            segment_column = pa.array(segment[rows], pa.int32())
            weight_column = pa.array(weight[rows])
            columns = [*batch.columns, segment_column, weight_column]
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
    """Sum units, characters and their weights by source (DANA, Table 2).

    Args:
        weights: Folder of a table of weights.

    Returns:
        By source, in alphabetical order: numbers of ``units`` and ``characters``, and the sums of
        their weights, ``selected_units`` and ``selected_characters``.
    """
    parts = []
    for batch in read_rows(weights, ["source", "start", "end", "weight"]):
        rows = batch.to_pandas()
        characters = (rows["end"] - rows["start"]).astype(float)
        weight = rows["weight"].astype(float)
        columns = {
            "units": 1.0,
            "characters": characters,
            "selected_units": weight,
            "selected_characters": weight * characters,
        }
        parts.append(pd.DataFrame(columns).groupby(rows["source"]).sum())
    total = pd.concat(parts).groupby(level=0).sum().round(3)
    return cast("dict[str, dict[str, float]]", total.to_dict("index"))


@dataclass(frozen=True)
class Groups:
    """Table with the group of each unit.

    Attributes:
        path: Parquet file, or folder of ``part-*.parquet``, with the columns ``doc_id``, ``unit``
            and the group, and one row per unit in the order of the scores.
        column: Column of the group, whole numbers or text.
        values: Distinct groups, sorted.
        names: Display name of each group.
        keys: Columns that identify a unit: ``doc_id``, ``unit`` and, if the table has them,
            ``start`` and ``end``.
    """

    path: Path
    column: str
    values: list[Any]
    names: list[str]
    keys: tuple[str, ...] = KEYS

    @classmethod
    def open(cls, path: Path) -> "Groups":
        """Open a table of groups, written by a study or by hand.

        Args:
            path: See :attr:`path`. The table must exist.

        Raises:
            ConfigError: If the file is not Parquet, its columns or types do not fit, or a unit has
                no group.
            ArtifactError: If the manifest or a part of the table is damaged.
        """
        manifest = read_manifest(path) if path.is_dir() else {}
        column = _group_column(manifest)
        schema = _read_group_schema(path, column)
        keys = tuple(name for name in (*KEYS, "start", "end") if name in schema.names)
        if "names" in manifest:  # a study numbers its groups from 0 and names them
            names = manifest["names"]
            return cls(path, column, list(range(len(names))), names, keys)
        distinct = pc.unique(_plain(read_table(path, [column])[column])).to_pylist()
        if None in distinct:
            raise ConfigError(f"{path}: column {column} has nulls; every unit needs a group")
        groups = sorted(distinct)
        return cls(path, column, groups, [str(value) for value in groups], keys)

    @property
    def given_names(self) -> list[str]:
        """How the setting ``weigh.balance`` names each group: by its value."""
        return [str(value) for value in self.values]

    def shares(self, balance: Balance) -> np.ndarray:
        """Return the share of the budget of each group, float64 of shape (groups,).

        Args:
            balance: Shares by group. A group without a share gets 0; without any share all groups
                get the same.

        Raises:
            ConfigError: If a named group does not exist.
        """
        names = self.given_names
        choices = ", ".join(names[:20])
        for group in balance.shares:
            is_known = group in names
            value = f"{balance.table}:{group}"
            require(is_known, "balance", value, f"one of its groups: {choices}")
        if not balance.shares:
            return np.full(len(names), 1 / len(names))
        return np.array([balance.shares.get(name, 0.0) for name in names])

    def of_units(self, scores: Path) -> np.ndarray:
        """Return the group of each unit, as an index into :attr:`values`.

        Args:
            scores: Folder of the units.

        Returns:
            Unsigned integers of shape (units,), of a type as small as the number of groups allows,
            because pools have many units.

        Raises:
            ConfigError: If the rows of the table are not the units of the scores, in their order.
            ArtifactError: If a part of a table is damaged.
        """
        for key in self.keys:
            expected = read_table(scores, [key])[key]
            own = read_table(self.path, [key])[key]
            try:
                is_same = own.cast(expected.type).equals(expected)
            except (
                pa.ArrowException
            ):  # a value of another kind, or too large for that of the scores
                is_same = False
            if is_same:
                continue
            remedy = ""
            if self.keys != KEYS:  # the table has the spans of units, as those of studies have
                remedy = "; make both with the same --units"
            raise ConfigError(
                f"{self.path}: its rows must be those of the scores, with the same "
                f"{', '.join(self.keys)} in order{remedy}"
            )
        groups = _plain(read_table(self.path, [self.column])[self.column])
        index = pc.index_in(groups, pa.array(self.values, groups.type)).to_numpy()
        small_index: np.ndarray = index.astype(np.min_scalar_type(len(self.values)))
        return small_index


def _group_column(manifest: Mapping[str, Any]) -> str:
    """Return the column of the group in a table with this manifest, which is empty without one."""
    column = GROUP
    for study in studies():
        column = study.groups.get(manifest.get("kind", ""), column)
    return column


def _read_group_schema(path: Path, column: str) -> pa.Schema:
    """Read and check the schema of a table of groups.

    Args:
        path: Parquet file, or folder of ``part-*.parquet``, of which there is one.
        column: Column of the group.

    Raises:
        ConfigError: If the file is not Parquet, or its columns or types do not fit.
    """
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
    group = schema.field(column).type
    if pa.types.is_dictionary(group):
        group = group.value_type
    is_text = pa.types.is_string(group) or pa.types.is_large_string(group)
    if not is_text and not pa.types.is_integer(group):
        raise ConfigError(f"{path}: column {column} is {group}; must be whole numbers or text")
    return schema


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of the values themselves; Arrow's dictionary type stores numbers of them."""
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column


def _open_groups(pool: Artifact, balance: str, path: Path | None) -> Groups:
    """Open the table of groups of a balance.

    Args:
        pool: The pool, whose folder lies in that of the run.
        balance: The setting ``weigh.balance``, which names the table.
        path: The table; None looks for its name in the folder of the run, then takes the name as a
            path.

    Raises:
        ConfigError: If there is no table, or it was made from another pool; and see
            :meth:`Groups.open`.
        ArtifactError: See :meth:`Groups.open`.
    """
    name = parse_balance(balance).table
    run = pool.path.parent
    if path is None:
        path = run / name
        is_in_run = bool(part_files(path))
        if not is_in_run and part_files(Path(name)):
            path = Path(name)
    hint = ""
    if any(name in study.commands for study in studies()):
        hint = f"; make it with: dana studies {name} --out {run}"
    if not part_files(path):
        raise ConfigError(
            f"balance={balance!r}: {path}: no table of groups{nearest_path(path)}{hint}"
        )
    manifest = read_manifest(path) if path.is_dir() else {}
    # A table that does not say its pool may be of this one; its rows are compared later.
    source = manifest.get("depends_on", {}).get("pool", pool.fingerprint)
    if source != pool.fingerprint:
        raise ConfigError(f"{path} was not made from {pool.path}; make it of this pool{hint}")
    return Groups.open(path)


def _balance_notes(table: Groups, groups: UnitGroups, weights: Weights) -> dict[str, Any]:
    """Return the notes of the manifest on a balance.

    Args:
        table: Table of the groups.
        groups: Groups of the units and shares of the budget.
        weights: Weights of the units.

    Returns:
        ``groups``: group, name, share of the budget, units and sum of their weights, for each; and
        ``effective_groups``, the effective number of groups of pool and selected text
        (:func:`dana.weighting.formulas.effective_number`).
    """
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


def _scored_target(scores: Artifact, pool: Path) -> Path:
    """Return the folder of the target text that scores were made for, which lies beside the pool.

    Raises:
        ArtifactError: If there is none.
        ConfigError: If the scores were made for another one.
    """
    target = open_artifact(pool.parent / "target", "target")
    if target.fingerprint != scores.manifest["depends_on"]["target"]:
        raise ConfigError(
            f"{scores.path} was not made from {target.path}; score this target text first"
        )
    return target.path


def _write_curve(amount: Amount, draft: Draft) -> None:
    """Write the table and the plot of a choice of beta into a draft, and note the choice."""
    from dana.report.figures import amount_curve

    curve = pd.DataFrame(amount.curve)
    file = draft.path / CURVE
    write_text(file, csv_text(curve))
    plot = amount_curve(curve, amount.beta)
    write_text(file.with_suffix(".svg"), plot.svg)
    draft.notes["beta"] = asdict(amount)


def first_look(weights: Artifact) -> str:
    """Describe selected text by its amount, its largest sources, its likeness to the task, and passages.

    The passages are the best, the middle and the last of the whole selection by score.

    Args:
        weights: A weights artifact.

    Returns:
        Several lines.
    """
    counts = weights.manifest["counts"]
    units = counts["units"]
    lines = [
        f"{units['selected']:,} of {units['in']:,} units (a unit is a sentence or window of text)",
        _selected_table(counts["by_source"]),
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
    return "\n".join(lines)


def weights_text(weights: Artifact) -> str:
    """Format a weights artifact as text: a first look at it, and the files.

    If beta was chosen, the curve of the choice comes first; with a balance, the groups have a table.
    """
    manifest = weights.manifest
    lines = []
    beta = manifest.get("beta")
    if beta:
        lines.append(_curve_text(beta))
    lines.append(f"{first_look(weights)}\n")
    balance = manifest.get("balance")
    if balance:
        lines.append(_balance_text(balance))
    lines.append(f"written: {weights.path}")
    text = weights.path / SELECTED_TEXT
    if text.is_file():
        lines.append(f"text:    {text}")
    return "\n".join(lines)


def _curve_text(beta: Mapping[str, Any]) -> str:
    """Format a choice of beta as text: the table of its curve, then the choice and its reason.

    Args:
        beta: Values of :class:`dana.weighting.in_domain.Amount`.
    """
    columns = ["share", "units", "perplexity", "perplexity_random", "in_domain"]
    curve = pd.DataFrame(beta["curve"])[columns].dropna(axis="columns", how="all")
    table = curve.to_string(index=False, float_format=lambda value: f"{value:.4g}")
    return f"{table}\n\nbeta {beta['beta']:.3g}: {beta['reason']}\n"


def _balance_text(balance: Mapping[str, Any]) -> str:
    """Format the groups of a balance as a table, and the effective numbers of groups as a sentence.

    Args:
        balance: Notes of :func:`_balance_notes`.
    """
    headings = {"share": "of the budget", "selected_units": "selected"}
    groups = pd.DataFrame(balance["groups"]).rename(columns=headings)
    groups = groups.assign(selected=groups["selected"].round())
    shown = groups[["group", "of the budget", "units", "selected", "name"]]
    table = shown.to_string(index=False, formatters={"of the budget": "{:.1%}".format})
    selection = balance["effective_groups"]["selected"]
    scored = balance["effective_groups"]["pool"]
    spread = (
        f"spread: {selection:.1f} groups of the selected text, "
        f"{scored:.1f} of the pool (effective number)"
    )
    return f"{table}\n{spread}\n"


def _selected_table(by_source: Mapping[str, Mapping[str, float]]) -> str:
    """Format the largest sums of :func:`count_by_source` as a table, the source of most selected text first."""
    # Where nothing is selected, or the pool has no text, the shares are 0.
    selected_total = sum(row["selected_characters"] for row in by_source.values()) or 1
    total = sum(row["characters"] for row in by_source.values()) or 1
    sources = sorted(by_source, key=lambda source: -by_source[source]["selected_characters"])
    rows: list[Mapping[str, Value]] = []
    for source in sources[:MOST_SOURCES]:
        sums = by_source[source]
        rows.append(
            {
                "source": source[:28],
                "units": int(sums["units"]),
                "selected": round(sums["selected_units"]),
                "of its units": f"{sums['selected_units'] / sums['units']:.1%}",
                "of the pool": f"{sums['characters'] / total:.1%}",
                "of the selected text": f"{sums['selected_characters'] / selected_total:.1%}",
            }
        )
    others = len(sources) - MOST_SOURCES
    noun = "source" if others == 1 else "sources"
    note = f"\nand {others:,} other {noun}" if others > 0 else ""
    return tabulate(rows) + note
