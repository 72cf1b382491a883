"""``dana finetune``: a checkpoint on a labelled task, over seeds; metrics.json and predictions.parquet."""

import copy
import json
import shutil
from contextlib import ExitStack
from dataclasses import asdict, dataclass
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
from dana.corpus.documents import source_digests
from dana.finetuning.loop import EncodedSplit, run_seed
from dana.finetuning.results import METRICS, SeedResult, Seeds, read_results, results_table, write_results
from dana.finetuning.saved import write_model
from dana.finetuning.settings import FinetuneSettings
from dana.models.classifier import Classifier, new_classifier
from dana.models.folder import load_tokenizer, model_identity
from dana.models.language_model import check_length
from dana.tasks.card import SPLITS, TaskCard, load_card
from dana.tasks.examples import Example, overlap, read_splits, subset
from dana.tasks.settings import Preset
from dana.train.execution import Precision, make_accelerator, refuse_precision

log = get_logger(__name__)

DECISIVE = ("name", "version", "kind", "labels", "metric", "text", "text_pair", "template", "label", "unseen_test")


def finetune_stage(model: str, card: str, settings: FinetuneSettings, out: Path, data: str | None = None) -> Artifact:
    """Fine-tune over seeds. Under several processes every one must call this; they share the seeds out.

    Every finished seed is kept in ``OUT-seeds`` until all are committed: a rerun goes on with those that are
    missing. A committed result is extended when more seeds are asked for and nothing else is different.

    Args:
        model: Folder with safetensors, or Hub name.
        card: A task card's name or YAML file.
        settings: Preset and differences.
        out: Folder for ``metrics.json`` (a row a seed; mean, std with ddof 1, n) and ``predictions.parquet``
            (seed, id, label, prediction and what else the card's kind has, a row a seed and test example). With
            ``save``, the model of the seed with the best development score goes to ``OUT-model``.
        data: Folder that holds the card's data.

    Raises:
        ConfigError: If the card or preset is unknown, or the model is too small for ``max_tokens``.
        DataError: If the data is missing or does not fit the card.
        ArtifactError: If the model cannot be used, or `out` or ``OUT-seeds`` hold something else.
        Preemption: If a signal asked to stop; finished seeds are kept.
    """
    task = settings.fields_of(load_card(card))
    preset = settings.resolve(task)
    pooled = preset.pooling == "cls" or not task.target.per_word
    require(pooled, "pooling", preset.pooling, f"left out for kind={task.kind}: each word has a label of its own")
    config, tokenizer = load_tokenizer(model)
    check_length(config, preset.max_tokens)
    accelerator = make_accelerator()
    precision = Precision.of(accelerator).without_accelerate()
    decisive = {name: getattr(task, name) for name in DECISIVE} | {"id": task.id or "id"}
    hyper = {name: value for name, value in asdict(preset).items() if name != "seeds"}
    identity, digests = on_rank_0(lambda: (model_identity(model), source_digests(task.files(data, SPLITS))))
    origin = {
        "model": identity,
        "task": {**decisive, "data": digests},
        "preset": hyper,
        "max_train": settings.max_train,
    }
    waiting = out.with_name(f"{out.name}-seeds")
    order = tuple(preset.seed_list)
    seeds = Seeds(waiting, json.loads(canonical(origin)), precision=precision.name, seeds=order, sign=task.sign)
    job = _Finetuning(model, task, preset, settings, tokenizer, data, seeds, accelerator, precision, out)
    if settings.save:
        job.check_model()
    return job.run({**origin, "preset": {**hyper, "seeds": preset.seed_list}})


def seed_rows(result: Artifact) -> list[dict[str, Any]]:
    """A result of :func:`finetune_stage` as rows, one a seed: its score, every metric, seconds."""
    return read_json(result.path / METRICS)["seeds"]


def finetune_text(result: Artifact) -> str:
    """A result of :func:`finetune_stage` as text: a row a seed, mean and standard deviation."""
    return results_table(read_json(result.path / METRICS))


@dataclass(frozen=True)
class _Finetuning:
    """One model on one task, the same on every process."""

    model: str
    task: TaskCard
    preset: Preset
    settings: FinetuneSettings
    tokenizer: Any
    data: str | None
    seeds: Seeds
    accelerator: Any
    precision: Precision
    out: Path

    def run(self, depends_on: dict[str, Any]) -> Artifact:
        """Commit the artifact; the first process writes it, the others bring their seeds."""
        with ExitStack() as held:
            on_rank_0(lambda: self.out.parent.mkdir(parents=True, exist_ok=True))
            on_rank_0(lambda: held.enter_context(folder_lock(self.seeds.folder)))  # two commands may share it
            folder, missing = on_rank_0(lambda: self._begin(depends_on))
            make_on_all_ranks(folder, "finetune", depends_on, lambda draft: self._write(draft, missing))
            return on_rank_0(lambda: self._end(folder))

    def _begin(self, depends_on: dict[str, Any]) -> tuple[Path, list[int]]:
        """Where to write, and which seeds to run."""
        manifest = read_manifest(self.out)
        extended = _seeds_to_add(manifest, depends_on)
        if manifest and not extended:
            return self.out, []
        folder = self._unpack(manifest) if extended else self.out
        missing = [seed for seed in self.preset.seed_list if self.seeds.read(seed) is None]
        done = [seed for seed in self.preset.seed_list if seed not in missing]
        if done:
            told = [", ".join(map(str, part)) or "none" for part in (done, missing)]
            log.info("seeds     finished: %s (%s); to run: %s", told[0], self.seeds.folder, told[1])
        return folder, missing

    def _end(self, folder: Path) -> Artifact:
        """Give the result its place, commit the model if one is kept, and forget the seeds."""
        if folder != self.out:  # the one with more seeds takes the place of the one with fewer
            self.out.rename(self.seeds.folder / ".fewer")
            folder.rename(self.out)
            log.info("finetune  extended %s", self.out)
        if self.settings.save:
            self._commit_model()
        self.seeds.remove()
        return open_artifact(self.out, "finetune")

    def _unpack(self, manifest: dict[str, Any]) -> Path:
        """Make finished seeds of a committed result; returns where to write the one with more of them.

        Raises:
            ConfigError: If it was made in another precision.
        """
        refuse_precision(self.out, manifest.get("precision"), self.precision.name)
        for result in read_results(self.out, self.task.target):
            if self.seeds.read(result.seed) is None:
                self.seeds.write(result)
        folder = self.seeds.folder / ".more"  # hidden: it is no result of the run yet
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def _encoded(self, splits: dict[str, list[Example]]) -> dict[str, EncodedSplit]:
        """Train and dev with their labels, test without: nothing before the results knows those."""
        how, kind = (self.tokenizer, self.preset.max_tokens), self.task.target
        train = subset(splits["train"], self.settings.max_train)
        known = {
            "train": EncodedSplit.with_labels(train, *how, kind),
            "dev": EncodedSplit.with_labels(splits["dev"], *how, kind),
        }
        return {**known, "test": EncodedSplit.of(splits["test"], *how)}

    def _write(self, draft: Draft | None, missing: list[int]) -> None:
        """Run this process's share of the missing seeds; with a draft, write the results of all."""
        splits = read_splits(self.task, self.data)
        encoded = self._encoded(splits)
        results = self._run(encoded, missing)
        if draft is None:
            return
        said = {
            "model": _name(self.model),
            "preset": self.settings.preset,
            "settings": {**asdict(self.preset), "max_train": self.settings.max_train},
            "split_overlap": overlap(splits),
        }
        write_results(draft.path, self.task, said, results, splits["test"])
        draft.counts |= {name: len(split.tokens) for name, split in encoded.items()}
        draft.notes["precision"] = self.precision.name

    def _run(self, encoded: dict[str, EncodedSplit], missing: list[int]) -> list[SeedResult]:
        """The results of all seeds, in their order, on the first process; every one runs its share of the missing.

        Nothing but results goes from one process to another, so each answers a signal by itself; the launcher
        passes it on to all.
        """
        from accelerate.utils import gather_object

        own = missing[self.accelerator.process_index :: self.accelerator.num_processes]
        with StopRequest() as stop, single_process():
            for seed in own:
                classifier, result = self._seed(seed, encoded, stop)
                if self.settings.save:
                    self.seeds.keep_model(result, classifier)
                self.seeds.write(result)
                del classifier  # the next seed's takes its memory
        ran = {result.seed: result for result in gather_object([self.seeds.read(seed) for seed in own])}
        if not self.accelerator.is_main_process:
            return []
        results = (ran.get(seed) or self.seeds.read(seed) for seed in self.preset.seed_list)
        return [result for result in results if result is not None]

    def _seed(self, seed: int, encoded: dict[str, EncodedSplit], stop: StopRequest) -> tuple[Classifier, SeedResult]:
        """Run a seed, and leave it at the next step when told to stop."""

        def check_in() -> None:
            if stop.received:
                kept = f"{self.seeds.count()} finished before are kept in {self.seeds.folder}"
                raise Preemption(f"told to stop in seed {seed}; {kept}: the same command goes on with the others")

        name = f"{self.task.name} {arm_name(self.out, self.model)}"
        return run_seed(self.model, encoded, self.task, self.preset, seed, self.precision, name, check_in)

    def _model_of(self, seed: int | None) -> dict[str, Any]:
        """What the model of a seed depends on, as it is read back."""
        return json.loads(canonical({**self.seeds.depends_on, "precision": self.precision.name, "seed": seed}))

    def check_model(self) -> None:
        """Refuse, before any work, a folder for the model that holds something else than the model of any seed.

        Raises:
            ArtifactError: Naming the difference.
        """
        there = read_manifest(self.model_folder).get("depends_on", {})
        find_reusable(self.model_folder, "classifier", self._model_of(there.get("seed")))

    @property
    def model_folder(self) -> Path:
        """Where the model goes."""
        return self.out.with_name(f"{self.out.name}-model")

    def _commit_model(self) -> None:
        """Commit the model of the best seed; that seed is run again if its weights were not kept."""
        results = read_results(self.out, self.task.target)
        best = max(results, key=lambda result: self.task.sign * result.dev_score)  # of a tie, the first

        def write(draft: Draft) -> None:
            splits, result, kind = read_splits(self.task, self.data), best, self.task.target
            classifier = new_classifier(self.model, len(kind.outputs), best.seed, kind.per_word, self.preset.pooling)
            if not self.seeds.restore(best.seed, classifier):
                log.info("model     seed %d is the best, but its weights were not kept: it is run again", best.seed)
                with StopRequest() as stop:
                    classifier, result = self._seed(best.seed, self._encoded(splits), stop)
                if not np.allclose(result.outputs, best.outputs, atol=1e-4, rtol=1e-4):
                    log.warning("model     run again, seed %d predicts otherwise than in %s", best.seed, self.out)
            tokenizer = copy.deepcopy(self.tokenizer)
            tokenizer.model_max_length = self.preset.max_tokens
            write_model(draft, classifier, result, self.task, tokenizer, splits["test"], _name(self.model))

        there = read_manifest(self.model_folder).get("depends_on", {}).get("seed", best.seed)
        if there != best.seed:  # of the same fine-tuning with fewer seeds
            log.info("model     seed %d is better than seed %d, which was kept before", best.seed, there)
            self.seeds.folder.mkdir(parents=True, exist_ok=True)
            self.model_folder.rename(self.seeds.folder / ".worse")
        make(self.model_folder, "classifier", self._model_of(best.seed), write)


def arm_name(out: Path, model: str) -> str:
    """What a run calls this model: the arm, where `out` is ``finetune/TASK/ARM``; else the model's own name."""
    return out.name if out.parent.parent.name == "finetune" else _name(model)


def _name(model: str) -> str:
    return Path(model).resolve().name if Path(model).is_dir() else model


def _seeds_to_add(manifest: dict[str, Any], depends_on: dict[str, Any]) -> bool:
    """Whether a committed result has some of the seeds that are asked for, no others, and all else is equal."""
    if manifest.get("kind") != "finetune":
        return False
    there, asked = (json.loads(canonical(value)) for value in (manifest["depends_on"], depends_on))
    before, now = there["preset"].pop("seeds"), asked["preset"].pop("seeds")
    return there == asked and set(before) < set(now)
