"""Stages of a comparison's texts: a task to plants, held-out text and text to fit on; general text to a pool."""

from dataclasses import asdict
from pathlib import Path

from dana.core.artifacts import Artifact, Draft, make, open_artifact
from dana.core.errors import ConfigError, DataError, suggestion
from dana.core.schemas import DOCUMENTS, Document, iterate_documents, write_parts
from dana.corpus.documents import Tally, document_tables, source_digests
from dana.corpus.inputs import Inputs
from dana.corpus.places import find_files
from dana.studies.comparison.planting import PLANTED, part_texts, pool_of, sample_fit
from dana.studies.comparison.settings import SOURCE
from dana.studies.comparison.surface import Surface
from dana.tasks.examples import card_texts, find_task, plain_texts

PARTS = ("plants", "held_out", "fit")


def plant_stage(
    task: str,
    corpus: Path,
    folder: Path,
    plants: int,
    data: str | None = None,
    inputs: Inputs | None = None,
    seed: int = 0,
) -> Artifact:
    """Part a task's texts and normalise them; see :func:`dana.studies.comparison.planting.part_texts`.

    Args:
        task: A card's name or file, a text file, glob or folder, or ``source:NAME``. Of a card the training and
            development texts are taken, never the test texts.
        corpus: The general text, of which a source may be the task.
        folder: Where ``plants/``, ``held_out/`` and ``fit/`` go (:data:`dana.core.schemas.DOCUMENTS` each).
        plants: Plants wanted.
        data: Folder of a card's data, where it is not under ``DANA_DATA``.
        inputs: How records of plain text become documents.
        seed: Decides which text is what.
    """
    depends_on = {"task": task, "plants": plants, "seed": seed}
    depends_on |= _identity(task, corpus, data, inputs or Inputs())

    def write(draft: Draft) -> None:
        texts = _texts(task, corpus, data, inputs or Inputs())
        surface = Surface.of_task(document.text for document in texts)
        try:
            parted = part_texts(texts, surface, plants, seed)
        except DataError as error:
            raise DataError(f"task {task}: {error}") from error
        for part in PARTS:
            documents = getattr(parted, part)
            draft.counts[part] = write_parts(document_tables(documents), draft.path / part, DOCUMENTS)
        draft.counts["texts"] = len(texts)
        draft.notes["surface"] = asdict(surface)

    return make(folder, "planting", depends_on, write)


def pool_stage(
    planting: Path,
    corpus: Path,
    folder: Path,
    others: int,
    without: list[str],
    seed: int = 0,
    language: str = "en",
) -> Artifact:
    """Hide the plants among pieces of general text in their lengths; the pool is a corpus like any other.

    Args:
        planting: Of :func:`plant_stage`.
        corpus: The general text.
        folder: Where ``part-*.parquet`` (:data:`dana.core.schemas.DOCUMENTS`) goes. The source of a plant ends in
            ``(planted)``.
        others: Pieces wanted.
        without: Sources that are left out.
        seed: Decides which documents are cut.
        language: ISO 639-1 code, for where sentences end.

    Raises:
        ConfigError: If a source that is to be left out is not there.
        DataError: If too few documents are left.
    """
    task, general = open_artifact(planting, "planting"), open_artifact(corpus, "corpus")
    named = task.manifest["depends_on"]["task"]
    left_out = [*without, *([named.removeprefix(SOURCE)] if named.startswith(SOURCE) else [])]
    depends_on = {"planting": task.fingerprint, "general": general.fingerprint, "others": others}
    depends_on |= {"without": sorted(left_out), "seed": seed, "language": language}

    def write(draft: Draft) -> None:
        documents = list(iterate_documents(corpus))
        _check_sources(left_out, documents)
        kept = [document for document in documents if document.source not in left_out]
        plants = list(iterate_documents(planting / "plants"))
        surface = Surface(**task.manifest["surface"])
        pool = pool_of(plants, kept, surface, others, seed, language)
        planted = sum(document.source.endswith(PLANTED) for document in pool)
        draft.counts |= {"documents": len(pool), "plants": planted, "others": len(pool) - planted}
        write_parts(document_tables(pool), draft.path, DOCUMENTS)

    return make(folder, "corpus", depends_on, write)


def fit_stage(planting: Path, folder: Path, size: int, seed: int) -> Artifact:
    """Draw the texts to fit on, as a task artifact with the comparison's held-out text.

    Args:
        planting: Of :func:`plant_stage`.
        folder: Where ``fit/`` and ``held_out/`` go.
        size: Texts to fit on.
        seed: The fit seed.
    """
    task = open_artifact(planting, "planting")
    name = task.manifest["depends_on"]["task"]
    depends_on = {"name": name, "planting": task.fingerprint, "size": size, "seed": seed}

    def write(draft: Draft) -> None:
        fit = sample_fit(list(iterate_documents(planting / "fit")), size, seed)
        for part, documents in (("fit", fit), ("held_out", iterate_documents(planting / "held_out"))):
            draft.counts[part] = write_parts(document_tables(documents), draft.path / part, DOCUMENTS)

    return make(folder, "task", depends_on, write)


def _identity(task: str, corpus: Path, data: str | None, inputs: Inputs) -> dict[str, object]:
    """What the task's texts depend on."""
    if task.startswith(SOURCE):
        return {"general": open_artifact(corpus, "corpus").fingerprint}
    card = find_task(task)
    files = card.files(data, ("train", "dev")) if card else find_files([task], corpus.parent)
    return {"files": source_digests(files), **(card.text_identity if card else inputs.identity())}


def _texts(task: str, corpus: Path, data: str | None, inputs: Inputs) -> list[Document]:
    """All texts of a task that may be planted or fitted on."""
    if task.startswith(SOURCE):
        documents = list(iterate_documents(corpus))
        _check_sources([task.removeprefix(SOURCE)], documents)
        return [document for document in documents if document.source == task.removeprefix(SOURCE)]
    card = find_task(task)
    one, two = card_texts(card, data) if card else plain_texts(find_files([task], corpus.parent), inputs, 0, Tally())
    return [*one, *two]


def _check_sources(named: list[str], documents: list[Document]) -> None:
    """Refuse a source that the general text does not have."""
    there = sorted({document.source for document in documents})
    for source in named:
        if source not in there:
            raise ConfigError(f"source {source!r}: the general text has none of this name{suggestion(source, there)}")
