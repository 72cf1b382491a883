"""``dana files pack``: tokenise a pool once per tokenizer."""

from pathlib import Path
from typing import Any

from dana.core.artifacts import MANIFEST, Artifact, Draft, fingerprint, make
from dana.core.schemas import (
    DOCUMENTS,
    WEIGHTS,
    iterate_documents,
    part_files,
    read_table,
    table_identity,
)
from dana.models.folder import check_checkpoint, load_own_tokenizer, tokenizer_identity
from dana.train.tokens import write_tokens


def pack_for(model: str, pool: Path) -> Artifact:
    """Tokenise a pool with the tokenizer of a checkpoint, a folder or a Hub name; see :func:`pack_stage`."""
    check_checkpoint(model)
    return pack_stage(pool, load_own_tokenizer(model))


def pack_stage(pool: Path, tokenizer: Any, weights: Path | None = None) -> Artifact:
    """Tokenise a pool, or the selected documents of it, or reuse the tokens.

    The folder lies beside the pool, under ``tokens/``, named after the tokenizer. It holds
    ``tokens.safetensors``: ``ids`` and ``last`` (the last character of each token in its document),
    documents end to end without special tokens; and ``part-*.parquet``: ``doc_id``, ``tokens`` and
    ``characters`` of each document of the pool, of those not selected without tokens.

    Args:
        pool: Folder of :data:`dana.core.schemas.DOCUMENTS`.
        tokenizer: A fast Hugging Face tokenizer.
        weights: Folder of weights: only documents with a weight above 0 there are tokenised, unless
            the tokens of the whole pool are there already. None tokenises all.

    Raises:
        ConfigError: If the tokenizer is slow.
        ArtifactError: If there is no pool.
    """
    identity = tokenizer_identity(tokenizer, "are text")
    depends_on = {"pool": table_identity(pool, DOCUMENTS), "tokenizer": identity}
    if weights is not None and not (_folder(pool, depends_on) / MANIFEST).is_file():
        depends_on["weights"] = table_identity(weights, WEIGHTS)

    def write(draft: Draft) -> None:
        import pyarrow.parquet as pq

        selected = None
        if weights is not None and "weights" in depends_on:
            selected = selected_ids(weights)
        total = sum(pq.ParquetFile(part).metadata.num_rows for part in part_files(pool))
        draft.counts["tokens"] = write_tokens(
            iterate_documents(pool), tokenizer, draft.path, total, selected
        )
        draft.counts["documents"] = total

    return make(_folder(pool, depends_on), "tokens", depends_on, write)


def selected_ids(weights: Path) -> set[str]:
    """Return the ids of the documents of which something has a weight above 0."""
    table = read_table(weights, ["doc_id", "weight"])
    rows = table.filter(table["weight"].to_numpy() > 0)
    return set(rows["doc_id"].unique().to_pylist())


def _folder(pool: Path, depends_on: dict[str, Any]) -> Path:
    return pool.parent / "tokens" / fingerprint(depends_on)[:16]
