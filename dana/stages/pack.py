"""``dana files pack``: tokenise a pool once per tokenizer."""

from pathlib import Path
from typing import Any

from dana.core.artifacts import Artifact, Draft, fingerprint, make
from dana.core.schemas import DOCUMENTS, iterate_documents, part_files, table_identity
from dana.models.folder import check_checkpoint, load_own_tokenizer, tokenizer_identity
from dana.train.tokens import write_tokens


def pack_for(model: str, pool: Path) -> Artifact:
    """Tokenise a pool with the tokenizer of a checkpoint, a folder or a Hub name; see :func:`pack_stage`."""
    check_checkpoint(model)
    return pack_stage(pool, load_own_tokenizer(model))


def pack_stage(pool: Path, tokenizer: Any) -> Artifact:
    """Tokenise a pool, or reuse its tokens.

    The folder lies beside the pool, under ``tokens/``, named after the tokenizer. It holds
    ``tokens.safetensors``: ``ids`` and ``last`` (the last character of each token in its document),
    documents end to end without special tokens; and ``part-*.parquet``: ``doc_id``, ``tokens`` and
    ``characters`` of each document.

    Args:
        pool: Folder of :data:`dana.core.schemas.DOCUMENTS`.
        tokenizer: A fast Hugging Face tokenizer.

    Raises:
        ConfigError: If the tokenizer is slow.
        ArtifactError: If there is no pool.
    """
    identity = tokenizer_identity(tokenizer, "are text")
    depends_on = {"pool": table_identity(pool, DOCUMENTS), "tokenizer": identity}

    def write(draft: Draft) -> None:
        import pyarrow.parquet as pq

        total = sum(pq.ParquetFile(part).metadata.num_rows for part in part_files(pool))
        draft.counts["tokens"] = write_tokens(iterate_documents(pool), tokenizer, draft.path, total)
        draft.counts["documents"] = total

    folder = pool.parent / "tokens" / fingerprint(depends_on)[:16]
    return make(folder, "tokens", depends_on, write)
