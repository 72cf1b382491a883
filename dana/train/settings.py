"""Define the settings of a training run; they are checked without loading a model or torch."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from dana.core.errors import SettingError
from dana.core.registry import OBJECTIVES
from dana.core.settings import (
    Bool,
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
from dana.train import DENOMINATORS, LAYOUTS
from dana.train.schedule import SCHEDULES, rate_at

if TYPE_CHECKING:
    from dana.train.objectives.base import Objective


RESUME = ("auto", "never")
FINAL = ("last", "best")
AUTO = "auto"  # an objective that a pilot chooses; passes of the device's size
OPTIMIZER = ("carry", "reset")
UNLABELLED = "unlabelled"  # the task's texts without labels, also the name of their folder
PARTS = ("selected", "task", UNLABELLED, "pool")  # of a mixture
MOST = 10**15  # tokens of a run; far more overflow the indices of its steps
MOST_ROWS = 1 << 20  # of a table of embeddings; far more exceed any memory
Amount = Annotated[Int, Field(ge=1, le=MOST)]


@settings_model
class Execution:
    """How a run is executed: speed, memory, checkpoints. The result does not depend on it."""

    micro_batch_tokens: Count | Literal["auto"] = "auto"
    """Most tokens, padding included, in one forward pass on one rank; auto is what fits into a GPU's
    memory, up to 65,536 (dana.train.passes), and 8,192 on a CPU or under DeepSpeed and FSDP."""
    layout: Annotated[str, OneOf(("auto", *LAYOUTS))] = "auto"
    """padded or unpadded (dana.train.layout); auto is unpadded where the device has an attention
    kernel for it, else padded."""
    compile: Bool | Literal["auto"] = "auto"
    """Compile the model's layers, so that a GPU starts fewer operators: true, false, or auto, on
    GPUs in runs of about seven minutes or more (dana.train.compiled)."""
    gradient_checkpointing: Bool = False
    """Recompute activations in the backward pass: less memory, a third slower."""
    save_every: CountOrZero = 500
    """Optimizer steps between checkpoints; 0 saves only when a signal asks to stop."""
    export_every: CountOrZero = 0
    """Optimizer steps between Hugging Face folders, under OUT-exports; 0 writes none."""
    resume: Annotated[str, OneOf(RESUME)] = "auto"
    """auto resumes from the newest checkpoint, never starts again."""
    trackers: list[str] = field(default_factory=list)
    """Experiment trackers besides training.jsonl: tensorboard, or any other that Accelerate knows.
    """


@settings_model
class HeadWarmup:
    """How a new head is trained before the run."""

    steps: CountOrZero = 1000
    """Most optimizer steps; 0 keeps its initial weights."""
    batch_size: Count = 32
    """Examples per step."""
    learning_rate: Positive = 1e-3
    """Peak learning rate."""
    margin: Float = 0.3
    """It ends as soon as the loss on held-out pool text is so many nats below that of guessing every
    token by its frequency; a head that does not get there is refused."""


@settings_model
class TrainSettings:
    """Settings of a training run."""

    objective: str = "masked"
    """What the model learns to predict, a spec of a class in the entry-point group dana.objectives:
    masked:mask_rate=0.15,whole_word=false, next_sentence, which has the same parameters,
    position:sentences=2, crops:temperature=0.05, causal or translation:smoothing=0.1; auto lets a
    pilot of dana run choose (docs/guide/objectives.md)."""
    steps: Amount | None = None
    """Stop after so many optimizer steps. The paper: 50,000 discrete, 100,000 continuous."""
    tokens: Amount | None = None
    """Or stop after so many tokens, so that arms are equal."""
    epochs: Annotated[Float, Field(gt=0, le=1_000_000)] | None = None
    """Or stop after so many passes over the selected text. Without steps, tokens and epochs: one
    epoch."""
    batch_size: Amount | None = None
    """Examples in an optimizer step, over all ranks. null is the objective's: 256, as in the paper,
    or 64 documents for position and crops."""
    batch_tokens: Amount | None = None
    """Or tokens in an optimizer step."""
    max_tokens: Annotated[Int, Field(ge=3, le=MOST)] = 256
    """Most tokens of an example, special tokens included."""
    learning_rate: Positive | None = 1e-4
    """Peak learning rate. The paper uses 1e-4. In an adaptation, null is the objective's for a base of
    this width: 1e-4, or what was measured best for position and crops (docs/guide/objectives.md)."""
    warmup: Rate = 0.01
    """Share of the steps with a rising rate. The paper uses 0.01."""
    warmup_steps: CountOrZero | None = None
    """Or the number of these steps."""
    schedule: Annotated[str, OneOf(tuple(SCHEDULES))] = "linear"
    """Learning rate after the warm-up, dana.train.schedule: linear decay (the paper), cosine,
    1-sqrt, inverse-sqrt, constant, or wsd: constant, with linear decay at the end."""
    floor: Annotated[Float, Field(ge=0, le=1)] = 0.0
    """Final learning rate, as a share of the peak."""
    cooldown: Share = 0.2
    """Share of the steps in the decay of wsd."""
    weight_decay: Annotated[Float, Field(ge=0)] = 0.01
    """Of AdamW, on matrices only."""
    betas: Annotated[list[Rate], Field(min_length=2, max_length=2)] = field(
        default_factory=lambda: [0.9, 0.999]
    )
    """Of AdamW, two numbers."""
    eps: Positive = 1e-8
    """Of AdamW."""
    clip: Positive = 1.0
    """Largest gradient norm."""
    denominator: Annotated[str, OneOf(DENOMINATORS)] = "batch"
    """batch (the paper), weight_sum or token_count; see dana.train.objectives.batch."""
    seed: Int = 0
    """Decides masks, order, dropout and new weights."""
    evaluations: Annotated[Int, Field(ge=0, le=MOST)] = 4
    """Number of evaluations on held-out text between the first step and the last."""
    eval_every: Amount | None = None
    """Or the number of steps between them."""
    evaluation_tokens: Amount = 50_000
    """Most tokens of each held-out text to evaluate on."""
    final: Annotated[str, OneOf(FINAL)] = "last"
    """last, or best: the evaluated weights with the lowest loss on held-out target text."""
    execution: Execution = field(default_factory=Execution)
    """Speed, memory and checkpoints."""

    def __post_init__(self) -> None:
        self._check_budget()
        if self.is_auto:
            return
        layouts = ("auto", *self.make_objective().layouts)
        if self.execution.layout not in layouts:
            allowed_values = f"{' or '.join(layouts)} with objective={self.objective}"
            raise SettingError("execution.layout", self.execution.layout, allowed_values)

    def _check_budget(self) -> None:
        for key, other in (("steps", "tokens"), ("steps", "epochs"), ("tokens", "epochs")):
            value = getattr(self, key)
            if value is not None and getattr(self, other) is not None:
                raise SettingError(key, value, f"null when {other} is given")
        minimum = f"at least max_tokens={self.max_tokens}"
        if self.batch_tokens is not None and self.batch_tokens < self.max_tokens:
            raise SettingError("batch_tokens", self.batch_tokens, minimum)
        budget = self.execution.micro_batch_tokens
        if isinstance(budget, int) and budget < self.max_tokens:
            raise SettingError("execution.micro_batch_tokens", budget, minimum)

    def make_objective(self) -> "Objective":
        """Make the objective that the spec names.

        Raises:
            PluginError: If no objective has this name.
            ConfigError: If a parameter is unknown or out of range, or a pilot is still to choose.
        """
        if self.is_auto:
            remedy = "masked, position or crops: dana run alone pilots them on labels and chooses"
            raise SettingError("objective", self.objective, remedy)
        objective: Objective = OBJECTIVES.create(self.objective)
        return objective

    @property
    def is_auto(self) -> bool:
        """Whether a pilot is to choose the objective."""
        return self.objective == AUTO

    @property
    def examples_a_step(self) -> int:
        """Examples in an optimizer step, where it is not set in tokens."""
        return self.batch_size or self.make_objective().batch_size

    @property
    def peak_rate(self) -> float:
        """Peak learning rate; that of the base is known by now."""
        assert self.learning_rate is not None, "given, or by AdaptSettings.for_width"
        return self.learning_rate

    def by_phase(self) -> "Sequence[TrainSettings]":
        """Return the settings of each phase of the run: here of the only one."""
        return [self]

    def rate_at(self, step: int, steps: int) -> float:
        """Return the learning rate of a step, from 0, in a run of `steps` steps."""
        warmup_steps = self.warmup_steps
        if warmup_steps is None:
            warmup_steps = round(self.warmup * steps)
        return rate_at(
            step, steps, self.peak_rate, warmup_steps, self.schedule, self.floor, self.cooldown
        )

    def decisive(self) -> dict[str, Any]:
        """Return the settings that decide the result of any model.

        Left out are the execution, the mixture (an input), an empty list, and the warm-up of a new
        head, which decides only the result of a model without one. So are settings that add nothing.
        """
        others = ["execution", "objective", "mix", "head_warmup"]
        if getattr(self, "adapter", None) is None:
            others.append("adapter")
        words = getattr(self, "vocabulary", None)
        if words == 0:
            others.append("vocabulary")
        values = {
            name: value
            for name, value in asdict(self).items()
            if name not in others and value != []
        }
        values["batch_size"] = self.examples_a_step
        return values | self.make_objective().decisive()


def check_mix(key: str, mix: Mapping[str, float]) -> None:
    """Check the shares of a mixture, by the name of the setting."""
    is_known = all(name in PARTS for name in mix)
    are_shares = all(isinstance(share, int | float) and 0 < share <= 1 for share in mix.values())
    if not (is_known and are_shares and (not mix or abs(sum(mix.values()) - 1) < 1e-9)):
        parts = ", ".join(PARTS)
        raise SettingError(key, mix, f"shares above 0 of {parts} that sum to 1")


@settings_model
class PhaseSettings:
    """Settings of one phase of an adaptation; what is empty or null is that of the adaptation."""

    tokens: Amount
    """Tokens of the phase."""
    mix: dict[str, Float] = field(default_factory=dict)
    """Shares of its predicted tokens by their text. A text goes on where the phases before stopped.
    """
    mask_rate: Annotated[Float, Field(gt=0, lt=1)] | None = None
    """Share of the tokens to mask."""
    learning_rate: Positive | None = None
    """Peak learning rate."""
    schedule: Annotated[str, OneOf(tuple(SCHEDULES))] | None = None
    """Learning rate over the phase."""
    optimizer: Annotated[str, OneOf(OPTIMIZER)] = "carry"
    """carry keeps Adam's moments of the phase before, and has no warm-up; reset begins new ones."""

    def __post_init__(self) -> None:
        check_mix("mix", self.mix)


@settings_model
class AdaptSettings(TrainSettings):
    """Settings of an adaptation: :class:`~dana.train.settings.TrainSettings`, mixture, phases, dropout, new head."""

    learning_rate: Positive | None = None
    mix: dict[str, Float] = field(default_factory=dict)
    """Shares of the predicted tokens of every step by their text: selected (with its weights), task
    (the task's own text to fit on) and pool (the whole pool, against forgetting), the last two
    with weight 1: {task: 0.3, selected: 0.7}. Empty: selected text only, or the whole pool
    without weights."""
    phases: list[PhaseSettings] = field(default_factory=list)
    """Parts of the run, one after another, each a mapping with tokens and any of mix, mask_rate,
    learning_rate, schedule and optimizer, which is carry or reset. Empty: one phase."""
    head_warmup: HeadWarmup = field(default_factory=HeadWarmup)
    """Training of a new head, for a checkpoint without one for language modelling."""
    dropout: Rate | None = None
    """Dropout of every layer during the run; None keeps the checkpoint's. The saved model has the
    checkpoint's dropout in any case."""
    adapter: str | None = None
    """Train low-rank adapters and not the weights, lora:r=16,alpha=32 or dora:...
    (dana.models.adapters.Adapter); the result is their folder. None trains all weights."""
    vocabulary: Annotated[Int, Field(ge=0, le=MOST_ROWS)] = 0
    """Most words to add to the vocabulary: those of the target text and of the text to train on that
    save the most tokens (dana.models.vocabulary). 0 leaves it as it is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_mix("mix", self.mix)
        if self.vocabulary and self.adapter is not None:
            remedy = "0: adapters keep the vocabulary of their base. Or adapter=null"
            raise SettingError("vocabulary", self.vocabulary, remedy)
        if self.is_auto:
            for key in ("adapter", "phases"):
                if getattr(self, key):
                    remedy = "null: objective=auto trains all weights, in one phase"
                    raise SettingError(key, getattr(self, key), remedy)
        if self.adapter is not None:
            from dana.models.adapters import Adapter

            Adapter.from_spec(self.adapter)
            if self.make_objective().has_own_head:
                remedy = f"null: objective={self.objective} trains all weights"
                raise SettingError("adapter", self.adapter, remedy)
        if self.phases:
            self._check_phases()

    def for_width(self, width: int) -> "AdaptSettings":
        """Return the settings for a base of this width: with a learning rate, if none is given."""
        if self.learning_rate is not None:
            return self
        return replace(self, learning_rate=self.make_objective().learning_rate(width))

    def _check_phases(self) -> None:
        for key in ("steps", "epochs"):
            if getattr(self, key) is not None:
                remedy = "null with phases, which have their tokens"
                raise SettingError(key, getattr(self, key), remedy)
        total = sum(phase.tokens for phase in self.phases)
        if self.tokens not in (None, total):
            raise SettingError("tokens", self.tokens, f"null, or the {total} of all phases")
        object.__setattr__(self, "tokens", total)
        for index, phase in enumerate(self.phases):
            if phase.mask_rate is not None and not hasattr(self.make_objective(), "mask_rate"):
                remedy = f"null: objective={self.objective} has no mask rate"
                raise SettingError(f"phases[{index}].mask_rate", phase.mask_rate, remedy)

    def by_phase(self) -> "Sequence[AdaptSettings]":
        """Return the settings of each phase by itself."""
        return [self._in_phase(phase, index) for index, phase in enumerate(self.phases)] or [self]

    def _in_phase(self, phase: PhaseSettings, index: int) -> "AdaptSettings":
        values: dict[str, Any] = {
            "phases": [],
            "tokens": phase.tokens,
            "mix": phase.mix or self.mix,
        }
        for name in ("learning_rate", "schedule"):
            value = getattr(phase, name)
            if value is not None:
                values[name] = value
        if phase.mask_rate is not None:
            name, _, parameters = self.objective.partition(":")
            others = [
                parameter
                for parameter in parameters.split(",")
                if parameter and parameter.partition("=")[0].strip() != "mask_rate"
            ]
            values["objective"] = f"{name}:{','.join([*others, f'mask_rate={phase.mask_rate}'])}"
        if index and phase.optimizer == "carry":  # a warm-up is for new moments
            values |= {"warmup": 0.0, "warmup_steps": None}
        return replace(self, **values)

    def without_first(self, tokens: int) -> "AdaptSettings":
        """Return the settings of the rest of the run, after its first tokens."""
        phases = []
        ahead = tokens
        for phase in self.phases:
            start = min(ahead, phase.tokens)
            ahead -= start
            if start < phase.tokens:
                phases.append(replace(phase, tokens=phase.tokens - start))
        return replace(self, tokens=(self.tokens or 0) - tokens, phases=phases)

    @property
    def total_mix(self) -> dict[str, float]:
        """Shares of the predicted tokens of the whole run by their text."""
        if not self.phases:
            return self.mix
        sizes = [((phase.tokens or 0) / (self.tokens or 1), phase.mix) for phase in self.by_phase()]
        shares = {name: sum(size * mix.get(name, 0.0) for size, mix in sizes) for name in PARTS}
        return {name: share for name, share in shares.items() if share}


@settings_model
class PretrainSettings(TrainSettings):
    """Settings of pretraining from scratch."""

    learning_rate: Positive = 1e-3
    warmup: Rate = 0.05
    architecture: str = "modernbert"
    """bert or modernbert, see dana.models.language_model.new_encoder."""
    vocabulary: Annotated[Int, Field(ge=64, le=MOST_ROWS)] = 8192
    """Largest size of the tokenizer's vocabulary."""
    lowercase: Bool = True
    """Make the tokenizer fold case and accents."""
    dropout: Rate = 0.0
    """Dropout of every layer; 0 suits runs of a few epochs."""
    max_positions: Int = 512
    """Number of position embeddings, at least max_tokens."""

    def __post_init__(self) -> None:
        from dana.models.language_model import ARCHITECTURES

        super().__post_init__()
        if self.is_auto or self.make_objective().has_own_head:
            remedy = "masked: a new model has no vectors of texts yet; train those afterwards"
            raise SettingError("objective", self.objective, remedy)
        if self.architecture not in ARCHITECTURES:
            names = ", ".join(ARCHITECTURES)
            raise SettingError("architecture", self.architecture, f"one of {names}")
        if not self.max_tokens <= self.max_positions <= MOST_ROWS:
            remedy = f"from max_tokens={self.max_tokens} to {MOST_ROWS}"
            raise SettingError("max_positions", self.max_positions, remedy)
