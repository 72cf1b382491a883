"""Define the settings of tasks: fine-tuning presets, decontamination, size of the quickstart's harvest."""

from dataclasses import dataclass, field

from dana.core.config import check_fields, require


@dataclass(frozen=True)
class Preset:
    """Hyper-parameters of fine-tuning. The defaults are the paper's (DANA section 4).

    Attributes:
        epochs: Epochs over the training data.
        steps: Least number of steps: further epochs follow until there are so many. Failed runs on
            little data are mostly runs of too few steps (Mosbach et al. 2021; Zhang et al. 2021).
        learning_rate: Peak learning rate of AdamW; ``auto`` finds one on a part of the training
            data.
        batch_size: Examples per step.
        warmup: Share of the steps with a rising rate, which then falls to 0.
        seeds: Number of seeds, from 0; or a list of seeds.
        evaluate: Test the ``last`` epoch, or the ``best`` by the task's metric on the development
            data.
        max_tokens: Longer texts are truncated to so many tokens, special tokens included.
        pooling: Representation of a text: ``cls``, the token that transformers' head uses (the
            first one; for a decoder the last); ``mean`` of all tokens, which suits small
            checkpoints trained only on masked tokens (docs/results/adaptation.md); or ``markers``,
            the first token of each of two marked entities.
    """

    epochs: int = 5
    steps: int = 0
    learning_rate: float | str = 3e-5
    batch_size: int = 8
    warmup: float = 0.1
    seeds: int | list[int] = 8
    evaluate: str = "last"
    max_tokens: int = 256
    pooling: str = "cls"

    def __post_init__(self) -> None:
        check_fields(
            self,
            epochs="at least 1",
            steps="at least 0",
            batch_size="at least 1",
            max_tokens="at least 3",
        )
        rate = self.learning_rate
        is_rate = rate == AUTO if isinstance(rate, str) else rate > 0
        require(is_rate, "learning_rate", rate, f"above 0, or {AUTO}")
        is_small = isinstance(self.seeds, list) or self.seeds <= MOST_SEEDS
        require(is_small, "seeds", self.seeds, f"at most {MOST_SEEDS:,}, or a list of seeds")
        seeds = self.seed_list
        require(len(seeds) >= 1, "seeds", self.seeds, "at least 1, or a list of seeds")
        require(len(set(seeds)) == len(seeds), "seeds", self.seeds, "distinct")
        require(
            min(seeds) >= 0 and max(seeds) < 2**63,
            "seeds",
            self.seeds,
            "from 0 to 9223372036854775807",
        )
        check_fields(
            self, warmup="in [0, 1)", evaluate=("last", "best"), pooling=("cls", "mean", MARKERS)
        )

    @property
    def seed_list(self) -> list[int]:
        """The seeds, in the order they are run."""
        return list(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    def epochs_of(self, examples: int) -> int:
        """Compute the epochs over so many training examples, which give at least :attr:`steps`."""
        in_epoch = -(-examples // self.batch_size)
        return max(self.epochs, -(-self.steps // in_epoch))


AUTO, MARKERS = "auto", "markers"
MOST_SEEDS = 100_000  # of a number of seeds

# Presets of every task; a card overrides single values, and may add presets.
# ``auto`` takes learning rate and pooling from the checkpoint (dana/finetuning/settings.py).
PRESETS = {
    AUTO: Preset(epochs=3, steps=320),
    "paper": Preset(),
    "default": Preset(batch_size=16, evaluate="best"),
    "quick": Preset(epochs=3, learning_rate=5e-5, batch_size=16, seeds=3, max_tokens=128),
}


@dataclass(frozen=True)
class Hygiene:
    """Filters of the training text; none by default.

    Attributes:
        decontaminate: Task cards, by name or YAML file. A document that shares an n-gram or a whole
            sentence with their dev or test texts is removed from the general text and from the task
            text to fit on.
        ngram: Words of an n-gram.
        sentence: Least number of words of a shared sentence.
        near_duplicates: Remove general documents at least this similar to an earlier one (Jaccard
            index of five-word shingles, estimated by MinHash; 0.8 is usual); null keeps them.
        sample: Keep this share of the general documents, drawn by a hash of their text; null keeps
            all. A larger share contains the documents of a smaller one.
    """

    decontaminate: list[str] = field(default_factory=list)
    ngram: int = 13
    sentence: int = 8
    near_duplicates: float | None = None
    sample: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, ngram="at least 1", sentence="at least 1", sample="in (0, 1], or null")
        if self.near_duplicates is not None:
            from dana.corpus.overlap import check_near_duplicates

            check_near_duplicates(self.near_duplicates)


@dataclass(frozen=True)
class HarvestSettings:
    """Size of the corpus that the quickstart harvests from installed packages.

    Attributes:
        general_documents: Most general documents, without planted ones.
        task_documents: Most documents of scipy, with planted ones.
        min_characters: Shorter texts are left out.
        max_characters: Longer texts are truncated.
        seed: Decides which documents are taken, and their split.
    """

    general_documents: int = 1800
    task_documents: int = 1100
    min_characters: int = 200
    max_characters: int = 1200
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, general_documents="at least 50", task_documents="at least 80")
        fits = 0 < self.min_characters < self.max_characters
        require(fits, "min_characters", self.min_characters, "below max_characters")
