"""What hygiene costs: documents a second of processor time, from packed files to the corpus artifact.

    DANA_DATA=... OMP_NUM_THREADS=1 python benchmarks/hygiene.py

Reads $DANA_DATA/general three times: as it is, decontaminated against six tasks, without near duplicates. About two
minutes on one core.
"""

import os
import tempfile
import time
from pathlib import Path

from dana.stages.corpus import corpus_stage
from dana.tasks.hygiene import Cleaner
from dana.tasks.settings import Hygiene

TASKS = ["chemprot", "citation_intent", "rct_sample", "ag_news", "sst2", "csabstruct"]
CASES = {
    "no hygiene": Hygiene(),
    "decontaminate": Hygiene(TASKS),
    "near duplicates": Hygiene(near_duplicates=0.8),
}


def main() -> None:
    """Print one row a case."""
    for name, settings in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            started = time.process_time()
            made = corpus_stage(
                [os.environ["DANA_DATA"] + "/general"], Path(folder) / "corpus", "fail", Cleaner(settings)
            )
            seconds = time.process_time() - started
        counts = made.manifest["counts"]
        rate = counts["in"] / seconds
        print(
            f"{name:<16} {rate:>8,.0f} documents/s  {counts['in']:,} in, {counts['kept']:,} kept, {counts['dropped']}"
        )


if __name__ == "__main__":
    main()
