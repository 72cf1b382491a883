"""``dana weigh``: a scores artifact to a table of weights and the text that is kept. DANA, section 3.2."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dana.core.artifacts import OWN, Artifact, Draft, make, open_artifact, read_manifest, write_text
from dana.core.errors import ConfigError, DataError, nearest_path
from dana.core.schemas import WEIGHTS, parts, table_identity, write_parts
from dana.core.studies import studies
from dana.core.text_table import aligned
from dana.weighting.groups import GROUP, Groups
from dana.weighting.kept_text import KEPT_TEXT, ONE, KeptText
from dana.weighting.mixture import PoolSample
from dana.weighting.policies import Rule, apply_policy, make_rule, within_documents
from dana.weighting.pool import Block, Pool
from dana.weighting.purity import KeptPool, halved_documents, held_out_task, purity, purity_text, warn_of_low_purity
from dana.weighting.segments import gather
from dana.weighting.settings import WeighSettings, parse_balance
from dana.weighting.spread import effective_number
from dana.weighting.tally import GroupTally, SourceTally, UnitTally
from dana.weighting.tokens import CountingTokenizer, count_tokens, with_tokens

if TYPE_CHECKING:
    from dana.weighting.amount import Amount

CURVE = f"{OWN}/beta.csv"


def weigh_stage(
    scores: Path, corpus: Path, settings: WeighSettings, folder: Path, groups: Path | None = None
) -> Artifact:
    """Weigh a scores artifact.

    Writes ``part-*.parquet`` (:data:`dana.core.schemas.WEIGHTS`, the scores' rows in the same order) and, for the two
    policies that keep or drop, ``__dana__/selected.jsonl.gz`` (:class:`dana.weighting.kept_text.KeptText`). The
    manifest says how much of the kept text is like the task, estimated from the scores of held-out task text.

    Where beta is ``auto``, half of the held-out documents of the task choose it and the others say how much is like the
    task; ``__dana__/beta.csv`` and ``beta.svg`` hold the curve (:func:`dana.weighting.amount.choose_amount`).

    Args:
        scores: Folder of a scores artifact.
        corpus: Folder of the corpus artifact that was scored; where beta is ``auto``, the task's lies beside it.
        settings: The policy and its parameters.
        folder: Where the weights go.
        groups: Table of groups that the budget is balanced over; by default the one that ``balance`` names, beside the
            corpus or wherever its path leads.

    Raises:
        ConfigError: If the scores or groups are of another corpus or of other units, there is no such group, or the
            scores are of another task than lies beside the corpus and is to choose beta.
        ArtifactError: If the tokenizer cannot be read, or the folder holds weights of other settings or of another one.
        DataError: If there is no unit, or no held-out task text to choose beta by.
    """
    scored = open_artifact(scores, "scores", "dana score --task ... --general ... --out DIR")
    opened = open_artifact(corpus, "corpus")
    if opened.fingerprint != scored.manifest["depends_on"]["general"]:
        raise ConfigError(f"{scores} was not made from {corpus}; score this corpus first")
    balanced = _groups_of(opened, settings.balance, groups) if settings.balance else None
    tokenizer = CountingTokenizer.of(settings)
    depends_on = _depends_on(scored, settings, balanced, tokenizer)
    held_out = _task_of(scored, corpus) / "held_out" if settings.is_auto else Path()

    def write(draft: Draft) -> None:
        task, chosen, chose, segments = held_out_task(scores), settings, 0, None
        with TemporaryDirectory(dir=draft.path / OWN) as scratch:
            pool, shares = _pool(scored, opened, settings, balanced, tokenizer, Path(scratch))
            if settings.is_auto:
                from dana.weighting.amount import choose_amount

                chooses, task = halved_documents(task, settings.seed)
                segments = gather(pool, settings, Path(scratch))
                amount = choose_amount(chooses, held_out, pool, segments, corpus, settings)
                chosen, chose = replace(settings, beta=amount.beta), chooses.num_rows
                _write_curve(amount, draft)
            rule = make_rule(pool, chosen, Path(scratch), shares, segments)
            kept = _write_weights(pool, rule, chosen, draft, balanced)
            if settings.policy != "sigmoid":
                text = KeptText(draft.path, {ONE: scores}, corpus)
                draft.counts["selected_texts"] = text.write(draft.path / KEPT_TEXT)
            if balanced is None:
                draft.notes["in_domain"] = purity(task, kept, chosen, rule.components, chose)
            else:
                draft.notes["in_domain"] = {"unknown": "with a balance more than the scores decides what is kept"}

    artifact = make(folder, "weights", depends_on, write)
    warn_of_low_purity(artifact.manifest["in_domain"])
    return artifact


def weigh_table(scores: pa.Table, settings: WeighSettings) -> tuple[np.ndarray, np.ndarray]:
    """Weigh the units of a table in memory.

    Args:
        scores: ``doc_id``, ``unit`` and ``score``, the units of a document in order; lower = more in-domain.
        settings: Without a balance, a budget in tokens or a β to be chosen, which need a run's folder.

    Returns:
        Segment of each unit, int32 of shape (units,), numbered in its document, -1 = dropped tail; and its weight in
        [0, 1], float32 of shape (units,).
    """
    weighed = apply_policy(scores, settings)
    return weighed.segment.astype(np.int32), weighed.weight.astype(np.float32)


def _depends_on(
    scored: Artifact, settings: WeighSettings, groups: Groups | None, tokenizer: CountingTokenizer | None
) -> dict[str, Any]:
    """What decides the weights."""
    found = {"scores": scored.fingerprint, "settings": settings.identity()}
    if groups is not None:
        found["groups"] = table_identity(groups.path)
    if tokenizer is not None:
        found["tokenizer"] = tokenizer.digest
    return found


def _pool(
    scored: Artifact,
    corpus: Artifact,
    settings: WeighSettings,
    groups: Groups | None,
    tokenizer: CountingTokenizer | None,
    folder: Path,
) -> tuple[Pool, np.ndarray | None]:
    """The scores, with the tokens and groups that the budget needs, and the share of each group."""
    pool = scored_pool(scored.path)
    if tokenizer is not None:
        pool = with_tokens(pool, count_tokens(scored.path, corpus.path, tokenizer, folder))
    if groups is None:
        return pool, None
    return groups.beside(pool), groups.shares(parse_balance(str(settings.balance)))


def scored_pool(scores: Path) -> Pool:
    """The units of a scores artifact.

    Raises:
        DataError: If there is none.
    """
    pool = Pool.of_folder(scores)
    if pool.rows == 0:
        raise DataError(f"{scores}: holds no unit, so there is nothing to weigh")
    return pool


def _write_weights(pool: Pool, rule: Rule, settings: WeighSettings, draft: Draft, groups: Groups | None) -> KeptPool:
    """The table, a block in memory at a time, and what the manifest says of it."""
    tally, sources, sample = UnitTally(pool.rows), SourceTally(), PoolSample(pool.rows, settings.seed)
    by_group = None if groups is None else GroupTally(len(groups.values))
    columns = [*WEIGHTS.names[:5], "score", *([] if by_group is None else [GROUP])]

    def weighed() -> Iterator[pa.Table]:
        for block in pool.blocks(columns, settings):
            values, weight = rule.weigh(block)
            table = weights_table(block, weight, settings)
            tally.add(weight, block.inside)
            sources.add(table)
            if by_group is None:
                sample.add(values, block.documents)
            else:
                by_group.add(block.table[GROUP].to_numpy(), weight)
            yield table

    write_parts(weighed(), draft.path, WEIGHTS)
    draft.counts = {**rule.counts, "units": tally.counts, "by_source": sources.by_source}
    draft.notes |= {**rule.notes, **tally.notes}
    if groups is not None and by_group is not None:
        draft.notes["balance"] = _balance_notes(groups, by_group, str(settings.balance))
    return KeptPool(sample, rule.ranked, pool.rows, tally.weight)


def weights_table(block: Block, weight: np.ndarray, settings: WeighSettings) -> pa.Table:
    """A block's rows of :data:`dana.core.schemas.WEIGHTS`."""
    columns = [pa.array(within_documents(block, settings), pa.int32()), pa.array(weight, pa.float32())]
    return pa.Table.from_arrays([*(block.table[name] for name in WEIGHTS.names[:5]), *columns], schema=WEIGHTS)


def _groups_of(corpus: Artifact, balance: str, path: Path | None) -> Groups:
    """The table of groups that a balance names: in the run's folder, or wherever its path leads."""
    name, run = parse_balance(balance).table, corpus.path.parent
    path = path or next((place for place in (run / name, Path(name)) if parts(place)), run / name)
    hint = f"; make it with: dana {name} --out {run}" if any(name in study.commands for study in studies()) else ""
    if not parts(path):
        raise ConfigError(f"balance={balance!r}: {path}: no table of groups{nearest_path(path)}{hint}")
    general = (read_manifest(path) if path.is_dir() else {}).get("depends_on", {}).get("general", corpus.fingerprint)
    if general != corpus.fingerprint:
        raise ConfigError(f"{path} was not made from {corpus.path}; make it of this corpus{hint}")
    return Groups.open(path)


def _balance_notes(groups: Groups, tally: GroupTally, balance: str) -> dict[str, Any]:
    """For the manifest: of each group its share of the budget, its units and those kept; how varied both are."""
    shares = groups.shares(parse_balance(balance))
    columns = (groups.values, groups.names, shares.tolist(), tally.units.tolist(), tally.kept.tolist())
    names = ("group", "name", "share", "units", "kept_units")
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    varied = {"pool": effective_number(tally.units), "kept": effective_number(tally.kept)}
    return {"groups": rows, "effective_groups": varied}


def balance_text(balance: dict[str, Any]) -> str:
    """The balance in a manifest as aligned columns, and how varied pool and kept text are."""
    shown = [
        {"group": row["group"], "of the budget": f"{row['share']:.1%}", "units": f"{row['units']:,}"}
        | {"kept": f"{row['kept_units']:,.0f}", "name": row["name"]}
        for row in balance["groups"]
    ]
    varied = balance["effective_groups"]
    said = f"spread: {varied['kept']:.1f} groups of the kept text, {varied['pool']:.1f} of the pool (effective number)"
    return f"{aligned(shown)}\n{said}\n"


def _task_of(scored: Artifact, corpus: Path) -> Path:
    """Folder of the task that was scored, which is read again where its text chooses beta."""
    task = open_artifact(corpus.parent / "task", "task")
    if task.fingerprint != scored.manifest["depends_on"]["task"]:
        raise ConfigError(f"{scored.path} was not made from {task.path}; score this task first")
    return task.path


def _write_curve(amount: "Amount", draft: Draft) -> None:
    """The table and the plot of a choice of beta, and its notes for the manifest."""
    import pandas as pd

    from dana.report.amount_curve import amount_curve

    curve = pd.DataFrame([asdict(cut) for cut in amount.curve])
    curve.to_csv(draft.path / CURVE, index=False)
    figure = amount_curve(curve, amount.beta)
    write_text((draft.path / CURVE).with_suffix(".svg"), figure.svg)
    draft.notes["beta"] = asdict(amount)


def curve_text(beta: dict[str, Any]) -> str:
    """The choice of beta in a manifest as aligned columns, and in words."""
    import pandas as pd

    columns = ["share", "units", "perplexity", "perplexity_random", "in_domain"]
    table = pd.DataFrame(beta["curve"])[columns].dropna(axis="columns", how="all")
    shown = table.to_string(index=False, float_format=lambda value: f"{value:.4g}")
    return f"{shown}\n\nbeta {beta['beta']:.3g}: {beta['reason']}\n"


def weights_text(weights: Artifact) -> str:
    """A weights artifact as text: what was kept of each source, how much of it is like the task, and the files."""
    counts, place = weights.manifest["counts"], weights.path
    units, kept = counts["units"], place / KEPT_TEXT
    lines = [
        *([curve_text(weights.manifest["beta"])] if "beta" in weights.manifest else []),
        f"{_kept_table(counts['by_source'])}\n",
        *([balance_text(weights.manifest["balance"])] if "balance" in weights.manifest else []),
        *in_domain_lines(weights.manifest),
        f"written: {place} ({units['kept']:,} of {units['in']:,} units weigh more than 0)",
    ]
    if kept.is_file():
        lines.append(f"text:    {kept} ({counts['selected_texts']:,} passages)")
    return "\n".join(lines)


def in_domain_lines(manifest: dict[str, Any]) -> list[str]:
    """A line on how much of what is kept is like the task; of several targets one each."""
    if "targets" not in manifest:
        return [purity_text(manifest["in_domain"])]
    return [
        f"{name} ({about['proportion']:.0%}): {about['weight']:,.0f} units; {purity_text(about['in_domain'])}"
        for name, about in manifest["targets"].items()
    ]


def _kept_table(by_source: dict[str, dict[str, float]]) -> str:
    """What was kept by source, the largest part first."""
    kept = sum(row["kept_characters"] for row in by_source.values()) or 1
    whole = sum(row["characters"] for row in by_source.values()) or 1
    lines = [
        f"{'source':<28} {'units':>10} {'kept':>10} {'of its units':>13} {'of the corpus':>14} {'of what is kept':>16}"
    ]
    for source, row in sorted(by_source.items(), key=lambda item: -item[1]["kept_characters"]):
        shares = row["kept_units"] / row["units"], row["characters"] / whole, row["kept_characters"] / kept
        columns = " ".join(f"{share:>{width}.1%}" for share, width in zip(shares, (13, 14, 16), strict=True))
        lines.append(f"{source[:28]:<28} {row['units']:>10,.0f} {row['kept_units']:>10,.0f} {columns}")
    return "\n".join(lines)
