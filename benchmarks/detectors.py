"""Our detectors against scikit-learn's and PyOD's: seconds to fit, rows scored a second, peak memory, agreement.

    python benchmarks/detectors.py --threads 1 --out detectors.json

All implementations of a detector take turns on the same rows, repetition by repetition, so that load from elsewhere
hits them alike; medians are printed. One thread on the CPU is timed in CPU seconds, to which waiting for a busy
machine does not add; anything else by the clock. Memory is the peak of a fresh process that fits and scores once.
Rows are Gaussian with the falling spectrum of sentence embeddings (90 % of the variance in half the dimensions), at
length 1.
"""

import argparse
import gc
import json
import multiprocessing
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from contestants import SLOW, SPECS, contestants
from scipy.stats import spearmanr
from threadpoolctl import threadpool_limits

from dana.core.artifacts import package_versions, write_json


@dataclass(frozen=True)
class Settings:
    """What to measure; see --help."""

    dims: list[int]
    train: int
    rows: int
    repeats: int
    threads: int
    device: str
    detectors: list[str]


@dataclass(frozen=True)
class Result:
    """One implementation of one detector.

    Attributes:
        fit_s: Median seconds to fit.
        rows_per_s: Scored, by the median.
        spread: Slowest over fastest repetition of scoring.
        base_mb: Resident memory before fitting: Python, libraries, rows.
        peak_mb: Highest resident memory of the process.
        difference: Largest difference to our scores over the largest score; None where another formula is compared.
        spearman: Rank correlation with our scores.
    """

    dims: int
    detector: str
    by: str
    fit_s: float
    rows_per_s: float
    spread: float
    base_mb: float
    peak_mb: float
    difference: float | None = None
    spearman: float | None = None


def embeddings(rows: int, dims: int, seed: int) -> np.ndarray:
    """Rows at length 1, float32 (rows, dims); made in parts, so that they leave no trace in the peak memory."""
    generator = np.random.default_rng(seed)
    spectrum = np.exp(-np.arange(dims, dtype=np.float32) * (2.2 / dims))
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((dims, dims)))[0].astype(np.float32)
    made = np.empty((rows, dims), np.float32)
    for part in np.array_split(made, -(-rows // 500)):
        part[:] = (generator.standard_normal(part.shape, dtype=np.float32) * spectrum) @ turn
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return made


def clock(settings: Settings, action: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what the action gave."""
    on_cpu = settings.device == "cpu"
    now = time.process_time if on_cpu and settings.threads == 1 else time.perf_counter
    gc.collect()
    start = now()
    given = action()
    if not on_cpu:
        torch.cuda.synchronize()
    return now() - start, given


def measure(settings: Settings, spec: str, dims: int) -> Iterator[Result]:
    """Every implementation of one detector, ours first."""
    found = contestants(spec, dims, settings.device)
    memory = {by: peak_memory(settings, spec, dims, by) for by in found}
    train, queries = embeddings(settings.train, dims, 1), embeddings(settings.rows, dims, 2)
    models = {by: one.build() for by, one in found.items()}
    fits: dict[str, list[float]] = {by: [] for by in found}
    scorings: dict[str, list[float]] = {by: [] for by in found}
    scores: dict[str, np.ndarray] = {}
    for repeat in range(settings.repeats):
        for by, model in models.items():
            if (spec, by) != SLOW or repeat == 0:
                fits[by].append(clock(settings, partial(model.fit, train))[0])
            given = model.put(queries) if by == "dana" else queries
            seconds, scored = clock(settings, partial(found[by].score, model, given))
            scorings[by].append(seconds)
            scores[by] = np.asarray(scored.cpu() if by == "dana" else scored)
    for by in found:
        comparable = by != "dana" and (spec, by) != ("pca", "PyOD")
        yield Result(
            dims=dims,
            detector=spec,
            by=by,
            fit_s=statistics.median(fits[by]),
            rows_per_s=settings.rows / statistics.median(scorings[by]),
            spread=max(scorings[by]) / min(scorings[by]),
            base_mb=memory[by][0],
            peak_mb=memory[by][1],
            difference=difference(scores[by], scores["dana"], spec) if comparable else None,
            spearman=float(spearmanr(scores[by], scores["dana"])[0]) if comparable else None,
        )


def difference(theirs: np.ndarray, ours: np.ndarray, spec: str) -> float | None:
    """Largest, over the largest score; PyOD's forest is moved by a constant, so means are taken away."""
    if spec == "robust_covariance":  # another estimator of the same thing: only ranks compare
        return None
    shift = ours.mean() - theirs.mean() if spec.startswith("iforest") else 0.0
    return float(np.abs(theirs + shift - ours).max() / np.abs(ours).max())


def peak_memory(settings: Settings, spec: str, dims: int, by: str) -> tuple[float, float]:
    """MB resident before fitting, and at most, of a fresh process that fits and scores once."""
    context = multiprocessing.get_context("forkserver")  # forks from a process that has only imported this file
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_fit_and_score, args=(settings, spec, dims, by, theirs))
    child.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        child.join()


def _fit_and_score(settings: Settings, spec: str, dims: int, by: str, to: Any) -> None:
    """In the fresh process."""
    _quiet(settings.threads)
    one = contestants(spec, dims, settings.device)[by]
    train, queries = embeddings(settings.train, dims, 1), embeddings(settings.rows, dims, 2)
    model = one.build()
    if by == "dana":  # ours imports scikit-learn on its first fit; the libraries are imported by now
        model.fit(train[:60])
    before = resident()["VmRSS"]
    model.fit(train)
    one.score(model, model.put(queries) if by == "dana" else queries)
    to.send((before, resident()["VmHWM"]))


def resident() -> dict[str, float]:
    """MB of this process now (VmRSS) and at most (VmHWM). Linux; there `ru_maxrss` starts at the parent's peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {
        line.split(":")[0]: int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(("VmRSS", "VmHWM"))
    }


def _quiet(threads: int) -> None:
    warnings.filterwarnings("ignore")  # scikit-learn's on the determinant of a wide covariance
    torch.set_num_threads(threads)
    threadpool_limits(threads)


def table(results: list[Result]) -> str:
    """One row an implementation; ours is compared with the others below it."""
    head = (
        "dims",
        "detector",
        "by",
        "fit s",
        "ours",
        "rows/s",
        "ours",
        "spread",
        "peak MB",
        "of it",
        "differs",
        "ranks",
    )
    lines = [("{:>5} {:<18} {:<13}" + "{:>9}" * 9).format(*head)]
    for result in results:
        ours = next(r for r in results if (r.dims, r.detector, r.by) == (result.dims, result.detector, "dana"))
        cells = [
            f"{result.fit_s:.3f}",
            "" if result is ours else f"{result.fit_s / ours.fit_s:.1f}x",
            f"{result.rows_per_s:.0f}",
            "" if result is ours else f"{ours.rows_per_s / result.rows_per_s:.1f}x",
            f"{result.spread:.2f}",
            f"{result.peak_mb:.0f}",
            f"{result.peak_mb - result.base_mb:.0f}",
            "" if result.difference is None else f"{result.difference:.0e}",
            "" if result.spearman is None else f"{result.spearman:.5f}",
        ]
        lines.append(
            f"{result.dims:>5} {result.detector:<18} {result.by:<13}" + "".join(f"{cell:>9}" for cell in cells)
        )
    return "\n".join(lines)


def parse(arguments: list[str]) -> tuple[Settings, Path | None]:
    """Settings from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dims", type=int, nargs="+", default=[384, 768], help="widths (default: 384 768)")
    parser.add_argument("--train", type=int, default=4000, help="rows to fit on (default: 4000)")
    parser.add_argument("--rows", type=int, default=4000, help="rows to score (default: 4000)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds, of which the median is taken (default: 3)")
    parser.add_argument("--threads", type=int, default=1, help="for every implementation (default: 1)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where ours scores (default: cpu)")
    parser.add_argument("--detectors", nargs="+", choices=SPECS, default=SPECS, metavar="SPEC", help=", ".join(SPECS))
    parser.add_argument("--quick", action="store_true", help="16 dimensions, 200 rows, one round: does it run?")
    parser.add_argument("--out", type=Path, help="write the results here too, as JSON")
    flags = vars(parser.parse_args(arguments))
    out, quick = flags.pop("out"), flags.pop("quick")
    settings = Settings(**flags | ({"dims": [16], "train": 200, "rows": 100, "repeats": 1} if quick else {}))
    return settings, out


def main(arguments: list[str]) -> None:
    """Measure, print, write."""
    settings, out = parse(arguments)
    _quiet(settings.threads)
    results = [r for dims in settings.dims for spec in settings.detectors for r in measure(settings, spec, dims)]
    print(json.dumps(asdict(settings)))
    print(table(results))
    if out:
        rows = [asdict(result) for result in results]
        write_json(out, {"settings": asdict(settings), "packages": package_versions(), "results": rows})


if __name__ == "__main__":
    main(sys.argv[1:])
