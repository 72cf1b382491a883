"""How many trees, and on what? Accuracy and repeatability of isolation forests on sentence embeddings.

    DANA_DATA=... python benchmarks/isolation_forest.py

Six tasks, 900 sentences fitted, 100 held-out task sentences against 1,000 general ones, two seeds. Prints mean AUROC
and mean rank correlation of the general scores between the seeds. About five minutes on two cores.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from dana.core.registry import ENCODERS
from dana.corpus.unit_stream import draw
from dana.encoders.geometry import parse_geometry
from dana.scoring.inputs import GeneralCorpus, TaskText
from dana.scoring.settings import Selection
from dana.stages.corpus import corpus_stage
from dana.stages.task import task_stage

TASKS = ("chemprot", "citation_intent", "rct_sample", "ag_news", "sst2", "csabstruct")
FORESTS = [("embeddings", 0, 100), ("embeddings", 0, 400), ("embeddings", 0, 1600)]
FORESTS += [("principal", 16, 400), ("uncentred", 4, 400), ("uncentred", 16, 400), ("random", 32, 400)]


def embed() -> dict[str, torch.Tensor]:
    """Vectors of each task, and of two general samples, ``geometry`` and ``general``."""
    selection = Selection(max_task_units=1000)
    encoder = ENCODERS.create("minilm:max_tokens=128")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        corpus = GeneralCorpus(corpus_stage([os.environ["DANA_DATA"] + "/general"], root / "corpus"))
        samples = draw(corpus.units(selection), {"geometry": (1, 1000), "general": (2, 1000)})
        texts = {name: sample.texts for name, sample in samples.items()}
        texts |= {task: TaskText(task_stage(task, root / task)).units(selection).texts for task in TASKS}
    return {name: encoder.encode(part) for name, part in texts.items()}


def project(kind: str, dims: int, rows: torch.Tensor, others: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Both in the space the trees see, learned on `rows`."""
    mean = rows.mean(0) if kind == "principal" else torch.zeros(rows.shape[1])
    if kind == "embeddings":
        return rows.numpy(), others.numpy()
    if kind == "random":
        basis = torch.linalg.qr(torch.randn(rows.shape[1], dims, generator=torch.Generator().manual_seed(0)))[0]
    else:
        basis = torch.linalg.eigh((rows - mean).T @ (rows - mean))[1].flip(1)[:, :dims]
    return ((rows - mean) @ basis).numpy(), ((others - mean) @ basis).numpy()


def main() -> None:
    """Print one row a forest."""
    vectors = embed()
    for spec in ("center+l2", "none"):
        geometry = parse_geometry(spec).fit(vectors["geometry"])
        general = geometry.apply(vectors["general"])
        for kind, dims, trees in FORESTS:
            auroc, stable = [], []
            for task in TASKS:
                rows = geometry.apply(vectors[task])
                fitted, others = project(kind, dims, rows[:900], torch.cat([rows[900:], general]))
                forests = [IsolationForest(n_estimators=trees, random_state=seed).fit(fitted) for seed in (0, 1)]
                first, second = (-forest.score_samples(others) for forest in forests)
                held_out = len(rows) - 900
                auroc.append(roc_auc_score(np.repeat([0, 1], [held_out, len(general)]), first))
                stable.append(spearmanr(first[held_out:], second[held_out:])[0])
            forest = f"{spec:<10} {kind:<11} {dims:>3} dims {trees:>5} trees"
            print(f"{forest}  AUROC {np.mean(auroc):.3f}  stability {np.mean(stable):.2f}")


if __name__ == "__main__":
    main()
