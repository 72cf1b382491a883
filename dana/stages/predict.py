"""``dana predict``: new text labelled by a fine-tuned model; a row a text, in the order of the files."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dana.core.artifacts import read_manifest
from dana.core.config import require
from dana.core.errors import ArtifactError
from dana.core.files import json_lines, replacing
from dana.core.logging import get_logger, progress
from dana.corpus.hub import is_hub
from dana.corpus.places import expand
from dana.finetuning.loop import Encoded, predict
from dana.finetuning.saved import open_classifier
from dana.stages.new_text import NewText
from dana.tasks.examples import Example
from dana.train.execution import Precision, make_accelerator

log = get_logger(__name__)

BATCH = 4096  # texts in memory at a time, sorted by length together
SUFFIXES = (".parquet", ".jsonl")
TEXT = (("id", pa.string()), ("text", pa.string()))
PAIR = ("text_pair", pa.string())


def predict_stage(model: str, text: NewText) -> Iterator[pa.Table]:
    """Label texts.

    Args:
        model: What ``dana finetune --save`` wrote, or any sequence classifier of transformers: folder or Hub name.
        text: What to label.

    Yields:
        Tables of id, text, text_pair where there are pairs, and what the model's kind shows: of one label a text, label
        and probability, which is the label's, in (0, 1].

    Raises:
        ArtifactError: If the model is no classifier.
        ConfigError: If a second text is named for a model of single texts.
        DataError: If a file is missing, or a record is bad.
    """
    for source in text.files:
        if not is_hub(source):
            expand(source)  # a missing file fails before the model is loaded
    saved = open_classifier(model)
    trained_on = read_manifest(Path(model)) if Path(model).is_dir() else {}
    alone = bool(trained_on) and "text_pair_field" not in trained_on
    allowed = f"left out: {model} was trained on single texts"
    require(not (alone and text.text_pair_field), "--text-pair-field", text.text_pair_field, allowed)
    precision = Precision.of(make_accelerator()).for_own_passes()
    module: Any = saved.module.to(precision.device)
    whole = full = 0
    with progress(what="predict", unit="texts") as bar:
        examples_left = text.examples(trained_on, saved.kind)
        while examples := list(islice(examples_left, BATCH)):
            encoded = Encoded.of(examples, saved.tokenizer, saved.max_tokens)
            shown = saved.kind.shown(predict(module, encoded, saved.kind, precision), encoded.sizes)
            texts = _texts(examples)
            yield pa.table({**dict(zip(texts.column_names, texts.columns, strict=True)), **shown})
            bar.update(len(examples))
            whole, full = whole + len(examples), full + int((encoded.lengths >= saved.max_tokens).sum())
    if full:
        log.info(
            "%d of %d texts fill the model's %d tokens: what lies beyond was not read", full, whole, saved.max_tokens
        )


def _texts(examples: list[Example]) -> pa.Table:
    """Ids and texts, and the second texts of pairs."""
    pairs = [example.pair for example in examples if example.pair is not None]
    columns = [
        [example.id for example in examples],
        [example.text for example in examples],
        *([pairs] if pairs else []),
    ]
    return pa.table(columns, schema=pa.schema([*TEXT, *([PAIR] if pairs else [])]))


def check_out(out: Path, text: NewText) -> None:
    """Refuse, before any work, a file that cannot be written as asked.

    Raises:
        ConfigError: If its suffix is unknown.
        ArtifactError: If it is a folder, or one of the files to be read.
    """
    require(out.suffix in SUFFIXES, "--out", str(out), f"a file that ends in {' or '.join(SUFFIXES)}")
    if out.is_dir():
        raise ArtifactError(f"{out}: is a folder; --out names a file")
    read = [file for source in text.files if not is_hub(source) for file in expand(source)]
    if out.resolve() in [file.resolve() for file in read if isinstance(file, Path)]:
        raise ArtifactError(f"{out}: is one of the files to be labelled; choose another --out")


def write_predictions(tables: Iterator[pa.Table], out: Path) -> tuple[int, Counter[str]]:
    """Write tables to one file, whole or not at all; returns the number of texts, and how often each label is given.

    Args:
        tables: From :func:`predict_stage`.
        out: A ``.parquet`` or ``.jsonl`` file; replaced if it is there.

    Raises:
        ArtifactError: If it cannot be written.
    """
    texts, counts = 0, Counter[str]()
    first = next(tables)  # no folder is made before something is labelled
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as temporary, _writer(temporary, out.suffix, first.schema) as writer:
            for table in chain([first], tables):
                writer.write_table(table)
                texts += table.num_rows
                if "label" in table.column_names:
                    label = table["label"]
                    flat = pc.list_flatten(label) if pa.types.is_list(label.type) else label
                    counts.update(flat.drop_null().to_pylist())  # a word that was cut off has none
    except OSError as error:
        raise ArtifactError(f"{out}: cannot be written: {error.strerror or error}") from error
    return texts, counts


def _writer(path: Path, suffix: str, schema: pa.Schema) -> Any:
    return pq.ParquetWriter(path, schema) if suffix == ".parquet" else _Lines(path)


def to_lines(table: pa.Table) -> str:
    """A table as JSON, a line a row; numbers to six places."""
    return json_lines({name: _rounded(value) for name, value in row.items()} for row in table.to_pylist())


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(value, 6) if isinstance(value, float) else value


class _Lines:
    """Writes tables as :class:`pyarrow.parquet.ParquetWriter` does, but as JSON lines."""

    def __init__(self, path: Path) -> None:
        self.stream = path.open("w", encoding="utf-8")

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(self, *raised: object) -> None:
        self.stream.close()

    def write_table(self, table: pa.Table) -> None:
        self.stream.write(to_lines(table))
