"""``dana topics``: general text to fitted topics, to lines that say what they are, and to each document's shares."""

import shutil
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dana.core.artifacts import Artifact, Draft, fingerprint, make, open_artifact
from dana.core.logging import get_logger, progress
from dana.core.rng import derive_seed
from dana.corpus.unit_stream import Units, draw
from dana.corpus.units import WholeDocuments
from dana.scoring.inputs import GeneralCorpus
from dana.stages.general import open_general
from dana.stages.settings import RunSettings
from dana.studies.topics.assigning import Assignment
from dana.studies.topics.base import Topics, check_enough, fit_topics
from dana.studies.topics.choice import choose_topics, measure_topics
from dana.studies.topics.learned import EXAMPLE_DOCUMENTS, SOURCES, TOPICS, topic_tables
from dana.studies.topics.settings import TOPIC_MODELS
from dana.studies.topics.vocabulary import Bags, count_words_of_topics

log = get_logger(__name__)

MODEL, SHARES = "topic-model", "topics"
FITS, CHOICE = "fits.csv", "choice.csv"
HINT = "dana topics fit --general FILES --out DIR"
SHOWN = (TOPICS, SOURCES, EXAMPLE_DOCUMENTS)
SOURCES_SHOWN = 4


def run_topic_fit(settings: RunSettings, is_named: bool = True) -> Artifact:
    """Fit topics to a sample of a run's general text, for every number of topics and seed, and keep the best.

    Killed, the same command goes on with the fits that are missing.

    Args:
        settings: Of the run.
        is_named: Whether the general text was named now; else the corpus in the run's folder is taken.

    Returns:
        The artifact ``OUT/topic-model``: the model (:meth:`dana.studies.topics.base.Topics.save`), the tables of
        :func:`dana.studies.topics.learned.topic_tables`, ``fits.csv`` (a row a fit) and ``choice.csv`` (a row a k).

    Raises:
        ConfigError: If there is no general text.
        DataError: If too few words are left, or fewer documents than topics.
    """
    out = Path(settings.out)
    identity = settings.section("topics").identity()  # files that it names are looked at before any text is read
    corpus = open_general(settings, is_named)
    depends_on = {"general": corpus.fingerprint, "topics": identity, "seed": settings.selection.seed}
    wanted = {"k": sorted(settings.section("topics").k), "seeds": settings.section("topics").seeds}
    fits = out / f"{MODEL}-fits-{fingerprint(depends_on)[:12]}"

    def write(draft: Draft) -> None:
        _write_model(draft, corpus, settings, depends_on, fits)

    artifact = make(out / MODEL, MODEL, depends_on | wanted, write)
    shutil.rmtree(fits, ignore_errors=True)
    return artifact


def _write_model(
    draft: Draft, corpus: GeneralCorpus, settings: RunSettings, depends_on: dict[str, Any], folder: Path
) -> None:
    drawn, chosen = derive_seed(settings.selection.seed, "topics", "sample"), settings.section("topics")
    with progress(what="reading words", unit="documents", total=corpus.documents) as bar:
        sample = draw(_watched(corpus, bar), {"topics": (drawn, chosen.fit)})["topics"]
    bags = count_words_of_topics(sample.texts, chosen, TOPIC_MODELS.create(chosen.model).known_words)
    rows = np.flatnonzero(bags.sizes)
    log.info("topics    %s words in %s of %s documents", *(f"{n:,}" for n in (len(bags.words), rows.size, len(sample))))
    check_enough(rows.size, max(chosen.k))
    documents, bags = sample.rows(rows), bags.rows(rows)
    made = {}
    for k, number in product(sorted(chosen.k), range(chosen.seeds)):
        depends_on_fit = {**depends_on, "k": k, "number": number}
        write = partial(_write_fit, bags=bags, settings=settings, k=k, number=number)
        made[k, number] = make(folder / f"k{k}-{number}", "topic-fit", depends_on_fit, write)
    fits = pd.DataFrame({"k": k, "seed": number, **fit.manifest["measures"]} for (k, number), fit in made.items())
    choice = choose_topics(fits)
    topics = Topics.load(made[choice.k, choice.seed].path)
    topics.save(draft.path)
    for name, table in (topic_tables(topics, documents, bags) | {FITS: fits, CHOICE: choice.table}).items():
        table.to_csv(draft.path / name, index=False)
    draft.counts = {"documents": corpus.documents, "fitted_on": rows.size, "words": len(bags.words)}
    draft.seeds = {"sample": drawn}
    draft.notes["reason"] = choice.reason


def _watched(corpus: GeneralCorpus, bar: progress) -> Iterator[Units]:
    for units in corpus.units(WholeDocuments()):
        yield units
        bar.update(len(units))


def _write_fit(draft: Draft, bags: Bags, settings: RunSettings, k: int, number: int) -> None:
    seed = derive_seed(settings.selection.seed, "topics", number)
    topics = fit_topics(settings.section("topics").model, bags, k, seed)
    topics.save(draft.path)
    draft.seeds = {"fit": seed}
    draft.notes["measures"] = measures = measure_topics(topics.beta, bags.counts)
    said = "  ".join(f"{name} {value:.3f}" for name, value in measures.items())
    log.info("topics    k=%d seed %d: %s", k, number, said)


def fitted_topics(folder: Path) -> Artifact:
    """The topics that :func:`run_topic_fit` left in a run's folder."""
    return open_artifact(folder / MODEL, MODEL, HINT)


def run_topic_assign(settings: RunSettings, fitted: Path, is_named: bool = True) -> Artifact:
    """Say of every document of a run's general text how much of it is of each topic; processes share the shards.

    Args:
        settings: Of the run.
        fitted: A run's folder with topics.
        is_named: See :func:`run_topic_fit`.

    Returns:
        The artifact ``OUT/topics`` (:data:`dana.studies.topics.tables.TOPICS`).

    Raises:
        ArtifactError: If there are no topics in that folder.
        ConfigError: If there is no general text.
    """
    model = fitted_topics(fitted)
    return Assignment(open_general(settings, is_named), model, Path(settings.out) / SHARES).whole()


def topics_text(folder: Path) -> str:
    """What the topics in a run's folder are: numbers, words, sources and example documents of each, largest first.

    Raises:
        ArtifactError: If there are none.
    """
    artifact = fitted_topics(folder)
    tables = {name: pd.read_csv(artifact.path / name, keep_default_na=False) for name in SHOWN}
    lines = []
    for row in tables[TOPICS].sort_values(["share", "topic"], ascending=[False, True]).to_dict("records"):
        of = {name: table[table["topic"] == row["topic"]] for name, table in tables.items()}
        own = of[SOURCES].sort_values(["share", "source"], ascending=[False, True]).head(SOURCES_SHOWN)
        sources = ", ".join(f"{one['source']} {one['share']:.2f}" for one in own.to_dict("records"))
        lines.append(f"topic {row['topic']}: share {row['share']:.3f}, coherence {row['coherence']:.3f}")
        lines += [f"  words    {row['words']}", f"  sources  {sources}"]
        for one in of[EXAMPLE_DOCUMENTS].to_dict("records"):
            lines.append(f"  {one['share']:.2f}     {one['doc_id']} ({one['source']}): {one['text']}")
    counts = artifact.manifest["counts"]
    about = f"of {counts['fitted_on']:,} documents with a word of the vocabulary of {counts['words']:,}"
    return "\n".join([*lines, "", f"{artifact.manifest['reason']}; {about}"])
