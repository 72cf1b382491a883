"""``dana init``: make the folder of a run from a table of labelled texts and a pool of other documents."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from dana.core.artifacts import write_json
from dana.core.config import require
from dana.core.errors import ArtifactError
from dana.core.files import folder_lock, make_parent, temp_dir
from dana.core.logging import get_logger
from dana.core.rng import generator
from dana.core.schemas import Document
from dana.core.statistics import describe_difference, smallest_difference
from dana.core.storage import is_url
from dana.corpus.head import sample_documents
from dana.corpus.inputs import Inputs
from dana.corpus.overlap import OverlapIndex
from dana.corpus.text import strip_markers
from dana.corpus.unit_stream import Units, split_documents
from dana.scoring.scoring import build_selector
from dana.scoring.settings import Selection
from dana.stages.plan import summary_text
from dana.stages.run import plan_run
from dana.stages.settings import INIT, RECIPE, load_settings, read_recipe
from dana.tasks.hygiene import document_blocks
from dana.tasks.labelled import Table, list_names, read_labelled
from dana.tasks.settings import Hygiene

log = get_logger(__name__)

LINE = "%-9s %s"  # of the log: what, and what is said of it
CARD, TEXTS = "card.yaml", "texts.parquet"
FILES = {CARD, TEXTS, RECIPE, INIT}
MOST_READ, MOST_SCORED = 20_000, 1_000  # documents of the pool
LIKE = 0.9  # a document is like the texts if its score is below this quantile of texts in no fit
FEWEST_TEXTS = 60  # with fewer, that quantile is unknown
PLAN = """\
# dana run FOLDER does what stands here, dana run FOLDER --quick less of it (docs/guide/first-adaptation.md).
# Settings that differ from the defaults of docs/reference/settings.md; paths start from this folder.
out: .                 # results are written beside this file
task: card.yaml        # your texts and their folds
general: {pool}
model: dana-mini       # small and general; or a folder, or a name of the Hub, with a tenth of the learning rate
arms: [random, dana]   # adapted on random text, and on as much of the text most like yours
adapt: {{tokens: 1000000, batch_size: 32, max_tokens: 128, learning_rate: 0.001, warmup: 0.05}}
"""


def init(
    table: Table,
    pool: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    text: str | None = None,
    label: str | None = None,
    group: str | None = None,
    test: Table | None = None,
    folds: int | None = None,
) -> Path:
    """Prepare a run from a table of labelled texts and a pool of other documents.

    Args:
        table: Labelled texts: a pandas table; or a file (CSV, TSV, JSON lines, Parquet, Excel), or
            a folder with a folder of text files per label.
        pool: General text: a file, folder, glob or URL, or several.
        out: Folder to write, which must not hold anything but an earlier one of these; None takes
            the table's name without its suffix, ``table`` for one in memory.
        text: Column of the text, and field of the pool's, which may be ``text`` there; None takes
            ``text``, or else the column with the most words.
        label: Column of the label; None takes one with a usual name, or else the only one whose
            values repeat.
        group: Column of a group, for example an author, whose texts stay in one fold.
        test: Labelled texts to test on, instead of folds.
        folds: Number of folds; None makes 5, or one fixed split above 5,000 rows.

    Returns:
        The folder, for ``dana run``: with ``card.yaml``, ``texts.parquet``, ``recipe.yaml`` and the
        summary, ``init.json``.

    Raises:
        ArtifactError: If the folder holds something else.
        DanaError: If the table or the pool cannot be used.
    """
    name = Path(table).name if isinstance(table, str | Path) else "table."
    folder = Path(out or (name.partition(".")[0] if "." in name else f"{name}-run"))
    entries = (
        {path.name for path in folder.iterdir()}
        if folder.is_dir()
        else {folder.name}
        if folder.exists()
        else {}
    )
    if others := {*entries} - FILES:
        raise ArtifactError(
            f"{folder}: holds {min(others)}; name another folder by --out, or remove this one"
        )
    sources = [str(source) for source in ([pool] if isinstance(pool, str | Path) else pool)]
    require(bool(sources), "pool", sources, "at least one file, folder, glob or URL")
    inputs = Inputs() if text is None else Inputs(list(dict.fromkeys([text, *Inputs().text_field])))
    documents, size = sample_documents(sources, folder, inputs, "fail", MOST_READ)
    frame, notes, rows = read_labelled(table, test, folds, text=text, label=label, group=group)
    labels = {str(name): int(size) for name, size in frame["label"].value_counts().items()}
    count, tests = int(frame["fold"].max()) + 1, int((frame["fold"] >= 0).sum())
    classes = list_names(f"{name} ({size})" for name, size in labels.items())
    log.info(LINE, "texts", f"{len(frame):,} of {rows:,} rows, in {len(labels)} classes: {classes}")
    for note in notes:
        log.info(LINE, "", note)
    power = smallest_difference(tests, count, questions=2)
    split = f"in {count} folds, each text once" if count > 1 else "in one fixed split"
    log.info(LINE, "test", f"{tests:,} texts, {split}; {describe_difference(power, 2)}")
    survey = survey_pool(documents, [*frame["text"]])
    like = "an unknown share" if survey["like"] is None else f"about {survey['like']:.0%}"
    log.info(
        LINE, "pool", f"about {round(size):,} documents; {like} is like your texts, by its words"
    )
    if overlap := survey["overlap"]:
        log.info(
            LINE,
            "",
            f"{overlap:,} of the first {len(documents):,} hold your texts: left out by dana run",
        )
    paths = [
        one if is_url(one) or Path(one).is_absolute() else os.path.relpath(one, folder)
        for one in sources
    ]
    recipe = PLAN.format(pool=json.dumps(paths, ensure_ascii=False))
    if inputs != Inputs():
        recipe += f"inputs: {json.dumps({'text_field': inputs.text_field}, ensure_ascii=False)}\n"
    card = {
        "name": folder.resolve().name,
        "title": "Made by dana init",
        "version": 1,
        "labels": sorted(labels),
    }
    card |= {
        "metric": "macro_f1",
        "splits": {},
        "data": {"file": Path(TEXTS).stem},
        "folds": "fold",
    }
    summary = {
        "rows": rows,
        "texts": len(frame),
        "labels": labels,
        "notes": notes,
        "folds": count,
        "tested": tests,
    }
    with make_parent(folder), folder_lock(folder), temp_dir(folder) as draft:
        frame.to_parquet(draft / TEXTS, index=False)
        (draft / CARD).write_text(
            yaml.safe_dump(card, sort_keys=False, allow_unicode=True), encoding="utf-8"
        )
        (draft / RECIPE).write_text(recipe, encoding="utf-8")
        write_json(draft / INIT, summary | {"detectable": round(power, 3), "pool": survey})
        if folder.exists():
            shutil.rmtree(folder)
        draft.rename(folder)
    log.info(LINE, "written", f"{folder}: {', '.join(sorted(FILES))}")
    for quick in (False, True):
        settings = load_settings(read_recipe(folder, quick)[0])
        log.info("%s", summary_text(plan_run(settings)))
    return folder


def survey_pool(documents: Sequence[Document], texts: Sequence[str]) -> dict[str, Any]:
    """Compare documents of a pool with labelled texts.

    Args:
        documents: The first documents of each file.
        texts: The labelled texts.

    Returns:
        ``overlap``, the number of documents that hold a labelled text, by the rule of
        decontamination; ``like``, the share of a sample whose words are as near to the texts' as 90
        % of texts outside the fit are, by the selector ``lexical``; None with fewer than 60 texts.
    """
    index = OverlapIndex.build({"texts": texts}, Hygiene().ngram, Hygiene().sentence)
    rest: list[Document] = []
    for block in document_blocks(documents):
        rows = {overlap.row for overlap in index.find([document.text for document in block])}
        rest += [document for row, document in enumerate(block) if row not in rows]
    survey: dict[str, Any] = {"overlap": len(documents) - len(rest), "like": None}
    if len(texts) < FEWEST_TEXTS or not rest:
        return survey
    random = generator(0, "init", "pool")
    order = random.permutation(len(texts))[:MOST_SCORED]
    own_texts = [Document(str(row), "", strip_markers(texts[row])) for row in order]
    sample = [rest[row] for row in random.permutation(len(rest))[:MOST_SCORED]]
    third = len(own_texts) // 3
    parts = (own_texts[third:], own_texts[:third], sample)
    task, others, pool = (
        Units.join(list(split_documents(part, Selection().splitter()))) for part in parts
    )
    selector = build_selector("lexical", "knn", Selection())
    sizes = selector.samples(len(task)).items()
    model = selector.fit(
        task, {name: pool.rows(random.permutation(len(pool))[:size]) for name, size in sizes}, 0
    )
    near, far = (
        np.bincount(units.owners, model.score(units)) / np.bincount(units.owners)
        for units in (others, pool)
    )
    return survey | {"like": round(float((far <= np.nanquantile(near, LIKE)).mean()), 3)}
