"""A base without a language-model head gets one once, so that the arms that start from it share it."""

from dataclasses import asdict
from pathlib import Path

from dana.artifacts import Draft, make
from dana.encoders.checkpoint import check_checkpoint
from dana.mlm.examples import build_examples
from dana.mlm.masking import Masking
from dana.mlm.tokens import Tokens
from dana.stages.adapt import AdaptSettings
from dana.stages.pack import pack_stage
from dana.stages.training import TrainingData
from dana.train.accelerator import make_accelerator
from dana.train.batch import Shape
from dana.train.checkpoint import load_checkpoint, model_identity, save_model
from dana.train.head_warmup import warm_up_head
from dana.train.loop import prepare


def head_stage(model: str, data: TrainingData, settings: AdaptSettings, out: Path) -> str:
    """The model itself if it has a head; else a copy whose new head was warmed up on general text, unweighted.

    Args:
        model: Folder with safetensors, or Hub name.
        data: The corpus to warm up on, and the documents that no arm may train on.
        settings: Of the runs that follow; their ``head_warmup``, seed and window are used.
        out: Where the copy goes.

    Returns:
        The folder or name to start every arm from.
    """
    check_checkpoint(model)
    checkpoint = load_checkpoint(model, settings.seed)
    if not checkpoint.new:
        return model
    used = {"head_warmup": asdict(settings.head_warmup), "seed": settings.seed, "max_tokens": settings.max_tokens}
    depends_on = {"model": model_identity(model), **data.identity(), "settings": used}

    def write(draft: Draft) -> None:
        tokenizer = checkpoint.tokenizer
        tokens = Tokens.open(pack_stage(data.corpus, tokenizer).path)
        examples, draft.counts = build_examples(tokens, None, tokenizer, settings.max_tokens, data.heldout_ids())
        masking = Masking.of(tokenizer, settings.seed, settings.mask_rate)
        draft.notes["head_loss"] = warm_up_head(checkpoint, examples, masking, settings, settings.head_warmup)
        save_model(prepare(checkpoint.model, settings, make_accelerator(), Shape()), tokenizer, draft.path)

    return str(make(out, "model", depends_on, write).path)
