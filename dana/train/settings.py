"""What decides a training run, checked before any work."""

from dataclasses import dataclass, field

from dana.config import require
from dana.mlm.layout import LAYOUTS
from dana.mlm.loss import DENOMINATORS

RESUME = ("auto", "never")
COMPILE = ("auto", "on", "off")
FINAL = ("last", "best")


@dataclass(frozen=True)
class Execution:
    """How a run is executed: decides speed, memory and what survives a crash, not the outcome.

    Attributes:
        micro_batch_tokens: Most tokens, padding included, in one forward pass on one rank. Halved by itself
            when memory runs out.
        layout: ``padded``, ``packed`` or ``unpadded`` (:mod:`dana.mlm.layout`); ``auto`` measures.
        compile: ``on`` or ``off``: torch.compile over packed rows; ``auto`` measures when the run is long.
        save_every: Optimizer steps between checkpoints; 0 saves only when told to stop.
        keep: Newest checkpoints to keep. 0 keeps only the best, where ``final`` is ``best``.
        resume: ``auto`` goes on from the newest sound checkpoint, ``never`` starts again.
        trackers: Besides ``training.jsonl``: ``tensorboard``, or any other that Accelerate knows by name.
    """

    micro_batch_tokens: int = 8192
    layout: str = "auto"
    compile: str = "auto"
    save_every: int = 500
    keep: int = 2
    resume: str = "auto"
    trackers: list[str] = field(default_factory=lambda: ["tensorboard"])

    def __post_init__(self) -> None:
        require(self.micro_batch_tokens >= 1, "micro_batch_tokens", self.micro_batch_tokens, "at least 1")
        layouts = ("auto", *LAYOUTS)
        require(self.layout in layouts, "layout", self.layout, f"one of {', '.join(layouts)}")
        require(self.compile in COMPILE, "compile", self.compile, f"one of {', '.join(COMPILE)}")
        packed = self.compile != "on" or self.layout in ("auto", "packed")
        require(packed, "compile", self.compile, f"off with layout={self.layout}: only packed rows keep one shape")
        require(self.save_every >= 0, "save_every", self.save_every, "at least 0")
        require(self.keep >= 0, "keep", self.keep, "at least 0")
        require(self.resume in RESUME, "resume", self.resume, f"one of {', '.join(RESUME)}")


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
        next_sentence: Also ask whether the second half of a text follows its first (:mod:`dana.train.paired`), with
            the same weights. For BERT, which alone has the head.
        seed: Decides masks, order, dropout and new weights.
        evaluations: How often to measure held-out losses between the first step and the last.
        evaluation_tokens: Most tokens of each held-out text to measure on.
        final: ``last``, or ``best``: the evaluated weights with the lowest loss on held-out task text.
        execution: How to run it.
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
    next_sentence: bool = False
    seed: int = 0
    evaluations: int = 4
    evaluation_tokens: int = 50_000
    final: str = "last"
    execution: Execution = field(default_factory=Execution)

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
        require(self.final in FINAL, "final", self.final, f"one of {', '.join(FINAL)}")
        budget = self.execution.micro_batch_tokens
        require(budget >= self.max_tokens, "micro_batch_tokens", budget, f"at least max_tokens={self.max_tokens}")
        layout, compiled = self.execution.layout, self.execution.compile
        allowed = "auto or padded with next_sentence=true: each pair needs a row"
        require(not self.next_sentence or layout in ("auto", "padded"), "layout", layout, allowed)
        require(not self.next_sentence or compiled != "on", "compile", compiled, "auto or off with next_sentence=true")
        kept = self.execution.keep > 0 or self.final == "best"
        require(kept, "keep", self.execution.keep, "at least 1, unless final=best keeps the best")
