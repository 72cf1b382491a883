"""Fine-tuned classifiers on disk: a folder that transformers opens alone where its architecture has the same head.

The head is [CLS] or the mean, a dense layer, tanh, a linear layer (:mod:`dana.models.classifier`). With [CLS], BERT,
RoBERTa, XLM-R, CamemBERT, MPNet, ALBERT and DeBERTa have the same one in their ``...ForSequenceClassification``, under
names of their own. Which do is tested, not assumed: what was written is opened by transformers and must give the same
logits. Where it does not (ELECTRA has a gelu there, ModernBERT a norm), the folder holds the parts instead, and
:func:`open_classifier` or ``dana predict`` opens it::

    backbone/           config (classifier_pooling: cls or mean), weights and tokenizer: AutoModel opens it
    head.safetensors    dense.weight, dense.bias, out.weight, out.bias
"""

import copy
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dana.core.artifacts import Draft, write_text
from dana.core.errors import ArtifactError
from dana.core.logging import get_logger
from dana.finetuning.loop import Encoded
from dana.finetuning.results import SeedResult, scores_of
from dana.models.classifier import Classifier, inputs_of, load_tokenizer, new_classifier
from dana.models.folder import check_checkpoint, load_transformer, loading, quiet_transformers
from dana.models.heads import positions_of
from dana.tasks.card import TaskCard
from dana.tasks.examples import Example
from dana.tasks.kinds import KINDS, kind_of_model
from dana.tasks.kinds.base import Kind

log = get_logger(__name__)

HEAD = "head.safetensors"
BACKBONE = "backbone"
PROBE = 8  # test examples on which a written model must agree with the trained one

CARD = """---
library_name: transformers
pipeline_tag: {pipeline}
tags: [dana]
---

# {model}, fine-tuned on {task} by dana

{title}

| | |
|---|---|
| base | {model} |
| task | {task}, version {version} |
| labels | {labels} |
| seed | {seed}: the best of its run on the development data, after epoch {epoch} |
| {metric} | {dev:.4f} on the development data, {test:.4f} on the test data |
| longest text | {most} tokens |

Mean and deviation over seeds are in the run's `metrics.json`; this is one seed of it, chosen on the development data.

{how}{pairs}

Everything it was made from is in `__dana__/manifest.json`.
"""
ALONE = """It opens with `{auto}.from_pretrained`, or with `pipeline("{pipeline}")`
(give `truncation=True` for texts longer than {most} tokens), and `dana predict FOLDER FILE` labels text with it."""
PAIRS = """ It reads pairs of texts: `tokenizer(text, text_pair)`, or
`pipeline(...)({"text": ..., "text_pair": ...})`."""
PARTS = """Transformers has no head like this one for {kind} models, so the folder holds the parts: `backbone/`, which
`AutoModel` opens, and `head.safetensors`. Label text with `dana predict FOLDER FILE`, or open it in Python with
`dana.finetuning.saved.open_classifier(FOLDER)`."""

CLOSE = 1e-4  # largest difference of two logits that are the same
MAKE = "make one with: dana finetune --save"


@dataclass(frozen=True)
class SavedClassifier:
    """A classifier ready to label texts.

    Attributes:
        module: Token ids, attention mask and perhaps token types to logits of shape (rows, labels).
        tokenizer: Its tokenizer.
        kind: What the logits say.
        max_tokens: Longer texts are cut here, special tokens included.
    """

    module: nn.Module
    tokenizer: Any
    kind: Kind
    max_tokens: int


class _Hosted(nn.Module):
    """A model of transformers, called as our classifier of texts or of words is (:mod:`dana.models.classifier`)."""

    def __init__(self, model: Any, per_word: bool) -> None:
        super().__init__()
        self.model, self.per_word = model, per_word

    def forward(self, input_ids: Tensor, attention_mask: Tensor, third: Tensor | None = None) -> Tensor:
        """Logits of shape (rows, labels), `third` being token types; or (words, labels), `third` being first tokens."""
        types = None if self.per_word else third
        logits = self.model(**inputs_of(self.model, input_ids, attention_mask, types)).logits
        return logits[third] if self.per_word else logits


def _auto(kind: Kind) -> Any:
    """Transformers' class for a kind."""
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

    return AutoModelForTokenClassification if kind.per_word else AutoModelForSequenceClassification


def write_model(
    draft: Draft,
    classifier: Classifier,
    result: SeedResult,
    card: TaskCard,
    tokenizer: Any,
    test: Sequence[Example],
    base: str,
) -> None:
    """Fill a draft with a model, its tokenizer and its card.

    Args:
        draft: Of the artifact.
        classifier: As it was tested.
        result: What its seed gave.
        card: The task.
        tokenizer: Its tokenizer, with the ``model_max_length`` it was trained with.
        test: The test examples.
        base: Name of the checkpoint it was made from.
    """
    classifier.to("cpu")
    most, architecture = tokenizer.model_max_length, classifier.backbone.config.model_type
    some = Encoded.of(list(test[:PROBE]), tokenizer, most)
    probe = some.batch(np.arange(len(some.tokens)), torch.device("cpu"))
    alone = save_classifier(classifier, tokenizer, card.target, probe, draft.path)
    scores, _ = scores_of(result, card.target, test)
    if not alone:
        log.info("model     %s models have no head like ours in transformers; open it with dana predict", architecture)
    auto = "AutoModelForTokenClassification" if card.target.per_word else "AutoModelForSequenceClassification"
    named = {"pipeline": card.target.pipeline, "auto": auto}
    text = CARD.format(
        pipeline=card.target.pipeline,
        model=base,
        task=card.name,
        title=card.title,
        version=card.version,
        labels=", ".join(card.target.outputs),
        seed=result.seed,
        epoch=result.epoch,
        metric=card.metric,
        dev=result.dev_score,
        test=scores[card.metric],
        most=most,
        how=(ALONE if alone else PARTS).format(most=most, kind=architecture, **named),
        pairs=PAIRS if card.text_pair else "",
    )
    write_text(draft.path / "README.md", text)
    draft.seeds["seed"] = result.seed
    draft.notes |= {"text_field": card.text, "id_field": card.id, "opens_with": "transformers" if alone else "dana"}
    optional = {"text_pair_field": card.text_pair, "template": card.template}
    draft.notes |= {name: value for name, value in optional.items() if value is not None}


def save_classifier(classifier: Any, tokenizer: Any, kind: Kind, probe: tuple[Tensor, ...], folder: Path) -> bool:
    """Write a classifier; returns whether transformers opens it alone.

    Args:
        classifier: Fine-tuned, of texts or of words; on the CPU.
        tokenizer: Its tokenizer, with the ``model_max_length`` the classifier was trained with.
        kind: What the logits say.
        probe: What `classifier` takes, of a few texts, on which what was written must agree with it.
        folder: Where; must exist.
    """
    classifier.eval()
    config = copy.deepcopy(classifier.backbone.config)
    config.id2label = dict(enumerate(kind.outputs))
    config.label2id = {label: place for place, label in enumerate(kind.outputs)}
    config.problem_type = kind.problem_type
    with quiet_transformers():
        model = _transplanted(classifier, config, kind)
        if model is not None:
            model.save_pretrained(folder / "whole")
            if _agree(classifier, folder / "whole", kind, probe):
                for file in (folder / "whole").iterdir():
                    file.rename(folder / file.name)
                (folder / "whole").rmdir()
                tokenizer.save_pretrained(folder)
                return True
            shutil.rmtree(folder / "whole")
        _save_parts(classifier, config, folder)
    tokenizer.save_pretrained(folder / BACKBONE)
    return False


def _transplanted(classifier: Any, config: Any, kind: Kind) -> Any:
    """Transformers' classifier of the architecture with our weights; None if it has no place for them."""
    if hasattr(config, "pooler_hidden_act"):  # DeBERTa can be told
        config.pooler_hidden_act, config.pooler_hidden_size = "tanh", config.hidden_size
    try:
        model = _auto(kind).from_config(config)
    except (ValueError, AttributeError):  # the architecture has none
        return None
    modules = dict(model.named_modules())
    base = model.base_model_prefix
    dense = ("classifier.dense", "pooler.dense", f"{base}.pooler.dense", f"{base}.pooler")
    names = {"out": ("classifier.out_proj", "classifier"), **({} if kind.per_word else {"dense": dense})}
    layers = [(getattr(classifier, own), _first_linear(modules, names[own], getattr(classifier, own))) for own in names]
    if any(theirs is None for _, theirs in layers):
        return None
    with torch.no_grad():
        different = model.base_model.load_state_dict(classifier.backbone.state_dict(), strict=False)
        if any("pooler" not in name for name in (*different.missing_keys, *different.unexpected_keys)):
            return None
        for ours, theirs in layers:
            assert theirs is not None  # seen above
            theirs.weight.copy_(ours.weight)
            theirs.bias.copy_(ours.bias)
    return model


def _first_linear(modules: dict[str, nn.Module], names: Sequence[str], like: nn.Linear) -> nn.Linear | None:
    """The first of some modules that could hold a layer's weights."""
    for name in names:
        found = modules.get(name)
        if isinstance(found, nn.Linear) and found.weight.shape == like.weight.shape and found.bias is not None:
            return found
    return None


@torch.no_grad()
def _agree(classifier: Any, folder: Path, kind: Kind, probe: tuple[Tensor, ...]) -> bool:
    """Whether transformers, alone, makes of the folder what we trained."""
    opened = _Hosted(_auto(kind).from_pretrained(folder, use_safetensors=True).eval(), kind.per_word)
    return torch.allclose(opened(*probe), classifier(*probe), atol=CLOSE, rtol=CLOSE)


def _save_parts(classifier: Any, config: Any, folder: Path) -> None:
    from safetensors.torch import save_file

    backbone = copy.deepcopy(classifier.backbone)
    backbone.config.id2label, backbone.config.label2id = config.id2label, config.label2id
    backbone.config.classifier_pooling = getattr(classifier, "pooling", "cls")
    backbone.save_pretrained(folder / BACKBONE)
    head = {name: value for name, value in classifier.state_dict().items() if name.startswith(("dense.", "out."))}
    save_file(head, folder / HEAD)


def open_classifier(model: str) -> SavedClassifier:
    """Open what ``dana finetune --save`` wrote, or any sequence classifier of transformers.

    Args:
        model: A folder, or a Hub name.

    Raises:
        ArtifactError: If it is no classifier of a kind that dana knows, or cannot be loaded.
    """
    parts = (Path(model) / HEAD).is_file()
    if not parts and Path(model).is_dir() and not (Path(model) / "config.json").is_file():
        raise ArtifactError(f"{model}: no classifier here (no config.json); {MAKE}")
    place = str(Path(model) / BACKBONE) if parts else model
    check_checkpoint(place)
    config, tokenizer = load_tokenizer(place)
    labels = [config.id2label[number] for number in range(config.num_labels)]
    kind = _kind(model, labels, config, parts)
    pooling = getattr(config, "classifier_pooling", "cls")
    module = _open_parts(model, kind, pooling) if parts else _open_hosted(model, kind)
    most = min(tokenizer.model_max_length, positions_of(config))
    return SavedClassifier(module.eval(), tokenizer, kind, most)


def _kind(model: str, labels: list[str], config: Any, parts: bool) -> Kind:
    """What the model's logits say.

    Raises:
        ArtifactError: If dana knows no such models.
    """
    architectures = config.architectures or ["a model of unknown architecture"]
    per_word = _has_no_dense(model) if parts else any(name.endswith("ForTokenClassification") for name in architectures)
    if not (parts or per_word or any(name.endswith("ForSequenceClassification") for name in architectures)):
        raise ArtifactError(f"{model}: holds {', '.join(architectures)}, not a sequence classifier; {MAKE}")
    kind = kind_of_model(labels, config.problem_type, per_word)
    if kind is None:
        what = f"num_labels={config.num_labels}, problem_type={config.problem_type}"
        raise ArtifactError(f"{model}: {what}: must answer as a kind of dana does ({', '.join(KINDS)})")
    return kind


def _has_no_dense(model: str) -> bool:
    """Whether the parts are of a classifier of words, whose head is one layer."""
    from safetensors import safe_open

    with loading(f"{model}/{HEAD}"), safe_open(Path(model) / HEAD, "pt") as held:
        return not any(name.startswith("dense.") for name in held.keys())  # noqa: SIM118, it is no mapping


def _open_parts(model: str, kind: Kind, pooling: str) -> nn.Module:
    from safetensors.torch import load_file

    classifier = new_classifier(str(Path(model) / BACKBONE), len(kind.outputs), 0, kind.per_word, pooling)
    with loading(f"{model}/{HEAD}"):
        left = classifier.load_state_dict(load_file(Path(model) / HEAD), strict=False)
    if left.unexpected_keys or any(not name.startswith("backbone.") for name in left.missing_keys):
        raise ArtifactError(f"{model}/{HEAD}: does not hold dense and out, weight and bias, alone")
    return classifier


def _open_hosted(model: str, kind: Kind) -> nn.Module:
    loaded, report = load_transformer(_auto(kind), model, output_loading_info=True)
    if report["missing_keys"]:
        raise ArtifactError(f"{model}: weights are missing, for example {min(report['missing_keys'])}")
    return _Hosted(loaded, kind.per_word)
