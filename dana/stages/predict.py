"""``dana predict``: label new text with a saved model, one row per text in the order of the files."""

import csv
import io
import json
import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.config import require
from dana.core.errors import ArtifactError, DataError
from dana.core.files import temp_file, to_json_lines
from dana.core.logging import get_logger, progress
from dana.corpus.bad_records import BadRecords
from dana.corpus.hub import is_hub
from dana.corpus.inputs import MISSING, Inputs, Record, field_at
from dana.corpus.readers import read_records
from dana.corpus.sources import expand, stem
from dana.corpus.text import normalise
from dana.finetuning.text_model import TextModel as TextModel  # for api
from dana.finetuning.text_model import open_text_model as open_text_model  # for api and cli
from dana.tasks.card import Template
from dana.tasks.columns import Columns
from dana.tasks.examples import Example, describe_empty_text, make_example
from dana.tasks.kinds.base import Kind

log = get_logger(__name__)

BATCH = 4096  # texts in memory at a time; sorted by length within
SUFFIXES = (".csv", ".parquet", ".jsonl")
UNLIKE = "unlike"  # column: whether a text is unlike what the model was trained on
COMMA = ","
PLACES = 6  # decimals of a number in CSV and JSON


@dataclass(frozen=True)
class NewText:
    """Texts to label, and how to read them.

    Attributes:
        files: Files, folders, globs or ``hf:`` names in any format of :mod:`dana.corpus.readers`.
            ``-`` is standard input.
        text_field: Field with the text, ``a.b`` for a nested one; None takes the field or template
            of the model's training data, else ``text``.
        id_field: Field with the id, which every record must have; None takes that of the training
            data, usually ``id``, and names a text without one by file and line.
        text_documents: See :class:`dana.corpus.inputs.Inputs`.
        on_bad_record: ``fail`` or ``skip`` (counted).
        text_pair_field: Field with the second text; None takes that of the training data, if it has
            pairs.
        form: What else is said of the files: encoding, separator, quotes, header, skipped lines.
    """

    files: list[str]
    text_field: str | None = None
    id_field: str | None = None
    text_documents: str = "auto"
    on_bad_record: str = "fail"
    text_pair_field: str | None = None
    form: Inputs = field(default_factory=Inputs)

    def __post_init__(self) -> None:
        require(
            self.on_bad_record in ("fail", "skip"),
            "--on-bad-record",
            self.on_bad_record,
            "fail or skip",
        )
        Inputs(
            [self.text_field] if self.text_field else ["text"], self.id_field, self.text_documents
        )  # checks them

    def check_files(self) -> None:
        """Look for the files, so that a missing one is told before a model is loaded.

        Raises:
            DataError: If one is missing, or of an unknown format.
        """
        for source in self.files:
            if not is_hub(source):
                expand(source)

    def examples(self, columns: Columns, kind: Kind) -> Iterator[Example]:
        """Read the texts, normalised, as examples without a meaningful label.

        Args:
            columns: Columns of the table that the model was trained on.
            kind: Kind of label of the model.

        Raises:
            DataError: If a record is bad and not skipped, naming the first five and their number;
                or if there is no good record.
        """
        good = 0
        skipped = 0
        bad = BadRecords()
        for record in self._records(columns):
            if bad and bad.is_enough():
                break
            try:
                example = self.example(record, columns, kind)
            except ValueError as error:
                if self.on_bad_record == "skip":
                    skipped += 1
                    _warn_of_lost_rest(record, error)
                else:
                    bad.add(record.location, str(error))
            else:
                good += 1
                if not bad:
                    yield example
        if bad:
            raise bad.error(" (--on-bad-record skip skips such records)")
        if not good:
            skips = f"; {skipped} bad record(s) skipped" if skipped else ""
            raise DataError(f"{', '.join(self.files)}: no text to label{skips}")
        if skipped:
            log.warning("%d of %d records are bad and were skipped", skipped, good + skipped)

    def _records(self, columns: Columns) -> Iterator[Record]:
        """Stream the records of the files, in the columns of the table that was trained on."""
        names = columns.names
        if self.text_field is not None:
            names = [self.text_field]
        if self.text_pair_field is not None:
            names = [*names, self.text_pair_field]
        documents = self.text_documents
        if documents == "auto" and columns.text_documents != documents:
            documents = columns.text_documents
            log.info(
                "a text per %s, as in the training data; --text-documents says else", documents
            )
        header = self.form.header
        if header is None and not columns.header:
            header = False
        inputs = replace(self.form, text_field=names, text_documents=documents, header=header)
        yield from read_records(self.files, inputs)

    def example(self, record: Record, columns: Columns, kind: Kind) -> Example:
        """Make the example of a record; its id is given, or tells its file and line.

        Raises:
            ValueError: If the record is bad, with the problem.
        """
        pair = self.text_pair_field or columns.text_pair
        id_field = self.id_field or columns.id or "id"
        template = self._template(record, columns)
        if record.problem:
            raise ValueError(record.problem)
        flags = dict.fromkeys(template.fields, "--text-field names the field with the text")
        if pair:
            flags[pair] = "--text-pair-field names the field with the second text"
        values = {name: record.get(name) for name in flags}
        present = (
            ", ".join(name for name, value in record.fields.items() if value is not None)
            or "nothing"
        )
        for name, flag in flags.items():
            if field_at(record.fields, name) is None:
                raise ValueError(f"{name!r} is null, not text")
            if values[name] is None:
                raise ValueError(f"no {name!r}; found {present}; {flag}")
        if self.id_field and field_at(record.fields, self.id_field) is MISSING:
            raise ValueError(
                f"no {self.id_field!r}; found {present}; --id-field names the field with the id"
            )
        example = make_example(values, template, pair, kind)
        if not all(example.texts):
            raise ValueError(describe_empty_text(example))
        origin = record.origin if is_hub(record.origin) else stem(Path(record.origin))
        name = "" if record.get(id_field) is None else normalise(str(record.get(id_field)))
        return replace(example, id=name or f"{origin}-{record.line}")

    def _template(self, record: Record, columns: Columns) -> Template:
        """Return the template that makes the text of a record, usually of a single field."""
        if columns.template and not self.text_field and not record.is_plain:
            return columns.whole_text
        fields = [self.text_field] if self.text_field else [columns.text, "text"]
        present = [name for name in fields if record.get(name) is not None]
        return Template.of_field((present or fields)[0])


def predict_stage(model: str, text: NewText) -> Iterator[pa.Table]:
    """Label texts with a saved model.

    Args:
        model: Folder of a run or of a model, output of ``dana finetune --save``, or any sequence
            classifier of transformers: folder or Hub name.
        text: Texts to label.

    Yields:
        See :func:`label_texts`.

    Raises:
        ArtifactError: If there is no model.
        ConfigError: If a field of second texts is given for a model of single texts.
        DataError: If a file is missing, or a record is bad.
    """
    text.check_files()
    yield from label_texts(open_text_model(model), text)


def label_texts(model: TextModel, text: NewText) -> Iterator[pa.Table]:
    """Label texts with an open model, and say how many are unlike what it was trained on.

    Args:
        model: The model.
        text: Texts to label.

    Yields:
        Tables with id, text, text_pair (for pairs) and the columns of the model's kind. For a
        single label these are label and probability, the label's own, in (0, 1]. A column
        ``unlike`` says whether a text is unlike those that the model was trained on, where it can
        say; ``warning`` comes last if the model collapsed.

    Raises:
        ConfigError: If a field of second texts is given for a model of single texts.
        DataError: If a record is bad.
    """
    if model.warning:
        log.warning("%s: %s", model.name, model.warning)
    is_single = model.reads_pairs is False
    hint = f"left out: {model.name} was trained on single texts"
    require(
        not (is_single and text.text_pair_field), "--text-pair-field", text.text_pair_field, hint
    )
    total = 0
    cut = 0
    unlike = 0
    with progress(what="predict", unit="texts") as bar:
        for examples in batches_of(text.examples(model.columns, model.kind)):
            table, long_texts = make_table(model, examples)
            yield table
            bar.update(len(examples))
            total += len(examples)
            cut += long_texts
            unlike += count_unlike(table)
    if cut:
        log.info(
            "%d of %d texts fill the model's %d tokens; text beyond was cut",
            cut,
            total,
            model.longest,
        )
    if model.likeness is not None:
        log.info(describe_unlike(unlike, total))


def batches_of(examples: Iterator[Example]) -> Iterator[list[Example]]:
    """Yield lists of examples, as many as are in memory at a time."""
    while batch := list(islice(examples, BATCH)):
        yield batch


def make_table(model: TextModel, examples: list[Example]) -> tuple[pa.Table, int]:
    """Label some texts; returns the table of :func:`label_texts`, and how many texts were cut."""
    answers = model.label(examples)
    columns: dict[str, Any] = {
        "id": [example.id for example in examples],
        "text": [example.text for example in examples],
    }
    if examples[0].pair is not None:
        columns["text_pair"] = [str(example.pair) for example in examples]
    columns |= model.kind.prediction_columns(answers.outputs, answers.sizes)
    if answers.unlike is not None:
        columns[UNLIKE] = pa.array(answers.unlike)
    if model.warning:
        columns["warning"] = pa.array([model.warning] * len(examples))
    return pa.table(columns), answers.cut


def count_unlike(table: pa.Table) -> int:
    """Count the texts of a table that are unlike what the model was trained on."""
    if UNLIKE not in table.column_names:
        return 0
    return sum(table[UNLIKE].to_pylist())


def describe_unlike(unlike: int, texts: int) -> str:
    """Say which share of texts is unlike what a model was trained on."""
    share = f"{100 * unlike / texts:.0f} %"
    return (
        f"{share} of {texts:,} texts are unlike what the model was trained on "
        "(of texts like those, about 5 % are called unlike)"
    )


def check_out(out: Path, text: NewText) -> None:
    """Refuse, before any work, an output file that cannot be written.

    Raises:
        ConfigError: If its suffix is unknown.
        ArtifactError: If it is a folder, or one of the input files.
    """
    require(out.suffix in SUFFIXES, "--out", str(out), f"a file that ends in {', '.join(SUFFIXES)}")
    if out.is_dir():
        raise ArtifactError(f"{out}: is a folder; --out must be a file")
    read = [file for source in text.files if not is_hub(source) for file in expand(source)]
    if out.resolve() in [file.resolve() for file in read if isinstance(file, Path)]:
        raise ArtifactError(f"{out}: is one of the input files; choose another --out")


def write_predictions(
    tables: Iterator[pa.Table], out: Path, separator: str | None = None
) -> dict[str, Any]:
    """Write tables to one file, whole or not at all.

    Args:
        tables: Output of :func:`predict_stage`.
        out: A ``.csv``, ``.parquet`` or ``.jsonl`` file; replaced if it exists.
        separator: Separator of CSV; None for a comma.

    Returns:
        ``texts``, their number; and ``unlike``, the share that is unlike what the model was trained
        on, where that is known.

    Raises:
        ArtifactError: If it cannot be written.
    """
    texts = 0
    unlike = 0
    first = next(tables)  # label first: no folder is made if that fails
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with temp_file(out) as temporary, ExitStack() as stack:
            if out.suffix == ".parquet":
                parquet = stack.enter_context(pq.ParquetWriter(temporary, first.schema))
            else:
                stream = stack.enter_context(temporary.open("w", encoding="utf-8", newline=""))
            if out.suffix == ".csv":
                stream.write(_to_csv([first.column_names], separator))
            for table in chain([first], tables):
                if out.suffix == ".parquet":
                    parquet.write_table(table)
                elif out.suffix == ".csv":
                    stream.write(_to_csv(_cells(table), separator))
                else:
                    stream.write(to_lines(table))
                texts += table.num_rows
                unlike += count_unlike(table)
    except OSError as error:
        raise ArtifactError(f"{out}: cannot be written: {error.strerror or error}") from error
    share = {UNLIKE: unlike / texts} if UNLIKE in first.column_names else {}
    return {"texts": texts, **share}


def _cells(table: pa.Table) -> Iterator[list[Any]]:
    """Yield the rows of a table for CSV, in which a list is JSON."""
    for row in table.to_pylist():
        cells = []
        for value in row.values():
            value = _round(value)
            if isinstance(value, bool):
                value = str(value).lower()
            elif isinstance(value, list):
                value = json.dumps(value, ensure_ascii=False)
            cells.append(value)
        yield cells


def _to_csv(rows: Any, separator: str | None) -> str:
    stream = io.StringIO()
    csv.writer(stream, delimiter=separator or COMMA, lineterminator="\n").writerows(rows)
    return stream.getvalue()


def to_lines(table: pa.Table) -> str:
    """Format a table as JSON, one line per row, with numbers rounded to six places."""
    return to_json_lines(
        {name: _round(value) for name, value in row.items()} for row in table.to_pylist()
    )


def _warn_of_lost_rest(record: Record, error: ValueError) -> None:
    """Warn if the file cannot be read beyond a record that is skipped."""
    if record.rest_lost:
        log.warning("%s: %s; the rest of the file is not read", record.location, error)


def _round(value: Any) -> Any:
    if isinstance(value, list):
        return [_round(item) for item in value]
    if not isinstance(value, float):
        return value
    places = PLACES
    if 0 < abs(value) < 0.001:  # six digits of a small number, too
        places -= 1 + math.floor(math.log10(abs(value)))
    return round(value, places)
