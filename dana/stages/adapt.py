"""``dana adapt``: continued pre-training of a model on weighted text. DANA, section 3.2, equation 3."""

from pathlib import Path

from dana.core.artifacts import Artifact
from dana.models.folder import check_checkpoint, model_identity
from dana.stages.training import TrainingData, TrainingJob, run_job
from dana.train.settings import AdaptSettings


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
        task_heldout: Folder of :data:`dana.core.schemas.DOCUMENTS`.
        general_heldout: The same.
        settings: The run.
        out: Where the model goes.

    Raises:
        ArtifactError: If an input is missing or unfit, or `out` holds something else.
        ConfigError: If the model has too few positions for ``max_tokens`` or no head for the objective, or the launch
            has another number of processes than it names.
    """
    check_checkpoint(model)
    job = TrainingJob(
        base=Path(model).resolve().name if Path(model).is_dir() else model,
        load=lambda: settings.make_objective().prepare_model(model, settings.seed, settings.dropout),
        data=TrainingData(corpus, weights, task_heldout, general_heldout),
        settings=settings,
        head_warmup=settings.head_warmup,
    )
    return run_job(job, {"model": model_identity(model)}, out)
