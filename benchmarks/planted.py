"""Measure how well detectors find planted target texts: precision at R, the number of plants, and AUROC.

    DANA_DATA=... python benchmarks/planted.py --pools pools --out planted.json

Reads pools and texts to fit on from ``--pools``; missing ones are written by ``dana studies
compare``. Each text is one unit and is embedded once. The pool is halved at random. Each half is
scored by a fit on the other half: its units, plants included and at most ``--background``, are the
pool, as if there were no other text than the pool.
"""

import argparse
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from dana.core.artifacts import package_versions, write_json
from dana.core.registry import SELECTORS
from dana.core.rng import generator
from dana.core.schemas import iterate_documents
from dana.studies.comparison.measures import planted_precision
from dana.studies.comparison.planting import PLANTED, sample_fit

SPECS = [
    *("ocsvm", "knn", "lof", "robust_covariance", "pca", "cosine", "distance"),
    *("lda", "density_ratio:c=0.1", "density_ratio", "density_ratio:c=10"),
    *(
        "contrastive_knn:k=3",
        "contrastive_knn:k=5",
        "contrastive_knn",
        "contrastive_knn:k=20",
        "contrastive_knn:k=40",
    ),
]


def scores(
    spec: str, task: torch.Tensor, pool: torch.Tensor, half: np.ndarray, background: int
) -> np.ndarray:
    """Score every row of the pool by the fit on the other half."""
    selector, result = SELECTORS.load("detector")(spec), np.zeros(len(pool))
    for number in (0, 1):
        background_rows, rows = (
            torch.from_numpy(np.flatnonzero((half == number) == where)) for where in (True, False)
        )
        background_units = pool[background_rows[:background]]
        detector = selector.fit_embedded(
            task, {"background": background_units, "geometry": background_units}, 0
        )
        result[rows] = detector.score_embedded(pool[rows])
    return result


def make_pools(folder: Path, tasks: list[str]) -> None:
    """Plant the tasks' texts in the pool, unless all pools exist."""
    if not all((folder / task / "pool").is_dir() for task in tasks):
        pool = str(Path(os.environ["DANA_DATA"]) / "general")
        command = [
            "studies",
            "compare",
            "--task",
            *tasks,
            "--pool",
            pool,
            "--selectors",
            "random",
        ]
        command += ["--out", str(folder)]
        subprocess.run([sys.executable, "-m", "dana", *command], check=True)


def main() -> None:
    """Embed the pools, measure every detector, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pools",
        type=Path,
        default=Path("runs/pools"),
        help="output folder of dana studies compare",
    )
    parser.add_argument("--tasks", nargs="+", default=["csabstruct", "sst2"])
    parser.add_argument("--detectors", nargs="+", default=SPECS)
    parser.add_argument("--fit", type=int, nargs="+", default=[100, 500])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--background", type=int, default=5000)
    parser.add_argument("--store", help="folder of a cache of embeddings, reused by a second run")
    parser.add_argument("--out", type=Path, help="also write the results as JSON")
    flags = parser.parse_args()
    make_pools(flags.pools, flags.tasks)
    embed = replace(SELECTORS.load("detector")().context, store=flags.store).embed
    rows: list[dict[str, Any]] = []
    for task in flags.tasks:
        documents = list(iterate_documents(flags.pools / task / "pool"))
        is_plant = np.array([document.source.endswith(PLANTED) for document in documents])
        pool = embed([document.text for document in documents])
        texts = list(iterate_documents(flags.pools / task / "texts" / "fit"))
        draws = {
            (size, seed): sample_fit(texts, size, seed)
            for size in flags.fit
            for seed in range(flags.seeds)
        }
        for (size, seed), sample in draws.items():
            vectors = embed([document.text for document in sample])
            half = generator(seed, "planted", "half").integers(0, 2, len(pool))
            for spec in flags.detectors:
                values = scores(spec, vectors, pool, half, flags.background)
                precision = planted_precision(values, is_plant, int(is_plant.sum()))
                measures = {
                    "precision_at_r": precision,
                    "auroc": float(roc_auc_score(is_plant, -values)),
                }
                rows.append({"task": task, "fit": size, "seed": seed, "detector": spec, **measures})
    print(
        f"{'detector':<22}"
        + "".join(f"{f'{task} {size}':>22}" for task in flags.tasks for size in flags.fit)
    )
    for spec in flags.detectors:
        cells = []
        for task in flags.tasks:
            for size in flags.fit:
                group = [
                    row
                    for row in rows
                    if (row["task"], row["fit"], row["detector"]) == (task, size, spec)
                ]
                means = (fmean(row[name] for row in group) for name in ("precision_at_r", "auroc"))
                cells.append(" / ".join(f"{mean:.3f}" for mean in means))
        print(f"{spec:<22}" + "".join(f"{cell:>22}" for cell in cells))
    if flags.out:
        settings = {
            name: value
            for name, value in vars(flags).items()
            if name not in ("pools", "out", "store")
        }
        write_json(flags.out, {"settings": settings, "packages": package_versions(), "rows": rows})


if __name__ == "__main__":
    main()
