"""Classifiers of texts and of words: a checkpoint with a fresh head of transformers in, logits of the classes out."""

from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dana.core.errors import ArtifactError
from dana.core.rng import derive_seed
from dana.models.folder import load_backbone, load_own_tokenizer, load_transformer, loading

DROPOUT = 0.1
BACKBONE, HEAD = "backbone", "head.safetensors"


class Classifier(nn.Module):
    """A sequence or token classifier of transformers, called alike for texts and for words.

    Args:
        model: Answers with logits, a row a text or a token; its config and its ``base_model`` are looked at.
        per_word: Whether each word has logits, those of its first token (Devlin et al. 2019, BERT, section 5.3).
    """

    def __init__(self, model: Any, per_word: bool = False) -> None:
        super().__init__()
        self.model, self.per_word = model, per_word

    @property
    def out(self) -> nn.Linear:
        """The layer that gives the logits."""
        return [layer for layer in head_layers(self.model) if isinstance(layer, nn.Linear)][-1]

    def forward(self, input_ids: Tensor, attention_mask: Tensor, third: Tensor | None = None) -> Tensor:
        """Logits of shape (rows, classes), or (words, classes) row by row.

        Args:
            input_ids: Shape (rows, width).
            attention_mask: Same shape, 1 on real tokens.
            third: Same shape. Of words: which tokens are the first of one. Of pairs of texts: 1 on tokens of the
                second; a model that does not tell two texts apart is not given it.
        """
        given = {"input_ids": input_ids, "attention_mask": attention_mask}
        if third is not None and not self.per_word and getattr(self.model.config, "type_vocab_size", 0) > 1:
            given["token_type_ids"] = third
        logits = self.model(**given).logits
        return logits[third] if self.per_word else logits


class MeanPooling(nn.Module):
    """A sequence classifier by the mean of all real tokens, special ones included, which transformers has not.

    Its folder holds a backbone that ``AutoModel`` opens, and the head beside it: dense and out, weight and bias.
    """

    def __init__(self, backbone: Any, classes: int) -> None:
        super().__init__()
        self.base_model, self.config = backbone, backbone.config
        width = self.config.hidden_size
        layers = {"dropout": nn.Dropout(DROPOUT), "dense": nn.Linear(width, width), "tanh": nn.Tanh()}
        layers |= {"last_dropout": nn.Dropout(DROPOUT), "out": nn.Linear(width, classes)}
        self.head = nn.Sequential(OrderedDict(layers))

    def forward(self, attention_mask: Tensor, **inputs: Tensor) -> Any:
        """Logits of shape (rows, classes), as transformers' classifiers answer."""
        from transformers.modeling_outputs import SequenceClassifierOutput

        hidden = self.base_model(attention_mask=attention_mask, **inputs)[0].float()
        real = attention_mask.unsqueeze(-1).float()
        return SequenceClassifierOutput(logits=self.head((hidden * real).sum(1) / real.sum(1)))

    def save_pretrained(self, folder: Path) -> None:
        """Write ``backbone/`` and ``head.safetensors``."""
        from safetensors.torch import save_file

        self.base_model.save_pretrained(folder / BACKBONE)
        save_file(self.head.state_dict(), folder / HEAD)

    @classmethod
    def from_pretrained(cls, folder: Path, classes: int) -> "MeanPooling":
        """Read what :meth:`save_pretrained` wrote.

        Raises:
            ArtifactError: If it cannot be loaded.
        """
        from safetensors.torch import load_file

        model = cls(load_backbone(str(folder / BACKBONE)), classes)
        with loading(f"{folder}/{HEAD}"):
            model.head.load_state_dict(load_file(folder / HEAD))
        return model


def auto_class(per_word: bool) -> Any:
    """Transformers' class of classifiers of texts, or of words."""
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

    return AutoModelForTokenClassification if per_word else AutoModelForSequenceClassification


def head_layers(model: Any) -> list[Any]:
    """The layers of a model that a classifier learns anew: all outside its backbone, and the backbone's pooler."""
    backbone = {id(layer) for name, layer in model.base_model.named_modules() if "pooler" not in name}
    layers = [layer for layer in model.modules() if id(layer) not in backbone]
    return [layer for layer in layers if next(layer.parameters(recurse=False), None) is not None]


def init_head(layers: Iterable[Any], seed: int) -> None:
    """Give the layers of a head their first weights, whatever the checkpoint brought for them."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in layers:
            if not isinstance(layer, nn.Linear):
                layer.reset_parameters()  # a norm
                continue
            # Keeps the size of what passes through. At 768 it is BERT's 0.02; with 0.02 a narrow model merges
            # classes and stays there.
            spread = (3 * layer.in_features) ** -0.5
            layer.weight.copy_(torch.randn(layer.weight.shape, generator=random) * spread)
            if layer.bias is not None:
                layer.bias.zero_()


def new_classifier(model: str, classes: int, seed: int, per_word: bool = False, pooling: str = "cls") -> Classifier:
    """A checkpoint with a fresh head, of texts or of words, in single precision whatever it was saved in.

    The head's first weights are a function of seed, architecture, width and classes alone, so that two checkpoints
    compared on a seed start from the same head.

    Args:
        model: Folder or Hub name.
        classes: Logits.
        seed: Decides the head's first weights.
        per_word: Whether each word has logits.
        pooling: ``cls``, transformers' own head for the architecture, or ``mean``, one over the mean of all tokens.

    Raises:
        ArtifactError: If there is no such checkpoint, its weights are pickled or transformers has no head for it.
    """
    network = MeanPooling(load_backbone(model), classes) if pooling == "mean" else _headed(model, classes, per_word)
    layers = (network.head.dense, network.head.out) if pooling == "mean" else head_layers(network)
    key = "word_head" if per_word else "head"
    init_head(layers, derive_seed(seed, "finetune", key, network.config.hidden_size, classes))
    return Classifier(network, per_word)


def _headed(model: str, classes: int, per_word: bool) -> Any:
    """Transformers' classifier of an architecture; a head of another size in the checkpoint does not matter."""
    options = {"num_labels": classes, "ignore_mismatched_sizes": True, "output_loading_info": True}
    network, report = load_transformer(auto_class(per_word), model, **options)
    head = {id(value) for layer in head_layers(network) for value in layer.parameters(recurse=False)}
    parameters = dict(network.named_parameters())
    if any(id(parameters.get(name)) not in head for name, *_ in report["mismatched_keys"]):
        raise ArtifactError(f"{model}: cannot be loaded: its weights have other shapes than its config.json says")
    if hasattr(network.config, "classifier_pooling"):  # ModernBERT's checkpoints may ask for the mean
        network.config.classifier_pooling = "cls"
    if network.config.pad_token_id is None:  # a decoder looks for the last token before the padding
        network.config.pad_token_id = load_own_tokenizer(model).pad_token_id or 0
    return network
