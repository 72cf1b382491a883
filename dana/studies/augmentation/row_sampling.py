"""Sampling with a seed of its own for each row: logits in, top-k and top-p logits with Gumbel noise out."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class RowSampling:
    """Makes greedy decoding draw a sample of each row, by the row's own random numbers.

    The largest of logits plus independent Gumbel noise is a draw from their softmax, so the token that greedy decoding
    takes is a sample. torch's global generator, which ``do_sample`` uses, would make a row depend on the others.

    Args:
        top_k: Most tokens that can be drawn.
        top_p: Share of the probability that the drawable tokens hold.
        seeds: One a row.

    References:
        Gumbel 1954; Maddison, Tarlow and Minka 2014, A* sampling, section 2.
    """

    def __init__(self, top_k: int, top_p: float, seeds: Sequence[int]) -> None:
        from transformers import TopKLogitsWarper, TopPLogitsWarper

        self.warpers: list[Any] = [TopKLogitsWarper(top_k), *([TopPLogitsWarper(top_p)] if top_p < 1 else [])]
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]  # of the CPU: alike on any device

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Logits of shape (rows, vocabulary) to such of which the largest of a row is the token drawn."""
        for warper in self.warpers:
            scores = warper(input_ids, scores)
        width = scores.shape[1]
        uniform = torch.stack([torch.rand(width, generator=each, dtype=torch.float64) for each in self.generators])
        gumbel = -torch.log(-torch.log(uniform))
        return scores + gumbel.to(scores)
