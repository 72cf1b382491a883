"""Hyper-parameters of fine-tuning, and the presets every task has."""

from dataclasses import dataclass

from dana.core.config import require


@dataclass(frozen=True)
class Preset:
    """Hyper-parameters of fine-tuning. The defaults are the paper's (DANA section 4).

    Attributes:
        epochs: Times through the training data.
        learning_rate: AdamW's peak.
        batch_size: Examples a step.
        warmup: Share of the steps with a rising rate, which then falls to 0.
        seeds: How many, from 0; or the seeds themselves.
        evaluate: Test the ``last`` epoch, or the ``best`` by the task's metric on the development data.
        max_tokens: Longer texts are cut here, special tokens included.
        pooling: What stands for a text: ``cls``, its first token, or ``mean``, all of its tokens, which suits small
            checkpoints that were trained on masked tokens alone (docs/results/adaptation.md).
    """

    epochs: int = 5
    learning_rate: float = 3e-5
    batch_size: int = 8
    warmup: float = 0.1
    seeds: int | list[int] = 8
    evaluate: str = "last"
    max_tokens: int = 256
    pooling: str = "cls"

    def __post_init__(self) -> None:
        require(self.epochs >= 1, "epochs", self.epochs, "at least 1")
        require(self.learning_rate > 0, "learning_rate", self.learning_rate, "above 0")
        require(self.batch_size >= 1, "batch_size", self.batch_size, "at least 1")
        require(0 <= self.warmup < 1, "warmup", self.warmup, "in [0, 1)")
        seeds = self.seed_list
        require(len(seeds) >= 1, "seeds", self.seeds, "at least 1, or a list of seeds")
        require(len(set(seeds)) == len(seeds), "seeds", self.seeds, "distinct")
        require(min(seeds) >= 0, "seeds", self.seeds, "not negative")
        require(self.evaluate in ("last", "best"), "evaluate", self.evaluate, "last or best")
        require(self.max_tokens >= 3, "max_tokens", self.max_tokens, "at least 3")
        require(self.pooling in ("cls", "mean"), "pooling", self.pooling, "cls or mean")

    @property
    def seed_list(self) -> list[int]:
        """The seeds, in the order they are run."""
        return list(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds


# What every task has; a card replaces single values, and may add presets of its own.
PRESETS = {
    "paper": Preset(),
    "default": Preset(batch_size=16, evaluate="best"),
    "quick": Preset(epochs=3, learning_rate=5e-5, batch_size=16, seeds=3, max_tokens=128),
}
