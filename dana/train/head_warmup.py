"""A new head on a trained backbone is noise: it is trained alone first, or its gradients wreck the rest."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from dana.config import require
from dana.logging import get_logger, tracked
from dana.mlm.examples import Examples
from dana.mlm.heads import MaskedLogits
from dana.mlm.loss import micro_loss, token_losses
from dana.mlm.masking import Masking
from dana.train.batch import Shape, StepBatch
from dana.train.checkpoint import Checkpoint
from dana.train.optimizer import learning_rate_at, make_optimizer
from dana.train.plan import Plan
from dana.train.settings import TrainSettings

log = get_logger(__name__)


@dataclass(frozen=True)
class HeadWarmup:
    """How a new head is trained before anything else.

    Attributes:
        steps: Optimizer steps; 0 leaves it as initialised.
        batch_size: Examples a step.
        learning_rate: Peak.
    """

    steps: int = 100
    batch_size: int = 32
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        require(self.steps >= 0, "head_warmup.steps", self.steps, "at least 0")
        require(self.batch_size >= 1, "head_warmup.batch_size", self.batch_size, "at least 1")
        require(self.learning_rate > 0, "head_warmup.learning_rate", self.learning_rate, "above 0")


def warm_up_head(
    checkpoint: Checkpoint, examples: Examples, masking: Masking, settings: TrainSettings, warmup: HeadWarmup
) -> float:
    """Train only the parameters that the checkpoint did not hold, in place; the rest stays bit-identical.

    Every rank does the same work by itself: it is short, and the model is not yet spread over ranks.

    Returns:
        The last step's plain loss, mean nats a hidden token.
    """
    model = checkpoint.model
    kept = [value for name, value in model.named_parameters(remove_duplicate=False) if name not in checkpoint.new]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    module = MaskedLogits(model).to(device).eval()  # no dropout: nothing here can overfit
    for parameter in model.parameters():
        parameter.requires_grad_(all(parameter is not other for other in kept))
    optimizer = make_optimizer(module, warmup.learning_rate, weight_decay=0.0)
    short = replace(settings, steps=warmup.steps, tokens=None, batch_size=warmup.batch_size, batch_tokens=None)
    plan, loss = Plan(examples.lengths, examples.ids, short), float("nan")
    for index in tracked(range(warmup.steps), what="warm up the head", unit="steps", total=warmup.steps):
        batch = StepBatch.of(examples, plan[index], masking, "token_count")
        rows = list(np.arange(len(batch.examples))[:, None])
        micro = batch.micro(rows, Shape(pad=model.config.pad_token_id or 0)).to(device)
        losses = token_losses(micro.logits(module), micro.targets)
        if batch.scale.total:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate_at(index, warmup.steps, warmup.learning_rate, 0.1)
            micro_loss(losses, micro.coefficients, batch.scale.total).backward()
            optimizer.step()
            optimizer.zero_grad()
            loss = float(losses.detach().mean())
    model.requires_grad_(True)
    log.info("new head warmed up in %d steps, loss %.3f", warmup.steps, loss)
    return loss
