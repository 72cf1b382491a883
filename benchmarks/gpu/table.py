"""Print results.jsonl as short tables.

python table.py FOLDER
"""

import json
import sys
from pathlib import Path

rows = [json.loads(line) for line in (Path(sys.argv[1]) / "results.jsonl").read_text().splitlines()]


def show(title, columns, chosen):
    """Print rows as a table with a title; nothing if there are none."""
    if not chosen:
        return
    print(f"\n{title}")
    table = [columns, *([str(row.get(name, "")) for name in columns] for row in chosen)]
    widths = [max(len(line[index]) for line in table) for index in range(len(columns))]
    for line in table:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )


kinds = {
    kind: [row for row in rows if row.get("what") == kind]
    for kind in ("path", "kernel", "trainer", "resume", "train", "score", "seeds")
}
show(
    "attention taken in training, bf16",
    ["model", "taken", "kernel", "product", "ok"],
    kinds["path"],
)
show("logits without padding", ["model", "padded_bf16", "unpadded_bf16", "ok"], kinds["kernel"])
show(
    "against Trainer",
    ["precision", "layout", "largest_loss_difference", "weights_apart", "ok"],
    kinds["trainer"],
)
show("resume", ["largest_difference", "ok"], kinds["resume"])
columns = [
    "arch",
    "width",
    "arm",
    "dropout",
    "layout",
    "passes",
    "tokens_per_second",
    "mfu",
    "busy",
    "kernels",
    "ms_a_step",
    "peak_gb",
    "loss",
]
show(
    "training",
    columns,
    sorted(kinds["train"], key=lambda row: (row["arch"], row["width"], -row["tokens_per_second"])),
)
show("encoding", ["arm", "dtype", "batch_tokens", "sentences_per_second"], kinds["score"])
show(
    "fine-tuning, 500 texts",
    ["model", "arm", "precision", "seconds_a_seed", "ms_a_step", "steps"],
    kinds["seeds"],
)
reached = {(row["arch"], row["arm"], row["width"]) for row in kinds["train"]}
missing = [
    {"arch": arch, "arm": arm, "width": width}
    for arch in ("bert", "modernbert", "mini", "minilm")
    for arm, width in (("dana", 128), ("stock", 128), ("dana", 512), ("stock", 512))
    if (arch, arm, width) not in reached
]
show("not measured", ["arch", "arm", "width"], missing)
show("errors", ["what", "error"], [row for row in rows if "error" in row])
