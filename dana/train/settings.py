"""Settings of a training run, checked before any work; the model and torch are left alone."""

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from dana.core.config import require
from dana.core.registry import OBJECTIVES
from dana.train import DENOMINATORS, LAYOUTS
from dana.train.schedule import SCHEDULES, falling_steps, rate_at

if TYPE_CHECKING:
    from dana.train.objectives.base import Objective


RESUME = ("auto", "never")
FINAL = ("last", "best")


@dataclass(frozen=True)
class Execution:
    """How a run is executed: speed, memory, what is saved. The outcome does not depend on it.

    Attributes:
        micro_batch_tokens: Most tokens, padding included, in one forward pass on one rank.
        layout: ``padded`` or ``unpadded`` (:mod:`dana.train.layout`); ``auto`` is unpadded where the device has an
            attention kernel for it, else padded.
        gradient_checkpointing: Compute each layer again on the way back instead of remembering it: less memory, a
            third slower.
        save_every: Optimizer steps between checkpoints; 0 saves only when told to stop.
        export_every: Optimizer steps between Hugging Face folders, under ``OUT-exports``; 0 writes none on the way.
        extendable: Keep, under ``OUT-extend``, the state from which a longer run can go on.
        extend: Folder of a finished model that is extendable: go on from there, as if this run had done it all.
        resume: ``auto`` goes on from the newest sound checkpoint, ``never`` starts again.
        trackers: Besides ``training.jsonl``: none unless named; ``tensorboard``, or any other that Accelerate knows.
    """

    micro_batch_tokens: int = 8192
    layout: str = "auto"
    gradient_checkpointing: bool = False
    save_every: int = 500
    export_every: int = 0
    extendable: bool = False
    extend: str | None = None
    resume: str = "auto"
    trackers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for key, least in (("micro_batch_tokens", 1), ("save_every", 0), ("export_every", 0)):
            require(getattr(self, key) >= least, key, getattr(self, key), f"at least {least}")
        for key, known in (("layout", ("auto", *LAYOUTS)), ("resume", RESUME)):
            require(getattr(self, key) in known, key, getattr(self, key), f"one of {', '.join(known)}")
        require(self.extend != "", "extend", self.extend, "a finished model's folder, or null")


@dataclass(frozen=True)
class HeadWarmup:
    """How a new head is trained before anything else.

    Attributes:
        steps: Optimizer steps; 0 leaves it as initialised.
        batch_size: Examples a step.
        learning_rate: Peak.
    """

    steps: int = 100
    batch_size: int = 32
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        require(self.steps >= 0, "head_warmup.steps", self.steps, "at least 0")
        require(self.batch_size >= 1, "head_warmup.batch_size", self.batch_size, "at least 1")
        require(self.learning_rate > 0, "head_warmup.learning_rate", self.learning_rate, "above 0")


@dataclass(frozen=True)
class TrainSettings:
    """A training run.

    Attributes:
        objective: What the model learns to predict, a spec of a class in the entry-point group ``dana.objectives``:
            ``masked:mask_rate=0.15,whole_word=false`` or ``next_sentence``, which has the same parameters.
        steps: Stop after so many optimizer steps. The paper: 50,000 discrete, 100,000 continuous.
        tokens: Or stop when so many tokens were seen, so that arms are equal.
        epochs: Or go so many times through the text that was kept. None of the three: once.
        batch_size: Examples in an optimizer step, over all ranks. The paper uses 256.
        batch_tokens: Or tokens in an optimizer step.
        max_tokens: Most tokens of an example, special tokens included.
        learning_rate: The peak. The paper uses 1e-4.
        warmup: Share of the steps with a rising rate. The paper uses 0.01.
        warmup_steps: Or how many.
        schedule: What the rate does then, :mod:`dana.train.schedule`: ``linear`` fall (the paper), ``cosine``,
            ``constant``, or ``wsd``: constant, and a linear fall at the end.
        floor: Where the rate falls to, as a share of the peak.
        cooldown: Share of the steps that fall under ``wsd``.
        weight_decay: AdamW's, on matrices only.
        betas: AdamW's, two numbers.
        eps: AdamW's.
        clip: Largest gradient norm.
        replay: Share of each step's examples drawn from the corpus as it is, with weight 1, against forgetting.
        denominator: ``batch`` (the paper), ``weight_sum`` or ``token_count``; see :mod:`dana.train.objectives.batch`.
        seed: Decides masks, order, dropout and new weights.
        evaluations: How often to measure held-out losses between the first step and the last.
        eval_every: Or after how many steps each.
        evaluation_tokens: Most tokens of each held-out text to measure on.
        final: ``last``, or ``best``: the evaluated weights with the lowest loss on held-out task text.
        execution: How to run it.
    """

    objective: str = "masked"
    steps: int | None = None
    tokens: int | None = None
    epochs: float | None = None
    batch_size: int = 256
    batch_tokens: int | None = None
    max_tokens: int = 256
    learning_rate: float = 1e-4
    warmup: float = 0.01
    warmup_steps: int | None = None
    schedule: str = "linear"
    floor: float = 0.0
    cooldown: float = 0.2
    weight_decay: float = 0.01
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    eps: float = 1e-8
    clip: float = 1.0
    replay: float = 0.0
    denominator: str = "batch"
    seed: int = 0
    evaluations: int = 4
    eval_every: int | None = None
    evaluation_tokens: int = 50_000
    final: str = "last"
    execution: Execution = field(default_factory=Execution)

    def __post_init__(self) -> None:
        self._check_budget()
        self._check_descent()
        require(0 <= self.replay < 1, "replay", self.replay, "in [0, 1)")
        for key, known in (("denominator", DENOMINATORS), ("final", FINAL)):
            require(getattr(self, key) in known, key, getattr(self, key), f"one of {', '.join(known)}")
        budget = self.execution.micro_batch_tokens
        require(budget >= self.max_tokens, "micro_batch_tokens", budget, f"at least max_tokens={self.max_tokens}")
        layout, layouts = self.execution.layout, ("auto", *self.make_objective().layouts)
        require(layout in layouts, "layout", layout, f"{' or '.join(layouts)} with objective={self.objective}")
        if self.execution.extendable or self.execution.extend:
            self._check_extension()

    def _check_extension(self) -> None:
        name = "extendable" if self.execution.extendable else "extend"
        endless = self.schedule in ("constant", "wsd")
        require(endless, "schedule", self.schedule, f"constant or wsd with {name}: others know the end beforehand")
        alike = self.warmup_steps is not None or self.warmup == 0
        require(alike, "warmup", self.warmup, f"0, or given as warmup_steps, with {name}: a longer run's share is more")
        last = self.final == "last" or not self.execution.extend
        require(last, "final", self.final, "last with extend: the best so far was not kept")

    def _check_budget(self) -> None:
        for key in ("steps", "tokens", "batch_tokens", "eval_every"):
            value = getattr(self, key)
            require(value is None or value >= 1, key, value, "at least 1, or null")
        many = self.epochs is None or 0 < self.epochs < math.inf
        require(many, "epochs", self.epochs, "above 0 and finite, or null")
        for key, other in (("steps", "tokens"), ("steps", "epochs"), ("tokens", "epochs")):
            alone = getattr(self, key) is None or getattr(self, other) is None
            require(alone, key, getattr(self, key), f"null when {other} is given")
        for key, least in (("batch_size", 1), ("max_tokens", 3), ("evaluations", 0), ("evaluation_tokens", 1)):
            require(getattr(self, key) >= least, key, getattr(self, key), f"at least {least}")
        fits = self.batch_tokens is None or self.batch_tokens >= self.max_tokens
        require(fits, "batch_tokens", self.batch_tokens, f"at least max_tokens={self.max_tokens}")

    def _check_descent(self) -> None:
        require(0 < self.learning_rate < math.inf, "learning_rate", self.learning_rate, "above 0 and finite")
        require(0 <= self.warmup < 1, "warmup", self.warmup, "in [0, 1)")
        rising = self.warmup_steps
        require(rising is None or rising >= 0, "warmup_steps", rising, "at least 0, or null")
        require(self.schedule in SCHEDULES, "schedule", self.schedule, f"one of {', '.join(SCHEDULES)}")
        require(0 <= self.floor <= 1, "floor", self.floor, "in [0, 1]")
        require(0 < self.cooldown <= 1, "cooldown", self.cooldown, "in (0, 1]")
        require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "at least 0")
        fits = len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)
        require(fits, "betas", self.betas, "two numbers in [0, 1)")
        for key in ("eps", "clip"):
            require(getattr(self, key) > 0, key, getattr(self, key), "above 0")

    def make_objective(self) -> "Objective":
        """The objective that the spec names.

        Raises:
            PluginError: If there is none of that name.
            ConfigError: If a parameter is unknown, or out of its range.
        """
        return OBJECTIVES.create(self.objective)

    def rate_at(self, step: int, steps: int) -> float:
        """The learning rate of a step, from 0, of a run of so many."""
        rising = self._rising(steps)
        return rate_at(step, steps, self.learning_rate, rising, self.schedule, self.floor, self.cooldown)

    def shared_steps(self, steps: int) -> int:
        """Of a run of so many steps, how many are the same in every longer one; the last may be short of examples."""
        return min(steps - 1, steps - falling_steps(steps, self._rising(steps), self.schedule, self.cooldown))

    def _rising(self, steps: int) -> int:
        return round(self.warmup * steps) if self.warmup_steps is None else self.warmup_steps

    def decisive(self) -> dict[str, Any]:
        """What the outcome depends on: all settings but those of the execution."""
        own = {name: value for name, value in asdict(self).items() if name not in ("execution", "objective")}
        return own | self.make_objective().decisive()


@dataclass(frozen=True)
class AdaptSettings(TrainSettings):
    """How a model is adapted: :class:`~dana.train.settings.TrainSettings`, and what a missing head needs.

    Attributes:
        head_warmup: For a checkpoint without a language-model head.
        dropout: Of every layer during the run; None leaves the checkpoint's own, which the result has in any case.
    """

    head_warmup: HeadWarmup = field(default_factory=HeadWarmup)
    dropout: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.dropout is None or 0 <= self.dropout < 1, "dropout", self.dropout, "in [0, 1), or null")


@dataclass(frozen=True)
class PretrainSettings(TrainSettings):
    """How a model is made from scratch.

    Attributes:
        architecture: ``bert`` or ``modernbert``, see :func:`dana.models.language_model.new_encoder`.
        vocabulary: Most entries of the tokenizer.
        lowercase: Whether the tokenizer folds case and accents.
        dropout: 0 suits runs that see their text a few times.
        max_positions: Positions the model can tell apart, at least ``max_tokens``.
    """

    learning_rate: float = 1e-3
    warmup: float = 0.05
    architecture: str = "modernbert"
    vocabulary: int = 8192
    lowercase: bool = True
    dropout: float = 0.0
    max_positions: int = 512

    def __post_init__(self) -> None:
        from dana.models.language_model import ARCHITECTURES

        super().__post_init__()
        known = self.architecture in ARCHITECTURES
        require(known, "architecture", self.architecture, f"one of {', '.join(ARCHITECTURES)}")
        require(self.vocabulary >= 64, "vocabulary", self.vocabulary, "at least 64")
        require(0 <= self.dropout < 1, "dropout", self.dropout, "in [0, 1)")
        fits = self.max_positions >= self.max_tokens
        require(fits, "max_positions", self.max_positions, f"at least max_tokens={self.max_tokens}")
