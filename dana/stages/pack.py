"""``dana pack``: a corpus is tokenised once for each tokenizer, whatever is trained on it afterwards."""

from pathlib import Path
from typing import Any

from dana.artifacts import Artifact, Draft, fingerprint, make
from dana.mlm.tokens import uncut, write_tokens
from dana.schemas import iterate_documents, parts, table_identity


def pack_stage(corpus: Path, tokenizer: Any) -> Artifact:
    """Tokenise a corpus, or find it tokenised.

    The folder lies beside the corpus, under ``tokens/``, named after the tokenizer. It holds ``tokens.safetensors``:
    ``ids`` and ``last`` (the last character of each token in its document), documents end to end without special
    tokens; and ``part-*.parquet``: ``doc_id``, ``tokens`` and ``characters`` of each document.

    Args:
        corpus: Folder of :data:`dana.schemas.DOCUMENTS`.
        tokenizer: A fast Hugging Face tokenizer.

    Raises:
        ConfigError: If the tokenizer is slow.
        ArtifactError: If there is no corpus.
    """
    identity = fingerprint({"tokenizer": uncut(tokenizer).to_str()})
    depends_on = {"corpus": table_identity(corpus), "tokenizer": identity}

    def write(draft: Draft) -> None:
        import pyarrow.parquet as pq

        total = sum(pq.ParquetFile(part).metadata.num_rows for part in parts(corpus))
        draft.counts["tokens"] = write_tokens(iterate_documents(corpus), tokenizer, draft.path, total)
        draft.counts["documents"] = total

    return make(corpus.parent / "tokens" / fingerprint(depends_on)[:16], "tokens", depends_on, write)
