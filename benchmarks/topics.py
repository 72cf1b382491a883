"""What topic models cost and give: CPU seconds, coherence and diversity of models fitted to the same words.

    OMP_NUM_THREADS=1 python benchmarks/topics.py "$DANA_DATA/general" --k 25 --seeds 3 --models etm lda
    OMP_NUM_THREADS=1 python benchmarks/topics.py "$DANA_DATA/general" --documents 200 --k 10 --models etm lda

Takes the first --documents of each file of a folder (all by default; .jsonl.gz with a text a line). A line a fit;
seconds are of the process' CPU, so that other work on the machine does not count.
"""

import argparse
import gzip
import json
import time
from itertools import islice
from pathlib import Path

from dana.core.text_table import aligned
from dana.studies.topics.base import fit_topics
from dana.studies.topics.choice import measure_topics
from dana.studies.topics.settings import WordLimits
from dana.studies.topics.vocabulary import count_words_of_topics


def read_texts(folder: Path, documents: int | None) -> list[str]:
    """The first texts of every file, in the order of their names."""
    texts = []
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            texts += [json.loads(line)["text"] for line in islice(stream, documents)]
    return texts


def main() -> None:
    """Print a line a model and seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=int)
    parser.add_argument("--k", type=int, default=25)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--models", nargs="+", default=["etm", "lda"])
    given = parser.parse_args()
    began = time.process_time()
    bags = count_words_of_topics(read_texts(given.folder, given.documents), WordLimits())
    sizes = f"{bags.counts.shape[0]:,} documents, {len(bags.words):,} words, {bags.counts.nnz:,} counts"
    print(f"{sizes}, read and counted in {time.process_time() - began:.1f} s of CPU", flush=True)
    rows = []
    for spec in given.models:
        for seed in range(given.seeds):
            began = time.process_time()
            topics = fit_topics(spec, bags, given.k, seed)
            row = {"model": spec, "seed": seed, "cpu_s": time.process_time() - began}
            rows.append(row | measure_topics(topics.beta, bags.counts))
    print(aligned(rows))


if __name__ == "__main__":
    main()
