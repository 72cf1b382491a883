"""``dana studies translation``: run the text, vocabulary, translators and translations as steps, and build the page."""

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

MODULE, TRANSLATOR = __name__, "dana.studies.translation.translator"
CENTROIDS = "centroids.csv"


def run_translation(settings: RunSettings, remake: bool = False) -> Path:
    """Train a translator on each domain, on all, and on text chosen for each; test all on every domain.

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
    study, out = settings.section("translation"), Path(settings.out)
    check_translation(settings)
    pairs_stage(study, out / "pairs")
    run = plan_translation(settings)
    paths = execute(run, settings.jobs, remake=remake)
    rows = []
    for step in run.steps:
        if step.name.startswith("test/"):
            artifact = open_artifact(Path(paths[step.name]), "translations")
            row = {
                **step.labels,
                "pairs": artifact.manifest["counts"]["pairs"],
                **artifact.manifest["measures"],
            }
            text = open_artifact(Path(paths[f"text/{step.labels['translator']}"]), "pool").manifest
            row |= {"tokens": text["counts"]["tokens"], **text.get("choice", {})}
            rows.append(row | {"output": pd.read_parquet(artifact.path / OUTPUT)})
    cosines = _read_table(Path(paths["centroids"]) / CENTROIDS).set_index("domain")
    results, audit = pd.DataFrame(rows), _read_table(out / "pairs" / AUDIT)
    tables = matrix_table(results), table_of_choices(results), cosines, audit
    return write_page(
        translation_report(out.resolve().name, *tables, signatures()), out, "translation"
    )


def _read_table(file: Path) -> pd.DataFrame:
    """Read a table with a column ``domain``, whose names may be ``NA`` or a number."""
    return pd.read_csv(file, dtype={"domain": str}, keep_default_na=False, na_values=[""])


def check_translation(settings: RunSettings) -> None:
    """Check names, selectors and sacrebleu before any text is read."""
    study = settings.section("translation")
    require(
        len(study.domains) > 1,
        "train",
        study.domains,
        "two domains or more, each with files or catalogues",
    )
    require(
        set(study.domains) <= {*study.test},
        "test",
        sorted(study.test),
        f"files of {', '.join(study.domains)}",
    )
    for name in ("dev", "targets"):
        unknown = [domain for domain in getattr(study, name) if domain not in study.domains]
        require(not unknown, name, unknown, f"some of {', '.join(study.domains)}")
    require(
        bool(study.selectors) or not study.targets,
        "targets",
        study.targets,
        "left out without selectors",
    )
    signatures()
    for spec in study.selectors:
        if spec != ORACLE:
            build_selector(spec, settings.detector, settings.selection).identity()


def plan_translation(settings: RunSettings) -> Run:
    """Plan all steps but that of the pairs."""
    return Run(Path(settings.out), tuple(_steps(settings, settings.section("translation"))))


def _steps(settings: RunSettings, study: TranslationSettings) -> Iterator[Step]:
    out, domains, measures = Path(settings.out), study.domains, "dana.studies.comparison.measures"
    store = settings.selection.store or str(out / "embeddings")
    selection = replace(settings.selection, seed=study.seed, store=store)
    inputs: dict[str, Any] = {"pairs": out / "pairs", "vocabulary": OutputOf("vocabulary")}
    what: dict[str, Any]

    def step(name: str, stage: str, module: str = TRANSLATOR, **arguments: Any) -> Step:
        return Step(
            name,
            f"{module}:{stage}_stage",
            {"folder": out / name, "pairs": out / "pairs", **arguments},
        )

    yield step("vocabulary", "vocabulary", domains=domains, size=study.vocabulary)
    yield step(
        "centroids", "centroids", MODULE, domains=domains, encoder=selection.encoder, store=store
    )
    for kind, name in product(("dev", "text"), [*domains, ALL]):
        what = {
            "domains": domains if name == ALL else [name],
            "split": "train" if kind == "text" else kind,
        }
        yield step(f"{kind}/{name}", "text", **inputs, **what, max_tokens=study.max_tokens)
    targets = dict.fromkeys(target for _, target, spec in study.translators if spec)
    if targets:
        yield step("pool", "target", MODULE, domains=domains, split="train")
    for target in targets:
        yield step(f"task/{target}", "target", MODULE, domains=[target], split="dev")
    for name, target, spec in study.translators:
        arm = {**inputs, "target": target, "settings": study}
        scores = OutputOf(f"score/{name}") if spec not in ("", ORACLE) else None
        if scores:
            scoring = {"selector": spec, "detector": settings.detector, "selection": selection}
            scoring |= {"target": OutputOf(f"task/{target}"), "pool": OutputOf("pool")}
            yield Step(
                scores.step,
                f"{measures}:score_pool",
                {**scoring, "folder": out / scores.step / "scores"},
            )
        if spec:
            yield step(f"text/{name}", "choice", **arm, scores=scores)
        yield step(
            f"train/{name}",
            "train",
            **arm,
            text=OutputOf(f"text/{name}"),
            dev=OutputOf(f"dev/{target}"),
        )
        for test in sorted(study.test):
            labels = {"translator": name, "target": target, "selector": spec, "test": test}
            what = {
                "model": OutputOf(f"train/{name}"),
                "domains": [test],
                "split": "test",
                "settings": study,
            }
            yield replace(step(f"test/{name}/{test}", "translate", **what), labels=labels)


def target_stage(pairs: Path, domains: list[str], split: str, folder: Path) -> Artifact:
    """Write the target sides of training text as a corpus to choose from, or of development text as a task to fit on.

    The paper fits its selectors on development text, too. The source of a document is its domain.
    """
    frames = ((name, open_pairs(pairs, name, split)) for name in domains)

    def write(draft: Draft) -> None:
        rows = (
            Document(row.doc_id, name, row.target) for name, frame in frames for row in each(frame)
        )
        for part, documents in (
            {"": rows} if split == "train" else {"fit": rows, "held_out": iter(())}
        ).items():
            draft.counts[part or "documents"] = write_parts(
                document_tables(documents), draft.path / part, DOCUMENTS
            )

    depends_on = {
        "pairs": open_artifact(pairs, PAIRS).fingerprint,
        "domains": domains,
        "name": folder.name,
    }
    return make(folder, "pool" if split == "train" else "target", depends_on, write)


def centroids_stage(
    pairs: Path, domains: list[str], encoder: str, store: str, folder: Path
) -> Artifact:
    """Compute the cosines between the mean vectors of the domains' development text, target side (Figure 4).

    Writes ``centroids.csv``, a row and a column per domain.
    """
    built = create_encoder(encoder, store)

    def write(draft: Draft) -> None:
        texts = [open_pairs(pairs, domain, "dev")["target"].tolist() for domain in domains]
        means = np.stack(
            [encode(built, some, encoder).double().mean(0).cpu().numpy() for some in texts]
        )
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        cosines = pd.DataFrame(
            means @ means.T, index=pd.Index(domains, name="domain"), columns=domains
        )
        cosines.to_csv(draft.path / CENTROIDS)

    depends_on = {
        "pairs": open_artifact(pairs, PAIRS).fingerprint,
        "encoder": encoder_identity(built),
    }
    return make(folder, "centroids", {**depends_on, "domains": domains}, write)
