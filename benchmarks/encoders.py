"""How fast is an encoder, and how well do its vectors tell six tasks from general text?

    DANA_DATA=... OMP_NUM_THREADS=1 python benchmarks/encoders.py [ENCODER ...]

Sentences a second on one core (processor time, batches of 8,192, weights loaded before), and AUROC of 100 held-out
task sentences against 1,000 general ones, fitted on 900 task sentences, geometry center+l2 of another 1,000: kNN for
each task, and the mean over tasks for kNN and one-class SVM. General sentences are drawn from every tenth document.
"""

import os
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from dana.core.registry import DETECTORS, ENCODERS
from dana.corpus.documents import Tally, read_documents
from dana.corpus.unit_stream import draw, units_of
from dana.encoders.base import Encoder
from dana.encoders.geometry import parse_geometry
from dana.scoring.inputs import TaskText
from dana.scoring.settings import Selection
from dana.stages.task import task_stage

TASKS = ("chemprot", "citation_intent", "rct_sample", "ag_news", "sst2", "csabstruct")
DETECT = ("knn", "ocsvm")
SPEED = {"minilm": 1024}  # sentences that are timed
OTHERS = 65_536
BATCH = 8192


def read_texts() -> dict[str, list[str]]:
    """Each task's sentences and three disjoint general samples."""
    selection = Selection(max_task_units=1000)
    documents = islice(read_documents([os.environ["DANA_DATA"] + "/general"], "skip", Tally()), 0, None, 10)
    wanted = {"geometry": (1, 1000), "general": (2, 1000), "speed": (3, OTHERS)}
    texts = {name: sample.texts for name, sample in draw(units_of(documents, selection.splitter()), wanted).items()}
    with tempfile.TemporaryDirectory() as folder:
        for task in TASKS:
            texts[task] = TaskText(task_stage(task, Path(folder) / task)).units(selection).texts
    return texts


def rate(encoder: Encoder, texts: list[str]) -> float:
    """Sentences a second of processor time."""
    encoder.encode(texts[:8])
    started = time.process_time()
    for first in range(0, len(texts), BATCH):
        encoder.encode(texts[first : first + BATCH])
    return len(texts) / (time.process_time() - started)


def auroc(detector: str, vectors: dict[str, torch.Tensor]) -> list[float]:
    """One a task."""
    geometry = parse_geometry("center+l2").fit(vectors["geometry"])
    general = geometry.apply(vectors["general"])
    found = []
    for task in TASKS:
        rows = geometry.apply(vectors[task])
        fitted = DETECTORS.create(detector).fit(rows[:900], 0)
        scores = fitted.score(torch.cat([rows[900:], general])).numpy()
        found.append(float(roc_auc_score(np.repeat([0, 1], [len(rows) - 900, len(general)]), scores)))
    return found


def main() -> None:
    """Print a row an encoder."""
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    texts = read_texts()
    columns = [*TASKS, *(f"mean {detector}" for detector in DETECT)]
    print(f"{'encoder':<12} {'sent./s':>8} " + " ".join(f"{column:>15}" for column in columns))
    for name in sys.argv[1:] or ["hashing", "static", "minilm"]:
        encoder = ENCODERS.create(name)
        speed = rate(encoder, texts["speed"][: SPEED.get(name, OTHERS)])
        vectors = {part: encoder.encode(some) for part, some in texts.items() if part != "speed"}
        by_detector = [auroc(detector, vectors) for detector in DETECT]
        numbers = [*by_detector[0], *(float(np.mean(row)) for row in by_detector)]
        print(f"{name:<12} {speed:>8,.0f} " + " ".join(f"{number:>15.3f}" for number in numbers), flush=True)


if __name__ == "__main__":
    main()
