"""``dana pretrain``: a corpus in, a tokenizer and an encoder trained on it from scratch out."""

from collections.abc import Iterator
from pathlib import Path

from dana.core.artifacts import Artifact
from dana.core.config import require
from dana.core.schemas import iterate_documents
from dana.models.language_model import SIZES, LanguageModel, new_encoder, train_tokenizer
from dana.stages.training import TrainingData, TrainingJob, run_job
from dana.train.settings import HeadWarmup, PretrainSettings


def pretrain_stage(
    size: str, corpus: Path, task_heldout: Path, general_heldout: Path, settings: PretrainSettings, out: Path
) -> Artifact:
    """Train a tokenizer and an encoder on a corpus.

    The folder is like that of :func:`dana.stages.adapt.adapt_stage`. Held-out documents are
    kept from the tokenizer too.

    Args:
        size: ``tiny``, ``mini``, ``small``, ``medium`` or ``base``.
        corpus: Folder of a corpus artifact.
        task_heldout: Folder of :data:`dana.core.schemas.DOCUMENTS` to measure on.
        general_heldout: The same.
        settings: The run.
        out: Where the model goes.

    Raises:
        ConfigError: If the size is unknown, or the objective cannot train such a model.
        ArtifactError: If an input is missing, or `out` holds something else.
    """
    from transformers import AutoConfig

    require(size in SIZES, "size", size, f"one of {', '.join(SIZES)}")
    objective = settings.make_objective()
    objective.auto_class(AutoConfig.for_model(settings.architecture))  # refused before the tokenizer is learnt
    data = TrainingData(corpus, None, task_heldout, general_heldout)

    def load() -> LanguageModel:
        heldout = data.heldout_ids()

        def texts() -> Iterator[str]:
            return (document.text for document in iterate_documents(corpus) if document.doc_id not in heldout)

        tokenizer = train_tokenizer(texts, settings.vocabulary, settings.max_positions, settings.lowercase)
        dropout, seed = settings.dropout, settings.seed
        return new_encoder(settings.architecture, size, tokenizer, dropout, seed, objective.auto_class)

    return run_job(
        TrainingJob(f"{settings.architecture}-{size}", load, data, settings, HeadWarmup()), {"size": size}, out
    )
