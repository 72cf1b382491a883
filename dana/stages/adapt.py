"""``dana adapt``: continued pre-training of a model on weighted text. DANA, section 3.2, equation 3."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dana.core.artifacts import Artifact
from dana.core.config import require
from dana.models.folder import check_checkpoint, model_identity
from dana.stages.training import TrainingData, TrainingJob, run_job
from dana.train.head_warmup import HeadWarmup
from dana.train.settings import TrainSettings


@dataclass(frozen=True)
class AdaptSettings(TrainSettings):
    """How a model is adapted: :class:`~dana.train.settings.TrainSettings`, and what a missing head needs.

    Attributes:
        head_warmup: For a checkpoint without a language-model head.
        dropout: Of every layer during the run; None leaves the checkpoint's own, which the result has in any case.
    """

    head_warmup: HeadWarmup = field(default_factory=HeadWarmup)
    dropout: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.dropout is None or 0 <= self.dropout < 1, "dropout", self.dropout, "in [0, 1), or null")

    def decisive(self) -> dict[str, Any]:
        """What the outcome depends on; a dropout that is left alone is not mentioned."""
        return {name: value for name, value in super().decisive().items() if (name, value) != ("dropout", None)}


def adapt_stage(
    model: str,
    corpus: Path,
    weights: Path | None,
    task_heldout: Path,
    general_heldout: Path,
    settings: AdaptSettings,
    out: Path,
    share: Path | None = None,
) -> Artifact:
    """Continue pre-training, and write a Hugging Face folder that loads without dana.

    Held-out documents that are also in the corpus are left out of training. Beside the model lie
    ``training.jsonl`` (a line a step and an evaluation), ``README.md`` and the manifest. Under several
    processes every one must call this; the first writes.

    Args:
        model: Folder with safetensors, or Hub name.
        corpus: Folder of a corpus artifact.
        weights: Folder of a weights artifact made from it; None trains on all of it equally.
        task_heldout: Folder of :data:`dana.core.schemas.DOCUMENTS`.
        general_heldout: The same.
        settings: The run.
        out: Where the model goes.
        share: Folder that runs share their tokens in, or None.

    Raises:
        ArtifactError: If an input is missing or unfit, or `out` holds something else.
        ConfigError: If the model has too few positions for ``max_tokens`` or no head for the objective, or the launch
            has another number of processes than it names.
    """
    check_checkpoint(model)
    job = TrainingJob(
        base=Path(model).resolve().name if Path(model).is_dir() else model,
        load=lambda: settings.make_objective().prepare_model(model, settings.seed, settings.dropout),
        data=TrainingData(corpus, weights, task_heldout, general_heldout, share),
        settings=settings,
        head_warmup=settings.head_warmup,
    )
    return run_job(job, {"model": model_identity(model)}, out)
