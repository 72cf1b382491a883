"""What decides a training run, checked before any work."""

from dataclasses import dataclass

from dana.config import require
from dana.mlm.loss import DENOMINATORS


@dataclass(frozen=True)
class TrainSettings:
    """A training run.

    Attributes:
        steps: Stop after so many optimizer steps. The paper: 50,000 discrete, 100,000 continuous.
        tokens: Or stop when so many tokens were seen, so that arms are equal. Neither: once through the text.
        batch_size: Examples in an optimizer step, over all ranks. The paper uses 256.
        batch_tokens: Or tokens in an optimizer step.
        max_tokens: Most tokens of an example, special tokens included.
        learning_rate: The peak. The paper uses 1e-4.
        warmup: Share of the steps with a rising rate, which then falls to 0. The paper uses 0.01.
        weight_decay: AdamW's, on matrices only.
        clip: Largest gradient norm.
        mask_rate: Share of the tokens to hide.
        denominator: ``batch`` (the paper), ``weight_sum`` or ``token_count``; see :mod:`dana.mlm.loss`.
        seed: Decides masks, order, dropout and new weights.
        evaluations: How often to measure held-out losses between the first step and the last.
        evaluation_tokens: Most tokens of each held-out text to measure on.
        micro_batch_tokens: Most tokens, padding included, in one forward pass on one rank. Changes speed and
            memory, not the outcome.
    """

    steps: int | None = None
    tokens: int | None = None
    batch_size: int = 256
    batch_tokens: int | None = None
    max_tokens: int = 256
    learning_rate: float = 1e-4
    warmup: float = 0.01
    weight_decay: float = 0.01
    clip: float = 1.0
    mask_rate: float = 0.15
    denominator: str = "batch"
    seed: int = 0
    evaluations: int = 4
    evaluation_tokens: int = 50_000
    micro_batch_tokens: int = 8192

    def __post_init__(self) -> None:
        for key in ("steps", "tokens", "batch_tokens"):
            value = getattr(self, key)
            require(value is None or value >= 1, key, value, "at least 1, or null")
        require(self.steps is None or self.tokens is None, "steps", self.steps, "null when tokens is given")
        require(self.batch_size >= 1, "batch_size", self.batch_size, "at least 1")
        require(self.max_tokens >= 3, "max_tokens", self.max_tokens, "at least 3")
        fits = self.batch_tokens is None or self.batch_tokens >= self.max_tokens
        require(fits, "batch_tokens", self.batch_tokens, f"at least max_tokens={self.max_tokens}")
        require(self.learning_rate > 0, "learning_rate", self.learning_rate, "above 0")
        require(0 <= self.warmup < 1, "warmup", self.warmup, "in [0, 1)")
        require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "at least 0")
        require(self.clip > 0, "clip", self.clip, "above 0")
        require(0 < self.mask_rate < 1, "mask_rate", self.mask_rate, "in (0, 1)")
        require(
            self.denominator in DENOMINATORS,
            "denominator",
            self.denominator,
            f"one of {', '.join(DENOMINATORS)}",
        )
        require(self.evaluations >= 0, "evaluations", self.evaluations, "at least 0")
        require(self.evaluation_tokens >= 1, "evaluation_tokens", self.evaluation_tokens, "at least 1")
        fits = self.micro_batch_tokens >= self.max_tokens
        require(fits, "micro_batch_tokens", self.micro_batch_tokens, f"at least max_tokens={self.max_tokens}")
