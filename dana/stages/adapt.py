"""``dana adapt``: continue pre-training a model on weighted text. DANA section 3.2, equation 3."""

from dataclasses import dataclass, field
from pathlib import Path

from dana.artifacts import Artifact
from dana.encoders.checkpoint import check_checkpoint
from dana.stages.training import TrainingData, TrainingJob, run_job
from dana.train.checkpoint import load_checkpoint, model_identity
from dana.train.head_warmup import HeadWarmup
from dana.train.settings import TrainSettings


@dataclass(frozen=True)
class AdaptSettings(TrainSettings):
    """How a model is adapted: :class:`~dana.train.settings.TrainSettings`, and what a missing head needs.

    Attributes:
        head_warmup: For a checkpoint without a language-model head.
    """

    head_warmup: HeadWarmup = field(default_factory=HeadWarmup)


def adapt_stage(
    model: str,
    corpus: Path,
    weights: Path | None,
    task_heldout: Path,
    general_heldout: Path,
    settings: AdaptSettings,
    out: Path,
) -> Artifact:
    """Continue pre-training, and write a Hugging Face folder that loads without dana.

    Held-out documents that are also in the corpus are left out of training. Beside the model lie
    ``training.jsonl`` (a line a step and an evaluation), ``README.md`` and the manifest. Under several
    processes every one must call this; the first writes.

    Args:
        model: Folder with safetensors, or Hub name.
        corpus: Folder of a corpus artifact.
        weights: Folder of a weights artifact made from it; None trains on all of it equally.
        task_heldout: Folder of :data:`dana.schemas.DOCUMENTS`.
        general_heldout: The same.
        settings: The run.
        out: Where the model goes.

    Raises:
        ArtifactError: If an input is missing or unfit, or `out` holds something else.
        ConfigError: If the model is too small for ``max_tokens``, is to learn ``next_sentence`` and is no BERT, or the
            launch is not what it seems.
    """
    check_checkpoint(model)
    job = TrainingJob(
        base=Path(model).resolve().name if Path(model).is_dir() else model,
        load=lambda: load_checkpoint(model, settings.seed, settings.next_sentence),
        data=TrainingData(corpus, weights, task_heldout, general_heldout),
        settings=settings,
        head_warmup=settings.head_warmup,
    )
    return run_job(job, {"model": model_identity(model)}, out)
