"""What a cascade saves and what it loses: planted target text in a general pool, for several shares encoded.

    DANA_DATA=... python benchmarks/cascade.py --documents 120

Task: medical abstracts (``rct_sample``). Pool: the first documents of each of the fourteen general sources; the
planted target is ``pubmed``. For each ``keep``: the share of units that the real encoder sees, the time per unit that
follows from the measured cost of both encoders, recall of the units that full scoring puts into its best 5, 10 and
20 %, and the share of the planted units among the best units, as many as are planted.
"""

import argparse
import gzip
import os
import tempfile
import time
from pathlib import Path

import numpy as np

KEEPS = (0.05, 0.1, 0.2, 0.3, 0.5)


def pool(documents: int, folder: Path) -> Path:
    """The first documents of every source."""
    folder.mkdir()
    for path in sorted((Path(os.environ["DANA_DATA"]) / "general").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            text = "".join(line for line, _ in zip(lines, range(documents), strict=False))
        (folder / path.name.removesuffix(".gz")).write_text(text, encoding="utf-8")
    return folder


def main() -> None:
    """Score everything once with the real encoder, then with each cascade."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=120, help="of each source")
    parser.add_argument("--task", default="rct_sample")
    parser.add_argument("--planted", default="pubmed")
    parser.add_argument("--detector", default="knn")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--first", default="static")
    options = parser.parse_args()
    from dana.core.rng import derive_seed
    from dana.corpus.unit_stream import draw
    from dana.scoring.inputs import GeneralCorpus, TaskText
    from dana.scoring.settings import Selection
    from dana.selectors.base import SelectorContext
    from dana.selectors.cascade import CascadeSelector, recall_at
    from dana.selectors.detector import DetectorSelector
    from dana.stages.corpus import corpus_stage
    from dana.stages.task import task_stage

    with tempfile.TemporaryDirectory() as temporary:
        work, store = Path(temporary), str(Path(temporary) / "store")
        general = GeneralCorpus(corpus_stage([str(pool(options.documents, work / "pool"))], work / "corpus"))
        selection = Selection()
        task = TaskText(task_stage(options.task, work / "task")).units(selection)
        batches = list(general.units(selection))
        planted = np.concatenate([np.array(units.sources) == options.planted for units in batches])
        run = SelectorContext(options.detector, options.encoder, store=store)
        full = DetectorSelector(context=run)
        wanted = CascadeSelector(context=run).samples(len(task))
        samples = draw(batches, {name: (derive_seed(0, "general", name), size) for name, size in wanted.items()})
        fitted = full.fit(task, {name: samples[name] for name in full.samples(len(task))}, 0)
        started = time.monotonic()
        expected = np.concatenate([fitted.score(units) for units in batches])
        real = (time.monotonic() - started) / expected.size
        print(f"{expected.size:,} units, {planted.mean():.1%} planted; real encoder {1e3 * real:.2f} ms a unit")
        print("keep   encoded   ms a unit   speed   best 5%   best 10%   best 20%   planted among the best")
        rows = [(1.0, np.ones(expected.size, dtype=bool), real, expected)]
        for keep in KEEPS:
            # Vectors of the run's encoder are looked up from here on.
            both = CascadeSelector(keep, first=options.first, context=run).fit(task, samples, 0)
            started = time.monotonic()
            cheap = np.concatenate([both.cheap.score(units) for units in batches])
            cost = (time.monotonic() - started) / cheap.size
            scores = np.concatenate([both.score(units) for units in batches])
            seen = cheap <= both.threshold
            rows.append((keep, seen, cost + float(seen.mean()) * real, scores))
        for keep, seen, cost, scores in rows:
            recalls = "".join(f"{recall_at(expected, seen, budget):>11.1%}" for budget in (0.05, 0.1, 0.2))
            best = np.argsort(scores, kind="stable")[: int(planted.sum())]
            found = planted[best].sum() / planted.sum()
            print(f"{keep:<6} {seen.mean():>7.1%} {1e3 * cost:>11.2f} {real / cost:>6.1f}x{recalls} {found:>24.1%}")


if __name__ == "__main__":
    main()
