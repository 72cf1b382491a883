"""Adapt models on chosen and on random text by several objectives, rates and lengths; probe each with few labels.

    DANA_DATA=... python benchmarks/objectives.py work --tasks rct_sample ag_news --models dana-mini \
        --objectives position --rates 1e-4 3e-4 1e-3 --steps 50 150 500 --adaptations 2

Text is chosen from eight sources by the selector ``lexical``: 3,200 documents for each task, and as
many drawn at random for each adaptation. What is done is not done again, so a stopped run goes on.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "evidence"))

from plan import DOCUMENTS, SOURCES

ARMS = ("selected", "random")


@dataclass(frozen=True)
class Adaptation:
    """One model to adapt.

    Attributes:
        task: Name of a task card.
        model: Folder or name of the base.
        objective: Spec of the objective.
        arm: ``selected`` or ``random`` text.
        rate: Peak learning rate.
        steps: Optimizer steps.
        index: Seed of the training, and of the draw of random text.
    """

    task: str
    model: str
    objective: str
    arm: str
    rate: float
    steps: int
    index: int

    @property
    def name(self) -> str:
        """Name of the folder of the adapted model."""
        model = Path(self.model).name
        objective = self.objective.replace(":", "-")
        return f"{model}-{objective}-{self.arm}-{self.rate:g}-{self.steps}-{self.index}"


def dana(*arguments: str | Path | float) -> None:
    """Run a command of dana, and end if it fails."""
    subprocess.run([sys.executable, "-m", "dana", *map(str, arguments)], check=True)


def select_text(work: Path, task: str, arm: str, index: int) -> Path:
    """Score and weigh the text of an arm; return the folder of the run."""
    folder = work / task / (arm if arm == "selected" else f"{arm}-{index}")
    if not (folder / "weights").is_dir():
        data = Path(os.environ["DANA_DATA"])
        pool = [data / "general" / f"{source}.jsonl.gz" for source in SOURCES]
        selector = "lexical" if arm == "selected" else "random"
        dana(
            *("score", "--task", task, "--pool", *pool, "--out", folder),
            *("--selector", selector, "--seed", index),
        )
        dana("weigh", folder, "--budget", f"{DOCUMENTS} documents")
    return folder


def adapt(work: Path, adaptation: Adaptation) -> Path:
    """Adapt a model, if it is not done yet; return its folder."""
    index = adaptation.index if adaptation.arm == "random" else 0
    run = select_text(work, adaptation.task, adaptation.arm, index)
    out = work / adaptation.task / "adapted" / adaptation.name
    if not out.is_dir():
        settings = [
            f"adapt.learning_rate={adaptation.rate}",
            f"adapt.seed={adaptation.index}",
            "adapt.max_tokens=64",
            "adapt.evaluations=0",
        ]
        dana(
            *("adapt", run, "--model", adaptation.model, "--objective", adaptation.objective),
            *("--steps", adaptation.steps, "--out", out, "--set", *settings),
        )
    return out


def planned(args: argparse.Namespace) -> Iterator[Adaptation]:
    """Yield all adaptations, the short ones first."""
    indices = range(args.adaptations)
    for steps, index, task, model in product(args.steps, indices, args.tasks, args.models):
        for objective, rate, arm in product(args.objectives, args.rates, args.arms):
            yield Adaptation(task, model, objective, arm, rate, steps, index)


def main() -> None:
    """Adapt and probe what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path, help="folder of runs and models")
    parser.add_argument("--tasks", nargs="+", default=["rct_sample", "ag_news"])
    parser.add_argument("--models", nargs="+", default=["dana-mini"])
    parser.add_argument("--objectives", nargs="+", default=["position", "crops"])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--rates", nargs="+", type=float, default=[1e-4, 3e-4, 1e-3])
    parser.add_argument("--steps", nargs="+", type=int, default=[50, 150, 500])
    parser.add_argument("--adaptations", type=int, default=2)
    args = parser.parse_args()
    for adaptation in planned(args):
        print(adapt(args.work, adaptation), flush=True)


if __name__ == "__main__":
    main()
