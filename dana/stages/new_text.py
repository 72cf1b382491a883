"""New text to label: files in any format, by the fields of the training data, to a stream of examples."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dana.core.config import require
from dana.core.errors import DataError
from dana.core.logging import get_logger
from dana.corpus.hub import is_hub
from dana.corpus.inputs import MISSING, Inputs, Record, field_at
from dana.corpus.places import stem
from dana.corpus.readers import read_records
from dana.tasks.card import Template
from dana.tasks.examples import Example, empty_text, make_text
from dana.tasks.kinds.base import Kind

log = get_logger(__name__)

TEXT = "--text-field names the field with the text"
PAIR = "--text-pair-field names the field with the second text"


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
        pair = self.text_pair_field or trained_on.get("text_pair_field")
        for record in read_records(self.files, self.text_documents):
            template = self._template(record, trained_on)
            problem = record.problem or _problem(record, template, pair, self.id_field)
            made = problem or _read(record, template, pair, kind)
            if isinstance(made, Example):
                good += 1
                yield replace(made, id=self._name(record, trained_on))
            elif self.on_bad_record == "fail":
                raise DataError(f"{record.place}: {made} (--on-bad-record skip leaves such records out)")
            else:
                bad += 1
        if not good:
            left_out = f"; {bad} bad record(s) left out" if bad else ""
            raise DataError(f"{', '.join(self.files)}: no text to label{left_out}")
        if bad:
            log.warning("%d bad record(s) left out of %d", bad, good + bad)

    def _template(self, record: Record, trained_on: dict[str, Any]) -> Template:
        """What makes the text of a record: mostly a single field."""
        if trained_on.get("template") and not self.text_field and not record.is_plain:
            return Template.parse(trained_on["template"])
        fields = [self.text_field] if self.text_field else [trained_on.get("text_field") or "text", "text"]
        return Template.of_field(next((name for name in fields if record.get(name) is not None), fields[0]))

    def _name(self, record: Record, trained_on: dict[str, Any]) -> str:
        given = record.get(self.id_field or trained_on.get("id_field") or "id")
        origin = record.origin if is_hub(record.origin) else stem(Path(record.origin))
        return f"{origin}-{record.line}" if given is None else str(given)


def _problem(record: Record, template: Template, pair: str | None, id_field: str | None) -> str:
    """Which field of a text, or of the id that was asked for, a record lacks; empty if it has all."""
    wanted = {**dict.fromkeys(template.fields, TEXT), **({pair: PAIR} if pair else {})}
    held = ", ".join(name for name, value in record.fields.items() if value is not None)
    for name, flag in wanted.items():
        if record.get(name) is None:
            return f"no {name!r}; found {held or 'nothing'}; {flag}"
    if id_field and field_at(record.fields, id_field) is MISSING:
        return f"no {id_field!r}; found {held}; --id-field names the field with the id"
    return ""


def _read(record: Record, template: Template, pair: str | None, kind: Kind) -> Example | str:
    """The record's texts as an example without an id, or why it is none."""
    values = {name: record.get(name) for name in (*template.fields, *([pair] if pair else []))}
    try:
        made = make_text(values, template, pair, kind)
    except ValueError as error:
        return str(error)
    return made if all(made.texts) else empty_text(made)
