"""Ranking: what is ranked is what is deployed, over documents; a broken plug-in costs only itself."""

from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from two_topics import CELLS, COURTS, SELECTION, one_document, write_scores

from dana.core import registry
from dana.core.artifacts import read_json
from dana.core.errors import ArtifactError, ConfigError, DataError, PluginError
from dana.scoring.inputs import TaskText
from dana.scoring.ranking import comparison as rank_fits
from dana.scoring.scoring import SAMPLES, build_selector
from dana.scoring.settings import RankSettings
from dana.selectors.detector import DetectorSelector
from dana.stages.rank import comparison_text, rank_stage, ranking_budget
from dana.stages.texts import task_stage

BUDGET = 0.2


def rank(opened, out, settings=None, selection=SELECTION):
    settings = settings or RankSettings(["knn"])
    return rank_stage(opened[0], opened[1], selection, settings, out / "ranking", BUDGET).manifest


@pytest.fixture
def fits(monkeypatch):
    """The selector, the number of task units and the general samples of every fit."""
    seen = []
    original = DetectorSelector.learn

    def watched(self, task, general, seed):
        seen.append((self, len(task), {name: len(rows) for name, rows in general.items()}, seed))
        return original(self, task, general, seed)

    monkeypatch.setattr(DetectorSelector, "learn", watched)
    return seen


@pytest.fixture
def held_out(monkeypatch):
    """Rows of every fold, and the groups of the task's units."""
    seen = SimpleNamespace(rows=[], groups=None)
    fold, of = rank_fits.Fold, rank_fits.bootstrap_counts

    def watched_fold(rows, *scores):
        seen.rows.append(rows)
        return fold(rows, *scores)

    def watched_groups(task, general, seed):
        seen.groups = task
        return of(task, general, seed)

    monkeypatch.setattr(rank_fits, "Fold", watched_fold)
    monkeypatch.setattr(rank_fits, "bootstrap_counts", watched_groups)
    return seen


def test_ranking_is_written_reused_and_refused_after_a_change(opened, tmp_path):
    settings = RankSettings(["knn", "pca", "lof"])
    content = rank(opened, tmp_path, settings)
    rows = {row["name"]: row for row in content["detectors"]}
    assert set(rows) == set(settings.detectors)
    assert rows[content["chosen"]]["tied"]
    for row in rows.values():
        assert 0 <= row["recall_low"] <= row["recall"] <= row["recall_high"] <= 1
    # an eighth of the general units is planted, and a fifth is within the budget: nearly all of the task is, too
    assert rows["knn"]["recall"] > 0.9
    assert 0.88 < rows["knn"]["auroc_mean"] < 0.97
    near = [{**row, "tied": True} for row in content["detectors"]]
    shown = comparison_text({**content, "detectors": near, "chosen": "knn"})
    assert "* knn" in " ".join(shown.split())
    assert "= pca" in " ".join(shown.split())
    assert "=: within one standard error" in shown
    table = tmp_path / "ranking" / "ranking.csv"
    assert pd.read_csv(table)["name"].tolist() == [row["name"] for row in content["detectors"]]
    written = table.stat().st_mtime_ns
    assert rank(opened, tmp_path, settings) == content
    assert table.stat().st_mtime_ns == written
    with pytest.raises(ArtifactError, match="folds: 5 there, 4 now"):
        rank(opened, tmp_path, replace(settings, folds=4))
    with pytest.raises(ArtifactError, match=r"budget: 0\.2 there, 0\.1 now"):
        rank_stage(*opened[:2], SELECTION, settings, tmp_path / "ranking", 0.1)
    assert ranking_budget(tmp_path / "ranking", 0.1) == BUDGET, "scoring takes the ranking as it is"
    assert ranking_budget(tmp_path / "nothing", 0.1) == 0.1
    samples = [{tuple(unit) for unit in ids} for ids in read_json(tmp_path / "ranking" / SAMPLES).values()]
    assert sum(map(len, samples)) == len(set().union(*samples))


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_what_is_ranked_is_what_score_deploys(texts, tmp_path, fits, share):
    selection = replace(SELECTION, general_share=share, geometry="l2")
    task, general, _ = write_scores(texts, tmp_path, "knn", selection)
    (deployed, units, samples, _), *_ = fits
    assert deployed == build_selector("detector", "knn", selection)
    identity = deployed.identity()
    assert ("contamination" in samples) == bool(share)
    fits.clear()
    content = rank((task, general), tmp_path, selection=selection)
    assert len(fits) == 5
    for selector, fitted_on, general_rows, _ in fits:
        assert selector.identity() == identity
        assert 0.7 * units < fitted_on < 0.9 * units
        assert general_rows.get("contamination", 0) == int(fitted_on * share)
    there, here = (
        read_json(tmp_path / "scores" / SAMPLES),
        read_json(tmp_path / "ranking" / SAMPLES),
    )
    assert content["counts"]["negatives"] == len(here["negatives"]) > 100
    assert there.get("contamination") == here.get("contamination")
    assert there["geometry"][: len(here["geometry"])] == here["geometry"]  # of a small corpus the rest are negatives
    assert len(here["geometry"]) >= len(here["negatives"])


def test_a_small_corpus_is_shared_by_geometry_background_and_negatives(opened, tmp_path):
    content = rank(opened, tmp_path, RankSettings(["lda", "knn"]))
    counts = content["counts"]
    assert min(counts[name] for name in ("geometry", "background", "negatives")) >= 50
    drawn = [{tuple(unit) for unit in ids} for ids in read_json(tmp_path / "ranking" / SAMPLES).values()]
    assert sum(map(len, drawn)) == len(set().union(*drawn)), "no general unit is scored by what was fitted on it"
    assert {row["name"]: row["auroc_mean"] > 0.9 for row in content["detectors"]} == {"lda": True, "knn": True}


def test_folds_hold_out_whole_documents_and_every_repetition_has_its_own(opened, tmp_path, held_out, fits):
    content = rank(opened, tmp_path, RankSettings(["knn"], seeds=3))
    assert content["counts"]["task_groups"] == content["counts"]["task_documents"] < content["counts"]["task_units"]
    repetitions = [held_out.rows[start : start + 5] for start in (0, 5, 10)]
    for rows in repetitions:
        assert sorted(np.concatenate(rows)) == list(range(held_out.groups.size))
        parts = [set(held_out.groups[part]) for part in rows]
        assert sum(map(len, parts)) == len(set().union(*parts))
    firsts = {tuple(rows[0]) for rows in repetitions}
    assert len(firsts) == 3
    assert len({seed for *_, seed in fits}) == 15


def test_the_papers_protocol_splits_by_unit_fits_on_the_task_alone_and_chooses_by_f1(
    opened, tmp_path, fits, monkeypatch
):
    splits = []
    original = rank_fits.split
    monkeypatch.setattr(rank_fits, "split", lambda units, seed: splits.append(original(units, seed)) or splits[-1])
    settings = RankSettings(["knn", "pca"], protocol="paper", seeds=2, prevalence=0.5)
    content = rank(opened, tmp_path, settings, replace(SELECTION, general_share=0.1))
    units = content["counts"]["task_units"]
    assert content["counts"]["negatives/0"] == round(0.1 * units)
    assert [(rows, list(general)) for _, rows, general, _ in fits] == 4 * [(units - round(0.1 * units), ["geometry"])]
    chosen = {tuple(part) for _, part in splits}
    assert len(chosen) == 2, "a split for each repetition, the same for each detector"
    best = max(content["detectors"], key=lambda row: (row["f1_mean"], row["auroc_mean"]))
    assert content["chosen"] == best["name"]
    assert "recall" not in best
    assert "recall" not in comparison_text(content)


def test_units_with_the_same_words_are_fitted_on_once_and_not_held_out(tmp_path):
    lines = [f"Protein number {n} binds receptor {n * n}." for n in range(60)]
    marked = [line.replace("Protein", "<< PROTEIN >>") for line in lines]
    (tmp_path / "task.txt").write_text("\n\n".join([*lines, *marked]), encoding="utf-8")
    task = TaskText(task_stage(str(tmp_path / "task.txt"), tmp_path / "task"))
    found = task.units(SELECTION)
    words = {text.replace("<< PROTEIN >>", "Protein") for text in found.texts}
    assert len(words) == len(found) == len(set(found.doc_ids)) > 50
    for batch in task.held_out_units(SELECTION):
        assert not words & {text.replace("<< PROTEIN >>", "Protein") for text in batch.texts}


def test_a_task_of_one_long_document_is_held_out_in_stretches_and_says_so(opened, tmp_path, heard):
    random = np.random.default_rng(0)
    (tmp_path / "book.txt").write_text(one_document(CELLS, random, 80) + "\n\nShort.", encoding="utf-8")
    task = TaskText(task_stage(str(tmp_path / "book.txt"), tmp_path / "task", seed=3))
    if len(task.units(SELECTION)) < 20:
        pytest.fail("the seed holds the book out")
    rank((task, opened[1]), tmp_path)
    assert "most of the task is one document" in heard.text


def test_a_task_that_is_like_the_general_text_is_told_of(opened, tmp_path, heard):
    random = np.random.default_rng(0)
    text = "\n\n".join(one_document(COURTS, random, 3) for _ in range(60))
    (tmp_path / "courts.txt").write_text(text, encoding="utf-8")
    task = TaskText(task_stage(str(tmp_path / "courts.txt"), tmp_path / "task"))
    rank(opened, tmp_path / "cells")
    assert "as by chance" not in heard.text
    rank((task, opened[1]), tmp_path)
    assert "recall at a budget of 0.2 is 0." in heard.text


def claims(*more):
    """Entry points as installed, and others that a package named toy claims."""
    owner = SimpleNamespace(name="toy")

    def found(group):
        real = list(entry_points(group=group))
        ours = [entry for entry in real if entry.dist and entry.dist.name == "dana"]
        return ours + [EntryPoint(*one, group)._for(owner) for one in more] if group == "dana.detectors" else real

    return found


BAD = [
    ("absent", "a_module_that_is_not_there:X"),
    ("needs", "bad_detectors:NeedsAnArgument"),
    ("nan", "bad_detectors:NotANumber"),
    ("many", "bad_detectors:TooMany"),
    ("raises", "bad_detectors:Raises"),
]


def test_broken_plug_ins_are_left_out_of_all_with_a_warning(opened, tmp_path, monkeypatch, heard):
    slow = ("iforest", "robust_covariance")
    monkeypatch.setattr(registry, "entry_points", claims(*BAD, ("knn", "bad_detectors:Raises")))
    monkeypatch.setattr("dana.scoring.settings.LEFT_OUT", ("pyod", *slow))
    content = rank(opened, tmp_path, RankSettings())
    contrastive = {"contrastive_knn", "density_ratio", "distance", "lda", "svm"}
    assert {row["name"] for row in content["detectors"]} == {"dana:knn", "lof", "ocsvm", "pca", "cosine"} | contrastive
    assert set(content["left_out"]) == {"absent", "needs", "nan", "many", "raises", "toy:knn"}
    for name, reason in {
        "absent": "'absent' of toy does not load",
        "nan": "detector 'nan' of bad_detectors: .*nan",
        "many": r"detector 'many' of bad_detectors: .*shape",
        "raises": "detector 'raises' of bad_detectors: ZeroDivisionError",
        "toy:knn": "detector 'toy:knn' of bad_detectors",
    }.items():
        with pytest.raises(AssertionError, match=reason):
            raise AssertionError(content["left_out"][name])
        assert f"detector  {name} is skipped: " in heard.text


@pytest.mark.parametrize("name", [name for name, _ in BAD])
def test_a_broken_plug_in_that_is_asked_for_is_an_error(opened, tmp_path, monkeypatch, name):
    monkeypatch.setattr(registry, "entry_points", claims(*BAD))
    with pytest.raises((PluginError, ConfigError), match=name):
        rank(opened, tmp_path, RankSettings(["knn", name]))
    assert not list(tmp_path.iterdir())


def test_when_no_detector_is_left_each_reason_is_told(opened, tmp_path, monkeypatch):
    everything = [entry.name for entry in entry_points(group="dana.detectors")]
    monkeypatch.setattr(registry, "entry_points", claims(*BAD))
    monkeypatch.setattr("dana.scoring.settings.LEFT_OUT", tuple(everything))
    with pytest.raises(PluginError, match=r"no detector could be ranked: .*'absent' of toy.*ZeroDivisionError"):
        rank(opened, tmp_path, RankSettings())


def test_a_general_corpus_of_a_handful_of_units_is_refused(opened, tmp_path):
    from dana.scoring.inputs import GeneralCorpus
    from dana.stages.texts import corpus_stage

    (tmp_path / "few.txt").write_text("One.\n\nTwo.\n\nThree.", encoding="utf-8")
    general = GeneralCorpus(corpus_stage([str(tmp_path / "few.txt")], tmp_path / "corpus"))
    with pytest.raises((ConfigError, DataError), match="units left for a sample"):
        rank((opened[0], general), tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seeds": 0}, "seeds=0: must be at least 1"),
        ({"folds": 1}, "folds=1: must be at least 2"),
        ({"protocol": "loo"}, "protocol='loo': must be one of grouped, paper"),
        ({"prevalence": float("nan")}, r"prevalence=nan: must be in \(0, 1\)"),
        ({"detectors": []}, "detectors="),
    ],
)
def test_rank_settings_are_checked_before_any_work(settings, message):
    with pytest.raises(ConfigError, match=message):
        RankSettings(**settings)


def test_names_are_checked_before_any_work():
    with pytest.raises(ConfigError, match="detectors="):
        RankSettings(["knn", "knn"]).specs()
    assert set(RankSettings().specs()) >= {"iforest", "lof", "ocsvm", "knn", "pca", "robust_covariance"}
