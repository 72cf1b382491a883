"""Open a saved model and label texts in memory."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dana.api.inputs import as_rows
from dana.api.keywords import Folder, with_messages
from dana.core.errors import DataError
from dana.core.logging import get_logger
from dana.corpus.inputs import MISSING, Record, field_at
from dana.stages.predict import (
    UNLIKE,
    NewText,
    TextModel,
    batches_of,
    describe_unlike,
    make_table,
    open_text_model,
)
from dana.tasks.columns import Columns
from dana.tasks.examples import Example

if TYPE_CHECKING:
    import pandas as pd

log = get_logger(__name__)

TEXT = "text"
PAIR = "text_pair"


@dataclass(frozen=True)
class LoadedModel:
    """A saved model that labels texts; :func:`dana.load` opens one.

    Attributes:
        model: The open model.
    """

    model: TextModel

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of its labels; empty of a model that predicts a number."""
        return self.model.kind.labels

    def predict(self, texts: Iterable[Any]) -> "pd.DataFrame":
        """Label texts, as ``dana predict`` does, and say which share is unlike what the model was trained on.

        Args:
            texts: Strings; of a model of pairs, pairs of strings. Or rows, mappings or a pandas
                table, with the columns of the table that the model was trained on.

        Returns:
            One row per text: ``text``, ``text_pair`` of a pair, ``label`` and ``probability``
            (``value`` of a number); and ``unlike``, where the model can say it.

        Raises:
            DataError: If a text is no string or empty, or a column is missing; names its position.
        """
        import pandas as pd

        if self.model.warning:
            log.warning("%s: %s", self.model.name, self.model.warning)
        tables = []
        for examples in batches_of(self._examples(texts)):
            table, _ = make_table(self.model, examples)
            tables.append(table.drop_columns("id").to_pandas())
        if not tables:
            raise DataError("texts: holds no text")
        every: pd.DataFrame = pd.concat(tables, ignore_index=True)
        if UNLIKE in every:
            log.info(describe_unlike(int(every[UNLIKE].sum()), len(every)))
        return every

    def _examples(self, texts: Iterable[Any]) -> Iterator[Example]:
        """Make the example of each text."""
        if isinstance(texts, str | Mapping):
            raise DataError(
                f"texts: is a {type(texts).__name__}; give a list of texts, or a table of rows"
            )
        for number, row in enumerate(as_rows(texts)):
            try:
                fields, columns = self._fields(row)
                record = Record("texts", number, fields)
                yield NewText([]).example(record, columns, self.model.kind)
            except ValueError as error:
                raise DataError(f"texts[{number}]: {error}") from error

    def _fields(self, row: Any) -> tuple[dict[str, Any], Columns]:
        """Return the fields of a row, and where its texts stand in them.

        Raises:
            ValueError: If texts are missing.
        """
        if isinstance(row, Mapping):
            fields = {str(name): value for name, value in row.items()}
            columns = self.model.columns
            for name in columns.names:
                if field_at(fields, name) is MISSING:  # what is null, NewText says
                    raise ValueError(f"no {name!r}; found {', '.join(fields) or 'nothing'}")
            return fields, columns
        if not self.model.reads_pairs:
            return {TEXT: row}, Columns()
        if not isinstance(row, tuple | list) or len(row) != 2:
            raise ValueError(f"must be a pair of texts, as {self.model.name} reads two")
        return {TEXT: row[0], PAIR: row[1]}, Columns(text_pair=PAIR)


@with_messages
def load(model: Folder) -> LoadedModel:
    """Open the model of a run, or one of ``dana finetune --save``, to label texts.

    Args:
        model: Folder of a run or of a model, which may have been moved; or the Hub name of a
            sequence classifier of transformers.

    Returns:
        The model; its ``predict`` labels texts.

    Raises:
        ArtifactError: If there is no model, or a file of it is missing or damaged.
    """
    return LoadedModel(open_text_model(str(model)))
