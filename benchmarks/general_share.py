"""What the paper's N, general units fitted along with the task, does to each detector.

A pool of the first documents of every source of ``DANA_DATA/general`` is scored by selectors fitted on a task, with
and without N = t/10 units of that pool. Printed: the share of the best units that are of the task's domain.

    DANA_DATA=... python benchmarks/general_share.py --task rct_sample --domain pubmed --encoder static --documents 100
"""

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
from cascade import pool

DETECTORS = ("lof", "knn", "ocsvm", "pca", "robust_covariance", "iforest:trees=400")
BEST = 0.05


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="rct_sample")
    parser.add_argument("--domain", default="pubmed", help="the source that is of the task's domain")
    parser.add_argument("--encoder", default="static")
    parser.add_argument("--documents", type=int, default=100, help="documents of each source")
    parser.add_argument("--task-units", type=int, default=2000)
    options = parser.parse_args()
    from dana.core.rng import derive_seed
    from dana.corpus.unit_stream import draw
    from dana.scoring.inputs import GeneralCorpus, TaskText
    from dana.scoring.settings import Selection
    from dana.selectors.base import SelectorContext
    from dana.selectors.detector import DetectorSelector
    from dana.stages.corpus import corpus_stage
    from dana.stages.task import task_stage

    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        general = GeneralCorpus(corpus_stage([str(pool(options.documents, work / "pool"))], work / "corpus"))
        selection = Selection(encoder=options.encoder, max_task_units=options.task_units)
        task = TaskText(task_stage(options.task, work / "task", os.environ["DANA_DATA"] + "/tasks")).units(selection)
        batches = list(general.units(selection))
        wanted = DetectorSelector("knn", options.encoder, general_share=0.1).samples(len(task))
        samples = draw(batches, {name: (derive_seed(0, "general", name), size) for name, size in wanted.items()})
        embed = SelectorContext(encoder=options.encoder).embed
        vectors = embed([text for units in batches for text in units.texts])
        own = embed(task.texts)
        fitted_on = {name: embed(sample.texts) for name, sample in samples.items()}
        sources = np.array([source for units in batches for source in units.sources])
        inside = sources == options.domain
        best = round(BEST * inside.size)
        print(f"{len(task)} task units, {inside.size:,} of the pool, {inside.mean():.1%} of {options.domain}")
        print(f"{'detector':<20} {'with N':>8} {'without':>8}   share of {options.domain} among the best {BEST:.0%}")
        for detector in DETECTORS:
            shares = []
            for share in (0.1, 0.0):
                selector = DetectorSelector(detector, options.encoder, general_share=share)
                scores = selector.fit_embedded(own, fitted_on, 0).score_embedded(vectors)
                shares.append(inside[np.argsort(scores, kind="stable")[:best]].mean())
            print(f"{detector:<20} {shares[0]:>8.1%} {shares[1]:>8.1%}", flush=True)


if __name__ == "__main__":
    main()
