"""Classifier of words: the backbone's hidden state of each word's first token in, logits of the classes out."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dana.core.rng import derive_seed

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
