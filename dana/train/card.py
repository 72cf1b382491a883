"""Model card: settings, provenance and held-out losses in, Markdown for the Hub out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dana.train.objectives.base import ModelCardTerms
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
pipeline_tag: {terms.pipeline}
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
| tokens seen | {tokens:,} in {steps:,} steps, {epochs} through the examples |
| learning rate | {settings.learning_rate:g} at its peak, warm-up {warmup}, then {schedule} |
| objective | {objective} |
| seed | {settings.seed} |

{warnings}Held-out loss, mean nats a {terms.unit}, ± one standard error. A general loss
that rises is forgetting.

| text | before | after | change |
|---|---|---|---|
{losses}

Load it with `{terms.auto_class}.from_pretrained` or `AutoModel.from_pretrained`; dana is not needed.
Every step is in `training.jsonl`, everything it was made from in `__dana__/manifest.json`.
"""


def model_card(
    provenance: Provenance,
    settings: TrainSettings,
    evaluations: list[EvaluationRecord],
    steps: int,
    effective_size: float,
    examples: int,
    notes: Mapping[str, Any] | None = None,
) -> str:
    """Markdown with the front matter that model hubs read.

    Args:
        provenance: Base, weighting and inputs.
        settings: The run.
        evaluations: Held-out losses, the first before training, the last after.
        steps: Optimizer steps taken.
        effective_size: Effective sample size of the weights of all examples.
        examples: How many examples there were.
        notes: What else the run said of itself: ``epochs`` and ``warnings``.
    """
    notes = notes or {}
    before, after = evaluations[0], evaluations[-1]
    task = _row("task", before.task_loss, before.task_loss_se, after.task_loss, after.task_loss_se)
    general = _row("general", before.general_loss, before.general_loss_se, after.general_loss, after.general_loss_se)
    terms = settings.make_objective().card_terms()
    return TEMPLATE.format(
        terms=terms,
        provenance=provenance,
        settings=settings,
        examples=examples,
        effective_size=effective_size,
        steps=steps,
        tokens=after.tokens,
        epochs=f"{notes['epochs']:,.4g} times" if "epochs" in notes else "once or more",
        warmup=f"{settings.warmup:g}" if settings.warmup_steps is None else f"{settings.warmup_steps} steps",
        schedule=_schedule(settings),
        objective=_objective(terms, settings),
        warnings="".join(f"**Warning:** {warning}.\n\n" for warning in notes.get("warnings", [])),
        losses=f"{task}\n{general}",
    )


def _schedule(settings: TrainSettings) -> str:
    to = f"{settings.floor:g} of the peak" if settings.floor else "0"
    return {
        "linear": f"linear to {to}",
        "cosine": f"a cosine to {to}",
        "constant": "constant",
        "wsd": f"constant, and linear to {to} in the last {settings.cooldown:.0%} of the steps",
    }[settings.schedule]


def _objective(terms: ModelCardTerms, settings: TrainSettings) -> str:
    replayed = f"; {settings.replay:.0%} of the examples from the corpus as it is" if settings.replay else ""
    return f"{terms.objective}{replayed}"


def _row(
    name: str, first: float | None, first_error: float | None, last: float | None, last_error: float | None
) -> str:
    if first is None or last is None:
        return f"| {name} | nothing to measure: no token that can be predicted | | |"
    before, after = (
        f"{mean:.4f}" if error is None else f"{mean:.4f} ± {error:.4f}"
        for mean, error in ((first, first_error), (last, last_error))
    )
    return f"| {name} | {before} | {after} | {last - first:+.4f} |"
