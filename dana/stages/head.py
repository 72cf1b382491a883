"""Head stage: a model without a language-model head in, a copy with a warmed-up one for all arms out."""

from dataclasses import asdict
from pathlib import Path

from dana.core.artifacts import Draft, make_together
from dana.models.folder import check_checkpoint, model_identity
from dana.stages.pack import pack_stage
from dana.stages.training import TrainingData
from dana.train.examples import build_examples
from dana.train.execution import make_accelerator
from dana.train.head_warmup import warm_up_head
from dana.train.layout import BatchLayout
from dana.train.loop import prepare
from dana.train.settings import AdaptSettings
from dana.train.state import save_model
from dana.train.tokens import Tokens


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
    objective = settings.make_objective()
    loaded = objective.prepare_model(model, settings.seed)
    if not loaded.new:
        return model
    used = {
        "head_warmup": asdict(settings.head_warmup),
        "seed": settings.seed,
        "max_tokens": settings.max_tokens,
        **objective.decisive(),
    }
    depends_on = {"model": model_identity(model), **data.identity(), "settings": used}

    def write(draft: Draft | None) -> None:
        tokenizer = loaded.tokenizer
        tokens = Tokens.open(pack_stage(data.corpus, tokenizer).path)
        collator = objective.collator(tokenizer, settings.seed)
        exclude = data.heldout_ids()
        examples, counts = build_examples(tokens, None, collator.special_tokens, settings.max_tokens, exclude)
        loss = warm_up_head(loaded, examples, collator, settings, settings.head_warmup)
        prepared = prepare(loaded.model, settings, make_accelerator(), BatchLayout())
        save_model(prepared, tokenizer, draft.path if draft else None)
        if draft is not None:
            draft.counts, draft.notes = counts, {"head_loss": loss}

    return str(make_together(out, "model", depends_on, write).path)
