"""``dana predict``: new text labelled by a fine-tuned model; a row a text, in the order of the files."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import read_manifest
from dana.core.config import require
from dana.core.errors import ArtifactError, DataError
from dana.core.files import replacing
from dana.core.logging import get_logger, progress
from dana.corpus.inputs import Inputs
from dana.corpus.places import HUB, expand, stem
from dana.corpus.readers import read_records
from dana.corpus.records import MISSING, Record, field_at
from dana.corpus.text import normalise
from dana.execution.accelerator import make_accelerator
from dana.execution.precision import Precision
from dana.finetuning.encoded import Encoded
from dana.finetuning.loop import predict
from dana.finetuning.saved import open_classifier
from dana.tasks.examples import Example

log = get_logger(__name__)

BATCH = 4096  # texts in memory at a time, sorted by length together
SUFFIXES = (".parquet", ".jsonl")
ROWS = pa.schema([("id", pa.string()), ("text", pa.string()), ("label", pa.string()), ("probability", pa.float32())])


@dataclass(frozen=True)
class NewText:
    """What to label.

    Attributes:
        files: Files, folders, globs or ``hf:`` names in any format of :mod:`dana.corpus.readers`.
        text_field: Field with the text, ``a.b`` for one within another; None takes the one the model was trained on,
            else ``text``.
        id_field: Field with the id, which every record must have; None takes the training data's, mostly ``id``, and
            calls a text without one by file and line.
        text_documents: See :class:`dana.corpus.inputs.Inputs`; so is the next.
        record_parser: Makes the fields ``text`` and ``id`` of a record.
        on_bad_record: ``fail`` or ``skip`` (counted).
    """

    files: list[str]
    text_field: str | None = None
    id_field: str | None = None
    text_documents: str = "auto"
    record_parser: str | None = None
    on_bad_record: str = "fail"

    def __post_init__(self) -> None:
        require(self.on_bad_record in ("fail", "skip"), "--on-bad-record", self.on_bad_record, "fail or skip")
        self._inputs  # noqa: B018, which checks the others

    @cached_property
    def _inputs(self) -> Inputs:
        named = [self.text_field] if self.text_field else ["text"]
        return Inputs(named, self.id_field, self.text_documents, self.record_parser)

    def examples(self, trained_on: dict[str, Any]) -> Iterator[Example]:
        """The texts, normalised, as examples whose label says nothing.

        Args:
            trained_on: The model's manifest, which names the fields of the training data; empty if it has none.

        Raises:
            DataError: Naming file, line and problem of a bad record, unless they are skipped; or if there is
                not one good record.
        """
        good = bad = 0
        for record in self._records():
            fields = [self.text_field] if self.text_field else [trained_on.get("text_field") or "text", "text"]
            field = next((name for name in fields if record.get(name) is not None), fields[0])
            problem = record.problem or _problem(record, field, self.id_field)
            if not problem:
                good += 1
                yield Example(self._name(record, trained_on), normalise(record.get(field)), 0)
            elif self.on_bad_record == "fail":
                raise DataError(f"{record.place}: {problem} (--on-bad-record skip leaves such records out)")
            else:
                bad += 1
        if not good:
            left_out = f"; {bad} bad record(s) left out" if bad else ""
            raise DataError(f"{', '.join(self.files)}: no text to label{left_out}")
        if bad:
            log.warning("%d bad record(s) left out of %d", bad, good + bad)

    def _records(self) -> Iterator[Record]:
        """The records of the files, as the record parser makes them; without those that it leaves out."""
        parser = self._inputs.parser
        for record in read_records(self.files, self.text_documents):
            if parser is None or record.problem or record.is_plain:
                yield record
                continue
            made, problem = parser.parse(record.fields)
            if made is not None or problem:
                yield replace(record, fields=made or {}, problem=problem)

    def _name(self, record: Record, trained_on: dict[str, Any]) -> str:
        given = record.get(self.id_field or trained_on.get("id_field") or "id")
        origin = record.origin if record.origin.startswith(HUB) else stem(Path(record.origin))
        return f"{origin}-{record.line}" if given is None else str(given)


def _problem(record: Record, field: str, id_field: str | None) -> str:
    """Why a record has no text to label, or not the id that was asked for; empty if it has both."""
    text = record.get(field)
    held = ", ".join(name for name, value in record.fields.items() if value is not None)
    if text is None:
        return f"no {field!r}; found {held or 'nothing'}; --text-field names the field with the text"
    if id_field and field_at(record.fields, id_field) is MISSING:
        return f"no {id_field!r}; found {held}; --id-field names the field with the id"
    if not isinstance(text, str):
        return f"{field!r} is {type(text).__name__}, not text"
    return "" if normalise(text) else "the text is empty"


def predict_stage(model: str, text: NewText) -> Iterator[pa.Table]:
    """Label texts.

    Args:
        model: What ``dana finetune --save`` wrote, or any sequence classifier of transformers: folder or Hub name.
        text: What to label.

    Yields:
        Tables of :data:`ROWS`; probability is that of the label, in (0, 1].

    Raises:
        ArtifactError: If the model is no classifier.
        DataError: If a file is missing, or a record is bad.
    """
    for source in text.files:
        if not source.startswith(HUB):
            expand(source)  # a missing file fails before the model is loaded
    saved = open_classifier(model)
    precision = Precision.of(make_accelerator())
    module: Any = saved.module.to(precision.device)
    trained_on = read_manifest(Path(model)) if Path(model).is_dir() else {}
    whole = full = 0
    with progress(what="predict", unit="texts") as bar:
        examples_left = text.examples(trained_on)
        while examples := list(islice(examples_left, BATCH)):
            encoded = Encoded.of(examples, saved.tokenizer, saved.max_tokens)
            probabilities = predict(module, encoded, precision)
            codes = probabilities.argmax(1)
            columns = [
                [example.id for example in examples],
                [example.text for example in examples],
                [saved.labels[code] for code in codes],
                probabilities.max(1),
            ]
            yield pa.table(columns, schema=ROWS)
            bar.update(len(examples))
            whole, full = whole + len(examples), full + int((encoded.lengths >= saved.max_tokens).sum())
    if full:
        log.info(
            "%d of %d texts fill the model's %d tokens: what lies beyond was not read", full, whole, saved.max_tokens
        )


def check_out(out: Path, text: NewText) -> None:
    """Refuse, before any work, a file that cannot be written as asked.

    Raises:
        ConfigError: If its suffix is unknown.
        ArtifactError: If it is a folder, or one of the files to be read.
    """
    require(out.suffix in SUFFIXES, "--out", str(out), f"a file that ends in {' or '.join(SUFFIXES)}")
    if out.is_dir():
        raise ArtifactError(f"{out}: is a folder; --out names a file")
    read = [file.resolve() for source in text.files if not source.startswith(HUB) for file in expand(source)]
    if out.resolve() in read:
        raise ArtifactError(f"{out}: is one of the files to be labelled; choose another --out")


def write_predictions(tables: Iterator[pa.Table], out: Path) -> Counter[str]:
    """Write tables to one file, whole or not at all; returns how often each label was given.

    Args:
        tables: From :func:`predict_stage`.
        out: A ``.parquet`` or ``.jsonl`` file; replaced if it is there.

    Raises:
        ArtifactError: If it cannot be written.
    """
    counts: Counter[str] = Counter()
    first = next(tables)  # no folder is made before something is labelled
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as temporary, _writer(temporary, out.suffix) as writer:
            for table in chain([first], tables):
                writer.write_table(table)
                counts.update(table["label"].to_pylist())
    except OSError as error:
        raise ArtifactError(f"{out}: cannot be written: {error.strerror or error}") from error
    return counts


def _writer(path: Path, suffix: str) -> Any:
    return pq.ParquetWriter(path, ROWS) if suffix == ".parquet" else _Lines(path)


def to_lines(table: pa.Table) -> str:
    """A table as JSON, a line a row; probabilities to six places."""
    rows = ({**row, "probability": round(row["probability"], 6)} for row in table.to_pylist())
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


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
