"""``dana finetune``: fine-tune a checkpoint on a labelled task over seeds; write metrics and predictions."""

import copy
import json
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dana.core.artifacts import (
    Artifact,
    Draft,
    canonical,
    find_reusable,
    make,
    make_on_all_ranks,
    open_artifact,
    read_json,
    read_manifest,
)
from dana.core.config import require
from dana.core.errors import Preemption
from dana.core.files import folder_lock
from dana.core.launch import StopRequest, on_rank_0, single_process
from dana.core.logging import get_logger
from dana.core.raw_files import RAW_FILES, RawFiles
from dana.core.rng import generator
from dana.corpus.documents import source_digests
from dana.corpus.text import ENTITY_MARKERS, entity_markers
from dana.finetuning.loop import Callbacks, EncodedSplit, run_seed
from dana.finetuning.results import (
    METRICS,
    SeedResult,
    Seeds,
    read_results,
    results_table,
    write_results,
)
from dana.finetuning.saved import write_model
from dana.finetuning.settings import FinetuneSettings, checkpoint_entry
from dana.models.classifier import Classifier, mean_head_origin, new_classifier
from dana.models.folder import load_config, load_tokenizer, model_identity, model_name
from dana.models.language_model import check_length
from dana.stages.floors import floor_scores
from dana.stages.join import join_stage, part_folder
from dana.tasks.card import DECISIVE, SPLITS, TaskCard, load_card
from dana.tasks.examples import Example, fold_count, overlap, read_splits, stream_examples, subset
from dana.tasks.settings import AUTO, MARKERS, Preset
from dana.tasks.tables import collapse_warning, data_warnings
from dana.train.execution import Precision, make_accelerator, refuse_precision
from dana.train.run import check_trackers, tracker_run

log = get_logger(__name__)

RATE, RATES = (
    "rate",
    (0.1, 0.3, 1.0, 3.0),
)  # that `learning_rate: auto` tries, as multiples of the checkpoint's


def finetune_stage(
    model: str,
    card: str,
    settings: FinetuneSettings,
    out: Path,
    data: str | None = None,
    fold: int | None = None,
    with_floors: bool = False,
) -> Artifact:
    """Fine-tune over seeds; under several processes every one must call this, and they share the seeds.

    Finished seeds are stored in ``OUT-seeds`` until all are committed: a rerun resumes with the
    missing ones. A committed result is extended if more seeds are requested and nothing else
    differs.

    Args:
        model: Folder with safetensors, or Hub name.
        card: A task card's name or YAML file.
        settings: Preset and overrides.
        out: Folder for ``metrics.json`` (one row per seed; mean, std with ddof 1, n) and
            ``predictions.parquet`` (one row per seed and test example: seed, id, label, prediction
            and further columns of the card's kind). With ``save``, the model of the seed with the
            best development score goes to ``OUT-model``.
        data: Folder with the card's data.
        fold: Fold that is tested, of a card with several. None tests every fold, with seeds and a
            part of the result of its own, and joins the parts: :func:`dana.stages.join.join_stage`.
        with_floors: Add ``floors`` to ``metrics.json``: what simple models score
            (:mod:`dana.stages.floors`).

    Raises:
        ConfigError: If the card or preset is unknown, or the model is too small for ``max_tokens``.
        DataError: If the data is missing or does not fit the card.
        ArtifactError: If the model cannot be used, or `out` or ``OUT-seeds`` hold something else.
        Preemption: If a signal asked to stop; finished seeds are stored.
    """
    check_trackers(settings.trackers)
    task = settings.fields_of(load_card(card))
    config, tokenizer = load_tokenizer(model)
    preset, markers = _choose_pooling(settings, settings.resolve(task, config), task, data)
    folds = on_rank_0(lambda: fold_count(task, data))
    check_length(config, preset.max_tokens)
    if folds > 1 and fold is None:
        parts = {index: part_folder(out, index) for index in range(folds)}
        step = max(preset.seed_list) + 1
        for index, part in parts.items():
            seeds_of_fold = [seed + index * step for seed in preset.seed_list]
            finetune_stage(model, card, replace(settings, seeds=seeds_of_fold), part, data, index)

        def floors() -> dict[str, float]:
            if not with_floors:
                return {}
            return floor_scores(
                task, [read_splits(task, data, index) for index in parts], settings.max_train
            )

        return on_rank_0(lambda: join_stage(parts, out, floors))
    accelerator = make_accelerator(settings.trackers, out.with_name(f"{out.name}-logs"))
    precision = Precision.of(accelerator).without_accelerate()
    decisive = (
        {name: getattr(task, name) for name in DECISIVE} | {"id": task.id or "id"} | task.partition
    )
    hyper = {name: value for name, value in asdict(preset).items() if name != "seeds"}
    raw_files = RawFiles(out)
    digests = on_rank_0(lambda: source_digests(task.files(data, SPLITS), raw_files.digest))
    identity = on_rank_0(lambda: model_identity(model, raw_files.digest))
    origin: dict[str, Any] = {
        "model": identity,
        "task": {**decisive, "data": digests},
        "preset": hyper,
    }
    origin |= {"max_train": settings.max_train, **mean_head_origin(config, preset.pooling)}
    origin |= {} if fold is None else {"fold": fold}
    waiting = out.with_name(f"{out.name}-seeds")
    order = tuple(preset.seed_list)
    seeds = Seeds(
        waiting,
        json.loads(canonical(origin)),
        precision=precision.name,
        seeds=order,
        sign=task.sign,
    )
    read = partial(read_splits, task, data, fold)
    rest = (
        tokenizer,
        markers,
        read,
        with_floors,
        folds,
        raw_files,
        seeds,
        accelerator,
        precision,
        out,
    )
    job = _FinetuneJob(model, task, preset, settings, *rest)
    if settings.save:
        job.check_model()
    return job.run({**origin, "preset": {**hyper, "seeds": preset.seed_list}})


def _choose_pooling(
    settings: FinetuneSettings, preset: Preset, task: TaskCard, data: str | None
) -> tuple[Preset, tuple[str, ...]]:
    """Choose the pooling; returns the preset with it, and the markers at which texts are pooled.

    Raises:
        ConfigError: If the pooling does not fit the labels or the texts.
    """
    kind, pooling = task.target, preset.pooling
    hint = f"left out for kind={task.kind}: each word has a label of its own"
    require(pooling == "cls" or not kind.per_word, "pooling", pooling, hint)
    is_free = settings.preset == AUTO and settings.pooling is None and not kind.per_word
    if pooling != MARKERS and not is_free:
        return preset, ()
    texts = (
        example.text if example.pair is None else ""
        for _, example in stream_examples(task, "train", data)
    )
    markers = entity_markers(texts)
    hint = f"cls or mean: the training texts have none of {ENTITY_MARKERS}, each once in every text"
    require(bool(markers) or pooling != MARKERS, "pooling", pooling, hint)
    return (replace(preset, pooling=MARKERS), markers) if markers else (preset, ())


def seed_rows(result: Artifact) -> list[dict[str, Any]]:
    """Read a result of :func:`finetune_stage` as one row per seed: score, every metric, seconds."""
    return read_json(result.path / METRICS)["seeds"]


def finetune_text(result: Artifact) -> str:
    """Format a result of :func:`finetune_stage` as text: one row per seed, mean and standard deviation."""
    return results_table(read_json(result.path / METRICS))


@dataclass(frozen=True)
class _FinetuneJob:
    """Fine-tuning of one model on one task; every process has one."""

    model: str
    task: TaskCard
    preset: Preset
    settings: FinetuneSettings
    tokenizer: Any
    markers: tuple[str, ...]
    read: Callable[[], dict[str, list[Example]]]
    with_floors: bool
    folds: int
    raw_files: RawFiles
    seeds: Seeds
    accelerator: Any
    precision: Precision
    out: Path

    def run(self, depends_on: dict[str, Any]) -> Artifact:
        """Commit the artifact; the first process writes it, the others run their share of the seeds."""
        with ExitStack() as stack:
            on_rank_0(lambda: self.out.parent.mkdir(parents=True, exist_ok=True))
            on_rank_0(
                lambda: stack.enter_context(folder_lock(self.seeds.folder))
            )  # two commands would mix their seeds
            folder, missing = on_rank_0(lambda: self._begin(depends_on))
            make_on_all_ranks(
                folder, "finetune", depends_on, lambda draft: self._write(draft, missing)
            )
            return on_rank_0(lambda: self._end(folder))

    def _begin(self, depends_on: dict[str, Any]) -> tuple[Path, list[int]]:
        """Return the folder to write and the seeds to run."""
        manifest = read_manifest(self.out)
        extends = _seeds_to_add(manifest, depends_on)
        if manifest and not extends:
            return self.out, []
        folder = self._unpack(manifest) if extends else self.out
        missing = [seed for seed in self.preset.seed_list if self.seeds.read(seed) is None]
        ready = [seed for seed in self.preset.seed_list if seed not in missing]
        if ready:
            texts = [", ".join(map(str, part)) or "none" for part in (ready, missing)]
            log.info(
                "seeds     finished: %s (%s); to run: %s", texts[0], self.seeds.folder, texts[1]
            )
        return folder, missing

    def _end(self, folder: Path) -> Artifact:
        """Move the result to its folder, commit the model with ``save``, and remove the stored seeds."""
        if folder != self.out:  # the result with more seeds replaces the one with fewer
            self.out.rename(self.seeds.folder / ".fewer")
            folder.rename(self.out)
            log.info("finetune  extended %s", self.out)
        if self.settings.save:
            self._commit_model()
        self.seeds.remove()
        metrics = read_json(self.out / METRICS)
        _warn_of_data(metrics)
        if warning := collapse_warning(metrics):
            log.warning("finetune  %s", warning)
        return open_artifact(self.out, "finetune")

    def _unpack(self, manifest: dict[str, Any]) -> Path:
        """Store the seeds of a committed result again; return the folder for the extended result.

        Raises:
            ConfigError: If the result was made in another precision.
        """
        refuse_precision(self.out, manifest.get("precision"), self.precision.name)
        for result in read_results(self.out, self.task.target):
            if self.seeds.read(result.seed) is None:
                self.seeds.write(result)
        folder = self.seeds.folder / ".more"  # hidden: not a result of the run yet
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def _encode(self, splits: dict[str, list[Example]]) -> dict[str, EncodedSplit]:
        """Encode train and dev with labels and test without: test labels are read only for the results."""
        cut, kind = (self.tokenizer, self.preset.max_tokens), self.task.target
        parts = {"train": subset(splits["train"], self.settings.max_train), "dev": splits["dev"]}
        inputs = {
            name: EncodedSplit.with_labels(part, *cut, kind, self.markers)
            for name, part in parts.items()
        }
        return {**inputs, "test": EncodedSplit.of(splits["test"], *cut, self.markers)}

    def _write(self, draft: Draft | None, missing: list[int]) -> None:
        """Run this process's share of the missing seeds; with a draft, write the results of all seeds."""
        splits = self.read()
        self.raw_files.check_unchanged()  # known on the first process only
        inputs = self._encode(splits)
        notes = {
            "untrained_labels": self._untrained_labels(splits),
            "split_overlap": overlap(splits),
        }
        if draft is not None:
            _warn_of_data(notes)
        job = self._with_rate(splits["train"])
        results = job._run(inputs, missing)
        if draft is None:
            return
        description = {
            "model": model_name(self.model),
            "preset": self.settings.preset,
            "settings": {**asdict(job.preset), "max_train": self.settings.max_train},
            **notes,
            "floors": floor_scores(self.task, [splits], self.settings.max_train)
            if self.with_floors
            else {},
            "folds": self.folds if self.folds > 1 else None,
        }
        write_results(draft.path, self.task, description, results, splits)
        draft.counts |= {name: len(split.tokens) for name, split in inputs.items()}
        draft.notes["precision"] = self.precision.name
        draft.notes[RAW_FILES] = self.raw_files.records()

    def _with_rate(self, train: list[Example]) -> "_FinetuneJob":
        """Return the job with a number as learning rate: for ``auto`` the one found before, or found now."""
        if self.preset.learning_rate != AUTO:
            return self
        rate = on_rank_0(lambda: self._find_rate(subset(train, self.settings.max_train)))
        return replace(self, preset=replace(self.preset, learning_rate=rate))

    def _find_rate(self, train: list[Example]) -> float:
        """Find a learning rate: each trains one seed on four fifths of the training texts, scored on the fifth."""
        if (self.out / METRICS).is_file():  # seeds are added to a result
            return float(read_json(self.out / METRICS)["settings"]["learning_rate"])
        if checkpoint := self.seeds.open(RATE):  # of a stopped run
            return float(checkpoint.manifest[RATE])
        start, count = time.monotonic(), len(train) // 5
        require(
            count > 0,
            "learning_rate",
            AUTO,
            f"a number: {len(train)} training texts are too few to find one",
        )
        rows = generator(0, "finetune", RATE).permutation(len(train))
        dev, rest = ([train[row] for row in sorted(part)] for part in (rows[:count], rows[count:]))
        inputs, scores = self._encode({"train": rest, "dev": dev, "test": dev[:1]}), {}
        middle = checkpoint_entry(load_config(self.model))["learning_rate"]
        with StopRequest() as stop:
            for rate in (middle * factor for factor in RATES):
                job = replace(self, preset=replace(self.preset, learning_rate=rate))
                scores[rate] = job._seed(self.preset.seed_list[0], inputs, stop)[1].dev_score
        best = max(scores, key=lambda rate: self.task.sign * scores[rate])
        texts = ", ".join(f"{rate:.2g} {score:.4f}" for rate, score in scores.items())
        message = "finetune  learning_rate=%.2g found in %.0f s: %s on %d training texts: %s"
        log.info(message, best, time.monotonic() - start, self.task.metric, count, texts)
        self.seeds.commit(RATE, lambda folder: None, {RATE: best})
        return best

    def _untrained_labels(self, splits: dict[str, list[Example]]) -> list[str]:
        """List the labels that development or test examples have and no training example."""
        parts = subset(splits["train"], self.settings.max_train), splits["dev"] + splits["test"]
        train, rest = (
            self.task.target.absent([example.label for example in part]) for part in parts
        )
        return [label for label in train if label not in rest]

    def _run(self, inputs: dict[str, EncodedSplit], missing: list[int]) -> list[SeedResult]:
        """Run this process's share of the missing seeds; return the results of all seeds on the first process.

        Processes exchange only results, so each handles a signal itself; the launcher sends it to
        all.
        """
        from accelerate.utils import gather_object

        share = missing[self.accelerator.process_index :: self.accelerator.num_processes]
        project, preset = arm_name(self.out, self.model), self.preset
        with StopRequest() as stop, single_process():
            for seed in share:
                with tracker_run(self.accelerator, project, preset, f"seed-{seed}") as track:
                    classifier, result = self._seed(seed, inputs, stop, track)
                if self.settings.save:
                    self.seeds.keep_model(result, classifier)
                self.seeds.write(result)
                del classifier  # the next seed's takes its memory
        ran = {
            result.seed: result
            for result in gather_object([self.seeds.read(seed) for seed in share])
        }
        if not self.accelerator.is_main_process:
            return []
        results = (ran.get(seed) or self.seeds.read(seed) for seed in self.preset.seed_list)
        return [result for result in results if result is not None]

    def _seed(
        self,
        seed: int,
        inputs: dict[str, EncodedSplit],
        stop: StopRequest,
        track: Callable[..., None] | None = None,
    ) -> tuple[Classifier, SeedResult]:
        """Run one seed; stop at the next step after a signal."""

        def check_in() -> None:
            if stop.received:
                progress = f"{self.seeds.count()} finished seeds are in {self.seeds.folder}"
                raise Preemption(
                    f"stopped by a signal in seed {seed}; {progress}: run the same command to resume"
                )

        name, calls = (
            f"{self.task.name} {arm_name(self.out, self.model)}",
            Callbacks(check_in, track),
        )
        return run_seed(
            self.model, inputs, self.task, self.preset, seed, self.precision, name, calls
        )

    def _model_of(self, seed: int | None) -> dict[str, Any]:
        """Return what the model of a seed depends on, as JSON reads it."""
        return json.loads(
            canonical({**self.seeds.depends_on, "precision": self.precision.name, "seed": seed})
        )

    def check_model(self) -> None:
        """Refuse, before any work, a model folder that holds anything but the model of a seed.

        Raises:
            ArtifactError: Names the difference.
        """
        depends_on = read_manifest(self.model_folder).get("depends_on", {})
        find_reusable(self.model_folder, "classifier", self._model_of(depends_on.get("seed")))

    @property
    def model_folder(self) -> Path:
        """Folder of the model."""
        return self.out.with_name(f"{self.out.name}-model")

    def _commit_model(self) -> None:
        """Commit the model of the best seed; that seed is run again if its weights were not stored."""
        results = read_results(self.out, self.task.target)
        best = max(
            results, key=lambda result: self.task.sign * result.dev_score
        )  # the first of a tie

        def write(draft: Draft) -> None:
            splits, result, kind = self.read(), best, self.task.target
            splits["train"] = subset(splits["train"], self.settings.max_train)
            metrics, job = read_json(self.out / METRICS), self._with_rate([])
            classifier = new_classifier(
                self.model, len(kind.outputs), best.seed, kind.per_word, self.preset.pooling
            )
            if not self.seeds.restore(best.seed, classifier):
                log.info(
                    "model     seed %d is the best, but its weights were not stored: running it again",
                    best.seed,
                )
                with StopRequest() as stop:
                    classifier, result = job._seed(best.seed, self._encode(splits), stop)
                if not np.allclose(result.outputs, best.outputs, atol=1e-4, rtol=1e-4):
                    log.warning(
                        "model     run again, seed %d predicts differently from %s",
                        best.seed,
                        self.out,
                    )
            tokenizer = copy.deepcopy(self.tokenizer)
            tokenizer.model_max_length = self.preset.max_tokens
            if self.markers:
                classifier.model.config.markers = list(self.markers)
            write_model(
                draft, classifier, result, self.task, tokenizer, splits, self.model, metrics
            )

        old_seed = read_manifest(self.model_folder).get("depends_on", {}).get("seed", best.seed)
        if old_seed != best.seed:  # the best of fewer seeds
            log.info(
                "model     seed %d is better than seed %d and replaces it", best.seed, old_seed
            )
            self.seeds.folder.mkdir(parents=True, exist_ok=True)
            self.model_folder.rename(self.seeds.folder / ".worse")
        make(self.model_folder, "classifier", self._model_of(best.seed), write)


def _warn_of_data(metrics: dict[str, Any]) -> None:
    for warning in data_warnings(metrics):
        log.warning("finetune  %s", warning)


def arm_name(out: Path, model: str) -> str:
    """Return the name of a model in logs: the arm if `out` is ``finetune/TASK/ARM``, else the model's name."""
    return out.name if out.parent.parent.name == "finetune" else model_name(model)


def _seeds_to_add(manifest: dict[str, Any], depends_on: dict[str, Any]) -> bool:
    """Return True if a committed result lacks only seeds of those requested, all else being equal."""
    if manifest.get("kind") != "finetune":
        return False
    old_inputs, wanted_inputs = (
        json.loads(canonical(value)) for value in (manifest["depends_on"], depends_on)
    )
    old_seeds, new_seeds = old_inputs["preset"].pop("seeds"), wanted_inputs["preset"].pop("seeds")
    return old_inputs == wanted_inputs and set(old_seeds) < set(new_seeds)
