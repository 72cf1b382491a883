"""Classifiers of texts and of words: a backbone's hidden states in, logits of the classes out. DANA, section 4."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dana.core.errors import ArtifactError
from dana.core.rng import derive_seed
from dana.models.folder import check_checkpoint, load_backbone, load_own_tokenizer, loading, located

DROPOUT = 0.1


def init_head(layers: Sequence[nn.Linear], seed: int) -> None:
    """Give the layers of a head, all of one input width, their first weights."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in layers:
            # Keeps the size of what passes through. At 768 it is BERT's 0.02; with 0.02 a narrow model merges
            # classes and stays there.
            spread = (3 * layer.in_features) ** -0.5
            layer.weight.copy_(torch.randn(layer.weight.shape, generator=random) * spread)
            layer.bias.zero_()


class WordClassifier(nn.Module):
    """Dropout and a linear layer over a backbone's hidden states, as BERT's authors tag words.

    The head's first weights are a function of seed, width and classes alone, as those of
    :class:`dana.models.classifier.Classifier`.

    References:
        Devlin et al. 2019, BERT, section 5.3 (the first sub-token stands for its word).
    """

    def __init__(self, backbone: Any, classes: int, seed: int) -> None:
        super().__init__()
        self.backbone = backbone
        width = backbone.config.hidden_size
        self.dropout = nn.Dropout(DROPOUT)
        self.out = nn.Linear(width, classes)
        init_head((self.out,), derive_seed(seed, "finetune", "word_head", width, classes))

    def forward(self, input_ids: Tensor, attention_mask: Tensor, first: Tensor) -> Tensor:
        """Logits of shape (words, classes), row by row.

        Args:
            input_ids: Shape (rows, width).
            attention_mask: Same shape, 1 on real tokens.
            first: Same shape, bool: which tokens are the first of a word.
        """
        hidden = self.backbone(input_ids=input_ids, attention_mask=attention_mask)[0]
        return self.out(self.dropout(hidden[first]))


class Classifier(nn.Module):
    """A backbone's first token or the mean of all, dropout, a tanh layer, dropout, a linear layer.

    The head's first weights are a function of seed, width and classes alone, so that two checkpoints compared
    on a seed start from the same head.
    """

    def __init__(self, backbone: Any, classes: int, seed: int, pooling: str = "cls") -> None:
        super().__init__()
        self.backbone, self.pooling = backbone, pooling
        width = backbone.config.hidden_size
        self.dropout = nn.Dropout(DROPOUT)
        self.dense = nn.Linear(width, width)
        self.out = nn.Linear(width, classes)
        init_head((self.dense, self.out), derive_seed(seed, "finetune", "head", width, classes))

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Logits of shape (rows, classes).

        Args:
            input_ids: Shape (rows, width).
            attention_mask: Same shape, 1 on real tokens.
            token_type_ids: Same shape, 1 on tokens of the second text; a backbone without such is not told.
        """
        given = inputs_of(self.backbone, input_ids, attention_mask, token_type_ids)
        hidden = self.backbone(**given)[0]
        pooled = hidden[:, 0] if self.pooling == "cls" else _mean(hidden, attention_mask)
        return self.out(self.dropout(torch.tanh(self.dense(self.dropout(pooled)))))


def _mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """The mean over real tokens, special ones included; shape (rows, size of a hidden state)."""
    real = mask.unsqueeze(-1).float()
    return (hidden.float() * real).sum(1) / real.sum(1)


def inputs_of(model: Any, input_ids: Tensor, attention_mask: Tensor, types: Tensor | None = None) -> dict[str, Tensor]:
    """The inputs that a model of transformers takes: token types only where it tells two of them apart."""
    given = {"input_ids": input_ids, "attention_mask": attention_mask}
    told = types is not None and getattr(model.config, "type_vocab_size", 0) > 1
    return {**given, "token_type_ids": types} if types is not None and told else given


def new_classifier(model: str, classes: int, seed: int, per_word: bool = False, pooling: str = "cls") -> Any:
    """A checkpoint with a fresh head, of texts or of words, in single precision whatever it was saved in.

    Args:
        model: Folder or Hub name.
        classes: Logits.
        seed: Decides the head's first weights.
        per_word: Whether each word has logits.
        pooling: ``cls``, the first token stands for a text, or ``mean``, all of them do.

    Raises:
        ArtifactError: If there is no such checkpoint, or its weights are pickled.
    """
    backbone = load_backbone(model)
    return WordClassifier(backbone, classes, seed) if per_word else Classifier(backbone, classes, seed, pooling)


def load_tokenizer(model: str) -> tuple[Any, Any]:
    """A checkpoint's configuration and tokenizer.

    Args:
        model: Folder with safetensors, or Hub name.

    Raises:
        ArtifactError: If there is no such model, or no tokenizer of its own.
    """
    from transformers import AutoConfig

    check_checkpoint(model)
    with loading(model):
        config = AutoConfig.from_pretrained(located(model))
    tokenizer = load_own_tokenizer(model)
    # Where a folder has no tokenizer, transformers makes one up that knows only its special tokens.
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ArtifactError(f"{model}: has no tokenizer")
    if len(tokenizer) > config.vocab_size:
        raise ArtifactError(f"{model}: the tokenizer knows {len(tokenizer)} tokens, the model only {config.vocab_size}")
    return config, tokenizer
