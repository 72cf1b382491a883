"""Fine-tune a checkpoint on a labelled task with one seed: the step of which every fine-tuning consists.

Three functions are steps of a run: :func:`seed_stage` trains and tests one seed,
:func:`rate_stage` finds a learning rate for the seeds of a model, and :func:`model_stage` writes the
classifier of the best seed. :mod:`dana.stages.finetune` plans them.
"""

import copy
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_model, save_model

from dana.core.artifacts import (
    MANIFEST,
    Artifact,
    Draft,
    fingerprint,
    get_notes,
    list_differences,
    make,
    open_artifact,
    read_manifest,
)
from dana.core.config import require
from dana.core.errors import ArtifactError, Contradiction, DivergenceError, Preemption
from dana.core.launch import StopRequest
from dana.core.logging import get_logger
from dana.core.raw_files import RAW_FILES, RawFiles
from dana.core.rng import generator
from dana.corpus.documents import source_digests
from dana.corpus.text import ENTITY_MARKERS, entity_markers
from dana.finetuning.encoded_split import MOST_WINDOWS, EncodedSplit
from dana.finetuning.loop import Callbacks, SeedTraining, run_seed
from dana.finetuning.result_model import FINE_TUNED, Description
from dana.finetuning.results import SeedResult, read_results, summarise, write_result
from dana.finetuning.saved import write_model
from dana.finetuning.settings import FinetuneSettings, checkpoint_entry, training_class
from dana.models.classifier import Classifier, mean_head_origin
from dana.models.folder import load_tokenizer, model_identity, model_name
from dana.models.language_model import check_length
from dana.stages.join import logs_folder
from dana.tasks.card import SPLITS, TaskCard, load_card
from dana.tasks.examples import (
    Example,
    fold_count,
    overlap,
    read_splits,
    stream_examples,
    subset,
)
from dana.tasks.settings import AUTO, MARKERS, Preset
from dana.tasks.tables import MOST_CUT, collapse_warning, data_warnings
from dana.train.execution import Precision, make_accelerator
from dana.train.run import check_trackers, tracker_run

log = get_logger(__name__)

Splits = dict[str, list[Example]]

WEIGHTS_FILE = "weights.safetensors"  # of a seed, until the model of the best seed is written
RATE_FACTORS = (0.1, 0.3, 1.0, 3.0)  # of the checkpoint's rate, that `learning_rate: auto` tries
RATE_SEED = 0  # of these trials, whatever the seeds of the results are


@dataclass(frozen=True)
class Finetuning:
    """All that the fine-tunings of one checkpoint on one task, or on one fold of it, have in common.

    Attributes:
        model: Folder or Hub name of the checkpoint.
        config: Its configuration.
        tokenizer: Its tokenizer.
        task: The task's card, with the names of fields that the settings override.
        preset: Hyper-parameters.
        markers: Marks before the entities, where texts are pooled at them.
        windows: ``mean``, where longer texts are read in windows; else None.
        method: Name of the way of training.
        max_train: Number of training texts; None for all.
        data: Folder of the card's data.
        fold: The fold that is tested; None for a task without folds.
        raw_files: Files of the model and of the task's data that were hashed.
    """

    model: str
    config: Any
    tokenizer: Any
    task: TaskCard
    preset: Preset
    markers: tuple[str, ...]
    windows: str | None
    method: str
    max_train: int | None
    data: str | None
    fold: int | None
    raw_files: RawFiles

    @classmethod
    def from_settings(
        cls,
        model: str,
        card: str,
        settings: FinetuneSettings,
        out: Path | None,
        data: str | None = None,
        fold: int | None = None,
    ) -> "Finetuning":
        """Read the card and the checkpoint's configuration, and choose hyper-parameters and pooling.

        Where a pooling at markers may be chosen, the training texts are read, too, up to the first
        without markers; of a card with folds the texts of all folds.

        `out` is the folder of the step, whose manifest may know digests of files; None knows none.

        Raises:
            ConfigError: If the card or preset is unknown, the pooling does not fit, or the model is
                too small for ``max_tokens``.
            DataError: If the training texts are missing or do not fit the card.
            ArtifactError: If there is no such model.
        """
        task = settings.fields_of(load_card(card))
        config, tokenizer = load_tokenizer(model)
        preset = settings.resolve(task, config)
        preset, markers = _choose_pooling(settings, preset, task, data)
        check_length(config, preset.max_tokens)
        training_class(settings.method).check_task(task, preset)
        if settings.windows is not None:
            _check_windows(settings.windows, task, markers)
        return cls(
            model=model,
            config=config,
            tokenizer=tokenizer,
            task=task,
            preset=preset,
            markers=markers,
            windows=settings.windows,
            method=settings.method,
            max_train=settings.max_train,
            data=data,
            fold=fold,
            raw_files=RawFiles(out),
        )

    @property
    def training(self) -> type[SeedTraining]:
        """The class that trains a seed."""
        return training_class(self.method)

    @cached_property
    def origin(self) -> dict[str, Any]:
        """What decides the result of any seed: model, task, its data, hyper-parameters.

        The first access hashes the files. Access it before :meth:`read`: after reading,
        :meth:`RawFiles.check_unchanged` finds the files that were changed in between.
        """
        task = self.task.decisive | self.task.partition
        files = self.task.files(self.data, SPLITS)
        task["data"] = source_digests(files, self.raw_files.digest)
        preset = {name: value for name, value in asdict(self.preset).items() if name != "seeds"}
        origin: dict[str, Any] = {
            "model": model_identity(self.model, self.raw_files.digest),
            "task": task,
            "preset": preset,
            "max_train": self.max_train,
            "fold": self.fold,
            "windows": self.windows,
            "method": {self.method: self.training.version},
        }
        return origin | mean_head_origin(self.config, self.preset.pooling)

    def read(self) -> Splits:
        """Read the examples of all splits."""
        return read_splits(self.task, self.data, self.fold)

    def training_texts(self, splits: Splits) -> list[Example]:
        """Return the training examples that are used: of all, the part that ``max_train`` says."""
        return subset(splits["train"], self.max_train)

    def encode(self, splits: Splits) -> dict[str, EncodedSplit]:
        """Encode train and dev with labels, and test without: test labels are for the results alone."""
        tokenizer = self.tokenizer
        length = self.preset.max_tokens
        kind = self.task.label_kind
        windows = self.windows is not None
        parts = {"train": self.training_texts(splits), "dev": splits["dev"]}
        inputs = {
            name: EncodedSplit.with_labels(part, tokenizer, length, kind, self.markers, windows)
            for name, part in parts.items()
        }
        inputs["test"] = EncodedSplit.from_examples(
            splits["test"], tokenizer, length, self.markers, windows
        )
        return inputs

    def run(
        self,
        seed: int,
        inputs: dict[str, EncodedSplit],
        precision: Precision,
        name: str,
        track: Callable[..., None] | None = None,
    ) -> tuple[Classifier, SeedResult]:
        """Train and test one seed.

        Raises:
            Preemption: At the next step after a signal to stop.
        """
        with StopRequest() as stop:

            def check_in() -> None:
                if stop.received:
                    raise Preemption(
                        f"stopped by a signal in seed {seed}; finished seeds are kept: "
                        "run the same command to resume"
                    )

            title = f"{self.task.name} {name}"
            calls = Callbacks(check_in, track)
            return run_seed(
                self.model,
                inputs,
                self.task,
                self.preset,
                seed,
                precision,
                title,
                calls,
                self.training,
            )


def seed_stage(  # noqa: PLR0913, a step of a recipe names its inputs one by one
    model: str,
    card: str,
    settings: FinetuneSettings,
    seed: int,
    out: Path,
    data: str | None = None,
    fold: int | None = None,
    rate: Path | None = None,
    twin: Path | None = None,
) -> Artifact:
    """Fine-tune a checkpoint on a task with one seed, and test it.

    With the same seed all checkpoints start from the same head and see the data in the same order.

    Args:
        model: Folder with safetensors, or Hub name.
        card: A task card's name or YAML file.
        settings: Preset and overrides; with ``save`` the weights are kept for :func:`model_stage`.
        seed: Decides the head's initial weights, the order of the examples and dropout.
        out: Folder for ``metrics.json`` (one row) and ``predictions.parquet`` (one row per test
            example).
        data: Folder of the card's data.
        fold: The fold that is tested, of a card with several.
        rate: Folder of :func:`rate_stage`, for ``learning_rate: auto``.
        twin: Folder of the same seed of another arm. If it has the same fingerprint, as where the
            model of this arm turns out to be the base, its result is copied instead of trained. It
            may be missing.

    Raises:
        ConfigError: If the card or preset is unknown, or the model is too small for ``max_tokens``.
        DataError: If the data is missing or does not fit the card.
        ArtifactError: If the model cannot be used, or `out` holds another result.
        Preemption: If a signal asked to stop.
    """
    check_trackers(settings.trackers)
    shared = Finetuning.from_settings(model, card, settings, out, data, fold)
    accelerator = make_accelerator(settings.trackers, logs_folder(out))
    precision = Precision.without_scaler(accelerator)
    name = arm_name(out, model)
    # The origin is that of any seed; the fingerprint of this step has its own one.
    preset = {**shared.origin["preset"], "seeds": [seed]}
    depends_on = {**shared.origin, "preset": preset}

    def write(draft: Draft) -> None:
        if twin is not None and _copy_twin(twin, depends_on, draft):
            return
        splits, inputs, details_of_data = _read_data(shared)
        job = _with_rate(shared, rate)
        with tracker_run(accelerator, name, job.preset, f"seed-{seed}") as track:
            classifier, result = job.run(seed, inputs, precision, name, track)
        details = {
            "model": model_name(model),
            "preset": settings.preset,
            "settings": {**asdict(job.preset), "seeds": [seed], **_beside_preset(job)},
            **details_of_data,
            "baselines": {},
            "folds": None if fold is None else fold_count(job.task, data),
        }
        metrics = write_result(draft.path, job.task, details, result, splits)
        if warning := collapse_warning(metrics):
            log.warning("finetune  %s", warning)
        if settings.save:
            save_model(classifier, str(draft.path / WEIGHTS_FILE))
        draft.counts = {split: len(part.tokens) for split, part in inputs.items()}
        draft.notes["precision"] = precision.name  # of the launch, to which a later one is compared
        if result.precision != precision.name:
            draft.notes["computed_in"] = result.precision
        draft.notes[RAW_FILES] = shared.raw_files.records()

    return make(out, "finetune", depends_on, write)


def _copy_twin(twin: Path, depends_on: dict[str, Any], draft: Draft) -> bool:
    """Copy the seed of another arm into a draft, if it has the fingerprint of this one.

    Returns:
        Whether it was copied; if not, it is missing, or was made of something else.
    """
    if not (twin / MANIFEST).is_file():
        return False
    other = open_artifact(twin, "finetune")
    if other.fingerprint != fingerprint(depends_on):
        return False
    # The manifest of the other is copied, too; that of this step is written over it.
    shutil.copytree(twin, draft.path, dirs_exist_ok=True)
    draft.counts = other.manifest["counts"]
    draft.notes = get_notes(other.manifest)
    return True


def rate_stage(
    model: str,
    card: str,
    settings: FinetuneSettings,
    out: Path,
    data: str | None = None,
    fold: int | None = None,
) -> Artifact:
    """Find the learning rate of a fine-tuning: each rate trains on four fifths of the training texts.

    The rate with the best score on the other fifth is the note ``learning_rate`` of the manifest. A
    rate whose loss is not finite is left out.

    Args:
        model: Folder with safetensors, or Hub name.
        card: A task card's name or YAML file.
        settings: Preset and overrides.
        out: Folder of the artifact, which holds nothing but its manifest.
        data: Folder of the card's data.
        fold: The fold that is tested later, whose texts are not used.

    Raises:
        ConfigError: If there are too few training texts; and as :func:`seed_stage`.
        DataError: See :func:`seed_stage`.
        ArtifactError: See :func:`seed_stage`.
        DivergenceError: If no rate has a finite loss.
        Preemption: If a signal asked to stop.
    """
    shared = Finetuning.from_settings(model, card, settings, out, data, fold)
    precision = Precision.without_scaler(make_accelerator())
    rate_of_checkpoint = checkpoint_entry(shared.config)["learning_rate"]
    middle = shared.training.auto_preset.get("learning_rate", rate_of_checkpoint)
    rates = [middle * factor for factor in RATE_FACTORS]
    depends_on = {**shared.origin, "rates": rates}  # hashes the files, before they are read

    def write(draft: Draft) -> None:
        start = time.monotonic()
        train = shared.training_texts(shared.read())
        shared.raw_files.check_unchanged()
        count = len(train) // 5
        requirement = f"a number: {len(train)} training texts are too few to find one"
        require(count > 0, "learning_rate", AUTO, requirement)
        rows = generator(RATE_SEED, "finetune", "rate").permutation(len(train))
        dev = [train[row] for row in sorted(rows[:count])]
        others = [train[row] for row in sorted(rows[count:])]
        # A test split must not be empty; what is predicted of this one is not used.
        inputs = shared.encode({"train": others, "dev": dev, "test": dev[:1]})
        scores = {}
        diverged = None
        for rate in rates:
            job = replace(shared, preset=replace(shared.preset, learning_rate=rate))
            try:
                _, result = job.run(RATE_SEED, inputs, precision, arm_name(out, model))
            except DivergenceError as error:
                log.warning("finetune  learning_rate=%.2g is left out: %s", rate, error)
                diverged = error
                continue
            scores[rate] = result.dev_score
        if diverged is not None and not scores:
            raise diverged
        # Of rates that score alike, the one nearest to that of the preset auto.
        nearest_first = sorted(scores, key=lambda rate: abs(np.log(rate / middle)))
        best = max(nearest_first, key=lambda rate: shared.task.sign * scores[rate])
        log.info(
            "finetune  learning_rate=%.2g found in %.0f s: %s on %d training texts: %s",
            best,
            time.monotonic() - start,
            shared.task.metric,
            count,
            ", ".join(f"{rate:.2g} {score:.4f}" for rate, score in scores.items()),
        )
        draft.notes["learning_rate"] = best

    return make(out, "learning_rate", depends_on, write)


def model_stage(
    model: str,
    card: str,
    settings: FinetuneSettings,
    seeds: list[Path],
    out: Path,
    data: str | None = None,
    fold: int | None = None,
    rate: Path | None = None,
) -> Artifact:
    """Write the classifier of the seed with the best development score, for ``dana predict``.

    The weights that ``save`` kept in the folders of the seeds are deleted once the model is written.

    Args:
        model: See :func:`seed_stage`.
        card: See :func:`seed_stage`.
        settings: See :func:`seed_stage`.
        seeds: Folders of :func:`seed_stage`. A seed that was trained without ``save`` is trained
            again if it is the best.
        out: Folder of the model, which replaces that of another seed.
        data: See :func:`seed_stage`.
        fold: See :func:`seed_stage`.
        rate: See :func:`seed_stage`.

    Raises:
        ArtifactError: If `out` holds anything but the model of a seed made alike.
    """
    shared = Finetuning.from_settings(model, card, settings, out, data, fold)
    kind = shared.task.label_kind
    results = []
    for seed_folder in seeds:
        [result_of_seed] = read_results(seed_folder, kind)
        results.append(result_of_seed)
    goodness = [shared.task.sign * result.dev_score for result in results]
    index = goodness.index(max(goodness))  # the first of a tie
    best = results[index]
    folder = seeds[index]
    depends_on = {**shared.origin, "seed": best.seed}
    check_model_folder(out, shared)

    def write(draft: Draft) -> None:
        splits, inputs, _ = _read_data(shared)
        job = _with_rate(shared, rate)
        result = best
        if (folder / WEIGHTS_FILE).is_file():
            # The kind of the card will do: it has the number of outputs, and the head that was saved
            # has the mean and deviation of the labels in it.
            classifier = job.training.make_classifier(model, job.task, kind, job.preset, best.seed)
            load_model(classifier, folder / WEIGHTS_FILE)
        else:
            log.info("model     seed %d is the best; it is trained again to save it", best.seed)
            precision = Precision.without_scaler(make_accelerator())
            classifier, result = job.run(best.seed, inputs, precision, model_name(model))
            if not np.allclose(result.outputs, best.outputs, atol=1e-4, rtol=1e-4):
                log.warning("model     trained again, seed %d predicts differently", best.seed)
        tokenizer = _finish(classifier, job)
        used = {**splits, "train": job.training_texts(splits)}
        metrics = summarise(seeds)
        warning = write_model(draft, classifier, result, job.task, tokenizer, used, model, metrics)
        notes = {"warning": warning} if warning else {}
        Description.of_card(FINE_TUNED, job.task, **notes).write(draft.path)

    written = read_manifest(out)  # empty where no model was written yet
    is_other_seed = bool(written) and written["depends_on"].get("seed", best.seed) != best.seed
    if is_other_seed:
        log.info("model     seed %d is better now and replaces the one in %s", best.seed, out)
    artifact = make(out, "classifier", depends_on, write, remake=is_other_seed)
    for seed_folder in seeds:
        (seed_folder / WEIGHTS_FILE).unlink(missing_ok=True)
    return artifact


def fit_classifier(
    model: str,
    card: str,
    settings: FinetuneSettings,
    texts: Splits,
    seed: int,
    data: str | None = None,
    rate: Path | None = None,
) -> tuple[Classifier, Any]:
    """Fine-tune a checkpoint for use, not for a score: no text is left for a test.

    Args:
        model: See :func:`seed_stage`.
        card: See :func:`seed_stage`.
        settings: See :func:`seed_stage`.
        texts: ``train`` and ``dev``. The classifier is trained on both; on ``train`` alone if ``dev``
            chooses the best epoch (``evaluate: best``), or if ``max_train`` is set.
        seed: See :func:`seed_stage`.
        data: See :func:`seed_stage`.
        rate: See :func:`seed_stage`.

    Returns:
        The classifier, and its tokenizer, which cuts texts at the most tokens of the training.

    Raises:
        ConfigError: See :func:`seed_stage`.
        DataError: See :func:`seed_stage`.
        ArtifactError: See :func:`seed_stage`.
        Preemption: If a signal asked to stop.
    """
    # No file is hashed: what decides the result is for the caller to note.
    shared = Finetuning.from_settings(model, card, settings, None, data)
    job = _with_rate(shared, rate)
    train = texts["train"]
    if job.preset.evaluate == "last" and settings.max_train is None:
        train = [*train, *texts["dev"]]
    # A test split must not be empty; what is predicted of this one is not used.
    inputs = job.encode({"train": train, "dev": texts["dev"], "test": texts["dev"][:1]})
    precision = Precision.without_scaler(make_accelerator())
    classifier, _ = job.run(seed, inputs, precision, "final")
    return classifier, _finish(classifier, job)


def _finish(classifier: Classifier, job: Finetuning) -> Any:
    """Note in a classifier how its texts are pooled; return its tokenizer, which cuts them as in training."""
    _note_pooling(classifier, job)
    tokenizer = copy.deepcopy(job.tokenizer)  # that of the job serves other seeds, too
    tokenizer.model_max_length = job.preset.max_tokens
    return tokenizer


def _beside_preset(job: Finetuning) -> dict[str, Any]:
    """Return the settings of a fine-tuning that no preset has."""
    return {"max_train": job.max_train, "windows": job.windows, "method": job.method}


def _note_pooling(classifier: Classifier, job: Finetuning) -> None:
    """Write into a classifier's configuration how dana is to pool texts for it."""
    config = classifier.model.config
    if job.markers:
        config.markers = list(job.markers)
    if job.windows is not None or getattr(config, "windows", None) is not None:
        # None, too: the entry of a base that was trained with windows must not stay.
        config.windows = job.windows


def _check_windows(windows: str, task: TaskCard, markers: Sequence[str]) -> None:
    """Refuse windows for texts that are not pooled as wholes.

    Raises:
        ConfigError: Says why.
    """
    reason = ""
    if task.label_kind.per_word:
        reason = "each word has a label of its own"
    elif task.text_pair:
        reason = "the texts are pairs"
    elif markers:
        reason = f"the texts are pooled at {' and '.join(markers)}; or pooling=mean"
    require(not reason, "windows", windows, f"null: {reason}")


def arm_name(folder: Path, model: str) -> str:
    """Return the name of a seed's model in logs: the arm in ``finetune/TASK/ARM/seed-N``, else the model's name."""
    is_of_arm = folder.parent.parent.parent.name == "finetune"
    return folder.parent.name if is_of_arm else model_name(model)


def check_model_folder(folder: Path, job: Finetuning) -> None:
    """Refuse a folder for the model that holds anything but the model of a seed made alike.

    Raises:
        ArtifactError: Names the difference.
    """
    if not folder.exists():
        return
    is_empty = folder.is_dir() and not any(folder.iterdir())
    if is_empty:
        return
    if not read_manifest(folder):
        raise ArtifactError(f"{folder}: not empty and not made by dana; choose another folder")
    old = dict(open_artifact(folder, "classifier").manifest["depends_on"])
    old.pop("seed", None)
    differences = list(list_differences(old, job.origin))
    if differences:
        raise Contradiction(folder, differences)


def _choose_pooling(
    settings: FinetuneSettings, preset: Preset, task: TaskCard, data: str | None
) -> tuple[Preset, tuple[str, ...]]:
    """Choose the pooling; return the preset with it, and the markers at which texts are pooled.

    Raises:
        ConfigError: If the pooling does not fit the labels or the texts.
    """
    kind = task.label_kind
    pooling = preset.pooling
    form_of_words = f"left out for kind={task.kind}: each word has a label of its own"
    require(pooling == "cls" or not kind.per_word, "pooling", pooling, form_of_words)
    may_choose = settings.preset == AUTO and settings.pooling is None and not kind.per_word
    if pooling != MARKERS and not may_choose:
        return preset, ()
    # A pair has no markers: it counts as a text without.
    texts = (
        example.text if example.pair is None else ""
        for _, example in stream_examples(task, "train", data)
    )
    markers = entity_markers(texts)
    without_markers = (
        f"cls or mean: the training texts have none of {ENTITY_MARKERS}, each once in every text"
    )
    require(bool(markers) or pooling != MARKERS, "pooling", pooling, without_markers)
    if markers:
        return replace(preset, pooling=MARKERS), markers
    return preset, ()


def _with_rate(job: Finetuning, rate: Path | None) -> Finetuning:
    """Return the fine-tuning with a number as learning rate: for ``auto`` the one that was found."""
    if job.preset.learning_rate != AUTO:
        return job
    require(rate is not None, "learning_rate", AUTO, "a number, where no step finds one")
    assert rate is not None  # else the line above has refused it
    found = open_artifact(rate, "learning_rate").manifest["learning_rate"]
    return replace(job, preset=replace(job.preset, learning_rate=float(found)))


ReadData = tuple[Splits, dict[str, EncodedSplit], dict[str, Any]]
# What was read last, by the fingerprint of what decides it. One entry is enough: seeds of one task
# follow one another.
_last_read: dict[str, ReadData] = {}


def _read_data(job: Finetuning) -> ReadData:
    """Read, encode and describe all splits, or return those of the seed before if they are the same.

    Returns:
        The examples and their tokens by split, and :func:`_describe_data` of them.
    """
    key = fingerprint({**job.origin, "markers": job.markers})
    if key not in _last_read:
        splits = job.read()
        job.raw_files.check_unchanged()
        inputs = job.encode(splits)
        details = _describe_data(job, splits, inputs)
        for warning in data_warnings(details):
            log.warning("finetune  %s", warning)
        full = details["full_texts"]
        is_warned_of = full["count"] > MOST_CUT * full["of"]  # by one of the warnings above
        if full["count"] and not is_warned_of:
            log.info(
                "finetune  %d of %d test texts fill the %d tokens that are read; text beyond was cut",
                full["count"],
                full["of"],
                full["max_tokens"],
            )
        _last_read.clear()
        _last_read[key] = splits, inputs, details
    return _last_read[key]


def _describe_data(
    job: Finetuning, splits: Splits, inputs: dict[str, EncodedSplit]
) -> dict[str, Any]:
    """Say what of the data may make a score mean less than it seems.

    Returns:
        ``untrained_labels``, those that development or test examples have and no training example;
        ``split_overlap``, how many test texts are in which other split; and ``full_texts``, how
        many test texts have all the tokens that are read, so that longer ones are cut.
    """
    kind = job.task.label_kind
    # Of the labels that no training text has, those that development or test texts have.
    not_trained = kind.absent([row.label for row in job.training_texts(splits)])
    not_evaluated = kind.absent([row.label for row in splits["dev"] + splits["test"]])
    untrained = [label for label in not_trained if label not in not_evaluated]
    window = job.preset.max_tokens
    test = inputs["test"]
    full = {"count": test.count_cut(window), "of": len(test.tokens)}
    tokens_read = window
    if job.windows is not None:
        tokens_read = window * MOST_WINDOWS
    return {
        "untrained_labels": untrained,
        "split_overlap": overlap(splits),
        "full_texts": {**full, "max_tokens": tokens_read},
    }
