"""Make what the plan names: selections, the pilot, adapted models, probes and fine-tunings."""

import gzip
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from plan import (
    AVERAGED,
    BASE,
    CHOSEN,
    CURVE,
    DRAWS,
    MAX_TOKENS,
    MODEL,
    OWN,
    OWN_AND_CHOSEN,
    OWN_PARTS,
    PRECISION,
    RANDOM,
    SECOND_PILOT,
    SELECTION,
    SHUFFLED,
    SIZES,
    STEPS,
    TARGET_TEXTS,
    TASKS,
    TUNINGS,
    WEIGHTS,
    Adaptation,
)
from rows import Results, choices_of, encode_counts
from texts import own_documents, read_rows, write_rows

from dana.core.artifacts import read_json
from dana.corpus.units import sentences
from dana.encoders.static import StaticEncoder
from dana.encoders.transformer import TransformerEncoder
from dana.finetuning.pilot import NONE
from dana.finetuning.probe import (
    LabelledVectors,
    choose_strength,
    draw_labels,
    group_numbers,
    probe_scores,
    text_keys,
)
from dana.finetuning.settings import ProbeSettings
from dana.models.convertible import is_static_model
from dana.models.folder import resolve_model
from dana.stages.average import average_stage
from dana.stages.pilot import pilot_stage
from dana.stages.probe import CHOOSING_DRAWS, RETRIEVAL_FILE, retrieval_stage
from dana.tasks.examples import Example
from dana.tasks.kinds.single_label import SingleLabel
from dana.train.settings import AdaptSettings

POOL = "pool"


def dana(log: Path, *arguments: object) -> None:
    """Run a command of dana in a process of its own; end with its last lines if it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "dana", *map(str, arguments)]
    environment = os.environ | {"ACCELERATE_MIXED_PRECISION": PRECISION}
    with log.open("ab") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
    code = done.returncode
    if code:
        tail = log.read_text(encoding="utf-8", errors="replace")[-2_000:]
        raise SystemExit(f"{' '.join(command)} ended with {code}\n{tail}")


def run_folder(work: Path, task: str, arm: str, index: int = 0, objective: str = "") -> Path:
    """Return the folder of the text of an arm; that of random text is one for each adaptation."""
    if arm == RANDOM:
        return work / "runs" / f"{RANDOM}-{index}"
    if arm == SHUFFLED:
        return work / "runs" / f"{task}-{arm}-{objective}"
    return work / "runs" / f"{task}-{arm}"


def has_text(work: Path, adaptation: Adaptation) -> bool:
    """Return whether the text that an adaptation reads is selected."""
    one = adaptation
    folder = run_folder(work, one.task, one.text_arm, one.index, one.objective)
    return (folder / "weights").is_dir()


def base_of(work: Path, model: str) -> str:
    """Return the folder of a base that was packed with its weights rounded; else its name."""
    packed = work / "bases" / model
    return str(packed) if packed.is_dir() else model


def select(work: Path, task: str, arm: str, index: int = 0, objective: str = "") -> Path:
    """Score the pool and weigh the text of an arm, if it is not done; return the run's folder."""
    folder = run_folder(work, task, arm, index, objective)
    if (folder / "weights").is_dir():
        return folder
    log = work / "logs" / f"{folder.name}.log"
    # Random text has no task: of the first one's texts some are held out, and none is read.
    target = work / "tasks" / (task or TASKS[0].name) / "target.jsonl"
    pool = work / "pool.jsonl"
    if arm == SHUFFLED:
        pool = shuffle(work, task, objective)
    elif arm in (OWN, OWN_AND_CHOSEN, *OWN_PARTS):
        pool = own_pool(work, task, arm)
    dana(
        log,
        *("score", "--task", target, "--pool", pool, "--out", folder),
        *("--seed", index, *SELECTION[arm]),
    )
    dana(log, "weigh", folder, *WEIGHTS[arm])
    return folder


def chosen_texts(work: Path, task: str) -> list[str]:
    """Return the documents that were chosen for a task."""
    chosen = select(work, task, CHOSEN) / "weights" / "__dana__" / "selected.jsonl.gz"
    with gzip.open(chosen, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def own_pool(work: Path, task: str, arm: str) -> Path:
    """Write a pool of the task's own texts, or of those that the arm has; return its file.

    Of few documents each is among the many of a larger arm.
    """
    out = work / "own" / f"{task}-{arm}.jsonl"
    if out.is_file():
        return out
    texts = own_documents(next(one for one in TASKS if one.name == task))
    if arm == OWN_AND_CHOSEN:
        texts += chosen_texts(work, task)
    elif arm in OWN_PARTS:
        random.Random(0).shuffle(texts)
        texts = texts[: OWN_PARTS[arm]]
    write_rows(out, [{"id": str(number), "text": text} for number, text in enumerate(texts)])
    return out


def shuffle(work: Path, task: str, objective: str) -> Path:
    """Destroy in the chosen text what an objective asks; return a pool of the rest.

    For position the sentences of each document are put in a random order, for crops all sentences of
    the text are dealt to documents anew.
    """
    out = work / "shuffled" / f"{task}-{objective}.jsonl"
    if out.is_file():
        return out
    documents = [
        [text[start:end].strip() for start, end in sentences(text, "en")]
        for text in chosen_texts(work, task)
    ]
    generator = random.Random(0)
    if objective == "position":
        for document in documents:
            generator.shuffle(document)
    else:
        every = [one for document in documents for one in document]
        generator.shuffle(every)
        dealt = iter(every)
        documents = [[next(dealt) for _ in document] for document in documents]
    rows = [
        {"id": str(number), "text": "\n".join(document)}
        for number, document in enumerate(documents)
    ]
    write_rows(out, rows)
    return out


def pilot(work: Path, task: str, model: str = MODEL) -> dict[str, Any]:
    """Let a pilot choose the objective of a task; return its choice and trials."""
    run = select(work, task, "chosen")
    settings = AdaptSettings(
        objective="auto",
        steps=STEPS,
        batch_size=64,
        learning_rate=None,
        max_tokens=MAX_TOKENS,
        evaluations=0,
    )
    artifact = pilot_stage(
        resolve_model(model),
        run / "pool",
        run / "weights",
        run / "target" / "held_out",
        run / "held_out",
        settings,
        str(work / "tasks" / task / "card.yaml"),
        work / "pilots" / f"{task}-{model}",
        fold=0,
    )
    # A reason names the base by its folder on this machine.
    text = json.dumps({name: artifact.manifest[name] for name in ("choice", "trials")})
    found: dict[str, Any] = json.loads(text.replace(resolve_model(model), model))
    return found


def adapt(work: Path, adaptation: Adaptation) -> Path:
    """Adapt a model, if it is not done; return its folder."""
    folder = work / "models" / (adaptation.task or "any") / adaptation.name
    if folder.is_dir():
        return folder
    log = work / "logs" / f"{adaptation.task}-{adaptation.name}.log"
    run = select(work, adaptation.task, adaptation.arm, adaptation.index, adaptation.objective)
    settings = [
        f"adapt.seed={adaptation.index}",
        f"adapt.max_tokens={MAX_TOKENS}",
        "adapt.batch_size=64",
        "adapt.learning_rate=null",
        "adapt.evaluations=0",
    ]
    dana(
        log,
        *("adapt", run, "--model", base_of(work, adaptation.model)),
        *("--objective", adaptation.objective),
        *("--steps", adaptation.steps, "--out", folder, "--set", *settings),
    )
    return folder


def first_adapted(work: Path, task: str, arm: str = CHOSEN) -> Path | None:
    """Return the first model that an arm's text adapted, by the objective that the task's pilot chose.

    It is made if it is missing. None if the pilot kept the base.
    """
    objective = choices_of(Results()).get(task)
    if objective is None:
        return None
    return adapt(work, Adaptation(task, arm, objective, 0))


@dataclass(frozen=True)
class TaskVectors:
    """The texts of a task, encoded by a model.

    Attributes:
        known: The texts whose labels are drawn.
        vectors: Vectors of these, then of the tested texts.
        labels: Their labels.
    """

    known: LabelledVectors
    vectors: np.ndarray
    labels: np.ndarray

    @property
    def tested_labels(self) -> np.ndarray:
        """Labels of the tested texts."""
        return self.labels[len(self.known.labels) :]

    def predict(self, sample: np.ndarray, strength: float) -> np.ndarray:
        """Predict the labels of the tested texts by a probe that is fitted to some rows."""
        tests = np.arange(len(self.known.labels), len(self.labels))
        return probe_scores(self.vectors, self.labels, self.known.kind, sample, tests, strength)


def encoder_of(model: str) -> Any:
    """Return the encoder of a checkpoint, or of a static model."""
    if is_static_model(model):
        return StaticEncoder(model)
    return TransformerEncoder.of_checkpoint(model, ProbeSettings().max_tokens)


def encode(work: Path, task: str, model: str | Path) -> TaskVectors:
    """Encode the texts of a task."""
    folder = work / "tasks" / task
    train = read_rows(folder / "train.jsonl")
    test = read_rows(folder / "test.jsonl")
    encoder = encoder_of(str(model))
    vectors = encoder.encode([row["text"] for row in (*train, *test)]).cpu().numpy()
    names = sorted({row["label"] for row in (*train, *test)})
    kind = SingleLabel(tuple(names))
    labels = kind.gather([names.index(row["label"]) for row in (*train, *test)])
    examples = [Example(row["id"], row["text"], 0, group=row["group"]) for row in train]
    count = len(train)
    known = LabelledVectors(
        vectors[:count],
        labels[:count],
        kind,
        "accuracy",
        text_keys(examples),
        group_numbers(examples),
    )
    return TaskVectors(known, vectors, labels)


def probe(work: Path, task: str, model: str | Path, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Probe a model on a task: for each number of labels the mean of ten draws, which all models share.

    Returns:
        A row for each size, without what names the model.
    """
    texts = encode(work, task, model)
    known = texts.known
    count = len(known.labels)
    rows = []
    for size in sizes:
        if size > count:
            continue
        draws = DRAWS if size < count else 1
        samples = [draw_labels(known.keys, known.strata, size, draw) for draw in range(draws)]
        strength = choose_strength(known, samples[:CHOOSING_DRAWS])
        predictions = [texts.predict(sample, strength) for sample in samples]
        right = np.sum([row == texts.tested_labels for row in predictions], axis=0)
        macro = [known.kind.score(row, texts.tested_labels, "macro_f1") for row in predictions]
        rows.append(
            {
                "measure": "probe",
                "size": size,
                "draws": draws,
                "accuracy": round(float(right.mean()) / draws, 5),
                "macro_f1": round(float(np.mean(macro)), 5),
                "strength": strength,
                "correct": encode_counts(right),
            }
        )
    return rows


def named(rows: list[dict[str, Any]], adaptation: Adaptation, task: str) -> list[dict[str, Any]]:
    """Add to rows of a task what names the model."""
    names = {
        "arm": adaptation.arm_on(task),
        "objective": adaptation.objective,
        "index": adaptation.index,
        "model": adaptation.model,
        "steps": adaptation.steps,
    }
    return [{**names, **row} for row in rows]


def base_rows(work: Path, task: str, model: str = MODEL) -> list[dict[str, Any]]:
    """Probe the base at all sizes of its learning curve."""
    rows = probe(work, task, resolve_model(base_of(work, model)), CURVE)
    return named(rows, Adaptation(task, BASE, NONE, 0, model, 0), task)


def adapted_rows(
    work: Path, adaptation: Adaptation, tasks: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Adapt a model and probe it on some tasks; return the rows of each."""
    model = adapt(work, adaptation)
    shutil.rmtree(Path(f"{model}-checkpoints"), ignore_errors=True)
    return {task: named(probe(work, task, model, SIZES), adaptation, task) for task in tasks}


def masked_rows(
    work: Path, adaptation: Adaptation, tasks: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Adapt a model by masked tokens and probe it; the first model of a task comes with a second pilot."""
    found = adapted_rows(work, adaptation, tasks)
    if adaptation.index == 0:
        found[adaptation.task].append({"arm": SECOND_PILOT, **pilot(work, adaptation.task)})
    return found


def forgetting_rows(
    work: Path, adaptation: Adaptation, tasks: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Probe an adapted model on other tasks, and let it and the base find documents of the pool."""
    found = adapted_rows(work, adaptation, tasks)
    model = adapt(work, adaptation)
    base = Adaptation(adaptation.task, BASE, NONE, 0, adaptation.model, 0)
    # A folder of its own for each measurement: two adaptations may be measured at a time.
    out = work / "retrieval" / adaptation.task / adaptation.name
    rows = named([retrieval_row(work, model, out / "adapted")], adaptation, adaptation.task)
    if adaptation.index == 0:  # one row of the base stands for all adaptations
        of_base = resolve_model(base_of(work, base.model))
        rows += named([retrieval_row(work, of_base, out / "base")], base, adaptation.task)
    found[adaptation.task] = rows
    return found


def averaged_rows(
    work: Path, adaptation: Adaptation, tasks: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Average an adapted model with the base, probe the average, and let it find documents of the pool."""
    adapted = adapt(work, replace(adaptation, arm=CHOSEN))
    base = resolve_model(base_of(work, adaptation.model))
    out = work / "averaged" / adaptation.task / adaptation.name
    share = AVERAGED[adaptation.arm]
    average = average_stage(base, str(adapted), share, [], out / "model").path
    found = [retrieval_row(work, average, out / "retrieval")]
    return {
        task: named([*probe(work, task, average, SIZES), *found], adaptation, task)
        for task in tasks
    }


def retrieval_row(work: Path, model: str | Path, out: Path) -> dict[str, Any]:
    """Measure how well a sentence of a held-out document of the pool finds the rest of it."""
    texts = select(work, "", RANDOM) / "held_out"
    settings = ProbeSettings()
    artifact = retrieval_stage(str(model), {POOL: str(texts)}, settings, out)
    scores = read_json(artifact.path / RETRIEVAL_FILE)["texts"][POOL]
    return {"measure": "retrieval", "size": scores.pop("documents"), **scores}


def tuned_rows(
    work: Path, adaptation: Adaptation, tasks: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Fine-tune a model with the labels of the first draw, two seeds; the base has others for each index."""
    is_base = adaptation.arm == BASE
    base = resolve_model(base_of(work, adaptation.model))
    model = base if is_base else adapt(work, adaptation)
    first = adaptation.index * TUNINGS
    seeds = list(range(first, first + TUNINGS))
    found = {}
    for task in tasks:
        out = work / "tuned" / task / adaptation.name
        log = work / "logs" / f"tuned-{task}-{adaptation.name}.log"
        card = work / "tasks" / task / "card.yaml"
        settings = f"finetune.seeds={json.dumps(seeds)}"
        dana(log, "finetune", "--model", model, "--task", card, "--out", out, "--set", settings)
        row = _tuned_row(out, seeds)
        found[task] = named([row], adaptation, task)
    return found


def _tuned_row(out: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Read the predictions of all seeds of a fine-tuned model, in the order of the ids."""
    table = pq.read_table(out / "predictions.parquet").to_pandas()
    by_seed = [table[table["seed"] == seed].sort_values("id") for seed in seeds]
    right = np.sum(
        [part["label"].to_numpy() == part["prediction"].to_numpy() for part in by_seed], axis=0
    )
    labels = by_seed[0]["label"].to_numpy()
    classes = len(set(labels.tolist()) | set(table["prediction"].tolist()))
    kind = SingleLabel.from_count(classes)
    macro = [kind.score(part["prediction"].to_numpy(), labels, "macro_f1") for part in by_seed]
    return {
        "measure": "finetune",
        "size": TARGET_TEXTS,
        "draws": len(seeds),
        "accuracy": round(float(right.mean()) / len(seeds), 5),
        "macro_f1": round(float(np.mean(macro)), 5),
        "correct": encode_counts(right),
    }
