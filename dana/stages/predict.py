"""``dana predict``: new text labelled by a fine-tuned model; a row a text, in the order of the files."""

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
from dana.finetuning.loop import EncodedSplit, predict
from dana.finetuning.saved import open_classifier
from dana.tasks.card import Template
from dana.tasks.examples import Example, describe_empty_text, make_text
from dana.tasks.kinds.base import Kind
from dana.train.execution import Precision, make_accelerator

log = get_logger(__name__)

BATCH = 4096  # texts in memory at a time, sorted by length together
SUFFIXES = (".parquet", ".jsonl")


@dataclass(frozen=True)
class NewText:
    """What to label.

    Attributes:
        files: Files, folders, globs or ``hf:`` names in any format of :mod:`dana.corpus.readers`.
        text_field: Field with the text, ``a.b`` for one within another; None takes the one the model was trained on, or
            its template, else ``text``.
        id_field: Field with the id, which every record must have; None takes the training data's, mostly ``id``, and
            calls a text without one by file and line.
        text_documents: See :class:`dana.corpus.inputs.Inputs`.
        on_bad_record: ``fail`` or ``skip`` (counted).
        text_pair_field: Field with the second text; None takes the one the model was trained on, if it was on pairs.
    """

    files: list[str]
    text_field: str | None = None
    id_field: str | None = None
    text_documents: str = "auto"
    on_bad_record: str = "fail"
    text_pair_field: str | None = None

    def __post_init__(self) -> None:
        require(self.on_bad_record in ("fail", "skip"), "--on-bad-record", self.on_bad_record, "fail or skip")
        Inputs([self.text_field] if self.text_field else ["text"], self.id_field, self.text_documents)  # checks them

    def examples(self, trained_on: dict[str, Any], kind: Kind) -> Iterator[Example]:
        """The texts, normalised, as examples whose label says nothing.

        Args:
            trained_on: The model's manifest, which names the fields of the training data; empty if it has none.
            kind: The model's, which says what a text is.

        Raises:
            DataError: Naming file, line and problem of a bad record, unless they are skipped; or if there is
                not one good record.
        """
        good = bad = 0
        for record in read_records(self.files, self.text_documents):
            try:
                example = self._example(record, trained_on, kind)
            except ValueError as error:
                if self.on_bad_record == "fail":
                    place = f"{record.location}: {error}"
                    raise DataError(f"{place} (--on-bad-record skip leaves such records out)") from error
                bad += 1
            else:
                good += 1
                yield example
        if not good:
            left_out = f"; {bad} bad record(s) left out" if bad else ""
            raise DataError(f"{', '.join(self.files)}: no text to label{left_out}")
        if bad:
            log.warning("%d bad record(s) left out of %d", bad, good + bad)

    def _example(self, record: Record, trained_on: dict[str, Any], kind: Kind) -> Example:
        """The example of a record.

        Raises:
            ValueError: If the record is bad: what is wrong with it.
        """
        pair = self.text_pair_field or trained_on.get("text_pair_field")
        id_field = self.id_field or trained_on.get("id_field") or "id"
        template = self._template(record, trained_on)
        if record.problem:
            raise ValueError(record.problem)
        flags = dict.fromkeys(template.fields, "--text-field names the field with the text")
        flags |= {pair: "--text-pair-field names the field with the second text"} if pair else {}
        values = {name: record.get(name) for name in flags}
        present = ", ".join(name for name, value in record.fields.items() if value is not None) or "nothing"
        for name, flag in flags.items():
            if values[name] is None:
                raise ValueError(f"no {name!r}; found {present}; {flag}")
        if self.id_field and field_at(record.fields, self.id_field) is MISSING:
            raise ValueError(f"no {self.id_field!r}; found {present}; --id-field names the field with the id")
        example = make_text(values, template, pair, kind)
        if not all(example.texts):
            raise ValueError(describe_empty_text(example))
        origin = record.origin if is_hub(record.origin) else stem(Path(record.origin))
        name = record.get(id_field)
        return replace(example, id=f"{origin}-{record.line}" if name is None else str(name))

    def _template(self, record: Record, trained_on: dict[str, Any]) -> Template:
        """What makes the text of a record: mostly a single field."""
        if trained_on.get("template") and not self.text_field and not record.is_plain:
            return Template.parse(trained_on["template"])
        fields = [self.text_field] if self.text_field else [trained_on.get("text_field") or "text", "text"]
        return Template.of_field(next((name for name in fields if record.get(name) is not None), fields[0]))


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
    precision = Precision.of(make_accelerator()).without_accelerate()
    module: Any = saved.module.to(precision.device)
    whole = full = 0
    with progress(what="predict", unit="texts") as bar:
        waiting = text.examples(trained_on, saved.kind)
        while examples := list(islice(waiting, BATCH)):
            encoded = EncodedSplit.of(examples, saved.tokenizer, saved.max_tokens)
            shown = saved.kind.prediction_columns(predict(module, encoded, saved.kind, precision), encoded.sizes)
            texts = {"id": [example.id for example in examples], "text": [example.text for example in examples]}
            if examples[0].pair is not None:
                texts["text_pair"] = [str(example.pair) for example in examples]
            yield pa.table({**texts, **shown})
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
    read = [file for source in text.files if not is_hub(source) for file in expand(source)]
    if out.resolve() in [file.resolve() for file in read if isinstance(file, Path)]:
        raise ArtifactError(f"{out}: is one of the files to be labelled; choose another --out")


def write_predictions(tables: Iterator[pa.Table], out: Path) -> int:
    """Write tables to one file, whole or not at all; returns the number of texts.

    Args:
        tables: From :func:`predict_stage`.
        out: A ``.parquet`` or ``.jsonl`` file; replaced if it is there.

    Raises:
        ArtifactError: If it cannot be written.
    """
    texts = 0
    first = next(tables)  # no folder is made before something is labelled
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with temp_file(out) as temporary, ExitStack() as stack:
            if out.suffix == ".parquet":
                parquet = stack.enter_context(pq.ParquetWriter(temporary, first.schema))
            else:
                stream = stack.enter_context(temporary.open("w", encoding="utf-8"))
            for table in chain([first], tables):
                parquet.write_table(table) if out.suffix == ".parquet" else stream.write(to_lines(table))
                texts += table.num_rows
    except OSError as error:
        raise ArtifactError(f"{out}: cannot be written: {error.strerror or error}") from error
    return texts


def to_lines(table: pa.Table) -> str:
    """A table as JSON, a line a row; numbers to six places."""
    return to_json_lines({name: _rounded(value) for name, value in row.items()} for row in table.to_pylist())


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(value, 6) if isinstance(value, float) else value
