"""Train a new head alone for some steps before the rest of the model; the backbone stays as it is."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from torch import Tensor

from dana.core.device import find_device
from dana.core.logging import get_logger, monitor
from dana.models.language_model import LanguageModel
from dana.train.examples import ExampleSet
from dana.train.layout import BatchLayout, micro_batches
from dana.train.objectives.base import Collator
from dana.train.objectives.batch import micro_loss
from dana.train.plan import Plan, Step
from dana.train.planner import explain_out_of_memory
from dana.train.schedule import learning_rate_at
from dana.train.settings import HeadWarmup, TrainSettings
from dana.train.supervised import make_optimizer, train_supervised

log = get_logger(__name__)

WARMUP_SHARE = 0.1  # share of the steps


def warm_up_head(
    language_model: LanguageModel,
    examples: ExampleSet,
    collator: Collator,
    settings: TrainSettings,
    warmup: HeadWarmup,
) -> float | None:
    """Train only the parameters that the checkpoint lacked, in place; all others stay bit-identical.

    Every rank does the same work: it is short, and the model is not yet sharded.

    Returns:
        The last step's loss in nats per predicted token; None if ``warmup.steps`` is 0.
    """
    if warmup.steps == 0:
        log.info("the new head keeps its initial weights (head_warmup.steps=0)")
        return None
    model = language_model.model
    frozen = [
        value
        for name, value in model.named_parameters(remove_duplicate=False)
        if name not in language_model.new
    ]
    device = find_device()
    module = settings.make_objective().module(model).to(device)
    module.eval()  # no dropout: nothing here can overfit
    for parameter in model.parameters():
        parameter.requires_grad_(all(parameter is not other for other in frozen))
    optimizer = make_optimizer(module, warmup.learning_rate, weight_decay=0.0)
    short = replace(
        settings.by_phase()[0],
        steps=warmup.steps,
        tokens=None,
        epochs=None,
        batch_size=warmup.batch_size,
        batch_tokens=None,
    )
    plan = Plan.from_settings(examples, short)
    shape = BatchLayout.from_config(model.config, settings.execution.micro_batch_tokens)

    def losses(step: Step) -> Iterator[Tensor]:
        batch = collator.step_batch(examples.take(step.rows), step.epochs, "token_count")
        if not batch.scale.total:
            return
        for rows in micro_batches(batch.lengths, shape):
            micro = batch.micro(rows, shape).to(device)
            yield micro_loss(micro.losses(module), micro.coefficients, batch.scale.total)

    rate = partial(
        learning_rate_at, steps=warmup.steps, peak=warmup.learning_rate, warmup=WARMUP_SHARE
    )
    steps = train_supervised(optimizer, plan, losses, rate, "head_warmup", clip=None)
    with explain_out_of_memory("head_warmup", shape.budget):
        *_, loss = monitor(steps, what="warm up the head", unit="steps", total=warmup.steps)
    model.requires_grad_(True)
    log.info("new head warmed up in %d steps, loss %.3f", warmup.steps, loss)
    return loss
