"""``dana studies translation``: run the text, vocabulary, translators and translations as cells, and build the page."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dana.core.artifacts import Artifact, Draft, make, open_artifact
from dana.core.config import require
from dana.core.schemas import DOCUMENTS, Document, write_parts
from dana.corpus.documents import document_tables
from dana.encoders.base import encode, encoder_identity
from dana.encoders.cache import create_encoder
from dana.report.page import write_page
from dana.scoring.scoring import build_selector
from dana.stages.grid.cell import Cell, OutputOf
from dana.stages.grid.grid import Grid
from dana.stages.grid.runner import run_grid
from dana.stages.settings import RunSettings
from dana.studies.translation.page import matrix_table, table_of_choices, translation_report
from dana.studies.translation.pairs import AUDIT, PAIRS, open_pairs, pairs_stage
from dana.studies.translation.settings import ALL, ORACLE, TranslationSettings
from dana.studies.translation.translator import OUTPUT, chosen_model, signatures, translate_stage

MODULE, TRANSLATOR = __name__, "dana.studies.translation.translator"
CENTROIDS = "centroids.csv"


def run_translation(settings: RunSettings) -> Path:
    """Train a translator on each domain, on all, and on text chosen for each; test all on every domain.

    Writes ``translation.html`` and ``.md``, and ``tables/``: ``matrix.csv`` (a row per translator and test set),
    ``choices.csv`` (a row per domain and selector), ``cosines.csv``, ``correlations.csv`` and ``audit.csv``. The cells'
    artifacts are in the folders beside; existing ones are reused.

    Returns:
        Path of the page.

    Raises:
        ConfigError: If settings contradict each other, or sacrebleu is missing.
        DataError: If text is bad, see :func:`dana.studies.translation.pairs.pairs_stage`.
    """
    study, out = settings.section("translation"), Path(settings.out)
    check_translation(settings)
    pairs_stage(study, out / "pairs")
    grid = plan_translation(settings)
    paths = run_grid(grid, settings.jobs)
    rows = []
    for cell in grid.cells:
        if cell.name.startswith("test/"):
            artifact = open_artifact(Path(paths[cell.name]), "translations")
            row = {**cell.labels, "pairs": artifact.manifest["counts"]["pairs"], **artifact.manifest["measures"]}
            text = open_artifact(Path(paths[f"text/{cell.labels['translator']}"]), "corpus").manifest
            row |= {"tokens": text["counts"]["tokens"], **text.get("choice", {})}
            rows.append(row | {"output": pd.read_parquet(artifact.path / OUTPUT)})
    cosines = pd.read_csv(Path(paths["centroids"]) / CENTROIDS, dtype={"domain": str}).set_index("domain")
    results, audit = pd.DataFrame(rows), pd.read_csv(out / "pairs" / AUDIT, dtype={"domain": str})
    tables = matrix_table(results), table_of_choices(results), cosines, audit
    return write_page(translation_report(out.resolve().name, *tables, signatures()), out, "translation")


def check_translation(settings: RunSettings) -> None:
    """Check names, selectors and sacrebleu before any text is read."""
    study = settings.section("translation")
    require(len(study.domains) > 1, "train", study.domains, "two domains or more, each with files or catalogues")
    require(set(study.domains) <= {*study.test}, "test", sorted(study.test), f"files of {', '.join(study.domains)}")
    for name in ("dev", "targets"):
        unknown = [domain for domain in getattr(study, name) if domain not in study.domains]
        require(not unknown, name, unknown, f"some of {', '.join(study.domains)}")
    signatures()
    for spec in study.selectors:
        if spec != ORACLE:
            build_selector(spec, settings.detector, settings.selection).identity()


def plan_translation(settings: RunSettings) -> Grid:
    """Plan all cells but that of the pairs."""
    return Grid(Path(settings.out), tuple(_cells(settings, settings.section("translation"))))


def _cells(settings: RunSettings, study: TranslationSettings) -> Iterator[Cell]:
    out, pairs = Path(settings.out), Path(settings.out) / "pairs"
    domains, selection = (
        study.domains,
        replace(settings.selection, seed=study.seed, store=settings.selection.store or str(out / "embeddings")),
    )
    learnt = {"pairs": pairs, "domains": domains, "size": study.vocabulary, "folder": out / "vocabulary"}
    yield Cell("vocabulary", f"{TRANSLATOR}:vocabulary_stage", learnt)
    centroids = {"pairs": pairs, "domains": domains, "encoder": selection.encoder, "folder": out / "centroids"}
    yield Cell("centroids", f"{MODULE}:centroids_stage", {**centroids, "store": selection.store})
    common: dict[str, Any] = {"pairs": pairs, "vocabulary": OutputOf("vocabulary")}
    texts = {name: domains if name == ALL else [name] for name in [*domains, ALL]}
    for split, (name, members) in product(("dev", "train"), texts.items()):
        kind = "dev" if split == "dev" else "text"
        arguments = {**common, "domains": members, "split": split, "max_tokens": study.max_tokens}
        yield Cell(f"{kind}/{name}", f"{TRANSLATOR}:text_stage", {**arguments, "folder": out / kind / name})
    targets = dict.fromkeys(target for _, target, spec in study.translators if spec)
    if targets:
        yield Cell("pool", f"{MODULE}:target_pool_stage", {"pairs": pairs, "domains": domains, "folder": out / "pool"})
    for target in targets:
        fit = {"pairs": pairs, "target": target, "folder": out / "tasks" / target}
        yield Cell(f"task/{target}", f"{MODULE}:target_task_stage", fit)
    for name, target, spec in (one for one in study.translators if one[-1]):
        scores = None if spec == ORACLE else OutputOf(f"score/{name}")
        if spec != ORACLE:
            scoring = {"task": OutputOf(f"task/{target}"), "pool": OutputOf("pool"), "selector": spec}
            scoring |= {
                "detector": settings.detector,
                "selection": selection,
                "folder": out / "scores" / name / "scores",
            }
            yield Cell(f"score/{name}", "dana.studies.comparison.measures:score_pool", scoring)
        choice = {**common, "scores": scores, "target": target, "settings": study, "folder": out / "text" / name}
        yield Cell(f"text/{name}", f"{TRANSLATOR}:choice_stage", choice)
    for name, target, spec in study.translators:
        inputs = {"text": OutputOf(f"text/{name}"), "dev": OutputOf(f"dev/{target}"), **common, "target": target}
        inputs |= {"dev_of_all": OutputOf(f"dev/{ALL}"), "settings": study, "folder": out / "translators" / name}
        yield Cell(f"train/{name}", f"{TRANSLATOR}:train_stage", inputs)
        for test in sorted(study.test):
            labels = {"translator": name, "target": target, "selector": spec, "test": test}
            arguments = {"translator": OutputOf(f"train/{name}"), "pairs": pairs, "test": test, "settings": study}
            arguments["folder"] = out / "tests" / name / test
            yield Cell(f"test/{name}/{test}", f"{MODULE}:measure_translator_stage", arguments, labels=labels)


def measure_translator_stage(
    translator: Path, pairs: Path, test: str, settings: TranslationSettings, folder: Path
) -> Artifact:
    """Translate the test text of a domain by the chosen model of a translator."""
    how = ("test", settings.beams, settings.test_pairs, settings, folder)
    return translate_stage(chosen_model(translator), pairs, [test], *how)


def target_pool_stage(pairs: Path, domains: list[str], folder: Path) -> Artifact:
    """Write the target sides of all training text as a corpus to choose from; the source is the domain."""

    def write(draft: Draft) -> None:
        rows = (Document(row.doc_id, name, row.target) for name in domains for row in _rows(pairs, name, "train"))
        draft.counts["documents"] = write_parts(document_tables(rows), draft.path, DOCUMENTS)

    return make(folder, "corpus", {"pairs": open_artifact(pairs, PAIRS).fingerprint, "domains": domains}, write)


def target_task_stage(pairs: Path, target: str, folder: Path) -> Artifact:
    """Write the target sides of a domain's development text as a task to fit selectors on, as the paper does."""

    def write(draft: Draft) -> None:
        texts = [Document(row.doc_id, target, row.target) for row in _rows(pairs, target, "dev")]
        for part, rows in (("fit", texts), ("held_out", [])):
            draft.counts[part] = write_parts(document_tables(rows), draft.path / part, DOCUMENTS)

    return make(folder, "task", {"name": target, "pairs": open_artifact(pairs, PAIRS).fingerprint}, write)


def _rows(pairs: Path, domain: str, split: str) -> Iterator[Any]:
    yield from open_pairs(pairs, domain, split).itertuples()


def centroids_stage(pairs: Path, domains: list[str], encoder: str, store: str, folder: Path) -> Artifact:
    """Compute the cosines between the mean vectors of the domains' development text, target side (Figure 4).

    Writes ``centroids.csv``, a row and a column per domain.
    """
    built = create_encoder(encoder, store)

    def write(draft: Draft) -> None:
        texts = [open_pairs(pairs, domain, "dev")["target"].tolist() for domain in domains]
        means = np.stack([encode(built, some, encoder).double().mean(0).cpu().numpy() for some in texts])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        cosines = pd.DataFrame(means @ means.T, index=pd.Index(domains, name="domain"), columns=domains)
        cosines.to_csv(draft.path / CENTROIDS)

    depends_on = {"pairs": open_artifact(pairs, PAIRS).fingerprint, "encoder": encoder_identity(built)}
    return make(folder, "centroids", {**depends_on, "domains": domains}, write)
