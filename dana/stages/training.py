"""``dana adapt``: train a language model on a weighted pool and commit it as a folder."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.artifacts import (
    GIVEN,
    MANIFEST,
    Artifact,
    Draft,
    make_on_all_ranks,
    open_artifact,
    read_manifest,
    write_text,
)
from dana.core.config import require
from dana.core.errors import ArtifactError, DataError, SettingError
from dana.core.files import text_key
from dana.core.launch import on_rank_0
from dana.core.logging import get_logger
from dana.core.registry import DISTRIBUTION, OBJECTIVES
from dana.core.schemas import (
    DOCUMENTS,
    WEIGHTS,
    Document,
    iterate_documents,
    table_identity,
)
from dana.corpus.units import sentences
from dana.models import head_file
from dana.models.adapters import add_adapter
from dana.models.embeddings import add_rows
from dana.models.folder import (
    check_checkpoint,
    lacks_head,
    licence_line,
    load_config,
    load_own_tokenizer,
    model_identity,
    model_name,
    note_weights,
    quiet_transformers,
    resolve_model,
)
from dana.models.known_text import FILE, read_known_text
from dana.models.language_model import (
    SIZES,
    LanguageModel,
    check_length,
    new_encoder,
    train_tokenizer,
)
from dana.models.pooling import read_pooling
from dana.models.vocabulary import VERSION as WORDS_VERSION
from dana.models.vocabulary import (
    check_vocabulary,
    choose_words,
    count_words,
    extend_tokenizer,
)
from dana.stages.pack import pack_stage, selected_ids
from dana.stages.texts import held_out_stage, unlabelled_folder
from dana.train.card import model_card
from dana.train.checkpoints import Checkpoints, find_checkpoint
from dana.train.examples import Examples, ExampleSet, TrainingText
from dana.train.execution import describe_launch, make_accelerator
from dana.train.head_warmup import HeadCheck, WarmupFile, warm_up_head
from dana.train.loop import prepare
from dana.train.objectives.base import Objective
from dana.train.planner import before_wrapping, checkpoint_gradients, choose_execution
from dana.train.records import (
    EvaluationRecord,
    Record,
    StepRecord,
    speed_line,
    speed_of,
    to_line,
    values_of,
)
from dana.train.run import (
    AfterEvaluation,
    TrainingRun,
    check_trackers,
    go_on,
    heldout_examples,
)
from dana.train.settings import (
    PARTS,
    UNLABELLED,
    AdaptSettings,
    PhaseSettings,
    PretrainSettings,
    TrainSettings,
)
from dana.train.state import save_model
from dana.train.tokens import Tokens
from dana.train.training_state import TrainingState

log = get_logger(__name__)

RECORDS = "training.jsonl"
HEAD = "-head"  # behind the folder of a model or pilot: that of the base with a new head
NEW_HEAD = "new_head"  # note of such a copy, and of what is trained from it: its head's training
COPY_OF = "copy_of"  # note of a copy of a model with a new head: the name of the model
COPY_CARD = """---
{licence}library_name: transformers
tags: [dana]
---

# {name}, with a new head for language modelling

The weights of {name} are as they were; dana trained the head alone. `__dana__/manifest.json` says on which text.
"""


@dataclass(frozen=True)
class TrainingData:
    """The inputs of a training run.

    Attributes:
        pool: Folder of documents to train on. The task's texts without labels are in the folder
            ``unlabelled`` beside it.
        weights: Folder of their weights; None gives everything weight 1. It becomes None where the
            mixture has no selected text.
        target_heldout: Folder of held-out target documents.
        pool_heldout: Folder of held-out pool documents; :meth:`hold_out` makes it if it is missing.
        mix: Shares of the mixture by part, in the order of :data:`dana.train.settings.PARTS`. Empty
            trains on what has weights, or on the whole pool without weights.
        mixes: Shares of the mixture of each phase, of the parts in `mix`; empty for one phase.
        language: ISO 639-1 code, for objectives that cut text without weights into sentences.

    Raises:
        ConfigError: If the mixture has selected text, and there are no weights.
    """

    pool: Path
    weights: Path | None
    target_heldout: Path
    pool_heldout: Path
    mix: Mapping[str, float] = field(default_factory=dict)
    mixes: Sequence[Mapping[str, float]] = ()
    language: str = "en"

    def __post_init__(self) -> None:
        has_weights = self.weights is not None
        mix = self.mix or _default_mix(has_weights)
        selects = "selected" in mix
        allowed = "without selected, as there are no weights"
        require(has_weights or not selects, "mix", dict(self.mix), allowed)
        # Fields of a frozen dataclass can be set only in this way.
        in_order = {name: float(mix[name]) for name in PARTS if name in mix}
        object.__setattr__(self, "mix", in_order)
        if not selects:
            object.__setattr__(self, "weights", None)

    @property
    def task(self) -> Path:
        """Folder of the task's own text to fit on, beside the held-out one."""
        return self.target_heldout.with_name("fit")

    @property
    def unlabelled(self) -> Path:
        """Folder of the task's texts without labels, beside the pool."""
        return unlabelled_folder(self.pool)

    def of_whole_pool(self) -> "TrainingData":
        """Return the inputs of a training on all of the pool, in which everything counts alike."""
        return TrainingData(
            self.pool, None, self.target_heldout, self.pool_heldout, language=self.language
        )

    def hold_out(self) -> None:
        """Hold out documents of the pool into the folder `pool_heldout`, if that is missing.

        A folder that is there is taken as it is. Only one beside the pool that dana made is checked
        by :func:`held_out_stage`, which reuses it, or refuses it if it was made from another pool.

        Raises:
            ArtifactError: If the folder was made from another pool, or there is no pool.
        """
        is_beside_pool = self.pool_heldout.parent == self.pool.parent
        is_of_this_run = is_beside_pool and (self.pool_heldout / MANIFEST).is_file()
        is_missing = not self.pool_heldout.is_dir()
        if is_missing or is_of_this_run:
            held_out_stage(self.pool, self.pool_heldout)

    def identity(self) -> dict[str, Any]:
        """Return the fingerprints of all inputs, and the mixture.

        Raises:
            ArtifactError: If an input is missing or damaged.
        """
        return {
            **self.input_fingerprints(),
            "pool_heldout": table_identity(self.pool_heldout, DOCUMENTS),
        }

    def input_fingerprints(self) -> dict[str, Any]:
        """Return the mixture, and the fingerprints of the inputs that no method of this class makes.

        The held-out documents of the pool are not among them. Each input is checked to be there
        (:func:`dana.core.schemas.table_identity`).

        Raises:
            ArtifactError: If an input is missing or damaged.
        """
        fingerprints: dict[str, Any] = {
            "pool": table_identity(self.pool, DOCUMENTS),
            "target_heldout": table_identity(self.target_heldout, DOCUMENTS),
        }
        if "task" in self.mix:
            fingerprints["task"] = table_identity(self.task, DOCUMENTS)
        if UNLABELLED in self.mix:
            fingerprints[UNLABELLED] = table_identity(self.unlabelled, DOCUMENTS)
        fingerprints["weights"] = None
        if self.weights is not None:
            fingerprints["weights"] = table_identity(self.weights, WEIGHTS)
        return {**fingerprints, "mix": dict(self.mix)}

    def examples(
        self, tokenizer: Any, make: Callable[[TrainingText], tuple[ExampleSet, dict[str, int]]]
    ) -> tuple[ExampleSet, dict[str, int]]:
        """Make the examples of each part of the mixture and join them.

        The tokens of the pool are kept beside it (:func:`dana.stages.pack.pack_stage`).

        Args:
            tokenizer: Tokenizer of the model.
            make: Makes the examples of one part
                (:meth:`dana.train.objectives.base.Objective.examples`).

        Returns:
            The examples, and counts: of the first part those of
            :meth:`dana.train.objectives.base.Objective.examples`, of each other part the number of
            its examples, under ``windows_of_PART``.

        Raises:
            DataError: See :meth:`dana.train.objectives.base.Objective.examples`.
            ConfigError: See :meth:`dana.train.objectives.base.Objective.examples`.
            ArtifactError: If an input is missing or damaged.
        """
        exclude = self.heldout_ids()

        # The tokens are opened once for all parts that are pool text, and not at all if there is no
        # such part.
        @cache
        def pool_tokens() -> Tokens:
            # Without the whole pool in the mixture, tokens of documents with a weight are enough.
            weights = None if "pool" in self.mix else self.weights
            return Tokens.open(pack_stage(self.pool, tokenizer, weights).path)

        def text_of(name: str) -> TrainingText:
            """Return the text of a part of the mixture."""
            if name == "task":
                whole_folder = folder_text(self.task, tokenizer, self.language)
                return replace(whole_folder, exclude=exclude)
            if name == UNLABELLED:
                no_weights = None
                return TrainingText(
                    Tokens.open(pack_stage(self.unlabelled, tokenizer).path),
                    no_weights,
                    partial(iterate_documents, self.unlabelled),
                    partial(sentences, language=self.language),
                    self._heldout_unlabelled_ids(),
                )
            weights = self.weights if name == "selected" else None
            return TrainingText(
                pool_tokens(),
                weights,
                partial(iterate_documents, self.pool),
                partial(sentences, language=self.language),
                exclude,
            )

        parts: dict[str, ExampleSet] = {}
        counts: dict[str, int] = {}
        for name in self.mix:
            try:
                examples, part_counts = make(text_of(name))
            except DataError as error:
                if name == "selected":
                    raise  # the error names the weights, which say what was selected
                source = {"task": self.task, UNLABELLED: self.unlabelled}.get(name, self.pool)
                raise DataError(f"mix={dict(self.mix)}: {name} ({source}): {error}") from error
            parts[name] = examples
            is_first = not counts
            if is_first:
                counts = part_counts
            else:
                counts[f"windows_of_{name}"] = len(examples)
        mixes = self.mixes or [self.mix]
        return ExampleSet.mixture(parts, *mixes), counts

    def heldout_texts(self, tokenizer: Any) -> dict[str, TrainingText]:
        """Tokenise the held-out documents in memory, and return them under ``target`` and ``pool``."""
        folders = {"target": self.target_heldout, "pool": self.pool_heldout}
        return {
            name: folder_text(folder, tokenizer, self.language) for name, folder in folders.items()
        }

    def documents(self) -> Iterator[Document]:
        """Yield the documents that training reads, whole or in part."""
        yield from self.other_documents()
        if "task" in self.mix:
            yield from iterate_documents(self.task)

    def other_documents(self) -> Iterator[Document]:
        """Yield the documents that training reads but for the task's text to fit on: of the pool, and unlabelled."""
        yield from self.pool_documents()
        if UNLABELLED in self.mix:
            exclude = self._heldout_unlabelled_ids()
            for document in iterate_documents(self.unlabelled):
                if document.doc_id not in exclude:
                    yield document

    def pool_documents(self) -> Iterator[Document]:
        """Yield the documents of the pool that training reads, whole or in part.

        They are all that are not held out; without the whole pool in the mixture, only those of which
        something has a weight.
        """
        exclude = self.heldout_ids()
        reads_all = "pool" in self.mix
        selected: set[str] = set()
        if self.weights is not None:
            selected = selected_ids(self.weights)
        for document in iterate_documents(self.pool):
            if document.doc_id in exclude:
                continue
            if reads_all or document.doc_id in selected:
                yield document

    def overlap(self, documents: np.ndarray) -> tuple[float, np.ndarray]:
        """Measure how much of this training's text a model was trained on before.

        Args:
            documents: Keys of the documents that the model was trained on, uint64 of shape
                (documents,) (:func:`dana.models.known_text.read_known_text`).

        Returns:
            The share of the characters of :meth:`documents` that are in such a document; and the
            keys of all documents, those of the model and those of this training, sorted.
        """
        rows = ((text_key(document.text), len(document.text)) for document in self.documents())
        # The documents are read once, one at a time; two numbers of each are kept.
        table = np.fromiter(rows, [("key", np.uint64), ("characters", np.int64)])
        keys = table["key"]
        characters = table["characters"]
        is_known = np.isin(keys, documents)
        known_characters = characters[is_known].sum()
        share = float(known_characters / max(1, characters.sum()))
        return share, np.union1d(documents, keys)

    def heldout_ids(self) -> set[str]:
        """Return the ids of all held-out documents, which are never trained on."""
        return {document.doc_id for document in self._heldout_documents()}

    def _heldout_documents(self) -> Iterator[Document]:
        """Yield the held-out documents of the target text and of the pool."""
        yield from iterate_documents(self.target_heldout)
        yield from iterate_documents(self.pool_heldout)

    def _heldout_unlabelled_ids(self) -> set[str]:
        """Return the ids of the unlabelled texts that equal a held-out document.

        Ids do not tell: two files may number their rows alike, and hold one text under two numbers.
        """
        heldout_keys = {text_key(document.text) for document in self._heldout_documents()}
        return {
            document.doc_id
            for document in iterate_documents(self.unlabelled)
            if text_key(document.text) in heldout_keys
        }


def folder_text(folder: Path, tokenizer: Any, language: str = "en") -> TrainingText:
    """Tokenise a folder of documents in memory; all their text has weight 1.

    Args:
        folder: Folder of :data:`dana.core.schemas.DOCUMENTS`.
        tokenizer: Tokenizer of the model.
        language: ISO 639-1 code, for objectives that cut text into sentences.
    """
    no_weights = None
    return TrainingText(
        Tokens.from_documents(iterate_documents(folder), tokenizer),
        no_weights,
        partial(iterate_documents, folder),
        partial(sentences, language=language),
    )


def _default_mix(has_weights: bool) -> dict[str, float]:
    """Return the mixture of a training that names none: the text with weights, or else the whole pool."""
    return {"selected" if has_weights else "pool": 1.0}


def weighted_examples(
    data: TrainingData, tokenizer: Any, objective: str, max_tokens: int
) -> Examples:
    """Cut the selected text of a pool into training examples, without held-out documents.

    Documents of the pool are held out first if none are yet, and its tokens are kept beside it.

    Args:
        data: Corpus, weights and held-out documents.
        tokenizer: Tokenizer of the model to train.
        objective: Spec of the objective, which defines the special tokens of an example.
        max_tokens: Most tokens of an example, special tokens included.

    Raises:
        ConfigError: If the objective trains no tokens, the tokenizer does not fit it, or `max_tokens`
            is too small.
        PluginError: If no objective has this name.
        DataError: If no text to train on remains.
        ArtifactError: If a folder is missing.
    """
    data.input_fingerprints()  # for its checks: a missing folder is reported before any work
    data.hold_out()
    trained = OBJECTIVES.create(objective)
    allowed = "one that trains tokens: your own loop gets windows of text"
    require(not trained.has_own_head, "objective", objective, allowed)
    seed = 0  # windows of text do not depend on it
    examples, _ = data.examples(tokenizer, _example_maker(trained, tokenizer, max_tokens, seed))
    # A plug-in without a head of its own may still read documents or pairs of texts.
    if not isinstance(examples, Examples):
        raise SettingError("objective", objective, allowed)
    return examples


@dataclass(frozen=True)
class TrainingJob:
    """One model to train.

    Attributes:
        base: Name of the model that training starts from.
        load: Loads the model and its tokenizer; called only if there is work to do.
        data: Inputs.
        settings: Settings of the training.
        licence: Line of a model card with the licence of the base; empty if unknown.
        documents: Keys of the documents that the base was trained on
            (:func:`dana.models.known_text.read_known_text`). They are empty for a model from scratch.
            None says that they are unknown; then the new model does not say what it has read, either.
        after_evaluation: Looks at the model after each evaluation, and may end the run.
    """

    base: str
    load: Callable[[], LanguageModel]
    data: TrainingData
    settings: TrainSettings
    licence: str = ""
    documents: np.ndarray | None = None
    after_evaluation: AfterEvaluation = go_on


def check_weights(weights: Path, objective: Objective, spec: str) -> None:
    """Check that weights were made from the scores beside them, and that an objective can train on their units.

    Args:
        weights: Folder of the weights.
        objective: The objective.
        spec: Spec of the objective, for the error.

    Raises:
        ArtifactError: If the weights were made from other scores than those beside them.
        ConfigError: If the objective reads sentences, and the weights are of windows.
    """
    _check_scores(weights)
    scores_inputs = read_manifest(weights.parent / "scores").get("depends_on", {})
    units = scores_inputs.get("selection", {}).get("units", "sentence")
    if objective.cuts_sentences:
        allowed = f"masked: it reads sentences, and {weights} are weights of units={units}"
        require(units == "sentence", "objective", spec, allowed)


def _check_scores(weights: Path) -> None:
    """Check that weights were made from the scores beside them, which may have been made again.

    Raises:
        ArtifactError: If they were made from others.
    """
    fingerprint = read_manifest(weights.parent / "scores").get("fingerprint")
    made_from = read_manifest(weights).get("depends_on", {}).get("scores")
    # Weights that were not made by dana weigh, or have no scores beside them, pass.
    is_known = bool(fingerprint) and isinstance(made_from, str)
    if is_known and made_from != fingerprint:
        raise ArtifactError(
            f"{weights}: made from other scores than {weights.parent / 'scores'}; run dana weigh again"
        )


def run_job(
    job: TrainingJob,
    origin: dict[str, Any],
    out: Path,
    given: Mapping[str, Any] | None = None,
) -> Artifact:
    """Train on every rank and commit the model folder on the first.

    A killed run resumes from its newest checkpoint in ``OUT-checkpoints``, which is removed once
    the model is committed.

    Args:
        job: Model, data and settings.
        origin: Identity or size of the base model, and what else was done to it, for the fingerprint.
        out: Folder of the artifact.
        given: Settings that the call gave beside the run's recipe, for the manifest.

    Raises:
        Preemption: If a signal asked to stop; a checkpoint is saved.
        ConfigError: If a tracker is not installed, or fewer processes joined than were launched.
        ArtifactError: If an input is missing or damaged, or `out` holds something else.
        DataError: If there is no text to train on, or nothing in it to predict.
    """
    execution = job.settings.execution
    check_trackers(execution.trackers)
    job.data.input_fingerprints()  # missing inputs are reported before processes wait for each other
    logs = out.parent / "logs"  # not in `out`, which is committed whole
    accelerator = make_accelerator(execution.trackers, logs)
    on_rank_0(job.data.hold_out)
    depends_on = {**origin, **job.data.identity(), "settings": job.settings.decisive()}
    if job.settings.make_objective().cuts_sentences:
        depends_on["language"] = job.data.language
    launch = {"dana": version(DISTRIBUTION), **describe_launch(accelerator)}
    checkpoints = Checkpoints(Path(f"{out}-checkpoints"), {**depends_on, "launch": launch})

    def write(draft: Draft | None) -> None:
        run = TrainingRun(
            settings=job.settings,
            accelerator=accelerator,
            checkpoints=checkpoints,
            checkpoint=find_checkpoint(checkpoints, execution.resume),
            out=out,
            after_evaluation=job.after_evaluation,
        )
        _train(job, run, draft)
        if draft is not None and given:
            draft.notes[GIVEN] = dict(given)

    artifact = make_on_all_ranks(out, "model", depends_on, write)
    on_rank_0(checkpoints.remove)
    return artifact


def _train(job: TrainingJob, run: TrainingRun, draft: Draft | None) -> None:
    """Load the model, train it, and fill the draft: model, records, model card, notes and counts.

    Args:
        job: Model, data and settings.
        run: The run of this training on every rank.
        draft: Draft of the model; None on ranks that take part and write nothing.

    Raises:
        ConfigError: If the model has too few positions, or ``final=best`` has no held-out target text
            to measure.
        DataError: See :func:`run_job`.
        Preemption: See :func:`run_job`.
    """
    data = job.data
    settings = job.settings
    language_model = job.load()
    tokenizer = language_model.tokenizer
    check_length(language_model.model.config, settings.max_tokens)
    if settings.execution.gradient_checkpointing:
        checkpoint_gradients(language_model.model)
    objective = settings.make_objective()
    collators = [
        phase.make_objective().collator(tokenizer, settings.seed) for phase in settings.by_phase()
    ]
    make = _example_maker(objective, tokenizer, settings.max_tokens, settings.seed)
    examples, counts = data.examples(tokenizer, make)
    heldout_texts = data.heldout_texts(tokenizer)
    heldout = heldout_examples(heldout_texts, objective, tokenizer, settings)
    if data.weights is not None and isinstance(examples, Examples):
        heldout = heldout.with_selected(examples, settings.evaluation_tokens)
    can_choose = settings.final != "best" or "target" in heldout.texts
    allowed = "last: the held-out target text has no documents to measure"
    require(can_choose, "final", settings.final, allowed)
    if draft is not None and job.documents is not None:
        _note_known_text(draft, data, job.documents)
    trained_model, records, notes = run.train(language_model, examples, collators, heldout)
    save_model(trained_model, tokenizer, _folder_of(draft))
    if draft is None:
        return
    if objective.has_own_head:
        notes["untrained"] = _untrained_parameters(trained_model)
    draft.counts |= counts
    draft.seeds["seed"] = settings.seed
    draft.notes |= notes
    draft.notes |= language_model.notes
    draft.notes["characters_per_token"] = {
        name: text.tokens.characters_per_token() for name, text in heldout_texts.items()
    }
    _describe_training(draft, job, examples, records)
    note_weights(draft)


def _folder_of(draft: Draft | None) -> Path | None:
    """Return the folder of a draft; None on ranks that write nothing."""
    return None if draft is None else draft.path


def _example_maker(
    objective: Objective, tokenizer: Any, max_tokens: int, seed: int
) -> Callable[[TrainingText], tuple[ExampleSet, dict[str, int]]]:
    """Return the function that makes training examples of a text; see :meth:`Objective.examples`."""
    return partial(objective.examples, tokenizer=tokenizer, max_tokens=max_tokens, seed=seed)


def _untrained_parameters(state: TrainingState) -> list[str]:
    """Return the names of the parameters that a training did not change, and log their number."""
    names = [name for name, value in state.model.named_parameters() if not value.requires_grad]
    if names:
        log.info(
            "heads     %d parameters were not trained, such as %s: they are those of the base",
            len(names),
            names[0],
        )
    return names


def _note_known_text(draft: Draft, data: TrainingData, documents: np.ndarray) -> None:
    """Note which share of the text the base has read before, and store the keys of all that it has read now.

    Args:
        draft: Draft of the model, whose folder gets the file of :mod:`dana.models.known_text`.
        data: Inputs of the training.
        documents: Keys of the documents that the base was trained on.
    """
    share, keys = data.overlap(documents)
    draft.notes["known_to_base"] = share
    if documents.size:  # a model from scratch has no base
        log.info("base      it has read %.1f %% of this text before", 100 * share)
    np.save(draft.path / FILE, keys)


def _describe_training(
    draft: Draft, job: TrainingJob, examples: ExampleSet, records: list[Record]
) -> None:
    """Write ``training.jsonl`` and ``README.md`` into a draft, and fill in counts and notes from the records.

    The notes are the speed, which is logged, the file of the head if it has one, and the first and
    the last held-out losses.

    Args:
        draft: Draft of the model, with the notes and counts of the training.
        job: Model, data and settings.
        examples: Examples of the training.
        records: Records of all steps and evaluations.
    """
    lines = [to_line(record) for record in records]
    write_text(draft.path / RECORDS, "".join(lines))
    speed = speed_of(records)
    draft.notes["speed"] = speed
    log.info("speed     %s", speed_line(speed))
    if (draft.path / head_file.FILE).is_file():
        draft.notes["head_file"] = head_file.FILE
    evaluations = [record for record in records if isinstance(record, EvaluationRecord)]
    steps = [record for record in records if isinstance(record, StepRecord)]
    skipped_count = sum(record.skipped for record in steps)
    if skipped_count:
        draft.counts["steps_skipped"] = skipped_count
    counts = {
        "examples": len(examples.first_part),
        "steps": len(steps),
        "tokens_seen": evaluations[-1].tokens,
    }
    draft.counts |= counts
    inputs = _card_inputs(job)
    card = model_card(job.base, inputs, job.settings, evaluations, counts, draft.notes, job.licence)
    write_text(draft.path / "README.md", card)
    draft.notes["losses"] = {
        "before": values_of(evaluations[0]),
        "after": values_of(evaluations[-1]),
    }


def _card_inputs(job: TrainingJob) -> dict[str, str]:
    """Return what a model card says of the inputs of a training, by heading."""
    identity = job.data.identity()
    inputs = {
        "weighting": _weighting(job.data.weights),
        "pool fingerprint": f"`{identity['pool']}`",
        "weights fingerprint": identity["weights"] or "none",
        "mixture": _percentages(job.data.mix),
    }
    if isinstance(job.settings, AdaptSettings):
        if job.settings.phases:
            phases = map(_phase_text, job.settings.phases, job.data.mixes)
            inputs["phases"] = ", then ".join(phases)
        if job.settings.adapter:
            inputs["adapter"] = f"`{job.settings.adapter}`"
    return inputs


def _percentages(mix: Mapping[str, float]) -> str:
    """Return the shares of a mixture as text, such as ``30% task, 70% selected``."""
    return ", ".join(f"{share:.0%} {name}" for name, share in mix.items())


def _phase_text(phase: PhaseSettings, mix: Mapping[str, float]) -> str:
    """Return a phase as text: its tokens, its mixture, and whether its optimizer begins anew."""
    optimizer = ""
    if phase.optimizer == "reset":
        optimizer = ", optimizer reset"
    return f"{phase.tokens:,} tokens of {_percentages(mix)}{optimizer}"


def _weighting(weights: Path | None) -> str:
    """Return the policy that made a folder of weights; ``given`` for weights that dana weigh did not make."""
    if weights is None:
        return "none (every example counts 1)"
    settings = read_manifest(weights).get("depends_on", {}).get("settings", {})
    policy: str = settings.get("policy", "given")
    return policy


def adapt_stage(  # noqa: PLR0913, a step of a recipe names its inputs one by one
    model: str,
    pool: Path,
    weights: Path | None,
    target_heldout: Path,
    pool_heldout: Path,
    settings: AdaptSettings,
    out: Path,
    given: Mapping[str, Any] | None = None,
    language: str = "en",
) -> Artifact:
    """Continue pre-training a model, and write a Hugging Face folder that loads without dana.

    Held-out documents are left out of training. The folder also holds ``training.jsonl`` (one line
    per step and evaluation), ``README.md`` and the manifest. A model that lacks the head which the
    objective needs gets a new one (:func:`head_stage`); the copy with it lies in ``OUT-head`` until
    the training has ended. Under several processes every one must call this; the first writes.

    Args:
        model: Folder with safetensors, or Hub name.
        pool: Folder of a pool artifact.
        weights: Folder of its weights; None trains on all of it equally.
        target_heldout: Folder of held-out target documents (:data:`dana.core.schemas.DOCUMENTS`); the
            task's text of a mixture is in the folder ``fit`` beside it.
        pool_heldout: Folder of held-out pool documents.
        settings: Settings of the training.
        out: Folder for the model.
        given: Settings that the call gave beside the run's recipe, for the manifest.
        language: ISO 639-1 code, for objectives that cut text without weights into sentences.

    Raises:
        ArtifactError: If an input is missing or damaged, or `out` holds something else.
        ConfigError: If the model has too few positions for ``max_tokens`` or no head for the
            objective, the objective cannot train on the units of the weights, words cannot be added
            to the tokenizer, or fewer processes joined than were launched.
        DataError: If there is no text to train on, nothing in it to predict, or no word to add; or if a
            new head stays too bad.
        Preemption: If a signal asked to stop; a checkpoint is saved.
    """
    check_checkpoint(model)
    settings.make_objective().check_inputs()
    read_pooling(model)  # refuses a checkpoint with modules that dana cannot pool, before any work
    config = load_config(model)
    settings = settings.for_width(config.get_text_config().hidden_size)
    if not settings.mix:
        # A phase without a mixture takes that of the settings, so the default must stand there.
        settings = replace(settings, mix=_default_mix(weights is not None))
    mixes = [phase.mix for phase in settings.by_phase()]
    data = TrainingData(
        pool, weights, target_heldout, pool_heldout, settings.total_mix, mixes, language
    )
    objective = settings.make_objective()
    if data.weights is not None:
        check_weights(data.weights, objective, settings.objective)
    origin: dict[str, Any] = {"model": model_identity(model)}
    head: Path | None = None
    if not objective.has_own_head and lacks_head(objective.auto_class(config), model):
        head = Path(f"{out}{HEAD}")
        origin["head_warmup"] = asdict(settings.head_warmup)
    if settings.vocabulary:
        check_vocabulary(load_own_tokenizer(model))
        # Words are chosen from the task's text, which is otherwise an input only if it is trained on.
        origin["words"] = {"of": table_identity(data.task, DOCUMENTS), "version": WORDS_VERSION}
    job = TrainingJob(
        base=_base_name(model),
        load=partial(_load_to_adapt, model, settings, data, head),
        data=data,
        settings=settings,
        licence=licence_line(model),
        documents=read_known_text(model),
    )
    artifact = run_job(job, origin, out, given)
    if head is not None:
        on_rank_0(partial(shutil.rmtree, head, ignore_errors=True))
    return artifact


def _base_name(model: str) -> str:
    """Return the name of a model; of a copy with a new head, that of the model without it."""
    manifest = read_manifest(Path(resolve_model(model)))
    name: str = manifest.get(COPY_OF) or model_name(model)
    return name


def _load_to_adapt(
    model: str, settings: AdaptSettings, data: TrainingData, head: Path | None
) -> LanguageModel:
    """Load a model with the heads of its objective, and with new words and an adapter if the settings say so.

    Args:
        model: Folder with safetensors, or Hub name.
        settings: Settings of the training.
        data: Inputs, from which new words are chosen.
        head: Folder for a copy of the model with a new head; None for a model that needs none.

    Raises:
        ArtifactError: If the model cannot be loaded.
        ConfigError: If the objective does not support the architecture, or an adapter is wanted for a
            model without a head.
        DataError: If there is no word to add, or the new head stays too bad.
    """
    start = model
    notes: dict[str, Any] = {}
    if head is not None and settings.adapter is None:
        start = head_stage(model, data, settings, head)
        if start != model:  # what it lacks may be another head, which has no warm-up
            notes[NEW_HEAD] = read_manifest(head)[NEW_HEAD]
    objective = settings.make_objective()
    language_model = objective.prepare_model(start, settings.seed, settings.dropout)
    if settings.vocabulary:
        language_model = _with_words(language_model, settings.vocabulary, data)
    if settings.adapter is not None:
        has_head = not language_model.new
        allowed = f"null: {model} has no language-model head, which adapters do not train"
        require(has_head, "adapter", settings.adapter, allowed)
        add_adapter(
            language_model.model, language_model.tokenizer, settings.adapter, model, settings.seed
        )
    return replace(language_model, notes={**language_model.notes, **notes})


def _with_words(language_model: LanguageModel, number: int, data: TrainingData) -> LanguageModel:
    """Add words of the target text and of the text to train on to a model's vocabulary.

    The rows of the model's embeddings are added in place. How many words there are, and how many
    tokens they save, is logged. Every process chooses the same words, and so does a run that resumes,
    because they read the same text.

    Args:
        language_model: The model and its tokenizer.
        number: Most words to add.
        data: Inputs of the training.

    Returns:
        The model with another tokenizer, and with notes on the words for the manifest.

    Raises:
        DataError: If no word would save a token.
        ConfigError: If words cannot be added to the tokenizer.
    """
    tokenizer = language_model.tokenizer
    texts = {
        "target": (document.text for document in iterate_documents(data.task)),
        "pool": (document.text for document in data.other_documents()),
    }
    counts = {name: count_words(text, tokenizer) for name, text in texts.items()}
    words = choose_words(list(counts.values()), number, tokenizer)
    if not words:
        raise DataError(
            f"adapt.vocabulary={number}: the tokenizer breaks no word of the text that occurs twice; "
            "leave vocabulary at 0"
        )
    extended = extend_tokenizer(tokenizer, words, language_model.model.config)
    pieces_of_word: dict[str, tuple[int, ...]] = {}
    for text_counts in counts.values():
        pieces_of_word |= text_counts.pieces
    # The extended tokenizer is a copy, so the old one still has its old size: the first new id.
    first_id = len(tokenizer)
    pieces_by_id = {first_id + index: pieces_of_word[word] for index, word in enumerate(words)}
    with quiet_transformers():
        add_rows(language_model.model, first_id + len(words), pieces_by_id)
    # By text, the share of its tokens that the words save.
    shares = {name: text.saved(words) / max(1, text.tokens) for name, text in counts.items()}
    log.info(
        "words     %s are new tokens: %.1f %% fewer tokens of target text, %.1f %% of the text to train on",
        f"{len(words):,}",
        100 * shares["target"],
        100 * shares["pool"],
    )
    notes = {"new_tokens": {"number": len(words), "saved": shares}}
    return replace(language_model, tokenizer=extended, notes=notes)


def pretrain_stage(
    size: str,
    pool: Path,
    target_heldout: Path,
    pool_heldout: Path,
    settings: PretrainSettings,
    out: Path,
    given: Mapping[str, Any] | None = None,
) -> Artifact:
    """Train a tokenizer and an encoder from scratch on a pool.

    The folder is like that of :func:`dana.stages.training.adapt_stage`. The tokenizer does not see
    held-out documents either.

    Args:
        size: ``tiny``, ``mini``, ``small``, ``medium`` or ``base``.
        pool: Folder of a pool artifact.
        target_heldout: Folder of held-out target documents (:data:`dana.core.schemas.DOCUMENTS`).
        pool_heldout: Folder of held-out pool documents.
        settings: Settings of the training.
        out: Folder for the model.
        given: Settings that the call gave beside the run's recipe, for the manifest.

    Raises:
        ConfigError: If the size is unknown, or the objective cannot train this architecture.
        ArtifactError: If an input is missing, or `out` holds something else.
        DataError: If there is no text to train on, or nothing in it to predict.
        Preemption: If a signal asked to stop; a checkpoint is saved.
    """
    from transformers import AutoConfig

    require(size in SIZES, "size", size, f"one of {', '.join(SIZES)}")
    # An architecture that the objective cannot train is refused before a tokenizer is trained.
    settings.make_objective().auto_class(AutoConfig.for_model(settings.architecture))
    no_weights = None
    data = TrainingData(pool, no_weights, target_heldout, pool_heldout)
    job = TrainingJob(
        base=f"{settings.architecture}-{size}",
        load=partial(_new_model, size, settings, data),
        data=data,
        settings=settings,
        documents=np.zeros(0, np.uint64),
    )
    return run_job(job, {"size": size}, out, given)


def _new_model(size: str, settings: PretrainSettings, data: TrainingData) -> LanguageModel:
    """Train a tokenizer on the pool without held-out documents, and return a new encoder for it.

    Args:
        size: See :func:`pretrain_stage`.
        settings: Settings of the training.
        data: The pool, and held-out documents, which must be there.
    """
    heldout = data.heldout_ids()

    def texts() -> Iterator[str]:
        for document in iterate_documents(data.pool):
            if document.doc_id not in heldout:
                yield document.text

    tokenizer = train_tokenizer(
        texts, settings.vocabulary, settings.max_positions, settings.lowercase
    )
    return new_encoder(
        settings.architecture,
        size,
        tokenizer,
        settings.dropout,
        settings.seed,
        settings.make_objective().auto_class,
    )


def head_stage(model: str, data: TrainingData, settings: AdaptSettings, out: Path) -> str:
    """Return a model with a language-model head: the model itself, or a copy with a new head.

    The new head is warmed up on the whole pool, whatever has a weight: one that is trained on selected
    text alone knows too little of other text. The state of the warm-up is kept in
    ``OUT-warmup`` until the copy is committed. Under several processes every one must call this.

    Args:
        model: Folder with safetensors, or Hub name.
        data: Its pool is warmed up on; its held-out documents must be there. Weights and mixture are
            not read.
        settings: Settings of the arms. ``head_warmup``, the seed, ``max_tokens`` and the objective
            decide the head; the others say how it is computed and measured.
        out: Folder for the copy.

    Returns:
        Folder or Hub name of the model that every arm starts from.

    Raises:
        ArtifactError: If an input is missing or damaged, or `out` holds something else.
        ConfigError: If the objective does not support the architecture, the model has too few
            positions for ``max_tokens``, or ZeRO-3 has cut the model up.
        DataError: If there is no text to train on, or the new head stays too bad.
    """
    check_checkpoint(model)
    read_pooling(model)  # as in adapt_stage
    check_length(load_config(model), settings.max_tokens)
    objective = settings.make_objective()
    language_model = objective.prepare_model(model, settings.seed)
    if not language_model.new or objective.has_own_head:
        return model
    head_settings = {
        name: getattr(settings, name) for name in ("head_warmup", "seed", "max_tokens")
    }
    head_settings |= objective.decisive()
    data = data.of_whole_pool()
    depends_on = {"model": model_identity(model), **data.identity(), "settings": head_settings}
    file = WarmupFile(warmup_file(out), depends_on)

    def write(draft: Draft | None) -> None:
        _write_with_head(language_model, data, settings, file, draft)
        if draft is not None:
            _describe_copy(draft, model)

    artifact = make_on_all_ranks(out, "model", depends_on, write)
    on_rank_0(file.remove)
    return str(artifact.path)


def warmup_file(head: Path) -> Path:
    """Return the file with the state of the warm-up of a new head, which is removed once the copy is committed.

    Args:
        head: Folder for the copy.
    """
    return Path(f"{head}-warmup")


def _write_with_head(
    language_model: LanguageModel,
    data: TrainingData,
    settings: AdaptSettings,
    file: WarmupFile,
    draft: Draft | None,
) -> None:
    """Warm up the new head of a model, in place, and save the model into a draft with notes on the head.

    Args:
        language_model: The model.
        data: Pool to warm up on, and held-out documents.
        settings: Settings of the arms.
        file: Keeps the state of the warm-up.
        draft: Draft of the model; None on ranks that take part and write nothing.

    Raises:
        DataError: See :func:`head_stage`.
        ConfigError: See :func:`head_stage`.
    """
    log.info(
        "the model has no language-model head: a new one is trained alone, on text of the pool"
    )
    objective = settings.make_objective()
    tokenizer = language_model.tokenizer
    collator = objective.collator(tokenizer, settings.seed)
    make = _example_maker(objective, tokenizer, settings.max_tokens, settings.seed)
    examples, counts = data.examples(tokenizer, make)
    accelerator = make_accelerator()
    texts = {"pool": folder_text(data.pool_heldout, tokenizer, data.language)}
    heldout = heldout_examples(texts, objective, tokenizer, settings)
    check = HeadCheck(heldout.texts["pool"], heldout.collator, accelerator)
    # A warm-up is too short for compiling to save time.
    uncompiled = replace(settings, execution=replace(settings.execution, compile=False))
    shape, _ = choose_execution(language_model.model, examples, uncompiled, accelerator, collator)
    shape = before_wrapping(shape, accelerator)
    head = warm_up_head(
        language_model, examples, collator, settings, settings.head_warmup, shape, check, file
    )
    trained_model = prepare(language_model.model, settings, accelerator)
    save_model(trained_model, tokenizer, _folder_of(draft))
    if draft is None:
        return
    draft.counts = counts
    note = {"parameters": sorted(language_model.new), **asdict(settings.head_warmup)}
    if head is not None:
        note |= asdict(head)
    draft.notes[NEW_HEAD] = note
    note_weights(draft)


def _describe_copy(draft: Draft, model: str) -> None:
    """Say in the draft of a copy with a new head what the model is, its licence, and what it has read.

    Args:
        draft: Draft of the copy.
        model: Folder with safetensors, or Hub name.
    """
    name = model_name(model)
    draft.notes[COPY_OF] = name
    card = COPY_CARD.format(licence=licence_line(model), name=name)
    write_text(draft.path / "README.md", card)
    documents = read_known_text(model)
    if documents is not None:
        np.save(draft.path / FILE, documents)


def require_saved_head(settings: TrainSettings) -> None:
    """Check that the loss of an objective can be measured with a saved model.

    Raises:
        ConfigError: If the objective's head is not part of the saved model.
    """
    allowed = "masked: its head is not saved, so a saved model has no such loss to measure"
    has_saved_head = not settings.make_objective().has_own_head
    require(has_saved_head, "objective", settings.objective, allowed)


def publish_stage(folder: Path, name: str, kind: str = "model") -> str:
    """Upload a model to the Hugging Face Hub; a new repository is private.

    Args:
        folder: Output of ``dana adapt``, or ``OUT-model`` of ``dana finetune --save``.
        name: Name of the repository, ``organisation/name``.
        kind: Kind of the artifact: ``model``, or ``classifier`` of a fine-tuned model.

    Returns:
        URL of the upload.

    Raises:
        ArtifactError: If there is no model, or it cannot be uploaded; the folder is unchanged.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    commands = {"model": "dana adapt DIR --model ...", "classifier": "dana finetune --save"}
    open_artifact(folder, kind, commands[kind])
    hub = HfApi()
    try:
        hub.create_repo(name, private=True, exist_ok=True)
        url = hub.upload_folder(repo_id=name, folder_path=folder, commit_message="Trained by dana")
    except (HfHubHTTPError, OfflineModeIsEnabled, OSError, ValueError) as error:
        lines = str(error).splitlines() or [type(error).__name__]  # some errors have no text
        raise ArtifactError(
            f"{folder}: not uploaded to {name}: {lines[0]}; the folder is unchanged"
        ) from error
    return str(url)
