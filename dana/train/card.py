"""Write the model card of a trained model: settings, provenance and held-out losses as Markdown for the Hub."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from dana.train.records import EvaluationRecord
from dana.train.settings import TrainSettings

OPENING = "Load it with `{}.from_pretrained` or `AutoModel.from_pretrained`"
VECTORS = "Load it with `AutoModel.from_pretrained`"
APART = """The head for language modelling is in `{}`; `dana.load_model` opens the model with it.

"""
ADAPTER = "Load the base with `{}.from_pretrained`, then this folder with `peft.PeftModel.from_pretrained`"
UNTRAINED = """The vectors of texts were trained; the head for language modelling was not, and no longer fits them.

"""
NEW_WORDS = "The tokenizer has {number:,} tokens more than that of the base, for words of the text"
LOSSES = """: losses a token
do not compare with those of other models. In nats a character: {losses}.

"""
TEMPLATE = """---
{licence}library_name: transformers
pipeline_tag: {terms.pipeline}
tags: [dana, continued-pretraining]
---

# {base}, trained by dana

| | |
|---|---|
| base | {base} |
{inputs}| examples | {counts[examples]:,}, effective sample size {notes[effective_sample_size]:,.0f} |
| tokens seen | {counts[tokens_seen]:,} in {counts[steps]:,} steps, {notes[epochs]:,.4g} times through the examples |
| learning rate | {rates} |
| objective | {objectives} |
| denominator | `{settings.denominator}` |
| seed | {settings.seed} |

{warnings}Held-out loss, mean {terms.measure} a {terms.unit}, ± one standard error. A pool loss
that rises is forgetting.

| text | before | after | change |
|---|---|---|---|
{losses}

{words}{heads}{opening}; dana is not needed.
Every step is in `training.jsonl`, everything it was made from in `__dana__/manifest.json`.
"""


def model_card(
    base: str,
    inputs: Mapping[str, str],
    settings: TrainSettings,
    evaluations: list[EvaluationRecord],
    counts: Mapping[str, Any],
    notes: Mapping[str, Any],
    licence: str = "",
) -> str:
    """Write a model card in Markdown, with the front matter that model hubs read.

    Args:
        base: Name of the base model.
        inputs: Description and digest of each input, by name.
        settings: Settings of the run.
        evaluations: Held-out losses, the first before training, the last after.
        counts: Numbers of ``examples``, ``steps`` and ``tokens_seen``.
        notes: ``effective_sample_size`` of the examples, ``epochs``, ``warnings``; if the head has a
            file of its own, ``head_file``; and if words were added to the vocabulary, ``new_tokens``
            and ``characters_per_token``.
        licence: Line of the front matter with the licence of the base; empty if unknown.
    """
    terms = settings.make_objective().card_terms()
    values = {
        "terms": terms,
        "base": base,
        "licence": licence,
        "settings": settings,
        "counts": counts,
        "notes": notes,
    }
    values |= {"inputs": "".join(f"| {name} | {value} |\n" for name, value in inputs.items())}
    values |= {"warnings": "".join(f"**Warning:** {warning}.\n\n" for warning in notes["warnings"])}
    phases = settings.by_phase()
    opening = ADAPTER if getattr(settings, "adapter", None) else OPENING
    head_file = notes.get("head_file")
    if terms.auto_class == "AutoModel" or head_file:
        opening = VECTORS
    values |= {"opening": opening.format(terms.auto_class)}
    values |= {
        "objectives": _in_turn(phase.make_objective().card_terms().objective for phase in phases)
    }
    rates = (f"{phase.peak_rate:g} at its peak, schedule `{phase.schedule}`" for phase in phases)
    values |= {"rates": _in_turn(rates)}
    losses = "\n".join(
        _losses(text, evaluations[0], evaluations[-1]) for text in ("target", "pool")
    )
    # A pooler for sentence pairs is no head for language modelling.
    has_head = any("pooler" not in name for name in notes.get("untrained", []))
    heads = UNTRAINED if has_head else ""
    if head_file:
        heads += APART.format(head_file)
    words = _new_words(notes, evaluations[0], evaluations[-1])
    return TEMPLATE.format(**values, losses=losses, heads=heads, words=words)


def _new_words(notes: Mapping[str, Any], *records: EvaluationRecord) -> str:
    """Give the losses a character, where words were added to the vocabulary; else nothing."""
    new_tokens = notes.get("new_tokens")
    if new_tokens is None:
        return ""
    number = new_tokens["number"]
    if any(record.target_accuracy is not None for record in records):
        return NEW_WORDS.format(number=number) + ".\n\n"  # its losses are not those of tokens
    losses = []
    for text, length in notes["characters_per_token"].items():
        before, after = (getattr(record, f"{text}_loss") for record in records)
        if before is not None and after is not None:
            losses.append(f"{text} {before / length:.4f} before, {after / length:.4f} after")
    return NEW_WORDS.format(number=number) + LOSSES.format(losses="; ".join(losses))


def _in_turn(values: Iterable[str]) -> str:
    """Join the values of the phases; equal ones that follow each other once."""
    return ", then ".join(value for value, _ in groupby(values))


def _losses(text: str, *records: EvaluationRecord) -> str:
    before, after = (getattr(record, f"{text}_loss") for record in records)
    if before is None or after is None:
        return f"| {text} | nothing to measure | | |"
    cells = [_cell(text, record) for record in records]
    return f"| {text} | {' | '.join(cells)} | {after - before:+.4f} |"


def _cell(text: str, record: EvaluationRecord) -> str:
    """Describe the loss of a text, and the accuracy where there is one."""
    loss = getattr(record, f"{text}_loss")
    error = getattr(record, f"{text}_loss_se")
    accuracy = getattr(record, f"{text}_accuracy")
    guess = getattr(record, f"{text}_guess")
    cell = f"{loss:.4f}" if error is None else f"{loss:.4f} ± {error:.4f}"
    if accuracy is None:
        return cell
    return f"{cell}, {accuracy:.1%} right (guessing {guess:.1%})"
