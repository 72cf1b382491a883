"""Run ``dana studies translation``.

Text, vocabulary, translators and translations are steps; their results make the page.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
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
from dana.report.page import each, write_page
from dana.scoring.scoring import build_selector
from dana.stages.settings import RunSettings
from dana.stages.steps.run import Run
from dana.stages.steps.runner import execute
from dana.stages.steps.step import OutputOf, Step
from dana.studies.translation.page import matrix_table, table_of_choices, translation_report
from dana.studies.translation.pairs import AUDIT, PAIRS, open_pairs, pairs_stage
from dana.studies.translation.settings import ALL, ORACLE, TranslationSettings
from dana.studies.translation.translator import OUTPUT, signatures

TRANSLATOR = "dana.studies.translation.translator"  # module with the stages of most steps
MEASURES = "dana.studies.comparison.measures"
CENTROIDS = "centroids.csv"


def run_translation(settings: RunSettings, remake: bool = False) -> Path:
    """Train a translator on each domain, on all, and on text chosen for each; test on every domain.

    Writes ``translation.html`` and ``.md``, and ``tables/``: ``matrix.csv`` (a row per translator
    and test set), ``choices.csv`` (a row per domain and selector), ``cosines.csv``,
    ``correlations.csv`` and ``audit.csv``. The steps' artifacts are in the folders beside; existing
    ones are reused.

    Args:
        settings: Settings of the study.
        remake: Whether steps of other settings are replaced instead of refused.

    Returns:
        Path of the page.

    Raises:
        ConfigError: If settings contradict each other, or sacrebleu is missing.
        DataError: If text is bad, see :func:`dana.studies.translation.pairs.pairs_stage`.
    """
    out = Path(settings.out)
    check_translation(settings)
    pairs_stage(settings.section("translation"), out / "pairs")
    run = plan_translation(settings)
    paths = execute(run, settings.jobs, remake=remake)
    results = _results(run, paths)
    report = translation_report(
        name=out.resolve().name,
        matrix=matrix_table(results),
        choices=table_of_choices(results),
        cosines=_read_table(Path(paths["centroids"]) / CENTROIDS).set_index("domain"),
        audit=_read_table(out / "pairs" / AUDIT),
        signatures=signatures(),
    )
    return write_page(report, out, "translation")


def _results(run: Run, paths: Mapping[str, str]) -> pd.DataFrame:
    """Tabulate the translations, one row per translator and test set.

    See :func:`dana.studies.translation.page.matrix_table`.
    """
    rows = []
    for step in run.steps:
        if not step.name.startswith("test/"):
            continue
        translations = open_artifact(Path(paths[step.name]), "translations")
        text_step = f"text/{step.labels['translator']}"
        text = open_artifact(Path(paths[text_step]), "pool").manifest
        row = {
            **step.labels,
            "pairs": translations.manifest["counts"]["pairs"],
            **translations.manifest["measures"],
            "tokens": text["counts"]["tokens"],
            **text.get("choice", {}),
            "output": pd.read_parquet(translations.path / OUTPUT),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _read_table(file: Path) -> pd.DataFrame:
    """Read a table with a column ``domain``, whose names may be ``NA`` or a number."""
    return pd.read_csv(file, dtype={"domain": str}, keep_default_na=False, na_values=[""])


def check_translation(settings: RunSettings) -> None:
    """Check names, selectors and sacrebleu before any text is read."""
    study = settings.section("translation")
    domains = study.domains
    names = ", ".join(domains)
    remedy = "two domains or more"
    require(len(domains) > 1, "train", domains, remedy)
    require(set(domains) <= {*study.test}, "test", sorted(study.test), f"files of {names}")
    for name in ("dev", "targets"):
        unknown = [domain for domain in getattr(study, name) if domain not in domains]
        require(not unknown, name, unknown, f"some of {names}")
    has_use = bool(study.selectors) or not study.targets
    require(has_use, "targets", study.targets, "left out without selectors")
    signatures()
    for spec in study.selectors:
        if spec != ORACLE:
            build_selector(spec, settings.detector, settings.selection).identity()


def plan_translation(settings: RunSettings) -> Run:
    """Plan all steps but that of the pairs."""
    return Run(Path(settings.out), tuple(_steps(settings, settings.section("translation"))))


def _steps(settings: RunSettings, study: TranslationSettings) -> Iterator[Step]:
    """Yield all steps but that of the pairs: first the text, then each translator's."""
    out = Path(settings.out)
    domains = study.domains
    store = settings.selection.store or str(out / "embeddings")
    selection = replace(settings.selection, seed=study.seed, store=store)
    inputs: dict[str, Any] = {"pairs": out / "pairs", "vocabulary": OutputOf("vocabulary")}

    def step(name: str, stage: str, module: str = TRANSLATOR, **arguments: Any) -> Step:
        arguments = {"folder": out / name, "pairs": out / "pairs", **arguments}
        return Step(name, f"{module}:{stage}_stage", arguments)

    yield step("vocabulary", "vocabulary", domains=domains, size=study.vocabulary)
    yield step(
        "centroids", "centroids", __name__, domains=domains, encoder=selection.encoder, store=store
    )
    for folder, split in (("dev", "dev"), ("text", "train")):
        for name in [*domains, ALL]:
            yield step(
                f"{folder}/{name}",
                "text",
                **inputs,
                domains=domains if name == ALL else [name],
                split=split,
                max_tokens=study.max_tokens,
            )
    targets = dict.fromkeys(target for _, target, spec in study.translators if spec)
    if targets:
        yield step("pool", "target", __name__, domains=domains, split="train")
    for target in targets:
        yield step(f"task/{target}", "target", __name__, domains=[target], split="dev")

    for name, target, spec in study.translators:
        scores = None
        if spec not in ("", ORACLE):
            scores = OutputOf(f"score/{name}")
            scoring = {
                "selector": spec,
                "detector": settings.detector,
                "selection": selection,
                "target": OutputOf(f"task/{target}"),
                "pool": OutputOf("pool"),
                "folder": out / scores.step / "scores",
            }
            yield Step(scores.step, f"{MEASURES}:score_pool", scoring)
        translator = {**inputs, "target": target, "settings": study}
        if spec:
            yield step(f"text/{name}", "choice", **translator, scores=scores)
        yield step(
            f"train/{name}",
            "train",
            **translator,
            text=OutputOf(f"text/{name}"),
            dev=OutputOf(f"dev/{target}"),
        )
        for test in sorted(study.test):
            test_step = step(
                f"test/{name}/{test}",
                "translate",
                model=OutputOf(f"train/{name}"),
                domains=[test],
                split="test",
                settings=study,
            )
            labels = {"translator": name, "target": target, "selector": spec, "test": test}
            yield replace(test_step, labels=labels)


def target_stage(pairs: Path, domains: list[str], split: str, folder: Path) -> Artifact:
    """Write the target sides of training text as a pool, or of development text as a task.

    The paper fits its selectors on development text, too. The source of a document is its domain.
    """

    def documents() -> Iterator[Document]:
        for name in domains:
            for row in each(open_pairs(pairs, name, split)):
                yield Document(row.doc_id, name, row.target)

    def write(draft: Draft) -> None:
        if split == "train":
            count = write_parts(document_tables(documents()), draft.path, DOCUMENTS)
            draft.counts["documents"] = count
        else:
            fit = document_tables(documents())
            nothing = document_tables(iter(()))
            draft.counts["fit"] = write_parts(fit, draft.path / "fit", DOCUMENTS)
            draft.counts["held_out"] = write_parts(nothing, draft.path / "held_out", DOCUMENTS)

    depends_on = {
        "pairs": open_artifact(pairs, PAIRS).fingerprint,
        "domains": domains,
        "name": folder.name,
    }
    return make(folder, "pool" if split == "train" else "target", depends_on, write)


def centroids_stage(
    pairs: Path, domains: list[str], encoder: str, store: str, folder: Path
) -> Artifact:
    """Compute the cosines of the domains' centroids (Figure 4).

    A centroid is the mean vector of the target side of a domain's development text.
    Writes ``centroids.csv``, a row and a column per domain.
    """
    built = create_encoder(encoder, store)

    def write(draft: Draft) -> None:
        means = []
        for domain in domains:
            texts = open_pairs(pairs, domain, "dev")["target"].tolist()
            vectors = encode(built, texts, encoder)
            means.append(vectors.double().mean(0).cpu().numpy())
        directions = np.stack(means)
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        index = pd.Index(domains, name="domain")
        cosines = pd.DataFrame(directions @ directions.T, index=index, columns=domains)
        cosines.to_csv(draft.path / CENTROIDS)

    depends_on = {
        "pairs": open_artifact(pairs, PAIRS).fingerprint,
        "encoder": encoder_identity(built),
        "domains": domains,
    }
    return make(folder, "centroids", depends_on, write)
