"""``dana predict``: label new text with a fine-tuned model, one row per text in the order of the files."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dana.core.artifacts import read_manifest
from dana.core.config import require
from dana.core.errors import ArtifactError, DataError
from dana.core.files import temp_file, to_json_lines
from dana.core.logging import get_logger, progress
from dana.corpus.hub import is_hub
from dana.corpus.inputs import MISSING, Inputs, Record, field_at
from dana.corpus.readers import read_records
from dana.corpus.sources import expand, stem
from dana.corpus.text import normalise
from dana.finetuning.loop import EncodedSplit, predict
from dana.finetuning.saved import open_classifier
from dana.tasks.card import Template
from dana.tasks.examples import Example, describe_empty_text, make_text
from dana.tasks.kinds.base import Kind
from dana.train.execution import Precision, make_accelerator

log = get_logger(__name__)

BATCH = 4096  # texts in memory at a time; sorted by length within
SUFFIXES = (".parquet", ".jsonl")


@dataclass(frozen=True)
class NewText:
    """Texts to label, and how to read them.

    Attributes:
        files: Files, folders, globs or ``hf:`` names in any format of :mod:`dana.corpus.readers`.
        text_field: Field with the text, ``a.b`` for a nested one; None takes the field or template
            of the model's training data, else ``text``.
        id_field: Field with the id, which every record must have; None takes that of the training
            data, usually ``id``, and names a text without one by file and line.
        text_documents: See :class:`dana.corpus.inputs.Inputs`.
        on_bad_record: ``fail`` or ``skip`` (counted).
        text_pair_field: Field with the second text; None takes that of the training data, if it has
            pairs.
    """

    files: list[str]
    text_field: str | None = None
    id_field: str | None = None
    text_documents: str = "auto"
    on_bad_record: str = "fail"
    text_pair_field: str | None = None

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

    def examples(self, trained_on: dict[str, Any], kind: Kind) -> Iterator[Example]:
        """Read the texts, normalised, as examples without a meaningful label.

        Args:
            trained_on: Manifest of the model, which names the fields of its training data; empty
                without one.
            kind: Kind of label of the model.

        Raises:
            DataError: If a record is bad and not skipped, naming file, line and problem; or if
                there is no good record.
        """
        good = bad = 0
        for record in read_records(self.files, self.text_documents):
            try:
                example = self._example(record, trained_on, kind)
            except ValueError as error:
                if self.on_bad_record == "fail":
                    problem = f"{record.location}: {error}"
                    raise DataError(
                        f"{problem} (--on-bad-record skip skips such records)"
                    ) from error
                bad += 1
            else:
                good += 1
                yield example
        if not good:
            skips = f"; {bad} bad record(s) skipped" if bad else ""
            raise DataError(f"{', '.join(self.files)}: no text to label{skips}")
        if bad:
            log.warning("%d of %d records are bad and were skipped", bad, good + bad)

    def _example(self, record: Record, trained_on: dict[str, Any], kind: Kind) -> Example:
        """Make the example of a record.

        Raises:
            ValueError: If the record is bad, with the problem.
        """
        pair = self.text_pair_field or trained_on.get("text_pair_field")
        id_field = self.id_field or trained_on.get("id_field") or "id"
        template = self._template(record, trained_on)
        if record.problem:
            raise ValueError(record.problem)
        flags = dict.fromkeys(template.fields, "--text-field names the field with the text")
        flags |= {pair: "--text-pair-field names the field with the second text"} if pair else {}
        values = {name: record.get(name) for name in flags}
        present = (
            ", ".join(name for name, value in record.fields.items() if value is not None)
            or "nothing"
        )
        for name, flag in flags.items():
            if values[name] is None:
                raise ValueError(f"no {name!r}; found {present}; {flag}")
        if self.id_field and field_at(record.fields, self.id_field) is MISSING:
            raise ValueError(
                f"no {self.id_field!r}; found {present}; --id-field names the field with the id"
            )
        example = make_text(values, template, pair, kind)
        if not all(example.texts):
            raise ValueError(describe_empty_text(example))
        origin = record.origin if is_hub(record.origin) else stem(Path(record.origin))
        name = "" if record.get(id_field) is None else normalise(str(record.get(id_field)))
        return replace(example, id=name or f"{origin}-{record.line}")

    def _template(self, record: Record, trained_on: dict[str, Any]) -> Template:
        """Return the template that makes the text of a record, usually of a single field."""
        if trained_on.get("template") and not self.text_field and not record.is_plain:
            return Template.parse(trained_on["template"])
        fields = (
            [self.text_field]
            if self.text_field
            else [trained_on.get("text_field") or "text", "text"]
        )
        return Template.of_field(
            next((name for name in fields if record.get(name) is not None), fields[0])
        )


def predict_stage(model: str, text: NewText) -> Iterator[pa.Table]:
    """Label texts with a fine-tuned model.

    Args:
        model: Output of ``dana finetune --save``, or any sequence classifier of transformers:
            folder or Hub name.
        text: Texts to label.

    Yields:
        Tables with id, text, text_pair (for pairs) and the columns of the model's kind. For a
        single label these are label and probability, the label's own, in (0, 1]. A column
        ``warning`` comes last if the model collapsed.

    Raises:
        ArtifactError: If the model is no classifier.
        ConfigError: If a field of second texts is given for a model of single texts.
        DataError: If a file is missing, or a record is bad.
    """
    for source in text.files:
        if not is_hub(source):
            expand(source)  # a missing file fails before the model is loaded
    trained_on = read_manifest(Path(model)) if Path(model).is_dir() else {}
    classifier = open_classifier(model)
    if warning := trained_on.get("warning", ""):
        log.warning("%s: %s", model, warning)
    alone = bool(trained_on) and "text_pair_field" not in trained_on
    hint = f"left out: {model} was trained on single texts"
    require(not (alone and text.text_pair_field), "--text-pair-field", text.text_pair_field, hint)
    precision = Precision.from_accelerator(make_accelerator()).without_accelerate()
    module: Any = classifier.module.to(precision.device)
    total = full = 0
    with progress(what="predict", unit="texts") as bar:
        waiting = text.examples(trained_on, classifier.kind)
        while examples := list(islice(waiting, BATCH)):
            inputs = EncodedSplit.from_examples(
                examples, classifier.tokenizer, classifier.max_tokens, classifier.markers
            )
            outputs = predict(module, inputs, classifier.kind, precision)
            columns = classifier.kind.prediction_columns(outputs, inputs.sizes)
            texts = {
                "id": [example.id for example in examples],
                "text": [example.text for example in examples],
            }
            if examples[0].pair is not None:
                texts["text_pair"] = [str(example.pair) for example in examples]
            if warning:
                columns["warning"] = pa.array([warning] * len(examples))
            yield pa.table({**texts, **columns})
            bar.update(len(examples))
            total, full = (
                total + len(examples),
                full + int((inputs.lengths >= classifier.max_tokens).sum()),
            )
    if full:
        log.info(
            "%d of %d texts fill the model's %d tokens; text beyond was cut",
            full,
            total,
            classifier.max_tokens,
        )


def check_out(out: Path, text: NewText) -> None:
    """Refuse, before any work, an output file that cannot be written.

    Raises:
        ConfigError: If its suffix is unknown.
        ArtifactError: If it is a folder, or one of the input files.
    """
    require(
        out.suffix in SUFFIXES, "--out", str(out), f"a file that ends in {' or '.join(SUFFIXES)}"
    )
    if out.is_dir():
        raise ArtifactError(f"{out}: is a folder; --out must be a file")
    read = [file for source in text.files if not is_hub(source) for file in expand(source)]
    if out.resolve() in [file.resolve() for file in read if isinstance(file, Path)]:
        raise ArtifactError(f"{out}: is one of the input files; choose another --out")


def write_predictions(tables: Iterator[pa.Table], out: Path) -> int:
    """Write tables to one file, whole or not at all; return the number of texts.

    Args:
        tables: Output of :func:`predict_stage`.
        out: A ``.parquet`` or ``.jsonl`` file; replaced if it exists.

    Raises:
        ArtifactError: If it cannot be written.
    """
    texts = 0
    first = next(tables)  # label first: no folder is made if that fails
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with temp_file(out) as temporary, ExitStack() as stack:
            if out.suffix == ".parquet":
                parquet = stack.enter_context(pq.ParquetWriter(temporary, first.schema))
            else:
                stream = stack.enter_context(temporary.open("w", encoding="utf-8"))
            for table in chain([first], tables):
                parquet.write_table(table) if out.suffix == ".parquet" else stream.write(
                    to_lines(table)
                )
                texts += table.num_rows
    except OSError as error:
        raise ArtifactError(f"{out}: cannot be written: {error.strerror or error}") from error
    return texts


def to_lines(table: pa.Table) -> str:
    """Format a table as JSON, one line per row, with numbers rounded to six places."""
    return to_json_lines(
        {name: _round(value) for name, value in row.items()} for row in table.to_pylist()
    )


def _round(value: Any) -> Any:
    if isinstance(value, list):
        return [_round(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value
