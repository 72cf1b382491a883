"""Moore-Lewis selector, documents a CPU-second: scored in numpy and by KenLM; and training tokens a CPU-second.

    DANA_DATA=... OMP_NUM_THREADS=1 python benchmarks/ngram.py

Documents are 100 words of every tenth document of ``general/``, in turn with what they are compared with, best of five,
one thread. Where the package kenlm is missing, its rows are.
"""

import gzip
import json
import os
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from dana.corpus.unit_stream import Units
from dana.models.ngram.kneser_ney import train_ngrams
from dana.models.ngram.vocabulary import Vocabulary, split_words
from dana.selectors.moore_lewis import MooreLewisSelector

WORDS, TASK, BACKGROUND, SCORED, ROUNDS = 100, 2000, 5000, 6000, 5


def read_documents(folder: Path, count: int) -> list[str]:
    """`count` texts of exactly 100 words, a source after the other in turn."""
    found: list[list[str]] = []
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            texts = (json.loads(line)["text"].split() for line in islice(stream, 0, None, 2))
            found.append([" ".join(words[:WORDS]) for words in texts if len(words) >= WORDS])
    turns = [texts[row] for row in range(max(map(len, found))) for texts in found if row < len(texts)]
    return turns[:count]


def best_of(tasks: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Least CPU-seconds of each, all in turn in each round."""
    least = dict.fromkeys(tasks, float("inf"))
    for _ in range(ROUNDS):
        for name, task in tasks.items():
            began = time.process_time()
            task()
            least[name] = min(least[name], time.process_time() - began)
    return least


def main() -> None:
    """Print a table."""
    texts = read_documents(Path(os.environ["DANA_DATA"]) / "general", TASK + BACKGROUND + SCORED)
    task, background, scored = texts[:TASK], texts[TASK : TASK + BACKGROUND], texts[TASK + BACKGROUND :]
    units = Units.of_texts(scored)
    made = {}
    engines = ["numpy"]
    try:
        import kenlm  # noqa: F401

        engines.append("kenlm")
    except ImportError:
        print("kenlm is not installed")
    for order in (3, 5):
        for engine in engines:
            fitted = MooreLewisSelector(order=order, engine=engine).fit(task, {"background": background})
            fitted.score(scored[:1])
            made[f"score, order {order}, {engine}"] = lambda fitted=fitted: fitted.score(units)
    made["split into words"] = lambda: [split_words(text) for text in scored]
    for name, seconds in best_of(made).items():
        print(f"{name:<26} {len(scored) / seconds:>10,.0f} documents/s")
    vocabulary = Vocabulary.of_texts(background)
    ids = vocabulary.encode(background)
    trained = {f"train, order {order}": lambda order=order: train_ngrams(ids, order, vocabulary) for order in (3, 5)}
    for name, seconds in best_of(trained).items():
        print(f"{name:<26} {ids.ids.size / seconds:>10,.0f} words/s")


if __name__ == "__main__":
    main()
