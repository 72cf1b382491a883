"""Few labels: which classifier is best with 8, 32 or 64 texts a class, and what does it cost?

    DANA_DATA=... python benchmarks few_labels WORK [--setfit PYTHON] [--adapted] [--minutes 140]
    python benchmarks few_labels WORK --tables [--write]

WORK is the folder of `benchmarks evidence`: its tasks, and its first adapted model of each task for
--adapted. They are made where they are missing. Rows are appended to docs/results/few-labels.jsonl, a line a
classifier, task, size, draw and base; those that are there are not made again. --write writes their tables
into docs/results/few-labels.md. PYTHON is an interpreter with setfit 1.x in an environment of its own,
which trains from the same folder on the same texts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

sys.path.insert(0, str(Path(__file__).parent / "evidence"))

from pages import between_marks, markdown
from steps import first_adapted
from texts import prepare

from dana.core.artifacts import write_text
from dana.core.rng import generator
from dana.core.text_table import tabulate
from dana.encoders.transformer import TransformerEncoder
from dana.finetuning.encoded_split import EncodedSplit
from dana.finetuning.loop import run_seed
from dana.finetuning.settings import FinetuneSettings, training_class
from dana.models.folder import load_tokenizer, resolve_model
from dana.stages.baselines import fit_tfidf
from dana.tasks.card import load_card
from dana.tasks.examples import Example
from dana.train.execution import Precision

PAGE = Path(__file__).parents[1] / "docs" / "results" / "few-labels.md"
RESULTS = PAGE.with_suffix(".jsonl")
BEGIN = "<!-- written by: python benchmarks few_labels WORK --tables --write -->"
TASKS = ("rct_sample", "csabstruct", "agnews", "chemprot", "sst2", "acl_arc")
SIZES = (8, 32, 64)  # texts of a class, or all that it has
DRAWS = 3
TEST_TEXTS = 2_000
BASE = "minilm"
ADAPTED_BASE = "adapted"
# Measure of a table, its title, and its decimal places.
SHOWN = (
    ("macro_f1", "Macro-F1:", 3),
    ("seconds", "Seconds to train and to label the test texts, one core:", 0),
)
PAIRS_TITLE = "Macro-F1 of setfit with `num_iterations=20` in place of 5, eight texts a class:"
ADAPTED_TITLE = "Macro-F1 from MiniLM and from the MiniLM that was adapted on chosen text:"
SETFIT = """
import json, sys
from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments
given = json.load(open(sys.argv[1]))
model = SetFitModel.from_pretrained(given["model"], labels=given["labels"])
arguments = TrainingArguments(batch_size=16, num_epochs=1, num_iterations=given["pairs"], seed=given["seed"],
                              report_to="none", save_strategy="no", output_dir=sys.argv[3])
data = Dataset.from_dict({"text": given["train"], "label": given["classes"]})
Trainer(model=model, args=arguments, train_dataset=data).train()
found = model.predict(given["test"])
json.dump([given["labels"].index(one) for one in found], open(sys.argv[2], "w"))
"""


@dataclass(frozen=True)
class Case:
    """What every classifier gets.

    Attributes:
        work: Folder of texts and models.
        task: Name of the task.
        train: Labelled texts.
        test: Texts to label.
        seed: Number of the draw.
        model: Folder of the base.
        setfit: Interpreter that has setfit; empty without one.
    """

    work: Path
    task: str
    train: list[Example]
    test: list[Example]
    seed: int
    model: str
    setfit: str

    @property
    def card(self) -> Any:
        """The task's card."""
        return load_card(str(self.work / "tasks" / self.task / "card.yaml"))

    @property
    def classes(self) -> np.ndarray:
        """Class of each training text."""
        return np.array([example.label for example in self.train])


def by_tfidf(case: Case) -> np.ndarray:
    """Predict by words."""
    model = fit_tfidf(case.card, [one.text for one in case.train], case.classes)
    return np.asarray(model.predict([one.text for one in case.test]))


def by_vectors(case: Case) -> np.ndarray:
    """Predict by logistic regression on the vectors of the base, normalised, as SetFit fits its head."""
    encoder = TransformerEncoder.of_checkpoint(case.model, 256)
    texts = [one.text for one in (*case.train, *case.test)]
    vectors = torch.nn.functional.normalize(encoder.encode(texts).float(), dim=1).cpu().numpy()
    head = LogisticRegression(max_iter=1000).fit(vectors[: len(case.train)], case.classes)
    return np.asarray(head.predict(vectors[len(case.train) :]))


def by_training(case: Case, method: str) -> np.ndarray:
    """Predict by a fine-tuned model."""
    card = case.card
    settings = FinetuneSettings(method=method)
    config, tokenizer = load_tokenizer(case.model)
    preset = replace(settings.resolve(card, config), evaluate="last")
    kind = card.label_kind
    length = preset.max_tokens
    inputs = {
        "train": EncodedSplit.with_labels(case.train, tokenizer, length, kind),
        "dev": EncodedSplit.with_labels(case.train[:8], tokenizer, length, kind),
        "test": EncodedSplit.from_examples(case.test, tokenizer, length),
    }
    precision = Precision(torch.device("cpu"), "bf16", False)
    _, result = run_seed(
        case.model, inputs, card, preset, case.seed, precision, method=training_class(method)
    )
    return result.outputs.argmax(1)


def by_setfit(case: Case, pairs: int) -> np.ndarray:
    """Predict by setfit, in the environment of its own.

    Args:
        case: What it gets.
        pairs: Pairs that it draws for each text with one of the same label, and as many with one of another.
    """
    with tempfile.TemporaryDirectory() as folder:
        given, found, script = (Path(folder) / name for name in ("given", "found", "run.py"))
        values = {
            "model": case.model,
            "labels": list(case.card.labels),
            "train": [one.text for one in case.train],
            "classes": case.classes.tolist(),
            "test": [one.text for one in case.test],
            "seed": case.seed,
            "pairs": pairs,
        }
        given.write_text(json.dumps(values), encoding="utf-8")
        script.write_text(SETFIT, encoding="utf-8")
        command = [case.setfit, script, given, found, Path(folder) / "out"]
        environment = {
            name: value for name, value in os.environ.items() if name != "PYTHONPATH"
        } | {"HF_HUB_OFFLINE": "1"}
        subprocess.run(command, check=True, env=environment, capture_output=True)
        return np.array(json.loads(found.read_text(encoding="utf-8")))


MORE_PAIRS = "setfit-20"  # has a table of its own, of fewer draws; made only if it is asked for
CLASSIFIERS: dict[str, Callable[[Case], np.ndarray]] = {
    "tfidf": by_tfidf,
    "vectors": by_vectors,
    "whole": lambda case: by_training(case, "whole"),
    "contrastive": lambda case: by_training(case, "contrastive"),
    "setfit": lambda case: by_setfit(case, 5),
    MORE_PAIRS: lambda case: by_setfit(case, 20),
}


DEFAULTS = [name for name in CLASSIFIERS if name != MORE_PAIRS]


def read_examples(path: Path, labels: list[str]) -> list[Example]:
    """Read the texts of a task of `benchmarks evidence`."""
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [Example(row["id"], row["text"], labels.index(row["label"])) for row in rows]


def draw(examples: list[Example], size: int, seed: int) -> list[Example]:
    """Draw so many texts of each class, or all that it has."""
    random = generator(seed, "few labels")
    classes = np.array([example.label for example in examples])
    rows: list[int] = []
    for one in np.unique(classes):
        rows += random.permutation(np.flatnonzero(classes == one))[:size].tolist()
    return [examples[row] for row in random.permutation(rows)]


def bases_of(work: Path, task: str, has_adapted: bool) -> dict[str, str]:
    """Return the folder of each base of a task, by the name that its rows have.

    The adapted one is missing where the pilot kept the base.
    """
    bases = {BASE: resolve_model(BASE)}
    adapted = first_adapted(work, task) if has_adapted else None
    if adapted is not None:
        bases[ADAPTED_BASE] = str(adapted)
    return bases


def measure(name: str, case: Case) -> dict[str, float]:
    """Return the scores of a classifier, and the seconds that it took to train and predict."""
    start = time.monotonic()
    predictions = CLASSIFIERS[name](case)
    seconds = time.monotonic() - start
    labels = np.array([example.label for example in case.test])
    kind = case.card.label_kind
    return {
        "macro_f1": round(kind.score(predictions, labels, "macro_f1"), 5),
        "accuracy": round(float((predictions == labels).mean()), 5),
        "seconds": round(seconds, 1),
    }


KEYS = ("classifier", "task", "size", "draw", "base")


def read_results() -> list[dict[str, Any]]:
    """Read the rows that are there."""
    if not RESULTS.is_file():
        return []
    return [json.loads(line) for line in RESULTS.read_text(encoding="ascii").splitlines()]


def run(args: argparse.Namespace) -> None:
    """Make what is missing."""
    prepare(args.work)
    known = {tuple(row[key] for key in KEYS) for row in read_results()}
    deadline = time.monotonic() + 60 * args.minutes
    names = [name for name in args.classifiers if args.setfit or not name.startswith("setfit")]
    for size in args.sizes:
        for number in range(args.draws):
            for task in args.tasks:
                folder = args.work / "tasks" / task
                labels = list(load_card(str(folder / "card.yaml")).labels)
                train = draw(read_examples(folder / "train.jsonl", labels), size, number)
                test = read_examples(folder / "test.jsonl", labels)[:TEST_TEXTS]
                bases = bases_of(args.work, task, args.adapted)
                for base, model in bases.items():
                    case = Case(args.work, task, train, test, number, model, args.setfit)
                    for name in names:
                        key = (name, task, size, number, base)
                        is_base_free = name == "tfidf" and base != BASE
                        if key in known or is_base_free or time.monotonic() > deadline:
                            continue
                        row = dict(zip(KEYS, key, strict=True)) | measure(name, case)
                        row["texts"] = len(train)
                        print(json.dumps(row), flush=True)
                        with RESULTS.open("a", encoding="ascii") as file:
                            file.write(json.dumps(row) + "\n")


def table(measure: str, digits: int) -> list[dict[str, str]]:
    """Return the mean over draws of a measure, a row for each size, base and task, and one for their mean.

    A mean is over the draws that every classifier of this size and base has.

    Args:
        measure: Key of the rows.
        digits: Decimal places.
    """
    found: list[dict[str, str]] = []
    for size in SIZES:
        for base in (BASE, ADAPTED_BASE):
            rows = [row for row in read_results() if (row["size"], row["base"]) == (size, base)]
            found += _rows_of(rows, {"a class": str(size), "from": base}, measure, digits)
    columns = dict.fromkeys(name for row in found for name in row)
    return [{name: row.get(name, "") for name in columns} for row in found]


def _rows_of(
    rows: list[dict[str, Any]], keys: dict[str, str], measure: str, digits: int
) -> list[dict[str, str]]:
    """Return the rows of one size and base; see :func:`table`."""
    found_names = {row["classifier"] for row in rows} - {MORE_PAIRS}
    names = [name for name in CLASSIFIERS if name in found_names]
    return _means_of(rows, names, keys, measure, digits)


def _means_of(
    rows: list[dict[str, Any]],
    names: Sequence[str],
    keys: dict[str, str],
    measure: str,
    digits: int,
) -> list[dict[str, str]]:
    """Return the means of some classifiers, over the draws that all of them have."""
    by_case: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows:
        by_case.setdefault((row["task"], row["draw"]), {})[row["classifier"]] = row[measure]
    found = []
    means = []
    for task in TASKS:
        whole = [
            values
            for (other, _), values in by_case.items()
            if other == task and values.keys() >= set(names)
        ]
        if not whole:
            continue
        mean = {name: fmean(values[name] for values in whole) for name in names}
        means.append(mean)
        cells = {name: f"{mean[name]:.{digits}f}" for name in names}
        found.append({**keys, "task": task, "draws": str(len(whole)), **cells})
    if len(means) > 1:
        cells = {name: f"{fmean(mean[name] for mean in means):.{digits}f}" for name in names}
        found.append({**keys, "task": f"mean of {len(means)}", "draws": "", **cells})
    return found


def pairs_table() -> list[dict[str, str]]:
    """Return the macro-F1 of setfit with more pairs, beside what it is compared with."""
    rows = [row for row in read_results() if (row["size"], row["base"]) == (SIZES[0], BASE)]
    if not any(row["classifier"] == MORE_PAIRS for row in rows):
        return []
    names = ("contrastive", "setfit", MORE_PAIRS)
    return _means_of(rows, names, {}, "macro_f1", 3)


def adapted_table() -> list[dict[str, str]]:
    """Return the macro-F1 of each classifier from MiniLM and from the adapted one.

    It is the mean over the draws that both have.
    """
    scores: dict[tuple[int, str, str], dict[int, dict[str, float]]] = {}
    for row in read_results():
        of_classifier = scores.setdefault((row["size"], row["task"], row["classifier"]), {})
        of_classifier.setdefault(row["draw"], {})[row["base"]] = row["macro_f1"]
    found = []
    for size, task, classifier in product(SIZES, TASKS, CLASSIFIERS):
        draws = scores.get((size, task, classifier), {}).values()
        pairs = [
            (draw[BASE], draw[ADAPTED_BASE])
            for draw in draws
            if {BASE, ADAPTED_BASE} <= draw.keys()
        ]
        if not pairs:
            continue
        plain, adapted = np.mean(pairs, axis=0)
        row = {
            "a class": str(size),
            "task": task,
            "classifier": classifier,
            "draws": str(len(pairs)),
        }
        row |= {"MiniLM": f"{plain:.3f}", "adapted": f"{adapted:.3f}"}
        row["gain"] = f"{adapted - plain:+.3f}"
        found.append(row)
    return found


def others() -> dict[str, list[dict[str, str]]]:
    """Return the other tables by their titles, those that have rows."""
    tables = {ADAPTED_TITLE: adapted_table(), PAIRS_TITLE: pairs_table()}
    return {title: rows for title, rows in tables.items() if rows}


def page_text() -> str:
    """Return the page with the tables between its marks."""
    parts = [f"{title}\n\n{markdown(table(name, digits))}" for name, title, digits in SHOWN]
    for title, rows in others().items():
        parts.append(f"{title}\n\n{markdown(rows)}")
    page = PAGE.read_text(encoding="utf-8")
    return between_marks(page, "\n\n".join(parts), BEGIN)


def main() -> None:
    """Go on with the measurements, and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("work", type=Path, help="folder of `benchmarks evidence`")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="texts of a class")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--classifiers", nargs="+", choices=CLASSIFIERS, default=DEFAULTS)
    parser.add_argument("--setfit", default="", help="an interpreter that has setfit")
    parser.add_argument("--adapted", action="store_true", help="from adapted models, too")
    parser.add_argument("--minutes", type=float, default=140, help="after which nothing begins")
    parser.add_argument("--tables", action="store_true", help="print the tables and end")
    parser.add_argument("--write", action="store_true", help="write the tables of the page too")
    args = parser.parse_args()
    if not args.tables:
        run(args)
    for name, title, digits in SHOWN:
        rows = table(name, digits)
        if rows:
            print(f"\n{title}\n{tabulate(rows)}")
    for title, rows in others().items():
        print(f"\n{title}\n{tabulate(rows)}")
    if args.write:
        write_text(PAGE, page_text())


if __name__ == "__main__":
    sys.exit(main())
