"""Compare dana's detectors with scikit-learn's and PyOD's: seconds to fit, rows per second, peak memory, agreement.

    python benchmarks/detectors.py --threads 1 --out detectors.json

All implementations of a detector take turns on the same rows, so that other load on the machine
affects them alike; medians over the repetitions are printed. With one thread on the CPU, CPU
seconds are measured, which do not depend on other load; otherwise wall time. Memory is the peak of
a fresh process that fits and scores once. Rows are Gaussian with the decaying spectrum of sentence
embeddings (90 % of the variance in half the dimensions), normalised to length 1.
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
    """Settings of the command line; see --help."""

    dims: list[int]
    train: int
    rows: int
    repeats: int
    threads: int
    device: str
    detectors: list[str]


@dataclass(frozen=True)
class Result:
    """Measures of one implementation of one detector.

    Attributes:
        fit_s: Median seconds to fit.
        rows_per_s: Rows scored per second, from the median time.
        spread: Slowest over fastest repetition of scoring, a ratio.
        base_mb: Resident memory before fitting: Python, libraries, rows.
        peak_mb: Highest resident memory of the process.
        difference: Largest difference from dana's scores over the largest score; None where the
            formula differs.
        spearman: Rank correlation with dana's scores.
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
    """Generate rows of length 1, float32 (rows, dims), in parts, so that they do not raise the peak memory."""
    generator = np.random.default_rng(seed)
    spectrum = np.exp(-np.arange(dims, dtype=np.float32) * (2.2 / dims))
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((dims, dims)))[0].astype(
        np.float32
    )
    vectors = np.empty((rows, dims), np.float32)
    for part in np.array_split(vectors, -(-rows // 500)):
        part[:] = (generator.standard_normal(part.shape, dtype=np.float32) * spectrum) @ turn
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return vectors


def clock(settings: Settings, action: Callable[[], Any]) -> tuple[float, Any]:
    """Run an action; return its seconds and its result."""
    on_cpu = settings.device == "cpu"
    now = time.process_time if on_cpu and settings.threads == 1 else time.perf_counter
    gc.collect()
    start = now()
    result = action()
    if not on_cpu:
        torch.cuda.synchronize()
    return now() - start, result


def measure(settings: Settings, spec: str, dims: int) -> Iterator[Result]:
    """Measure every implementation of one detector, dana's first."""
    implementations = contestants(spec, dims, settings.device)
    memory = {by: peak_memory(settings, spec, dims, by) for by in implementations}
    train, queries = embeddings(settings.train, dims, 1), embeddings(settings.rows, dims, 2)
    models = {by: one.build() for by, one in implementations.items()}
    fits: dict[str, list[float]] = {by: [] for by in implementations}
    scorings: dict[str, list[float]] = {by: [] for by in implementations}
    scores: dict[str, np.ndarray] = {}
    for repeat in range(settings.repeats):
        for by, model in models.items():
            if (spec, by) != SLOW or repeat == 0:
                fits[by].append(clock(settings, partial(model.fit, train))[0])
            rows = model.put(queries) if by == "dana" else queries
            seconds, values = clock(settings, partial(implementations[by].score, model, rows))
            scorings[by].append(seconds)
            scores[by] = np.asarray(values.cpu() if by == "dana" else values)
    for by in implementations:
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


def difference(library: np.ndarray, ours: np.ndarray, spec: str) -> float | None:
    """Compute the largest difference over the largest score; forests are centred, as PyOD's adds a constant."""
    if spec == "robust_covariance":  # another estimator of the same quantity: only ranks compare
        return None
    shift = ours.mean() - library.mean() if spec.startswith("iforest") else 0.0
    return float(np.abs(library + shift - ours).max() / np.abs(ours).max())


def peak_memory(settings: Settings, spec: str, dims: int, by: str) -> tuple[float, float]:
    """Fit and score once in a fresh process; return its resident MB before fitting and at its peak."""
    context = multiprocessing.get_context("forkserver")  # its server has only imported this file
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_fit_and_score, args=(settings, spec, dims, by, sender))
    child.start()
    sender.close()
    try:
        return receiver.recv()
    finally:
        child.join()


def _fit_and_score(settings: Settings, spec: str, dims: int, by: str, sender: Any) -> None:
    _quiet(settings.threads)
    one = contestants(spec, dims, settings.device)[by]
    train, queries = embeddings(settings.train, dims, 1), embeddings(settings.rows, dims, 2)
    model = one.build()
    if (
        by == "dana"
    ):  # dana imports scikit-learn at its first fit; the libraries are imported by now
        model.fit(train[:60])
    before = resident()["VmRSS"]
    model.fit(train)
    one.score(model, model.put(queries) if by == "dana" else queries)
    sender.send((before, resident()["VmHWM"]))


def resident() -> dict[str, float]:
    """Read MB of this process, now (VmRSS) and at its peak (VmHWM). Linux; `ru_maxrss` includes the parent's peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {
        line.split(":")[0]: int(line.split()[1]) * 1024 / 1e6
        for line in lines
        if line.startswith(("VmRSS", "VmHWM"))
    }


def _quiet(threads: int) -> None:
    warnings.filterwarnings("ignore")  # scikit-learn warns of the determinant of a wide covariance
    torch.set_num_threads(threads)
    threadpool_limits(threads)


def table(results: list[Result]) -> str:
    """Format the results, one row per implementation; ratios compare the others with dana."""
    head = ("dims", "detector", "by", "fit s", "ours", "rows/s", "ours", "spread", "peak MB")
    head += ("of it", "differs", "ranks")
    lines = [("{:>5} {:<18} {:<13}" + "{:>9}" * 9).format(*head)]
    for result in results:
        ours = next(
            r
            for r in results
            if (r.dims, r.detector, r.by) == (result.dims, result.detector, "dana")
        )
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
            f"{result.dims:>5} {result.detector:<18} {result.by:<13}"
            + "".join(f"{cell:>9}" for cell in cells)
        )
    return "\n".join(lines)


def parse(arguments: list[str]) -> tuple[Settings, Path | None]:
    """Parse the command line into settings and the output file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--dims",
        type=int,
        nargs="+",
        default=[384, 768],
        help="dimensions of the rows (default: 384 768)",
    )
    parser.add_argument("--train", type=int, default=4000, help="rows to fit on (default: 4000)")
    parser.add_argument("--rows", type=int, default=4000, help="rows to score (default: 4000)")
    parser.add_argument(
        "--repeats", type=int, default=3, help="rounds, of which the median is taken (default: 3)"
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of every implementation (default: 1)"
    )
    parser.add_argument(
        "--device",
        choices=["cpu", "cuda"],
        default="cpu",
        help="device of dana's detectors (default: cpu)",
    )
    parser.add_argument(
        "--detectors",
        nargs="+",
        choices=SPECS,
        default=SPECS,
        metavar="SPEC",
        help=", ".join(SPECS),
    )
    parser.add_argument(
        "--quick", action="store_true", help="smoke test: 16 dimensions, 200 rows, one round"
    )
    parser.add_argument("--out", type=Path, help="also write the results as JSON")
    flags = vars(parser.parse_args(arguments))
    out, quick = flags.pop("out"), flags.pop("quick")
    settings = Settings(
        **flags | ({"dims": [16], "train": 200, "rows": 100, "repeats": 1} if quick else {})
    )
    return settings, out


def main(arguments: list[str]) -> None:
    """Measure every detector; print and write the results."""
    settings, out = parse(arguments)
    _quiet(settings.threads)
    results = [
        r
        for dims in settings.dims
        for spec in settings.detectors
        for r in measure(settings, spec, dims)
    ]
    print(json.dumps(asdict(settings)))
    print(table(results))
    if out:
        rows = [asdict(result) for result in results]
        write_json(
            out, {"settings": asdict(settings), "packages": package_versions(), "results": rows}
        )


if __name__ == "__main__":
    main(sys.argv[1:])
