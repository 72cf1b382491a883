"""Define the settings of a training run; they are checked without loading a model or torch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dana.core.config import check_fields, require
from dana.core.registry import OBJECTIVES
from dana.train import DENOMINATORS, LAYOUTS
from dana.train.schedule import SCHEDULES, rate_at

if TYPE_CHECKING:
    from dana.train.objectives.base import Objective


RESUME = ("auto", "never")
FINAL = ("last", "best")
OPTIMIZER = ("carry", "reset")
PARTS = ("selected", "task", "general")  # of a mixture
MOST = 10**15  # tokens of a run; far more overflow the indices of its steps
MOST_ROWS = 1 << 20  # of a table of embeddings; far more exceed any memory


@dataclass(frozen=True)
class Execution:
    """How a run is executed: speed, memory, checkpoints. The result does not depend on it.

    Attributes:
        micro_batch_tokens: Most tokens, padding included, in one forward pass on one rank.
        layout: ``padded`` or ``unpadded`` (:mod:`dana.train.layout`); ``auto`` is unpadded where
            the device has an attention kernel for it, else padded.
        gradient_checkpointing: Recompute activations in the backward pass: less memory, a third
            slower.
        save_every: Optimizer steps between checkpoints; 0 saves only when a signal asks to stop.
        export_every: Optimizer steps between Hugging Face folders, under ``OUT-exports``; 0 writes
            none.
        resume: ``auto`` resumes from the newest checkpoint, ``never`` starts again.
        trackers: Experiment trackers besides ``training.jsonl``: ``tensorboard``, or any other that
            Accelerate knows.
    """

    micro_batch_tokens: int = 8192
    layout: str = "auto"
    gradient_checkpointing: bool = False
    save_every: int = 500
    export_every: int = 0
    resume: str = "auto"
    trackers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_fields(
            self,
            micro_batch_tokens="at least 1",
            save_every="at least 0",
            export_every="at least 0",
        )
        check_fields(self, layout=("auto", *LAYOUTS), resume=RESUME)


@dataclass(frozen=True)
class HeadWarmup:
    """How a new head is trained before the run.

    Attributes:
        steps: Optimizer steps; 0 keeps its initial weights.
        batch_size: Examples per step.
        learning_rate: Peak learning rate.
    """

    steps: int = 100
    batch_size: int = 32
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        check_fields(self, steps="at least 0", batch_size="at least 1", learning_rate="above 0")


@dataclass(frozen=True)
class TrainSettings:
    """Settings of a training run.

    Attributes:
        objective: What the model learns to predict, a spec of a class in the entry-point group
            ``dana.objectives``: ``masked:mask_rate=0.15,whole_word=false``, ``next_sentence``,
            which has the same parameters, ``causal`` or ``translation:smoothing=0.1``.
        steps: Stop after so many optimizer steps. The paper: 50,000 discrete, 100,000 continuous.
        tokens: Or stop after so many tokens, so that arms are equal.
        epochs: Or stop after so many passes over the selected text. Without steps, tokens and
            epochs: one epoch.
        batch_size: Examples in an optimizer step, over all ranks. The paper uses 256.
        batch_tokens: Or tokens in an optimizer step.
        max_tokens: Most tokens of an example, special tokens included.
        learning_rate: Peak learning rate. The paper uses 1e-4.
        warmup: Share of the steps with a rising rate. The paper uses 0.01.
        warmup_steps: Or the number of these steps.
        schedule: Learning rate after the warm-up, :mod:`dana.train.schedule`: ``linear`` decay (the
            paper), ``cosine``, ``1-sqrt``, ``inverse-sqrt``, ``constant``, or ``wsd``: constant,
            with linear decay at the end.
        floor: Final learning rate, as a share of the peak.
        cooldown: Share of the steps in the decay of ``wsd``.
        weight_decay: Of AdamW, on matrices only.
        betas: Of AdamW, two numbers.
        eps: Of AdamW.
        clip: Largest gradient norm.
        denominator: ``batch`` (the paper), ``weight_sum`` or ``token_count``; see
            :mod:`dana.train.objectives.batch`.
        seed: Decides masks, order, dropout and new weights.
        evaluations: Number of evaluations on held-out text between the first step and the last.
        eval_every: Or the number of steps between them.
        evaluation_tokens: Most tokens of each held-out text to evaluate on.
        final: ``last``, or ``best``: the evaluated weights with the lowest loss on held-out task
            text.
        execution: Speed, memory and checkpoints.
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
        check_fields(self, denominator=DENOMINATORS, final=FINAL)
        budget, minimum = (
            self.execution.micro_batch_tokens,
            f"at least max_tokens={self.max_tokens}",
        )
        require(budget >= self.max_tokens, "execution.micro_batch_tokens", budget, minimum)
        layout, layouts = self.execution.layout, ("auto", *self.make_objective().layouts)
        allowed_values = f"{' or '.join(layouts)} with objective={self.objective}"
        require(layout in layouts, "execution.layout", layout, allowed_values)

    def _check_budget(self) -> None:
        counts = ("steps", "tokens", "batch_tokens", "eval_every")
        check_fields(self, **dict.fromkeys(counts, f"from 1 to {MOST}, or null"))
        many = self.epochs is None or 0 < self.epochs <= 1e6
        require(many, "epochs", self.epochs, "above 0 and at most 1e6, or null")
        for key, other in (("steps", "tokens"), ("steps", "epochs"), ("tokens", "epochs")):
            alone = getattr(self, key) is None or getattr(self, other) is None
            require(alone, key, getattr(self, key), f"null when {other} is given")
        check_fields(
            self, **dict.fromkeys(("batch_size", "evaluation_tokens"), f"from 1 to {MOST}")
        )
        check_fields(self, max_tokens=f"from 3 to {MOST}", evaluations=f"from 0 to {MOST}")
        fits = self.batch_tokens is None or self.batch_tokens >= self.max_tokens
        require(fits, "batch_tokens", self.batch_tokens, f"at least max_tokens={self.max_tokens}")

    def _check_descent(self) -> None:
        require(
            0 < self.learning_rate < math.inf,
            "learning_rate",
            self.learning_rate,
            "above 0 and finite",
        )
        check_fields(
            self, warmup="in [0, 1)", warmup_steps="at least 0, or null", schedule=SCHEDULES
        )
        check_fields(self, floor="in [0, 1]", cooldown="in (0, 1]", weight_decay="at least 0")
        check_fields(self, eps="above 0", clip="above 0")
        fits = len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)
        require(fits, "betas", self.betas, "two numbers in [0, 1)")

    def make_objective(self) -> "Objective":
        """Make the objective that the spec names.

        Raises:
            PluginError: If no objective has this name.
            ConfigError: If a parameter is unknown or out of range.
        """
        return OBJECTIVES.create(self.objective)

    def by_phase(self) -> "Sequence[TrainSettings]":
        """Return the settings of each phase of the run: here of the only one."""
        return [self]

    def rate_at(self, step: int, steps: int) -> float:
        """Return the learning rate of a step, from 0, in a run of `steps` steps."""
        warmup_steps = self.warmup_steps
        if warmup_steps is None:
            warmup_steps = round(self.warmup * steps)
        return rate_at(
            step, steps, self.learning_rate, warmup_steps, self.schedule, self.floor, self.cooldown
        )

    def decisive(self) -> dict[str, Any]:
        """Return the settings that decide the result: not the execution, the mixture (an input) or an empty list."""
        others = (
            "execution",
            "objective",
            "mix",
            *(["adapter"] if getattr(self, "adapter", None) is None else []),
        )
        values = {
            name: value
            for name, value in asdict(self).items()
            if name not in others and value != []
        }
        return values | self.make_objective().decisive()


def check_mix(key: str, mix: Mapping[str, float]) -> None:
    """Check the shares of a mixture, by the name of the setting."""
    fits = all(
        name in PARTS and isinstance(share, int | float) and 0 < share <= 1
        for name, share in mix.items()
    )
    allowed_values = f"shares above 0 of {', '.join(PARTS)} that sum to 1"
    require(fits and (not mix or abs(sum(mix.values()) - 1) < 1e-9), key, mix, allowed_values)


@dataclass(frozen=True)
class PhaseSettings:
    """Settings of one phase of an adaptation; what is empty or null is that of the adaptation.

    Attributes:
        tokens: Tokens of the phase.
        mix: Shares of its predicted tokens by their text. A text goes on where the phases before
            stopped.
        mask_rate: Share of the tokens to mask.
        learning_rate: Peak learning rate.
        schedule: Learning rate over the phase.
        optimizer: ``carry`` keeps Adam's moments of the phase before, and has no warm-up; ``reset``
            begins new ones.
    """

    tokens: int
    mix: dict[str, float] = field(default_factory=dict)
    mask_rate: float | None = None
    learning_rate: float | None = None
    schedule: str | None = None
    optimizer: str = "carry"

    def __post_init__(self) -> None:
        check_mix("mix", self.mix)
        check_fields(
            self,
            tokens=f"from 1 to {MOST}",
            mask_rate="in (0, 1), or null",
            learning_rate="above 0, or null",
        )
        check_fields(self, schedule=SCHEDULES) if self.schedule is not None else None
        check_fields(self, optimizer=OPTIMIZER)


@dataclass(frozen=True)
class AdaptSettings(TrainSettings):
    """Settings of an adaptation: :class:`~dana.train.settings.TrainSettings`, mixture, phases, dropout, new head.

    Attributes:
        mix: Shares of the predicted tokens of every step by their text: ``selected`` (with its
            weights), ``task`` (the task's own text to fit on) and ``general`` (the whole corpus,
            against forgetting), the last two with weight 1: ``{task: 0.3, selected: 0.7}``. Empty:
            selected text only, or the whole corpus without weights.
        phases: Parts of the run, one after another, each a mapping with ``tokens`` and any of
            ``mix``, ``mask_rate``, ``learning_rate``, ``schedule`` and ``optimizer``, which is
            ``carry`` or ``reset``. Empty: one phase.
        head_warmup: Training of a new head, for a checkpoint without one for language modelling.
        dropout: Dropout of every layer during the run; None keeps the checkpoint's. The saved model
            has the checkpoint's dropout in any case.
        adapter: Train low-rank adapters and not the weights, ``lora:r=16,alpha=32`` or ``dora:...``
            (:class:`dana.models.adapters.Adapter`); the result is their folder. None trains all
            weights.
    """

    mix: dict[str, float] = field(default_factory=dict)
    phases: list[PhaseSettings] = field(default_factory=list)
    head_warmup: HeadWarmup = field(default_factory=HeadWarmup)
    dropout: float | None = None
    adapter: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_mix("mix", self.mix)
        check_fields(self, dropout="in [0, 1), or null")
        if self.adapter is not None:
            from dana.models.adapters import Adapter

            Adapter.of(self.adapter)
        if self.phases:
            self._check_phases()

    def _check_phases(self) -> None:
        total = sum(phase.tokens for phase in self.phases)
        for key in ("steps", "epochs"):
            require(
                getattr(self, key) is None,
                key,
                getattr(self, key),
                "null with phases, which have their tokens",
            )
        require(
            self.tokens in (None, total),
            "tokens",
            self.tokens,
            f"null, or the {total} of all phases",
        )
        object.__setattr__(self, "tokens", total)
        for index, phase in enumerate(self.phases):
            fits = phase.mask_rate is None or hasattr(self.make_objective(), "mask_rate")
            allowed_values = f"null: objective={self.objective} has no mask rate"
            require(fits, f"phases[{index}].mask_rate", phase.mask_rate, allowed_values)

    def by_phase(self) -> "Sequence[AdaptSettings]":
        """Return the settings of each phase by itself."""
        return [self._in_phase(phase, index) for index, phase in enumerate(self.phases)] or [self]

    def _in_phase(self, phase: PhaseSettings, index: int) -> "AdaptSettings":
        values: dict[str, Any] = {
            "phases": [],
            "tokens": phase.tokens,
            "mix": phase.mix or self.mix,
        }
        names = ("learning_rate", "schedule")
        values |= {name: value for name in names if (value := getattr(phase, name)) is not None}
        if phase.mask_rate is not None:
            name, _, parameters = self.objective.partition(":")
            others = [
                one
                for one in parameters.split(",")
                if one and one.partition("=")[0].strip() != "mask_rate"
            ]
            values["objective"] = f"{name}:{','.join([*others, f'mask_rate={phase.mask_rate}'])}"
        if index and phase.optimizer == "carry":  # a warm-up is for new moments
            values |= {"warmup": 0.0, "warmup_steps": None}
        return replace(self, **values)

    def without_first(self, tokens: int) -> "AdaptSettings":
        """Return the settings of the rest of the run, after its first tokens."""
        phases, ahead = [], tokens
        for phase in self.phases:
            start = min(ahead, phase.tokens)
            ahead -= start
            phases += [replace(phase, tokens=phase.tokens - start)] if start < phase.tokens else []
        return replace(self, tokens=(self.tokens or 0) - tokens, phases=phases)

    @property
    def total_mix(self) -> dict[str, float]:
        """Shares of the predicted tokens of the whole run by their text."""
        if not self.phases:
            return self.mix
        sizes = [((one.tokens or 0) / (self.tokens or 1), one.mix) for one in self.by_phase()]
        shares = {name: sum(size * mix.get(name, 0.0) for size, mix in sizes) for name in PARTS}
        return {name: share for name, share in shares.items() if share}


@dataclass(frozen=True)
class PretrainSettings(TrainSettings):
    """Settings of pretraining from scratch.

    Attributes:
        architecture: ``bert`` or ``modernbert``, see
            :func:`dana.models.language_model.new_encoder`.
        vocabulary: Largest size of the tokenizer's vocabulary.
        lowercase: Make the tokenizer fold case and accents.
        dropout: Dropout of every layer; 0 suits runs of a few epochs.
        max_positions: Number of position embeddings, at least ``max_tokens``.
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
        check_fields(
            self,
            architecture=ARCHITECTURES,
            vocabulary=f"from 64 to {MOST_ROWS}",
            dropout="in [0, 1)",
        )
        fits = self.max_tokens <= self.max_positions <= MOST_ROWS
        require(
            fits,
            "max_positions",
            self.max_positions,
            f"from max_tokens={self.max_tokens} to {MOST_ROWS}",
        )
