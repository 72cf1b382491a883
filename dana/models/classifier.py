"""Classify texts or words with a checkpoint and a new head."""

from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dana.core.rng import derive_seed
from dana.models.folder import (
    load_backbone,
    load_config,
    load_own_tokenizer,
    load_with_head,
    loading,
    padding_id,
    running,
)

DROPOUT = 0.1
BACKBONE = "backbone"
HEAD = "head.safetensors"
# What architectures with a choice call the poolings of their own classifiers; the others' take one
# token.
OWN_POOLINGS = {
    "modernbert": {"cls": "cls", "mean": "mean"},
    "eurobert": {"cls": "bos", "mean": "mean"},
}


def mean_head_origin(config: Any, pooling: str) -> dict[str, int]:
    """Name the version of an architecture's own head of mean tokens for a fingerprint.

    Other heads have no entry.
    """
    if pooling == "mean" and pooling in OWN_POOLINGS.get(config.model_type, {}):
        return {"head": 2}
    return {}


class Classifier(nn.Module):
    """Wrap a sequence or token classifier of transformers, with one interface for texts and words.

    Args:
        model: A classifier that returns logits per text or token, with ``config`` and
            ``base_model``.
        per_word: Whether to return the logits of each word's first token (Devlin et al. 2019, BERT,
            section 5.3).
    """

    def __init__(self, model: Any, per_word: bool = False) -> None:
        super().__init__()
        self.model = model
        self.per_word = per_word

    @property
    def out(self) -> nn.Linear:
        """The output layer."""
        linear = [layer for layer in head_layers(self.model) if isinstance(layer, nn.Linear)]
        return linear[-1]

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, third: Tensor | None = None
    ) -> Tensor:
        """Compute logits of shape (rows, classes), or (words, classes) row by row.

        Args:
            input_ids: Shape (rows, width).
            attention_mask: Same shape, 1 on real tokens.
            third: Same shape. For words, a mask of the first token of each. For pairs of texts, 1
                on tokens of the second text; only models with token types receive it. For marked
                entities, the number of each marker. Or of shape (rows,), where rows are windows of
                longer texts: the number of each one's text, ascending from 0. The logits of a text
                are the mean of those of its windows, each weighted by its tokens.
        """
        if third is not None and third.dim() == 1:
            logits: Tensor = self(input_ids, attention_mask)
            return mean_by_text(logits, third, attention_mask.sum(1))
        inputs = self._arguments(input_ids, attention_mask, third)
        with running(self.model):
            logits = self.model(**inputs).logits
        if self.per_word:
            return logits[third]
        return logits

    def vectors(
        self, input_ids: Tensor, attention_mask: Tensor, third: Tensor | None = None
    ) -> Tensor:
        """Compute what the head of a :class:`PooledClassifier` reads, shape (rows, width).

        Args:
            input_ids: See :meth:`forward`.
            attention_mask: See :meth:`forward`.
            third: See :meth:`forward`; the vector of a text in windows is the mean of theirs.
        """
        if third is not None and third.dim() == 1:
            vectors: Tensor = self.vectors(input_ids, attention_mask)
            return mean_by_text(vectors, third, attention_mask.sum(1))
        inputs = self._arguments(input_ids, attention_mask, third)
        with running(self.model):
            vectors = self.model.pool(**inputs)
            return vectors

    def _arguments(
        self, input_ids: Tensor, attention_mask: Tensor, third: Tensor | None
    ) -> dict[str, Tensor]:
        """Name the inputs of the model, as it takes them."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if third is not None and not self.per_word:
            if isinstance(self.model, PooledClassifier) and self.model.parts > 1:
                inputs["groups"] = third
            elif getattr(self.model.config, "type_vocab_size", 0) > 1:
                inputs["token_type_ids"] = third
        if self._reads_end_of_row():
            # Padding before the text: 0 sorts before 1, and tokens keep their order.
            order = attention_mask.argsort(dim=1, stable=True)
            inputs = {name: value.gather(1, order) for name, value in inputs.items()}
        return inputs

    def _reads_end_of_row(self) -> bool:
        """Return whether the classifier reads the last position of a row, padded or not, as XLNet's does."""
        is_own = not (self.per_word or isinstance(self.model, PooledClassifier))
        return is_own and self.model.config.model_type == "xlnet"


def mean_by_text(values: Tensor, texts: Tensor, weights: Tensor) -> Tensor:
    """Average the values of windows over those of each text.

    Args:
        values: Shape (windows, columns).
        texts: int64 of shape (windows,), the text of each window.
        weights: Shape (windows,), tokens of each window.

    Returns:
        Shape (texts, columns).
    """
    count = int(texts.max()) + 1
    weights = weights.to(values.dtype)
    sums = values.new_zeros(count, values.shape[1])
    sums = sums.index_add(0, texts, values * weights[:, None])
    totals = values.new_zeros(count).index_add(0, texts, weights)
    return sums / totals[:, None]


class PooledClassifier(nn.Module):
    """Sequence classifier over pooled tokens, which transformers lacks.

    The representation of a text is the mean of all real tokens, special ones included; or, with
    several parts, the states of its entity markers side by side (Baldini Soares et al. 2019,
    Matching the blanks: entity start states). Its folder holds a backbone for ``AutoModel``, and
    the head in a file beside it: dense and out, weight and bias; of a linear head, out alone.

    Args:
        backbone: An ``AutoModel``.
        classes: Number of classes.
        parts: 1 for the mean, else the number of markers.
        is_linear: Whether the head is one linear layer.
    """

    def __init__(
        self, backbone: Any, classes: int, parts: int = 1, is_linear: bool = False
    ) -> None:
        super().__init__()
        self.base_model = backbone
        self.config = backbone.config
        self.parts = parts
        width = self.config.hidden_size
        layers: dict[str, nn.Module] = {
            "dropout": nn.Dropout(DROPOUT),
            "dense": nn.Linear(parts * width, width),
            "tanh": nn.Tanh(),
            "last_dropout": nn.Dropout(DROPOUT),
            "out": nn.Linear(width, classes),
        }
        if is_linear:
            layers = {"out": nn.Linear(parts * width, classes)}
        self.head = nn.Sequential(OrderedDict(layers))

    def forward(
        self, attention_mask: Tensor, groups: Tensor | None = None, **inputs: Tensor
    ) -> Any:
        """Compute logits of shape (rows, classes), in the output type of transformers' classifiers.

        Args:
            attention_mask: Shape (rows, width), 1 on real tokens.
            groups: Same shape, the part of each token, from 1, or 0 for none; None is the attention
                mask. A part without a token is 0.
            inputs: Further arguments of the backbone.
        """
        from transformers.modeling_outputs import SequenceClassifierOutput

        vectors = self.pool(attention_mask, groups, **inputs)
        return SequenceClassifierOutput(logits=self.head(vectors))

    def pool(
        self, attention_mask: Tensor, groups: Tensor | None = None, **inputs: Tensor
    ) -> Tensor:
        """Compute the representation of each text, shape (rows, parts · width).

        Args:
            attention_mask: See :meth:`forward`.
            groups: See :meth:`forward`.
            inputs: See :meth:`forward`.
        """
        states = self.base_model(attention_mask=attention_mask, **inputs)[0].float()
        if groups is None:
            groups = attention_mask
        masks = [(groups == part).unsqueeze(-1).float() for part in range(1, self.parts + 1)]
        means = [(states * mask).sum(1) / mask.sum(1).clamp(min=1) for mask in masks]
        return torch.cat(means, 1)

    def save_pretrained(self, folder: Path) -> None:
        """Write ``backbone/`` and ``head.safetensors``."""
        from safetensors.torch import save_file

        self.base_model.save_pretrained(folder / BACKBONE)
        save_file(self.head.state_dict(), folder / HEAD)

    @classmethod
    def from_pretrained(cls, folder: Path, classes: int) -> "PooledClassifier":
        """Read what :meth:`save_pretrained` wrote.

        Raises:
            ArtifactError: If it cannot be loaded.
        """
        from safetensors.torch import load_file

        backbone = load_backbone(str(folder / BACKBONE))
        with loading(f"{folder}/{HEAD}"):
            weights = load_file(folder / HEAD)
            is_linear = "dense.weight" not in weights
            first_layer = "out.weight" if is_linear else "dense.weight"
            parts = weights[first_layer].shape[1] // backbone.config.hidden_size
            model = cls(backbone, classes, parts, is_linear)
            model.head.load_state_dict(weights)
        return model


def auto_class(per_word: bool) -> Any:
    """Return transformers' class of classifiers of texts, or of words."""
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

    return AutoModelForTokenClassification if per_word else AutoModelForSequenceClassification


def head_layers(model: Any) -> list[Any]:
    """List the layers of a model's head: those outside its backbone, and the backbone's pooler."""
    backbone = set()
    for name, layer in model.base_model.named_modules():
        if "pooler" not in name:
            backbone.add(id(layer))
    layers = []
    for layer in model.modules():
        has_parameters = next(layer.parameters(recurse=False), None) is not None
        if has_parameters and id(layer) not in backbone:
            layers.append(layer)
    return layers


def init_head(layers: Iterable[Any], seed: int) -> None:
    """Initialise the layers of a head by seed, also those that the checkpoint has weights for."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in layers:
            if not isinstance(layer, nn.Linear):
                layer.reset_parameters()  # a norm
                continue
            # Preserves the scale of activations. At width 768 this is BERT's 0.02, with which
            # narrow models get stuck with merged classes.
            spread = (3 * layer.in_features) ** -0.5
            layer.weight.copy_(torch.randn(layer.weight.shape, generator=random) * spread)
            if layer.bias is not None:
                layer.bias.zero_()


def new_classifier(
    model: str, classes: int, seed: int, per_word: bool = False, pooling: str = "cls"
) -> Classifier:
    """Load a checkpoint with a new head, in single precision whatever its own.

    The initial weights of the head depend on seed, architecture, width and classes alone, so that
    two checkpoints compared on a seed start from the same head.

    Args:
        model: Folder or Hub name.
        classes: Number of classes.
        seed: Seed of the head's initial weights.
        per_word: Whether to classify words instead of texts.
        pooling: ``cls`` for transformers' head of the architecture, ``mean`` for a head over the
            mean of all tokens, ``markers`` for one over the states of two entity markers.

    Raises:
        ArtifactError: If there is no such checkpoint, its weights are pickled, or transformers has
            no head for it.
    """
    config = load_config(model)
    names = OWN_POOLINGS.get(config.model_type, {"cls": ""})
    if pooling in names:
        network = _load_with_head(model, config, classes, per_word, names[pooling])
        layers = head_layers(network)
    else:
        parts = 1 if pooling == "mean" else 2
        network = PooledClassifier(load_backbone(model), classes, parts)
        layers = [network.head.dense, network.head.out]
    key = "word_head" if per_word else "head"
    init_head(layers, derive_seed(seed, "finetune", key, network.config.hidden_size, classes))
    return Classifier(network, per_word)


def new_linear_classifier(model: str, classes: int, pooling: str = "mean") -> Classifier:
    """Load a checkpoint with a linear head over pooled tokens, which is 0.

    Args:
        model: Folder or Hub name.
        classes: Number of classes.
        pooling: ``mean`` or ``markers``.

    Raises:
        ArtifactError: If there is no such checkpoint, or its weights are pickled.
    """
    parts = 1 if pooling == "mean" else 2
    network = PooledClassifier(load_backbone(model), classes, parts, is_linear=True)
    out: Any = network.head.out
    nn.init.zeros_(out.weight)
    nn.init.zeros_(out.bias)
    return Classifier(network)


def _finds_last_token(config: Any) -> bool:
    """Return whether transformers' classifier of an architecture reads the last token before the padding.

    Those of decoders find it by the id of the padding in the configuration. Rows are padded by the
    tokenizer, so that an id of another token there would make them read the padding.
    """
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    kind = config.model_type
    has_causal_head = kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return has_causal_head and kind not in MODEL_FOR_MASKED_LM_MAPPING_NAMES


def _load_with_head(model: str, config: Any, classes: int, per_word: bool, pooling: str) -> Any:
    """Load transformers' classifier of an architecture.

    A head of another size in the checkpoint is replaced.
    """
    config.num_labels = classes
    if pooling:  # a checkpoint may ask for another
        config.classifier_pooling = pooling
    if config.model_type == "modernbert" and pooling == "mean":
        # As PooledClassifier, but for the norm of its head.
        config.classifier_activation = "tanh"
        config.classifier_dropout = DROPOUT
        config.classifier_bias = True
    if config.pad_token_id is None or _finds_last_token(config):
        config.pad_token_id = padding_id(load_own_tokenizer(model))
    network, _ = load_with_head(
        auto_class(per_word), model, config=config, ignore_mismatched_sizes=True
    )
    return network
