"""Simulate, before anything is counted, how often the plan decides a true gain.

    python benchmarks/evidence/power.py

A task's difference of chosen and random text is drawn as the mean of eight adaptations, each with an
error of its own, plus that of the test texts; the analysis is that of verdicts.py, Holm over six tasks.
The spreads are those of the pilots: the standard deviation of an adaptation's difference .006 to .0125,
the variance of a text's difference .03 to .1 (draws of labels averaged).
"""

from itertools import product

import numpy as np
from plan import ADAPTATIONS

from dana.core.statistics import ALPHA, TwoLevel, holm
from dana.core.text_table import tabulate

SIMULATIONS = 4_000
TEXTS = {
    "rct_sample": 3526,
    "csabstruct": 3286,
    "agnews": 4000,
    "chemprot": 2310,
    "sst2": 2685,
    "acl_arc": 712,
}
GAINS = (0.0, 0.01, 0.02, 0.03)


def decided(gain: float, deviation: float, disagreement: float) -> dict[str, float]:
    """Return by task how often a gain that all tasks share is decided."""
    generator = np.random.default_rng(0)
    counts = dict.fromkeys(TEXTS, 0)
    for _ in range(SIMULATIONS):
        found = []
        for texts in TEXTS.values():
            by_text = disagreement / texts
            units = generator.normal(0, deviation, ADAPTATIONS)
            mean = gain + units.mean() + generator.normal(0, by_text**0.5)
            by_unit = units.var(ddof=1) / ADAPTATIONS
            found.append(TwoLevel(float(mean), float(by_unit), by_text, ADAPTATIONS, texts))
        for task, p in zip(TEXTS, holm([row.p for row in found]), strict=True):
            counts[task] += p <= ALPHA
    return {task: count / SIMULATIONS for task, count in counts.items()}


def main() -> None:
    """Print the power by gain and spread."""
    rows = []
    for gain, deviation, disagreement in product(GAINS, (0.006, 0.0125), (0.03, 0.1)):
        shares = decided(gain, deviation, disagreement)
        spread = {"gain": f"{gain}", "adaptation": f"{deviation}", "text": f"{disagreement}"}
        rows.append(spread | {task: f"{share:.2f}" for task, share in shares.items()})
    print(tabulate(rows))


if __name__ == "__main__":
    main()
