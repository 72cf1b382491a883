"""Pack what a machine with one GPU lacks into .gpu/ in the project's root.

    python benchmarks/gpu/pack.py [--evidence WORK]

Needs the project's environment (the extra `offline` for MiniLM's tokenizer) and DANA_DATA. Writes
.gpu/queue (the scripts), .gpu/data (texts as token ids, a task, sentences, a tokenizer), .gpu/whl
(pure wheels and those of Python 3.12) and .gpu/site (entry points of dana), ignored by git; prints
the size that travels, and fails if that is more than 62 MiB. --minilm packs MiniLM's weights in half
precision (45 MB) in place of the benchmark's texts, for an experiment.

--evidence packs, in place of the benchmark's texts, the counted experiment of benchmarks/evidence: its
tasks, the selected text in WORK, and MiniLM at 8 bits a weight. If the text of all arms is too large,
that of DSIR is left out.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np

# Not installed on that machine; datasets also needs xxhash, which is.
WHEELS = ["datasets", "dill", "multiprocess", "evaluate", "pyod", "loky", "sentencex"]
WHEELS += ["pydantic", "pydantic_core", "annotated-types", "typing-inspection", "typing_extensions"]
OF_TESTS = ["hypothesis", "sortedcontainers"]
LIMIT = 62 * 2**20  # bytes that travel: tracked files and .gpu
PLATFORMS = [
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
]


def wheels(folder: Path, packages: list[str]) -> None:
    """Download wheels that the machine lacks, in the versions installed here."""
    from importlib.metadata import version

    names = [f"{name}=={version(name)}" for name in packages]
    where = [part for platform in PLATFORMS for part in ("--platform", platform)]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--only-binary=:all:",
        "--python-version",
        "3.12",
    ]
    subprocess.run([*command, "--implementation", "cp", *where, "-d", folder, *names], check=True)


def entry_points(folder: Path) -> None:
    """Write the distribution's metadata, by which registries find components uninstalled."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    info = folder / f"dana_lm-{project['version']}.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: dana-lm\nVersion: {project['version']}\n"
    )
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()), ""]
    info.joinpath("entry_points.txt").write_text("\n".join(lines))


def documents(data: Path):
    """Yield the texts of the pool, 1,200 of each file."""
    files = sorted((data / "general").glob("*.jsonl.gz"))
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for line, _ in zip(lines, range(1200), strict=False):
                yield json.loads(line)["text"]


def rows(texts, tokenizer, width: int, limit: int, path: Path) -> None:
    """Cut texts into windows with [CLS] and [SEP]; keep `limit` tokens in random order."""
    room, windows = width - 2, []
    for start in range(0, len(texts), 2000):
        for ids in tokenizer(texts[start : start + 2000], add_special_tokens=False, verbose=False)[
            "input_ids"
        ]:
            windows += [[101, *ids[at : at + room], 102] for at in range(0, len(ids), room)]
        if sum(map(len, windows)) > 3 * limit:
            break
    order, kept, size = np.random.default_rng(0).permutation(len(windows)), [], 0
    for index in order:
        if len(windows[index]) > 8 and size < limit:
            kept.append(windows[index])
            size += len(windows[index])
    offsets = np.cumsum([0, *map(len, kept)])
    np.savez_compressed(
        path, tokens=np.concatenate(kept).astype(np.uint16), offsets=offsets.astype(np.int64)
    )


def pack_texts(data: Path, tokenizer, tokens: int, folder: Path) -> None:
    """Pack token ids for training, sentences for encoding, a task of 500 texts for fine-tuning."""
    texts = list(documents(data))
    order = np.random.default_rng(0).permutation(len(texts))
    texts = [texts[index] for index in order]
    paragraphs = [part for text in texts for part in text.split("\n") if len(part) >= 40]
    rows(texts, tokenizer, 512, tokens, folder / "rows512.npz")
    rows(paragraphs, tokenizer, 128, tokens, folder / "rows128.npz")
    sentences = [
        one
        for text in texts[:9000]
        for one in re.split(r"(?<=[.!?])\s+", text)
        if 20 < len(one) < 600
    ]
    with gzip.open(folder / "sentences.json.gz", "wt", encoding="utf-8") as file:
        json.dump(sentences[:40_000], file)
    task = {}
    for split, many in (("train", 500), ("dev", 300), ("test", 1000)):
        with gzip.open(
            data / "tasks" / "chemprot" / f"{split}.jsonl.gz", "rt", encoding="utf-8"
        ) as lines:
            task[split] = [json.loads(line) for line, _ in zip(lines, range(many), strict=False)]
    (folder / "task.json").write_text(json.dumps(task))


def pack_minilm(folder: Path):
    """Copy MiniLM's tokenizer and config, and return the tokenizer."""
    from transformers import AutoTokenizer

    from dana.models.minilm import minilm_folder

    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    tokenizer.model_max_length = 512
    tokenizer.save_pretrained(folder)
    shutil.copy(minilm_folder() / "config.json", folder)
    return tokenizer


def pack_half_weights(folder: Path) -> None:
    """Write MiniLM's weights in half precision."""
    from safetensors.torch import load_file, save_file

    from dana.models.minilm import minilm_folder

    weights = {
        name: value.half() if value.is_floating_point() else value
        for name, value in load_file(minilm_folder() / "model.safetensors").items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def pack_evidence(work: Path, home: Path) -> None:
    """Pack the counted experiment: with DSIR's text if that fits, else the primary question alone.

    Text that is not selected is left out, and the command that selects it is printed.
    """
    sys.path.insert(0, str(Path(__file__).parents[1] / "evidence"))
    from packing import arms_of, pack
    from steps import has_text, run_folder

    for questions in (["primary", "dsir"], ["primary"]):
        arms = arms_of(questions)
        there = [one for one in arms if has_text(work, one)]
        pack(work, there, home / "evidence.tar.xz")
        (home / "questions.txt").write_text(" ".join(questions))
        absent = [
            run_folder(work, one.task, one.arm, one.index).name for one in arms if one not in there
        ]
        if absent:
            print(
                f"not packed, as it is not selected: the text of {', '.join(absent)}. To select it: "
                f"python benchmarks evidence {work} --select --questions {' '.join(questions)}"
            )
        if sum(sizes(home)) <= LIMIT:
            return
        print(f"too large with {' and '.join(questions)}")


def sizes(home: Path) -> tuple[int, int]:
    """Return the bytes of the packed files and of the tracked ones."""
    command = ["git", "ls-files", "-z"]
    output = subprocess.run(command, capture_output=True, check=True, cwd=home.parent).stdout
    tracked = [home.parent / name for name in output.decode().split("\0") if name]
    packed = [file for file in home.rglob("*") if file.is_file()]
    in_project = sum(file.stat().st_size for file in tracked if file.is_file())
    return sum(file.stat().st_size for file in packed), in_project


def report(home: Path) -> None:
    """Print what travels; end with an error if that is too much."""
    packed, project = sizes(home)
    for file in sorted(home.rglob("*")):
        if file.is_file() and file.stat().st_size > 200_000:
            print(f"  {file.relative_to(home)} {file.stat().st_size / 2**20:.2f}")
    line = (
        f".gpu: {packed / 2**20:.1f} MiB; tracked files: {project / 2**20:.1f} MiB; "
        f"together {(packed + project) / 2**20:.1f} of {LIMIT / 2**20:.0f} MiB"
    )
    if packed + project > LIMIT:
        sys.exit(f"too large to travel: {line}")
    print(line)


def main() -> None:
    """Pack the scripts, their data, the wheels and the entry points; print what travels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minilm", action="store_true")
    parser.add_argument("--evidence", type=Path, metavar="WORK", help="of benchmarks/evidence")
    parser.add_argument("--tokens", type=int, default=2_500_000, help="of each width")
    options = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    root, source = Path.cwd(), Path(__file__).parent
    if not (root / "dana" / "train").is_dir():
        sys.exit("run this in the project's root")
    home = root / ".gpu"
    shutil.rmtree(home, ignore_errors=True)
    for name in ("queue", "data", "whl", "site"):
        (home / name).mkdir(parents=True)
    for file in sorted(source.glob("*")):
        if file.suffix in (".py", ".sh"):
            shutil.copy(file, home / "queue")
    entry_points(home / "site")
    if options.evidence is not None:
        wheels(home / "whl", WHEELS)
        pack_evidence(options.evidence.resolve(), home)
    else:
        wheels(home / "whl", WHEELS + OF_TESTS)
        tokenizer = pack_minilm(home / "data" / "minilm")
        if options.minilm:
            pack_half_weights(home / "data" / "minilm")
        else:
            pack_texts(Path(os.environ["DANA_DATA"]), tokenizer, options.tokens, home / "data")
    report(home)


if __name__ == "__main__":
    main()
