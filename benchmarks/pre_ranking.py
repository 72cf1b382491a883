"""Does pre-ranking the negatives help the classifier? Precision, recall and F1 on held-out sentences with true labels.

    DANA_DATA=... OMP_NUM_THREADS=1 python benchmarks/pre_ranking.py [--domains medical it] [--fit 300]

A domain's sentences against a mix of all five domains of domains/, from which negatives are drawn; so a fifth of random
negatives are of the domain itself. Held out: as many sentences of the domain as of the four others, none of them seen.
A sentence is classified as the domain's if its score is below 0. Aharoni and Goldberg 2020, Table 5.
"""

import argparse
import gzip
import os
import time
from pathlib import Path

import numpy as np

from dana.selectors.base import SelectorContext
from dana.selectors.classifier import ClassifierSelector

ALL = ("it", "koran", "law", "medical", "subtitles")
HELD_OUT = 400  # of the domain, and as many of the others


def read_domain(name: str) -> list[str]:
    """Distinct sentences of at least four words, shuffled."""
    path = Path(os.environ["DANA_DATA"]) / "domains" / f"{name}.en.txt.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        texts = list(dict.fromkeys(line.strip() for line in lines if len(line.split()) >= 4))
    return [texts[row] for row in np.random.default_rng(0).permutation(len(texts))]


def main() -> None:
    """Print a row a domain and way of drawing negatives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domains", nargs="+", choices=ALL, default=list(ALL))
    parser.add_argument("--fit", type=int, default=300, help="sentences of the domain (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=2e-5, help="(default: %(default)s)")
    given = parser.parse_args()
    texts = {name: read_domain(name) for name in ALL}
    share = given.fit * 3 // (2 * len(ALL)) + 1
    print(f"{'domain':<10}{'negatives':<12}{'precision':>10}{'recall':>8}{'F1':>8}{'CPU s':>8}", flush=True)
    for domain in given.domains:
        task = texts[domain][HELD_OUT : HELD_OUT + given.fit]
        general = [text for name in ALL for text in texts[name][-share:]]
        others = [text for name in ALL if name != domain for text in texts[name][: HELD_OUT // (len(ALL) - 1)]]
        for negatives in ("random", "pre_ranked"):
            selector = ClassifierSelector(
                negatives=negatives, learning_rate=given.learning_rate, context=SelectorContext()
            )
            began = time.process_time()
            fitted = selector.fit(task, general, seed=0)
            found = fitted.score([*texts[domain][:HELD_OUT], *others]) < 0
            right = int(found[:HELD_OUT].sum())
            precision, recall = right / max(1, int(found.sum())), right / HELD_OUT
            f1 = 2 * precision * recall / max(1e-12, precision + recall)
            taken = time.process_time() - began
            print(f"{domain:<10}{negatives:<12}{precision:>10.3f}{recall:>8.3f}{f1:>8.3f}{taken:>8.0f}", flush=True)


if __name__ == "__main__":
    main()
