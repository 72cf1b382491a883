"""The task artifact: a card or plain text to ``fit/``, and ``held_out/`` that nothing is fitted on, in Parquet."""

from pathlib import Path

from dana.core.artifacts import Artifact, Draft, make
from dana.core.errors import DataError
from dana.core.schemas import DOCUMENTS, write_parts
from dana.corpus.documents import Tally, document_tables, source_digests
from dana.corpus.hub import forget_rows
from dana.corpus.inputs import Inputs
from dana.corpus.places import find_files
from dana.tasks.examples import HELD_OUT_SHARE, card_texts, find_task, plain_texts
from dana.tasks.hygiene import Cleaner
from dana.tasks.settings import Hygiene

HELD_OUT_AT_MOST = 1000  # documents; enough for a standard error of a hundredth of a nat


def task_stage(
    task: str,
    folder: Path,
    data: str | None = None,
    seed: int = 0,
    cleaner: Cleaner | None = None,
    inputs: Inputs | None = None,
) -> Artifact:
    """Make the task artifact.

    Args:
        task: A task card's name, a card's YAML file, or text: a file, glob or folder. Of a card, the training
            texts are fitted on and the development texts held out; of plain text, a tenth of the documents
            is held out by a hash of their id.
        folder: Where the artifact goes.
        data: Folder that holds a card's data, where it is not under ``DANA_DATA``.
        seed: Decides which documents of plain text are held out.
        cleaner: Leaves out of the text to fit on what evaluation splits hold; None keeps every text.
        inputs: How records of plain text become documents; a card says this itself.

    Raises:
        DataError: If there is no text to fit on or to hold out.
    """
    cleaner = cleaner or Cleaner(Hygiene())
    card, inputs = find_task(task), inputs or Inputs()
    sources = [] if card else find_files([task], folder.parent)
    name = card.name if card else Path(task).name.split(".")[0]
    if card:
        depends_on = {
            "name": name,
            **card.text_identity,
            "files": source_digests(card.files(data, ("train", "dev"))),
        }
    else:
        depends_on = {"name": name, "files": source_digests(sources), "seed": seed, "held_out": HELD_OUT_SHARE}
        depends_on |= inputs.identity()
    depends_on |= cleaner.identity(general=False)

    def write(draft: Draft) -> None:
        tally = Tally()
        fit, held_out = card_texts(card, data) if card else plain_texts(sources, inputs, seed, tally)
        if not card:
            draft.counts["documents"] = tally.as_dict()
        fit = cleaner.filter_task(fit, draft)
        draft.counts["fit"] = write_parts(document_tables(fit), draft.path / "fit", DOCUMENTS)
        draft.counts["held_out"] = write_parts(
            document_tables(held_out[:HELD_OUT_AT_MOST]), draft.path / "held_out", DOCUMENTS
        )
        draft.counts["held_out_unused"] = max(0, len(held_out) - HELD_OUT_AT_MOST)
        for part in ("fit", "held_out"):
            if not draft.counts[part]:
                raise DataError(
                    f"task {task}: {len(fit) + len(held_out)} distinct documents are too few to fit on most and hold"
                    " out some; a line (or a paragraph) is a document"
                )

    made = make(folder, "task", depends_on, write)
    forget_rows(sources)
    return made
