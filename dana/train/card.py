"""The README of an adapted model: what it was made from, how, and what that did to its losses."""

from dataclasses import dataclass

from dana.train.records import EvaluationRecord
from dana.train.settings import TrainSettings


@dataclass(frozen=True)
class Provenance:
    """Where a model comes from, in words and digests.

    Attributes:
        base: Name of the model it started from.
        weighting: How its text was weighted.
        corpus: Fingerprint of the text.
        weights: Fingerprint of the weights, or ``none``.
    """

    base: str
    weighting: str
    corpus: str
    weights: str


TEMPLATE = """---
library_name: transformers
pipeline_tag: fill-mask
tags: [dana, continued-pretraining]
---

# {provenance.base}, trained by dana

| | |
|---|---|
| base | {provenance.base} |
| weighting | {provenance.weighting}, denominator `{settings.denominator}` |
| corpus fingerprint | `{provenance.corpus}` |
| weights fingerprint | {provenance.weights} |
| examples | {examples:,}, effective sample size {effective_size:,.0f} |
| tokens seen | {tokens:,} in {steps:,} steps |
| learning rate | {settings.learning_rate:g} at its peak, warm-up {settings.warmup:g}, then linear to 0 |
| objective | {objective}, mask rate {settings.mask_rate:g} |
| seed | {settings.seed} |

Held-out loss, mean nats a hidden token at fixed masks (15 %), ± one standard error. A general loss
that rises is forgetting.

| text | before | after | change |
|---|---|---|---|
{losses}

Load it with `AutoModelForMaskedLM.from_pretrained` or `AutoModel.from_pretrained`; dana is not needed.
Every step is in `training.jsonl`, everything it was made from in `manifest.json`.
"""


def model_card(
    provenance: Provenance,
    settings: TrainSettings,
    evaluations: list[EvaluationRecord],
    steps: int,
    effective_size: float,
    examples: int,
) -> str:
    """Markdown with the front matter that model hubs read.

    Args:
        provenance: Base, weighting and inputs.
        settings: The run.
        evaluations: Held-out losses, the first before training, the last after.
        steps: Optimizer steps taken.
        effective_size: Effective sample size of the weights of all examples.
        examples: How many examples there were.
    """
    before, after = evaluations[0], evaluations[-1]
    task = _row("task", before.task_loss, before.task_loss_se, after.task_loss, after.task_loss_se)
    general = _row("general", before.general_loss, before.general_loss_se, after.general_loss, after.general_loss_se)
    return TEMPLATE.format(
        provenance=provenance,
        settings=settings,
        examples=examples,
        effective_size=effective_size,
        steps=steps,
        tokens=after.tokens,
        objective="masked tokens and next sentence" if settings.next_sentence else "masked tokens",
        losses=f"{task}\n{general}",
    )


def _row(name: str, first: float, first_error: float, last: float, last_error: float) -> str:
    change = f"{last - first:+.4f}"
    return f"| {name} | {first:.4f} ± {first_error:.4f} | {last:.4f} ± {last_error:.4f} | {change} |"
