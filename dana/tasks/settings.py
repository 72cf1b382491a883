"""Define the settings of tasks: fine-tuning presets and decontamination."""

from dataclasses import field
from typing import Annotated, Literal

from pydantic import Field

from dana.core.errors import SettingError
from dana.core.settings import (
    Count,
    CountOrZero,
    Float,
    Int,
    OneOf,
    Positive,
    Rate,
    Share,
    settings_model,
)

AUTO = "auto"
MARKERS = "markers"
BALANCED = "balanced"  # a class weight: the inverse of the number of texts of the class
EVALUATE = ("last", "best")
POOLINGS = ("cls", "mean", MARKERS)
MOST_SEEDS = 100_000  # of a number of seeds
SeedList = Annotated[list[Annotated[Int, Field(ge=0, lt=2**63)]], Field(min_length=1)]
Seeds = Annotated[Int, Field(ge=1, le=MOST_SEEDS)] | SeedList


@settings_model
class Preset:
    """Hyper-parameters of fine-tuning. The defaults are the paper's (DANA section 4)."""

    epochs: Count = 5
    """Epochs over the training data."""
    steps: CountOrZero = 0
    """Least number of steps: further epochs follow until there are so many. Failed runs on little
    data are mostly runs of too few steps (Mosbach et al. 2021; Zhang et al. 2021)."""
    learning_rate: Positive | Literal["auto"] = 3e-5
    """Peak learning rate of AdamW; auto finds one on a part of the training data."""
    batch_size: Count = 8
    """Examples per step."""
    warmup: Rate = 0.1
    """Share of the steps with a rising rate, which then falls to 0."""
    seeds: Seeds = 8
    """Number of seeds, from 0; or a list of seeds."""
    evaluate: Annotated[str, OneOf(EVALUATE)] = "last"
    """Test the last epoch, or the best by the task's metric on the development data."""
    max_tokens: Annotated[Int, Field(ge=3)] = 256
    """Longer texts are truncated to so many tokens, special tokens included."""
    pooling: Annotated[str, OneOf(POOLINGS)] = "cls"
    """Representation of a text: cls, the token that transformers' head uses (the first one; for a
    decoder the last); mean of all tokens, which suits small checkpoints trained only on masked
    tokens (docs/results/adaptation.md); or markers, the first token of each of two marked entities.
    """

    def __post_init__(self) -> None:
        if isinstance(self.seeds, list) and len(set(self.seeds)) < len(self.seeds):
            raise SettingError("seeds", self.seeds, "distinct")

    @property
    def seed_list(self) -> list[int]:
        """The seeds, in the order they are run."""
        if isinstance(self.seeds, int):
            return list(range(self.seeds))
        return self.seeds

    def epochs_of(self, examples: int) -> int:
        """Compute the epochs over so many training examples, which give at least :attr:`steps`."""
        in_epoch = -(-examples // self.batch_size)
        return max(self.epochs, -(-self.steps // in_epoch))


# Presets of every task; a card overrides single values, and may add presets.
# ``auto`` takes learning rate and pooling from the checkpoint (dana/finetuning/settings.py).
PRESETS = {
    AUTO: Preset(epochs=3, steps=320),
    "paper": Preset(),
    "default": Preset(batch_size=16, evaluate="best"),
    "quick": Preset(epochs=3, learning_rate=5e-5, batch_size=16, seeds=3, max_tokens=128),
}


@settings_model
class Hygiene:
    """Filters of the training text; none by default."""

    decontaminate: list[str] = field(default_factory=list)
    """Task cards, by name or YAML file. A document that shares an n-gram or a whole sentence with
    their dev or test texts is removed from the pool and from the target text to fit on."""
    ngram: Count = 13
    """Words of an n-gram; in scripts without spaces two characters count as a word."""
    sentence: Count = 8
    """Least number of words of a shared sentence."""
    near_duplicates: Float | None = None
    """Remove pool documents at least this similar to an earlier one (Jaccard index of five-word
    shingles, estimated by MinHash; 0.8 is usual); null keeps them."""
    sample: Share | None = None
    """Keep this share of the pool documents, drawn by a hash of their text; null keeps all. A
    larger share contains the documents of a smaller one."""

    def __post_init__(self) -> None:
        if self.near_duplicates is not None:
            from dana.corpus.overlap import check_near_duplicates

            check_near_duplicates(self.near_duplicates)
