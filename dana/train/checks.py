"""Conformance checks of objectives: each runs one on a tiny made-up model and text.

Run them by ``dana plugins check objective NAME``, or :func:`check_objective`. The methods
``check_...`` of :class:`ObjectiveChecks` are the checks. An objective that cannot pass one lists it
in a class attribute ``exemptions = {"check": "reason"}``.
"""

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from dana.core.checks import CheckResult, expect, run_checks
from dana.core.errors import ConfigError, DataError, PluginError
from dana.core.logging import messages
from dana.core.registry import OBJECTIVES
from dana.core.rng import torch_seed
from dana.core.schemas import WEIGHTS, Document, write_parts
from dana.models.folder import quiet_transformers
from dana.models.language_model import train_tokenizer
from dana.train import DENOMINATORS
from dana.train.evaluation import measure_loss
from dana.train.examples import Batch, ExampleSet, TrainingText
from dana.train.layout import BatchLayout
from dana.train.loop import backward
from dana.train.objectives.base import Objective
from dana.train.settings import TrainSettings
from dana.train.state import save_model
from dana.train.tokens import Tokens
from dana.train.training_state import TrainingState

LAW = ("court", "judge", "appeal", "motion", "statute", "counsel", "verdict", "tort")
CELLS = ("cell", "gene", "protein", "kinase", "receptor", "assay", "ligand", "enzyme")
PLACES = ("river", "bridge", "engine", "harbour", "market", "painter", "violin", "garden")
WORDS = LAW + CELLS + PLACES
DOCUMENTS = 12
MAX_TOKENS = 64
SMALL_PASS = 24  # tokens; about a sentence
LARGE_PASS = 1 << 16
LOSS_TOLERANCE = 1e-6
GRADIENT_TOLERANCE = 1e-5  # of its largest entry
SHAPE = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32}
SHAPE |= {"decoder_ffn_dim": 32, "encoder_attention_heads": 2, "decoder_attention_heads": 2}


@dataclass(frozen=True)
class TinyBase:
    """A tiny model to check objectives on, and the kind of text that it reads.

    Attributes:
        model_type: Name of transformers, such as ``bert``.
        auto_class: Name of the class of transformers that makes it, with a head.
        shape: Sizes, for its configuration.
        is_parallel: Whether a document is a source, a tab and its translation.
    """

    model_type: str
    auto_class: str
    shape: Mapping[str, int]
    is_parallel: bool = False

    def config(self, tokenizer: Any) -> Any:
        """Make the configuration for a tokenizer."""
        from transformers import AutoConfig

        ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
        if self.is_parallel:
            ids |= {"decoder_start_token_id": tokenizer.pad_token_id}
        size = {"vocab_size": len(tokenizer), "max_position_embeddings": MAX_TOKENS}
        return AutoConfig.for_model(self.model_type, **self.shape, **size, **ids)

    def tokenizer(self) -> Any:
        """Make its tokenizer: of pieces of words for an encoder, of words for the others."""
        if self.model_type == "bert":
            return train_tokenizer(lambda: self.texts(), 300, MAX_TOKENS)
        return _word_tokenizer()

    def texts(self) -> list[str]:
        """Make the texts of documents of five to nine sentences."""
        random = np.random.default_rng(0)
        texts = []
        for _ in range(DOCUMENTS):
            if self.is_parallel:
                texts.append(f"{_sentence(random)} \t {_sentence(random)}")
            else:
                sentences = [_sentence(random) for _ in range(random.integers(5, 10))]
                texts.append(" ".join(sentences))
        return texts

    def write(self, folder: Path) -> Any:
        """Write the model and its tokenizer, and return the latter."""
        import transformers

        tokenizer = self.tokenizer()
        with torch_seed(0):
            auto_class = getattr(transformers, self.auto_class)
            model = auto_class.from_config(self.config(tokenizer))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return tokenizer


BASES = (
    TinyBase(
        "bert",
        "AutoModelForMaskedLM",
        {
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 32,
        },
    ),
    TinyBase("gpt2", "AutoModelForCausalLM", {"n_embd": 16, "n_layer": 1, "n_head": 2}),
    TinyBase("bart", "AutoModelForSeq2SeqLM", SHAPE, is_parallel=True),
)


def check_objective(candidate: Any) -> list[CheckResult]:
    """Run every check of objectives.

    Args:
        candidate: A registered name or spec, or an objective.

    Raises:
        PluginError: If the name is unknown or does not load, or it supports none of the tiny models.
        ConfigError: If a parameter of the spec is out of range.
    """
    objective = OBJECTIVES.create(candidate) if isinstance(candidate, str) else candidate
    base = _base_of(objective)
    with tempfile.TemporaryDirectory() as folder:
        with quiet_transformers():
            tokenizer = base.write(Path(folder) / "base")
        exemptions = getattr(objective, "exemptions", {})

        def new_case() -> ObjectiveChecks:
            return ObjectiveChecks(objective, base, tokenizer, Path(folder))

        with messages(quiet=True), quiet_transformers():
            return run_checks(ObjectiveChecks, new_case, exemptions)


class StepResult(NamedTuple):
    """Loss of a step, and the gradients of all parameters end to end."""

    loss: float
    gradient: Tensor


@dataclass
class ObjectiveChecks:
    """Checks of an objective.

    Attributes:
        objective: The objective.
        base: The tiny model.
        tokenizer: Its tokenizer.
        folder: Folder with the model in ``base``; checks write beside it.
    """

    objective: Objective
    base: TinyBase
    tokenizer: Any
    folder: Path

    @cached_property
    def state(self) -> TrainingState:
        """The model without dropout; parameters that begin at zero are moved, or they would hide others."""
        from accelerate import Accelerator

        with torch_seed(0):
            loaded = self.objective.prepare_model(str(self.folder / "base"), 0, 0.0)
            module = self.objective.module(loaded.model)
            for parameter in module.parameters():
                if not parameter.any():
                    torch.nn.init.normal_(parameter, std=0.3)
        return TrainingState(module, None, Accelerator(cpu=True), self.layout(LARGE_PASS))

    def layout(self, budget: int) -> BatchLayout:
        """Return the layout of passes of so many tokens."""
        return BatchLayout.from_config(self.base.config(self.tokenizer), budget)

    def text(self, texts: Sequence[str], weights: Path | None = None) -> TrainingText:
        """Tokenise texts; a sentence ends at a full stop."""
        documents = [Document(f"d-{row}", "made-up", text) for row, text in enumerate(texts)]
        tokens = Tokens.from_documents(documents, self.tokenizer)
        return TrainingText(tokens, weights, lambda: documents, _sentences)

    def examples(self, seed: int = 0) -> ExampleSet:
        """Make the examples of the whole text."""
        text = self.text(self.base.texts())
        return self.objective.examples(text, self.tokenizer, MAX_TOKENS, seed)[0]

    def step(
        self, batch: Batch, denominator: str, budget: int = LARGE_PASS, seed: int = 0
    ) -> StepResult:
        """Compute loss and gradient of one step."""
        collator = self.objective.collator(self.tokenizer, seed)
        step_batch = collator.step_batch(batch, 0, denominator)
        state = replace(self.state, shape=self.layout(budget))
        state.module.zero_grad()
        loss, *_ = backward(state, step_batch, 0, TrainSettings()).tolist()
        gradients = []
        for parameter in state.module.parameters():
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            gradients.append(gradient.flatten().clone())
        return StepResult(loss, torch.cat(gradients))

    def check_any_cut_into_micro_batches_gives_the_same_step(self) -> None:
        """Check that loss and gradient are those of one pass, under each denominator."""
        examples = self.examples()
        batch = _weighted(examples.take(np.arange(len(examples))), len(examples))
        for denominator in DENOMINATORS:
            one = self.step(batch, denominator)
            many = self.step(batch, denominator, SMALL_PASS)
            names = f"in one pass and in passes of {SMALL_PASS} tokens, denominator={denominator}"
            remedy = (
                "give MicroBatch.losses one loss a label and its coefficient; the loop divides by "
                "scale.total of the step"
            )
            _expect_same(one, many, names, remedy)

    def check_weight_0_is_absence(self) -> None:
        """Check that under weight_sum examples of weight 0 change neither loss nor gradient."""
        examples = self.examples()
        count = len(examples)
        is_absent = np.arange(count) % 3 == 1
        everything = _weighted(examples.take(np.arange(count)), count, is_absent)
        others = examples.take(np.flatnonzero(~is_absent))
        rest = replace(others, weights=everything.weights[~_of_examples(everything, is_absent)])
        zero = self.step(everything, "weight_sum")
        absent = self.step(rest, "weight_sum")
        remedy = "coefficients and scale.total come from dana.train.objectives.batch.loss_scale"
        _expect_same(zero, absent, "with examples of weight 0 and without them", remedy)

    def check_examples_have_the_weights_of_their_text(self) -> None:
        """Check that text without weight makes no examples, and other text examples of its weight."""
        texts = self.base.texts()
        rows = []
        for number, text in enumerate(texts):
            spans = [(0, len(text))] if self.base.is_parallel else _sentences(text)
            for unit, (start, end) in enumerate(spans):
                weight = 0.5 if number % 2 else 0.0
                row = (f"d-{number}", "made-up", unit, start, end, 0, weight)
                rows.append(row)
        names = ("doc_id", "source", "unit", "start", "end", "segment", "weight")
        records = [dict(zip(names, row, strict=True)) for row in rows]
        folder = self.folder / "weights"
        write_parts([pa.Table.from_pylist(records, schema=WEIGHTS)], folder, WEIGHTS)
        weighted = self.text(texts, folder)
        examples, _ = self.objective.examples(weighted, self.tokenizer, MAX_TOKENS, 0)
        half = self.text([text for number, text in enumerate(texts) if number % 2])
        alone, _ = self.objective.examples(half, self.tokenizer, MAX_TOKENS, 0)
        expect(
            bool(np.allclose(examples.weights, 0.5)),
            f"weights of text are 0.5, of its examples {examples.weights.min():g} to "
            f"{examples.weights.max():g}: read text.weights "
            "(dana.train.examples.weighted_documents)",
        )
        expect(
            len(examples) == len(alone),
            f"{len(examples)} examples where documents have weight 0, {len(alone)} without these: "
            "leave out units of weight 0",
        )

    def check_the_order_of_the_documents_changes_nothing(self) -> None:
        """Check that a step of the same examples in another order has the same loss and gradient."""
        examples = self.examples()
        rows = np.arange(len(examples))
        one = self.step(examples.take(rows), "batch")
        other = self.step(examples.take(rows[::-1]), "batch")
        remedy = "draw by dana.core.rng.hash_uniform from seed, epoch and example id"
        _expect_same(one, other, "of documents in order and in reverse", remedy)

    def check_the_same_seed_gives_the_same_examples(self) -> None:
        """Check that examples, inputs and labels are a function of the seed."""
        remedy = "draw by dana.core.rng.hash_uniform from seed, epoch and example id"
        first, second = self.examples(3), self.examples(3)
        rows = np.arange(len(first))
        expect(
            len(first) == len(second),
            f"{len(first)} examples once, {len(second)} again: {remedy}",
        )
        steps = []
        for examples in (first, second):
            collator = self.objective.collator(self.tokenizer, 3)
            steps.append(collator.step_batch(examples.take(rows), 0, "batch"))
        for name in ("inputs", "labels"):
            one, other = getattr(steps[0], name), getattr(steps[1], name)
            expect(
                one.shape == other.shape,
                f"{one.size} {name} of a step once, {other.size} again: {remedy}",
            )
            is_other = one != other
            where = int(is_other.argmax())
            expect(
                not is_other.any(),
                f"{name} of a step differ at {where:,}: {one[where]} once, {other[where]} again: "
                f"{remedy}",
            )
        once = self.step(first.take(rows), "batch", seed=3)
        again = self.step(first.take(rows), "batch", seed=3)
        _expect_same(once, again, "of one step, once and again", remedy)

    def check_the_held_out_loss_is_finite(self) -> None:
        """Check that held-out text has a finite loss, and an accuracy between 0 and 1, if any."""
        text = self.text(self.base.texts())
        examples, _ = self.objective.examples(text, self.tokenizer, MAX_TOKENS)
        collator = self.objective.heldout_collator(self.tokenizer)
        state = self.state
        loss = measure_loss(state.module, examples, collator, state.shape, state.accelerator)
        expect(
            loss.mean is not None and bool(np.isfinite(loss.mean)),
            f"the held-out loss of {len(examples)} examples is {loss.mean}, expected a finite "
            "number: look at heldout_collator, and at module in evaluation mode",
        )
        for name in ("accuracy", "guess"):
            value = getattr(loss, name)
            expect(
                value is None or 0 <= value <= 1,
                f"the held-out {name} is {value}, expected a number from 0 to 1: one value a label",
            )

    def check_the_saved_folder_opens_without_dana(self) -> None:
        """Check that AutoModel opens what is saved, and that it holds the model's parameters alone."""
        from transformers import AutoModel

        folder = self.folder / "saved"
        folder.mkdir()
        save_model(self.state, self.tokenizer, folder)
        AutoModel.from_pretrained(folder)
        model = self.state.model
        _, report = type(model).from_pretrained(folder, output_loading_info=True)
        extra = sorted(report["unexpected_keys"])
        expect(
            not extra,
            f"the saved folder holds {', '.join(extra)}, which {type(model).__name__} has not: keep "
            "heads of your own in the module, beside the model",
        )

    def check_text_that_is_too_short_is_counted(self) -> None:
        """Check that the counts of documents add up, and text without an example is a DataError."""
        texts = self.base.texts()
        short = ["", _sentence(np.random.default_rng(9))] if not self.base.is_parallel else [""]
        text = self.text([*texts, *short])
        _, counts = self.objective.examples(text, self.tokenizer, MAX_TOKENS, 0)
        documents = len(texts) + len(short)
        outcomes = [
            number
            for name, number in counts.items()
            if name.startswith("documents_") and name != "documents_in"
        ]
        expect(
            counts.get("documents_in") == documents == sum(outcomes),
            f"{documents} documents were given, documents_in is {counts.get('documents_in')} and "
            f"the other counts of documents sum to {sum(outcomes)}: count each once, as "
            "documents_kept, documents_left_out, documents_too_short or documents_excluded",
        )
        nothing = short if self.objective.cuts_sentences else [""]
        try:
            self.objective.examples(self.text(nothing), self.tokenizer, MAX_TOKENS, 0)
        except DataError:
            return
        except Exception as error:
            raise AssertionError(
                f"text without an example raises {type(error).__name__}, expected DataError: say "
                "what text works"
            ) from error
        expect(False, "text without an example raises nothing, expected DataError: say what works")


def _base_of(objective: Objective) -> TinyBase:
    """Find the tiny model that an objective supports.

    Raises:
        PluginError: If it supports none.
    """
    for base in BASES:
        try:
            objective.auto_class(base.config(base.tokenizer()))
            return base
        except ConfigError:
            continue
    names = ", ".join(base.model_type for base in BASES)
    raise PluginError(
        f"{type(objective).__name__} supports none of {names} (auto_class), so it cannot be "
        "checked; check it on a model of yours with dana.train.checks.ObjectiveChecks"
    )


def _expect_same(one: StepResult, other: StepResult, names: str, remedy: str) -> None:
    """Expect two results to be equal but for rounding."""
    difference = float((one.gradient - other.gradient).abs().max())
    largest = max(1e-3, float(one.gradient.abs().max()))
    same_loss = abs(one.loss - other.loss) <= LOSS_TOLERANCE * max(1.0, abs(one.loss))
    same_gradient = difference <= GRADIENT_TOLERANCE * largest
    norms = [float(result.gradient.norm()) for result in (one, other)]
    expect(
        same_loss and same_gradient,
        f"losses {names}: {one.loss:.7g} and {other.loss:.7g}; gradients' norms {norms[0]:.6g} and "
        f"{norms[1]:.6g}: {remedy}",
    )


def _of_examples(batch: Batch, mask: np.ndarray) -> np.ndarray:
    """Spread a mask of examples over the texts of a batch, of which an example may have several."""
    owners = getattr(batch, "owners", None)
    return mask if owners is None else mask[owners]


def _weighted(batch: Batch, examples: int, is_absent: np.ndarray | None = None) -> Batch:
    """Give the examples of a batch weights from 0.2 to 1, and some the weight 0."""
    weights = np.random.default_rng(5).uniform(0.2, 1, examples)
    if is_absent is not None:
        weights[is_absent] = 0.0
    spread = _of_examples(batch, weights)
    return replace(batch, weights=spread.astype(np.float32))


def _sentence(random: np.random.Generator) -> str:
    """Make a sentence of three to eight words."""
    words = random.choice(WORDS, random.integers(3, 9))
    return f"{' '.join(words)} ."


def _sentences(text: str) -> list[tuple[int, int]]:
    """Cut a text behind its full stops."""
    return [match.span() for match in re.finditer(r"\S[^.]*\.", text)]


def _word_tokenizer() -> Any:
    """Make a tokenizer of the words of the made-up text, the tab and special tokens."""
    from tokenizers import Regex, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split
    from transformers import PreTrainedTokenizerFast

    special = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"}
    vocabulary = [*special.values(), "\t", ".", *WORDS]
    numbers = {word: number for number, word in enumerate(vocabulary)}
    inner = Tokenizer(WordLevel(numbers, unk_token="<unk>"))
    inner.pre_tokenizer = Split(Regex("[ \n]+"), "removed")
    return PreTrainedTokenizerFast(tokenizer_object=inner, **special)
