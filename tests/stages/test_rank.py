"""Ranking: what is ranked is what is deployed, over documents; a broken plug-in costs only itself."""

import re
from dataclasses import replace
from functools import partial
from importlib.metadata import entry_points
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from two_topics import CELLS, COURTS, SELECTION, claims, one_document, write_scores

from dana.core import registry
from dana.core.artifacts import read_json
from dana.core.errors import ArtifactError, ConfigError, PluginError
from dana.scoring.inputs import PoolText, TargetText
from dana.scoring.ranking import comparison as rank_fits
from dana.scoring.scoring import SAMPLES, build_selector
from dana.scoring.settings import RankSettings
from dana.selectors.detector import DetectorSelector
from dana.stages.rank import comparison_text, rank_stage, ranking_budget
from dana.stages.texts import pool_stage, target_stage

BUDGET = 0.2


def rank(topics, out, settings=None, selection=SELECTION):
    settings = settings or RankSettings(["knn"])
    return rank_stage(topics[0], topics[1], selection, settings, out / "ranking", BUDGET).manifest


def task_of(folder, *texts):
    """Write texts as a task."""
    (folder / "task.txt").write_text("\n\n".join(texts), encoding="utf-8")
    return TargetText(target_stage(str(folder / "task.txt"), folder / "target", seed=3))


@pytest.fixture
def fits(monkeypatch):
    """List the selector, the number of target units and the pool samples of every fit."""
    calls = []
    original = DetectorSelector.learn

    def learn(self, task, pool, seed):
        calls.append((self, len(task), {name: len(rows) for name, rows in pool.items()}, seed))
        return original(self, task, pool, seed)

    monkeypatch.setattr(DetectorSelector, "learn", learn)
    return calls


@pytest.fixture
def held_out(monkeypatch):
    """List rows of every fold, and the groups of the task's units."""
    calls = SimpleNamespace(rows=[], groups=None)
    fold, of = rank_fits.Fold, rank_fits.bootstrap_counts

    def record_fold(rows, *scores):
        calls.rows.append(rows)
        return fold(rows, *scores)

    def record_groups(task, pool, seed):
        calls.groups = task
        return of(task, pool, seed)

    monkeypatch.setattr(rank_fits, "Fold", record_fold)
    monkeypatch.setattr(rank_fits, "bootstrap_counts", record_groups)
    return calls


def test_ranking_is_written_reused_and_refused_after_a_change(topics, tmp_path):
    settings = RankSettings(["knn", "pca", "lof"])
    content = rank(topics, tmp_path, settings)
    rows = {row["name"]: row for row in content["detectors"]}
    assert set(rows) == set(settings.detectors)
    assert rows[content["chosen"]]["tied"]
    for row in rows.values():
        assert 0 <= row["recall_low"] <= row["recall"] <= row["recall_high"] <= 1
    # an eighth of the pool units is planted, and a fifth is within the budget: nearly all of the
    # task is, too
    assert rows["knn"]["recall"] > 0.9
    assert 0.88 < rows["knn"]["auroc_mean"] < 0.97
    near = [{**row, "tied": True} for row in content["detectors"]]
    text = comparison_text({**content, "detectors": near, "chosen": "knn"})
    assert "* knn" in " ".join(text.split())
    assert "= pca" in " ".join(text.split())
    assert "=: within one standard error" in text
    table = tmp_path / "ranking" / "ranking.csv"
    assert pd.read_csv(table)["name"].tolist() == [row["name"] for row in content["detectors"]]
    time = table.stat().st_mtime_ns
    assert rank(topics, tmp_path, settings) == content
    assert table.stat().st_mtime_ns == time
    with pytest.raises(ArtifactError, match="folds: 5 there, 4 now"):
        rank(topics, tmp_path, replace(settings, folds=4))
    with pytest.raises(ArtifactError, match=r"budget: 0\.2 there, 0\.1 now"):
        rank_stage(*topics[:2], SELECTION, settings, tmp_path / "ranking", 0.1)
    assert ranking_budget(tmp_path / "ranking", 0.1) == BUDGET, "scoring takes the ranking as it is"
    assert ranking_budget(tmp_path / "nothing", 0.1) == 0.1


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_what_is_ranked_is_what_score_deploys(texts, tmp_path, fits, share):
    selection = replace(SELECTION, pool_share=share, geometry="l2")
    task, pool, _ = write_scores(texts, tmp_path, "knn", selection)
    (selector, units, samples, _), *_ = fits
    assert selector == build_selector("detector", "knn", selection)
    identity = selector.identity()
    assert ("contamination" in samples) == bool(share)
    fits.clear()
    content = rank((task, pool), tmp_path, selection=selection)
    assert len(fits) == 5
    for selector, fitted_on, pool_rows, _ in fits:
        assert selector.identity() == identity
        assert 0.7 * units < fitted_on < 0.9 * units
        assert pool_rows.get("contamination", 0) == int(fitted_on * share)
    scores, ranking = (read_json(tmp_path / name / SAMPLES) for name in ("scores", "ranking"))
    assert content["counts"]["negatives"] == len(ranking["negatives"]) > 100
    assert scores.get("contamination") == ranking.get("contamination")
    # of a small pool the rest are negatives
    assert scores["geometry"][: len(ranking["geometry"])] == ranking["geometry"]
    assert len(ranking["geometry"]) >= len(ranking["negatives"])


def test_a_small_pool_is_shared_by_geometry_background_and_negatives(topics, tmp_path):
    content = rank(topics, tmp_path, RankSettings(["lda", "knn"]))
    counts = content["counts"]
    assert min(counts[name] for name in ("geometry", "background", "negatives")) >= 50
    samples = [
        {tuple(unit) for unit in ids} for ids in read_json(tmp_path / "ranking" / SAMPLES).values()
    ]
    assert sum(map(len, samples)) == len(set().union(*samples)), (
        "no pool unit is scored by what was fitted on it"
    )
    assert {row["name"]: row["auroc_mean"] > 0.9 for row in content["detectors"]} == {
        "lda": True,
        "knn": True,
    }


def test_folds_hold_out_whole_documents_and_every_repetition_has_its_own(
    topics, tmp_path, held_out, fits
):
    content = rank(topics, tmp_path, RankSettings(["knn"], seeds=3))
    assert (
        content["counts"]["target_groups"]
        == content["counts"]["task_documents"]
        < content["counts"]["target_units"]
    )
    repetitions = [held_out.rows[start : start + 5] for start in (0, 5, 10)]
    for rows in repetitions:
        assert sorted(np.concatenate(rows)) == list(range(held_out.groups.size))
        parts = [set(held_out.groups[part]) for part in rows]
        assert sum(map(len, parts)) == len(set().union(*parts))
    firsts = {tuple(rows[0]) for rows in repetitions}
    assert len(firsts) == 3
    assert len({seed for *_, seed in fits}) == 15


def test_the_papers_protocol_holds_out_each_tenth_and_chooses_by_f1(
    topics, tmp_path, fits, held_out
):
    settings = RankSettings(["knn", "pca"], protocol="paper", seeds=2, prevalence=0.5)
    content = rank(topics, tmp_path, settings, replace(SELECTION, pool_share=0.1))
    units = content["counts"]["target_units"]
    assert content["counts"]["negatives"] == round(0.1 * units)
    assert {tuple(pool) for _, _, pool, _ in fits} == {("geometry",)}
    assert {round(rows / units, 1) for _, rows, _, _ in fits} == {0.9}
    repetitions = [held_out.rows[start : start + 10] for start in range(0, 40, 10)]
    assert all(sorted(np.concatenate(rows)) == list(range(units)) for rows in repetitions)
    assert len({tuple(rows[0]) for rows in repetitions}) == 2, (
        "folds for each repetition, the same for each detector"
    )
    best = max(content["detectors"], key=lambda row: (row["f1_mean"], row["auroc_mean"]))
    assert content["chosen"] == best["name"]
    assert "recall" not in best
    assert "recall" not in comparison_text(content)


def test_units_with_the_same_words_are_fitted_on_once_and_not_held_out(tmp_path):
    lines = [f"Protein number {n} binds receptor {n * n}." for n in range(60)]
    task = task_of(tmp_path, *lines, *(line.replace("Protein", "<< PROTEIN >>") for line in lines))
    units = task.units(SELECTION)
    words = {text.replace("<< PROTEIN >>", "Protein") for text in units.texts}
    assert len(words) == len(units) == len(set(units.doc_ids)) > 50
    for batch in task.held_out_units(SELECTION):
        assert not words & {text.replace("<< PROTEIN >>", "Protein") for text in batch.texts}


def test_a_task_of_one_long_document_and_one_like_the_pool_are_told_of(topics, tmp_path, heard):
    random = np.random.default_rng(0)
    for name in ("steps", "book", "courts"):
        (tmp_path / name).mkdir()
    rank(topics, tmp_path / "steps")
    assert "as by chance" not in heard.text
    assert "most of the task" not in heard.text
    book = task_of(tmp_path / "book", one_document(CELLS, random, 80), "Short.")
    assert len(book.units(SELECTION)) >= 20, "the seed does not hold the book out"
    rank((book, topics[1]), tmp_path / "book")
    assert "most of the task is one document" in heard.text
    courts = task_of(tmp_path / "courts", *(one_document(COURTS, random, 3) for _ in range(60)))
    rank((courts, topics[1]), tmp_path / "courts")
    assert "recall at a budget of 0.2 is 0." in heard.text


class BadDetector:
    """A detector that ends its scores with a number that is none, or scores too often, or fails."""

    def __init__(self, fault):
        self.fault = fault

    def fit(self, X, y=None):
        if self.fault == "raises":
            raise ZeroDivisionError("by zero")
        return self

    def decision_function(self, X):
        scores = np.arange(float(len(X) * (2 if self.fault == "many" else 1)))
        scores[-1] = np.nan
        return scores


nan, many, raises = (partial(BadDetector, fault) for fault in ("nan", "many", "raises"))
BAD = [("absent", "a_module_that_is_not_there:X"), ("needs", f"{__name__}:BadDetector")]
BAD += [(name, f"{__name__}:{name}") for name in ("nan", "many", "raises")]


def test_broken_plug_ins_are_left_out_of_all_with_a_warning_and_refused_where_none_is_left(
    topics, tmp_path, monkeypatch, heard
):
    others = [
        entry.name
        for entry in entry_points(group="dana.detectors")
        if entry.name not in ("knn", "lof", "lda")
    ]
    monkeypatch.setattr(registry, "entry_points", claims(*BAD, ("knn", f"{__name__}:raises")))
    monkeypatch.setattr("dana.scoring.settings.LEFT_OUT", tuple(others))
    content = rank(topics, tmp_path, RankSettings())
    assert {row["name"] for row in content["detectors"]} == {"dana-lm:knn", "lof", "lda"}
    assert set(content["left_out"]) == {"absent", "needs", "nan", "many", "raises", "toy:knn"}
    for name, reason in {
        "absent": "'absent' of toy does not load",
        "nan": "detector 'nan' of .*: .*nan",
        "many": r"detector 'many' of .*: .*shape",
        "raises": "detector 'raises' of .*: ZeroDivisionError",
        "toy:knn": "detector 'toy:knn' of .*",
    }.items():
        assert re.search(reason, content["left_out"][name])
        assert f"detector  {name} is skipped: " in heard.text
    monkeypatch.setattr(registry, "entry_points", claims(*BAD))
    monkeypatch.setattr("dana.scoring.settings.LEFT_OUT", (*others, "knn", "lof", "lda"))
    with pytest.raises(
        PluginError, match=r"no detector could be ranked: .*'absent' of toy.*ZeroDivisionError"
    ):
        rank(topics, tmp_path / "none", RankSettings())


def test_a_pool_of_a_handful_of_units_is_refused(topics, tmp_path):
    (tmp_path / "few.txt").write_text("One.\n\nTwo.\n\nThree.", encoding="utf-8")
    pool = PoolText(pool_stage([str(tmp_path / "few.txt")], tmp_path / "pool"))
    with pytest.raises(ConfigError, match="units left for a sample"):
        rank((topics[0], pool), tmp_path)


def test_names_are_checked_before_any_work():
    with pytest.raises(ConfigError, match="detectors="):
        RankSettings([])
    with pytest.raises(ConfigError, match="detectors="):
        RankSettings(["knn", "knn"]).specs()
    assert set(RankSettings().specs()) >= {
        "iforest",
        "lof",
        "ocsvm",
        "knn",
        "pca",
        "robust_covariance",
    }
