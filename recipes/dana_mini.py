"""Prepare the training text and decontamination cards of dana-mini, and export the trained model.

    python recipes/dana_mini.py text FOLDER
    python recipes/dana_mini.py ship MODEL FOLDER

``text`` reads DANA_DATA and writes FOLDER/gutenberg.jsonl.gz (novels in pieces of about 3,000
characters; without Jane Eyre, which is a task), FOLDER/harvest (an earlier quickstart's task) and
FOLDER/others.yaml, a card of the texts that later experiments are evaluated on and that no card of
``tasks/`` covers. It prints the next command. ``ship`` writes MODEL in half precision, without the
training state. recipes/dana-mini.yaml lists the commands between the two.
"""

import argparse
import gzip
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
import yaml

PIECE, MIN_PIECE = 3000, 200  # characters
# Pool text that is in the public domain, CC BY or CC BY-SA; the sources of later pools are left
# out, whole.
SOURCES = ["dialogue_sgd", "fiction", "legal_uscode", "stackexchange", "tech_peps", "wikipedia"]
TASKS = ("chemprot", "acl_arc", "csabstruct", "rct_sample", "agnews", "sst2")
FINETUNING = {
    "learning_rate": 3e-4,
    "pooling": "mean",
}  # of the preset `auto`; `dana adapt` hands it on
EVALUATION_FILES = ("genres/*.jsonl.gz", "domains/*.en.txt.gz", "gutenberg/pg1260-Jane_Eyre.txt.gz")


def novels(data: Path) -> Iterator[dict[str, str]]:
    """Yield pieces of each novel: paragraphs joined until they exceed `PIECE` characters."""
    for path in sorted((data / "gutenberg").glob("en100-*")):
        name = path.name.removeprefix("en100-").removesuffix(".txt.gz")
        piece: list[str] = []
        number = 0
        for paragraph in gzip.decompress(path.read_bytes()).decode().split("\n\n"):
            piece.append(paragraph)
            if sum(map(len, piece)) > PIECE:
                yield {
                    "id": f"gutenberg-{name}-{number}",
                    "text": "\n\n".join(piece),
                    "source": "gutenberg",
                }
                piece, number = [], number + 1
        if sum(map(len, piece)) >= MIN_PIECE:
            yield {
                "id": f"gutenberg-{name}-{number}",
                "text": "\n\n".join(piece),
                "source": "gutenberg",
            }


def evaluation_texts(data: Path) -> Iterator[str]:
    """Yield the texts of later evaluations, which the training text must not contain."""
    for pattern in EVALUATION_FILES:
        for path in sorted(data.glob(pattern)):
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                if ".jsonl" in path.name:
                    yield from (json.loads(line)["text"] for line in lines)
                else:
                    yield from (line.strip() for line in lines if line.strip())


def write_text(folder: Path) -> None:
    """Write the novels, the harvested task and the card of evaluation texts; print the next command."""
    from harvest import write_task

    from dana.core.files import write_gzip_lines

    data = Path(os.environ["DANA_DATA"])
    (folder / "others").mkdir(parents=True, exist_ok=True)
    print(write_gzip_lines(folder / "gutenberg.jsonl.gz", novels(data)), "pieces of novels")
    write_task(folder / "harvest")
    rows = ({"text": text, "label": "none"} for text in evaluation_texts(data))
    count = write_gzip_lines(folder / "others" / "test.jsonl.gz", rows)
    write_gzip_lines(folder / "others" / "dev.jsonl.gz", iter([{"text": "none", "label": "none"}]))
    card = {
        "name": "others",
        "title": "Texts of the experiments on genre, domain clusters and Moore-Lewis selection",
        "version": 1,
        "data": {"local": "others"},
        "labels": ["none", "other"],
        "metric": "accuracy",
        "splits": {"dev": 1, "test": count},
    }
    (folder / "others.yaml").write_text(yaml.safe_dump(card, sort_keys=False), encoding="utf-8")
    print(count, "evaluation texts")
    pool = [f"{data}/general/{source}.jsonl.gz" for source in SOURCES]
    cards = [*TASKS, folder / "others.yaml", folder / "harvest" / "card.yaml"]
    print(
        "next: dana score --task chemprot --selector random --near-duplicates 0.8 --pool",
        *pool,
        end=" ",
    )
    print(folder / "gutenberg.jsonl.gz", "--decontaminate", *cards, "--out", folder)


def ship(model: Path, folder: Path) -> None:
    """Save the model in half precision, with the values for its fine-tuning, its tokenizer and the keys of its text."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    network = AutoModelForMaskedLM.from_pretrained(model, dtype=torch.float16)
    network.config.dana = FINETUNING
    network.save_pretrained(folder)
    # Or sentence-transformers would compute in half precision, which is slow on a CPU.
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["dtype"] = "float32"
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    shutil.copy(model / "documents.npy", folder)


def main() -> None:
    """Run the step of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("text").add_argument("folder", type=Path)
    shipping = steps.add_parser("ship")
    shipping.add_argument("model", type=Path)
    shipping.add_argument("folder", type=Path)
    args = parser.parse_args()
    if args.step == "text":
        write_text(args.folder)
    else:
        ship(args.model, args.folder)


if __name__ == "__main__":
    main()
