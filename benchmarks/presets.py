"""Fine-tune checkpoints by the preset ``auto`` on four tasks; tabulate means, largest classes and collapsed seeds.

python benchmarks presets OUT NAME=CHECKPOINT ... [--seeds 5] adds what is missing; OUT --wide RUN
trains a checkpoint. Tasks are cut, by a hash of the id, to 500 training, 200 development and 500
test texts.
"""

import argparse
from pathlib import Path

from dana.core.artifacts import read_json
from dana.core.files import text_digest, to_json_lines
from dana.core.text_table import tabulate
from dana.models.language_model import SIZES
from dana.stages.finetune import finetune_stage
from dana.stages.settings import FinetuneSettings
from dana.stages.texts import held_out_folders
from dana.stages.training import pretrain_stage
from dana.tasks.card import load_card
from dana.tasks.examples import read_split
from dana.tasks.tables import collapsed_seeds
from dana.train.settings import PretrainSettings

TEXTS = {"train": 500, "dev": 200, "test": 500}


def cut(task: str, folder: Path) -> str:
    """Write the first examples of each split to ``FOLDER/SPLIT.jsonl``; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in TEXTS.items():
        if not (file := folder / f"{split}.jsonl").is_file():
            examples = sorted(
                read_split(card := load_card(task), split), key=lambda one: text_digest(one.id)
            )[:count]
            rows = (
                {"id": one.id, "text": one.text, "label": card.labels[one.label]}
                for one in examples
            )  # type: ignore
            file.write_text(to_json_lines(rows), encoding="utf-8")
    return str(folder)


def main() -> None:
    """Run the missing fine-tunings and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("checkpoints", nargs="*", metavar="NAME=CHECKPOINT")
    parser.add_argument("--tasks", nargs="+", default=["sst2", "agnews", "chemprot", "rct_sample"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--wide", type=Path, metavar="RUN", help="a run's folder, with the text to train on"
    )
    args, rows = parser.parse_args(), []
    if args.wide:
        SIZES["wide"] = (2, 512)
        settings = PretrainSettings(
            tokens=100_000, max_tokens=128, batch_size=8, learning_rate=1e-3, evaluations=1
        )
        pretrain_stage("wide", args.wide / "pool", *held_out_folders(args.wide), settings, args.out)
    for name, model in (one.split("=", 1) for one in args.checkpoints):
        for task in args.tasks:
            settings, data = FinetuneSettings(seeds=args.seeds), cut(task, args.out / "data" / task)
            metrics = read_json(
                finetune_stage(model, task, settings, args.out / name / task, data).path
                / "metrics.json"
            )
            row = {
                "checkpoint": name,
                "task": task,
                "pooling": metrics["settings"]["pooling"],
                "mean": metrics["mean"],
            }
            row |= {
                "largest class": metrics["seeds"][0]["largest_class_test"],
                "collapsed": len(collapsed_seeds(metrics)),
            }
            rows.append({**row, "seconds": sum(seed["seconds"] for seed in metrics["seeds"])})
    print(tabulate(rows) if rows else args.out)


if __name__ == "__main__":
    main()
