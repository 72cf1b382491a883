"""How often each rule finds a difference between two models, where there is none and where there is one.

    python benchmarks/verdicts.py --pairs 300

A model is right on a text where its skill there exceeds 0. Skill is the text's own ease (the same for both), plus
what the model makes of this text (kept over seeds), plus what the seed makes of the model (kept over texts), plus
noise. The two models draw from one distribution, so any difference found is an error; with ``--effect`` one of them
is better. Prints a row a setting: the share of pairs in which each rule finds a difference at 0.05.
"""

import argparse

import numpy as np

from dana.report.bootstrap import paired_bootstrap
from dana.report.statistics import ALPHA, mean_interval, sign_flip_p
from dana.tasks.kinds.single_label import SingleLabel

VARIES = {"texts": (0.5, 0.1), "seeds": (0.1, 0.4)}  # standard deviations over texts and over seeds

BOTH = SingleLabel.numbered(2)  # right or wrong


def pair(random: np.random.Generator, seeds: int, texts: int, varies: str, effect: float) -> list[np.ndarray]:
    """Whether each model of two is right, of shape (seeds, texts)."""
    by_text, by_seed = VARIES[varies]
    shared = 1.0 + random.normal(0, 1.5, texts) + random.normal(0, by_seed, seeds)[:, None]
    return [
        shared
        + better
        + random.normal(0, by_text, texts)
        + random.normal(0, by_seed, seeds)[:, None]
        + random.normal(0, 0.7, (seeds, texts))
        > 0
        for better in (0.0, effect)
    ]


def found(models: list[np.ndarray]) -> list[bool]:
    """What the t interval over seeds, the sign-flip test, the two-level interval and the last two together find."""
    texts = models[0].shape[1]
    differences = (models[1].mean(1) - models[0].mean(1)).tolist()
    over_seeds = mean_interval(differences)
    both = paired_bootstrap(
        *(right.astype(int) for right in reversed(models)), np.ones(texts, int), BOTH, "accuracy", 400
    )
    apart = [not part.low <= 0 <= part.high for part in (over_seeds, both)]
    flips = sign_flip_p(differences) <= ALPHA
    return [apart[0], flips, apart[1], flips and apart[1]]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--effect", type=float, default=0.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[6, 8])
    parser.add_argument("--texts", type=int, nargs="+", default=[150, 1000])
    options = parser.parse_args()
    print("seeds  texts  varies   t interval  sign flip  two-level  both")
    for seeds in options.seeds:
        for texts in options.texts:
            for varies in VARIES:
                random = np.random.default_rng(0)
                pairs = (pair(random, seeds, texts, varies, options.effect) for _ in range(options.pairs))
                shares = np.mean([found(models) for models in pairs], 0)
                print(
                    f"{seeds:>5}  {texts:>5}  {varies:<7}" + "".join(f"{share:>11.3f}" for share in shares), flush=True
                )


if __name__ == "__main__":
    main()
