"""``dana weigh``: scores become weights, by one of three policies. DANA section 3.2; D-06 to D-09."""

import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dana.artifacts import Artifact, Draft, make, open_artifact
from dana.config import require
from dana.errors import ConfigError
from dana.schemas import WEIGHTS, iterate_documents, read_table, write_parts
from dana.stages.unit_stream import unit_keys
from dana.weights import (
    DROPPED,
    Budget,
    Moments,
    effective_sample_size,
    lowest_segments,
    sampled_segments,
    segment_ids,
    segment_means,
    sigmoid,
    standardise,
)

POLICIES = ("sigmoid", "segments", "sampled")


@dataclass(frozen=True)
class WeighSettings:
    """How scores become weights.

    Attributes:
        policy: ``sigmoid`` weighs every unit, ``segments`` keeps the best with weight 1 (the paper's headline
            system), ``sampled`` draws segments with probability proportional to their weight.
        beta: Share of the units to keep, in whole segments; also places the sigmoid's midpoint. The paper uses 0.2.
        budget: Instead of beta, ``"50000 units"`` or ``"2e6 tokens"`` (of the tokenizer below).
        gamma: Units in a segment; the paper uses 15.
        min_tail: A document's last, short segment is dropped if it has fewer units.
        stream: Let segments run across documents, as the paper's one stream does. Selected text is still
            broken at every document's end.
        sharpness: The sigmoid's C. The paper gives no value; 4 is ours.
        midpoint: The sigmoid's α on standardised scores; empty takes the beta-quantile, so that both modes
            keep the same mass. The paper gives no value.
        tokenizer: Folder or Hub name of the tokenizer that counts a budget in tokens.
        seed: Decides the draw of ``sampled``.
    """

    policy: str = "segments"
    beta: float = 0.2
    budget: str | None = None
    gamma: int = 15
    min_tail: int = 1
    stream: bool = False
    sharpness: float = 4.0
    midpoint: float | None = None
    tokenizer: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.policy in POLICIES, "policy", self.policy, f"one of {', '.join(POLICIES)}")
        require(0 < self.beta <= 1, "beta", self.beta, "in (0, 1]")
        require(self.gamma >= 1, "gamma", self.gamma, "at least 1")
        require(1 <= self.min_tail <= self.gamma, "min_tail", self.min_tail, f"in [1, gamma={self.gamma}]")
        require(self.sharpness >= 0, "sharpness", self.sharpness, "at least 0")
        if self.kept.kind == "tokens" and self.tokenizer is None:
            raise ConfigError(f"budget={self.budget!r}: counting tokens needs tokenizer=NAME")

    @property
    def kept(self) -> Budget:
        """The budget, or beta as one."""
        return Budget.parse(self.budget) if self.budget is not None else Budget(self.beta)


def weigh_stage(scores: Path, corpus: Path, settings: WeighSettings, folder: Path) -> Artifact:
    """Weigh a scores artifact.

    Writes ``part-*.parquet`` (:data:`dana.schemas.WEIGHTS`, the scores' rows in the same order) and, for the two
    policies that keep or drop, ``selected.jsonl.gz``: one line a run of kept, adjacent segments, so that no
    line joins text that was apart.

    Args:
        scores: Folder of a scores artifact.
        corpus: Folder of the corpus artifact that was scored.
        settings: The policy and its parameters.
        folder: Where the weights go.
    """
    scored = open_artifact(scores, "scores", "dana score --task ... --general ... --out DIR")
    opened = open_artifact(corpus, "corpus")
    depends_on = {"scores": scored.fingerprint, "settings": asdict(settings)}
    if opened.fingerprint != scored.manifest["depends_on"]["general"]:
        raise ConfigError(f"{scores} was not made from {corpus}; score this corpus first")

    def write(draft: Draft) -> None:
        table = read_table(scores)
        segment, weight = _weigh(table, settings, corpus, draft)
        weighed = pa.Table.from_arrays(
            [
                *(table[name] for name in WEIGHTS.names[:5]),
                pa.array(segment, pa.int32()),
                pa.array(weight, pa.float32()),
            ],
            schema=WEIGHTS,
        )
        write_parts(iter([weighed]), draft.path, WEIGHTS)
        draft.counts["by_source"] = _by_source(weighed)
        if settings.policy != "sigmoid":
            lines = _write_selected(table, segment, weight, corpus, draft.path / "selected.jsonl.gz")
            draft.counts["selected_texts"] = lines

    return make(folder, "weights", depends_on, write)


def _by_source(weighed: pa.Table) -> dict[str, dict[str, float]]:
    """Units, characters, and their weighted sums, by source: the paper's table 2."""
    sources, codes = np.unique(weighed["source"].to_numpy(), return_inverse=True)
    weight = weighed["weight"].to_numpy().astype(np.float64)
    characters = (weighed["end"].to_numpy() - weighed["start"].to_numpy()).astype(np.float64)
    columns = {"units": np.ones_like(weight), "characters": characters}
    columns |= {"kept_units": weight, "kept_characters": weight * characters}
    sums = {name: np.bincount(codes, weights=values) for name, values in columns.items()}
    return {
        str(source): {name: round(float(values[row]), 3) for name, values in sums.items()}
        for row, source in enumerate(sources)
    }


def _weigh(table: pa.Table, settings: WeighSettings, corpus: Path, draft: Draft) -> tuple[np.ndarray, np.ndarray]:
    """Segment numbers within documents and weights, both of shape (units,)."""
    score = table["score"].to_numpy()
    unit = table["unit"].to_numpy()
    starts = np.flatnonzero(unit == 0)
    segment = segment_ids(np.array([0]) if settings.stream else starts, score.size, settings.gamma, settings.min_tail)
    if settings.policy == "sigmoid":
        standard = standardise(score, Moments.of(score))
        midpoint = settings.midpoint if settings.midpoint is not None else float(np.quantile(standard, settings.beta))
        weight = sigmoid(standard, settings.sharpness, midpoint)
        draft.notes["midpoint"] = midpoint
    else:
        kept = _kept_segments(table, score, segment, settings, corpus)
        weight = (np.isin(segment, kept) & (segment != DROPPED)).astype(np.float64)
        draft.counts["segments"] = {"in": int(segment.max()) + 1, "kept": int(kept.size)}
    draft.counts["units"] = {
        "in": int(score.size),
        "kept": int((weight > 0).sum()),
        "dropped_by_weight": int(((weight == 0) & (segment != DROPPED)).sum()),
        "dropped_short_tail": int(((weight == 0) & (segment == DROPPED)).sum()),
    }
    draft.notes["effective_sample_size"] = effective_sample_size(weight)
    if not settings.stream:  # numbered within each document, so that a row's key says where it is
        segment = np.where(segment == DROPPED, DROPPED, unit // settings.gamma)
    return segment, weight


def _kept_segments(
    table: pa.Table, score: np.ndarray, segment: np.ndarray, settings: WeighSettings, corpus: Path
) -> np.ndarray:
    means = segment_means(score, segment)
    budget = settings.kept
    inside = segment != DROPPED
    amounts = _token_counts(table, corpus, settings) if budget.kind == "tokens" else np.ones(score.size)
    sizes = np.bincount(segment[inside], weights=amounts[inside])
    if settings.policy == "segments":
        return lowest_segments(means, sizes, budget)
    standard = standardise(means, Moments.of(means))
    midpoint = settings.midpoint if settings.midpoint is not None else float(np.quantile(standard, settings.beta))
    first = np.searchsorted(segment[inside], np.arange(means.size))
    rows = np.flatnonzero(inside)[first]
    ids, units = table["doc_id"].take(rows).to_pylist(), table["unit"].to_numpy()[rows]
    keys = np.array([unit_keys(doc_id, np.array([unit]))[0] for doc_id, unit in zip(ids, units, strict=True)])
    return sampled_segments(sigmoid(standard, settings.sharpness, midpoint), sizes, keys, budget, settings.seed)


def _token_counts(table: pa.Table, corpus: Path, settings: WeighSettings) -> np.ndarray:
    """Tokens of each unit, special tokens left out, shape (units,)."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(settings.tokenizer)
    counts: list[int] = []
    for _, text, rows in _documents_with_rows(table, corpus):
        spans = zip(table["start"][rows].to_pylist(), table["end"][rows].to_pylist(), strict=True)
        encoded = tokenizer([text[start:end] for start, end in spans], add_special_tokens=False, verbose=False)
        counts.extend(map(len, encoded["input_ids"]))
    return np.array(counts, dtype=np.float64)


def _documents_with_rows(table: pa.Table, corpus: Path) -> Iterator[tuple[str, str, slice]]:
    """Each scored document's id, text and rows; documents without units are passed over."""
    starts = np.flatnonzero(table["unit"].to_numpy() == 0)
    ends = np.append(starts[1:], table.num_rows)
    ids = table["doc_id"].take(starts).to_pylist()
    position = 0
    for document in iterate_documents(corpus):
        if position < len(ids) and document.doc_id == ids[position]:
            yield document.doc_id, document.text, slice(int(starts[position]), int(ends[position]))
            position += 1


def _write_selected(table: pa.Table, segment: np.ndarray, weight: np.ndarray, corpus: Path, path: Path) -> int:
    """One JSON line a run of adjacent kept units of one document; returns the number of lines."""
    score = table["score"].to_numpy()
    start, end, unit = (table[name].to_numpy() for name in ("start", "end", "unit"))
    sources = table["source"]
    lines = 0
    # mtime 0 and no name: same content, same bytes
    with path.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed:
        stream = io.TextIOWrapper(packed, encoding="utf-8")
        for doc_id, text, rows in _documents_with_rows(table, corpus):
            for first, last in _runs(weight[rows] > 0):
                a, b = rows.start + first, rows.start + last
                record: dict[str, Any] = {
                    "id": f"{doc_id}:{unit[a]}-{unit[b]}",
                    "doc_id": doc_id,
                    "source": sources[a].as_py(),
                    "first_unit": int(unit[a]),
                    "last_unit": int(unit[b]),
                    "start": int(start[a]),
                    "end": int(end[b]),
                    "score": float(score[a : b + 1].mean()),
                    "text": text[start[a] : end[b]],
                }
                stream.write(json.dumps(record, ensure_ascii=False) + "\n")
                lines += 1
        stream.flush()
    return lines


def _runs(kept: np.ndarray) -> list[tuple[int, int]]:
    """First and last index of every run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], kept, [False]]).astype(np.int8)))
    return [(int(first), int(after) - 1) for first, after in zip(edges[::2], edges[1::2], strict=True)]
