"""How fast are hashed n-gram features, and the selectors on them, against the published packages?

    DANA_DATA=... OMP_NUM_THREADS=1 python benchmarks/features.py [--pieces 8192]

Pieces of 100 words of every source of general/, in rounds of 1,024: every contestant takes a round before the next one
begins, so that they share whatever else the machine does. Printed: pieces a second of processor time, the time
relative to dana's counts, seconds for a million pieces. ``data-selection`` is compared where it can be imported; the
counts of both must be equal but for words that NLTK splits otherwise (combining marks, superscripts).
"""

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer

from dana.corpus.documents import Tally, read_documents
from dana.corpus.hashed_ngrams import HashedNgrams, word_punct
from dana.selectors.dsir import DSIRSelector
from dana.selectors.lexical import LexicalSelector

ROUND = 1024
WORDS = 100
Contestants = dict[str, Callable[[Sequence[str]], Any]]


def read_pieces(count: int) -> list[str]:
    """Pieces of 100 words of every tenth document, shuffled."""
    documents = islice(read_documents([os.environ["DANA_DATA"] + "/general"], "skip", Tally()), 0, None, 10)
    pieces = []
    for document in documents:
        words = document.text.split()[: 20 * WORDS]
        pieces += [" ".join(words[at : at + WORDS]) for at in range(0, len(words) - WORDS + 1, WORDS)]
    order = np.random.default_rng(0).permutation(len(pieces))[:count]
    return [pieces[row] for row in order]


def contestants(pieces: Sequence[str]) -> Contestants:
    """Name to what turns texts into counts or scores."""
    task, background = pieces[:500], pieces[500:1500]
    dsir = DSIRSelector().fit(task, {"background": background})
    lexical = LexicalSelector().fit(task, {"background": background})
    found: Contestants = {"counts, dana": HashedNgrams().counts}
    try:
        from data_selection.hashed_ngram_dsir import get_ngram_counts
    except ImportError:
        print("data-selection is not installed: not compared")
    else:
        found["counts, data-selection"] = lambda texts: [get_ngram_counts(text) for text in texts]
    other = HashingVectorizer(
        n_features=10_000, tokenizer=word_punct, token_pattern=None, ngram_range=(1, 2), norm=None
    )
    return {
        **found,
        "counts, scikit-learn": other.transform,
        "scores, dsir": dsir.score,
        "scores, lexical": lexical.score,
    }


def main() -> None:
    """Print a row a contestant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pieces", type=int, default=8 * ROUND, help="how many (default: %(default)s)")
    pieces = read_pieces(parser.parse_args().pieces)
    compared = contestants(pieces)
    seconds: defaultdict[str, float] = defaultdict(float)
    unequal = 0
    for start in range(0, len(pieces), ROUND):
        texts = pieces[start : start + ROUND]
        made = {}
        for name, function in compared.items():
            began = time.process_time()
            made[name] = function(texts)
            seconds[name] += time.process_time() - began
        if "counts, data-selection" in made:
            ours, theirs = made["counts, dana"].toarray(), np.array(made["counts, data-selection"])
            unequal += int((ours != theirs).any(axis=1).sum())
    base = seconds["counts, dana"]
    print(f"{'':<24}{'pieces/s':>10}{'time, dana = 1':>16}{'s/million':>12}")
    for name, taken in seconds.items():
        print(f"{name:<24}{len(pieces) / taken:>10.0f}{taken / base:>16.2f}{1e6 * taken / len(pieces):>12.0f}")
    if "counts, data-selection" in seconds:
        print(f"{unequal} of {len(pieces)} pieces are counted otherwise by data-selection")


if __name__ == "__main__":
    main()
