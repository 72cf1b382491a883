"""From two piles of text to scores; what an embedding store holds is not encoded again."""

import json
from dataclasses import replace

import datasets
import pandas as pd
import pyarrow.parquet as pq
import pytest
from two_topics import PLANTED, POOL, SELECTION, frame_of, write_scores, write_weights_of

from dana.core.artifacts import open_artifact
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.schemas import HELD_OUT_TARGET, iterate_documents
from dana.scoring.inputs import TargetText
from dana.scoring.scoring import Scoring, build_selector
from dana.scoring.settings import RankSettings, Selection
from dana.stages.rank import rank_stage
from dana.stages.score import run_score
from dana.stages.settings import RunSettings
from dana.stages.texts import held_out_stage, target_stage
from dana.stages.training import TrainingData
from dana.weighting.selection import SELECTED_TEXT


def ids_of(folder):
    return {document.doc_id for document in iterate_documents(folder)}


def test_the_task_is_parted_into_fit_and_held_out_once_and_for_all(topics, texts, tmp_path):
    task = topics[0].artifact
    fit, held_out = (ids_of(task.path / part) for part in ("fit", "held_out"))
    assert not fit & held_out
    assert len(fit) + len(held_out) == 60
    assert 0 < len(held_out) <= 15
    lines = (texts / "cells.txt").read_text(encoding="utf-8").split("\n\n")
    (tmp_path / "cells.txt").write_text("\n\n".join(lines[::-1]), encoding="utf-8")
    reverse = target_stage(str(tmp_path / "cells.txt"), tmp_path / "target")
    assert ids_of(reverse.path / "held_out") == held_out


def test_every_unit_is_scored_once_and_its_span_holds_it(topics):
    scores = frame_of(topics[2] / "scores")
    documents = {document.doc_id: document for document in iterate_documents(topics[2] / "pool")}
    assert list(dict.fromkeys(scores["doc_id"])) == list(documents)
    for doc_id, rows in scores.groupby("doc_id"):
        assert (
            rows["unit"].tolist()
            == list(range(len(rows)))
            == list(range(1 + int(doc_id.split("-")[1]) % 9))
        )
        text = documents[doc_id].text
        assert " ".join(text[a:b] for a, b in zip(rows["start"], rows["end"], strict=True)) == text
    manifest = open_artifact(topics[2] / "scores", "scores").manifest
    assert manifest["mean"] == pytest.approx(scores["score"].mean())
    assert manifest["std"] == pytest.approx(scores["score"].std(ddof=0))
    assert manifest["counts"]["units"] == len(scores)
    held_out = pq.read_table(topics[2] / "scores" / HELD_OUT_TARGET)["score"].to_numpy()
    assert held_out.max() < scores.query("source == 'court'")["score"].min()


@pytest.mark.parametrize("detector", ["knn", "lof", "ocsvm", "robust_covariance"])
def test_planted_documents_score_lower(texts, tmp_path, detector):
    _, _, out = write_scores(texts, tmp_path, detector)
    scores = frame_of(out / "scores").groupby("doc_id")["score"].mean()
    is_planted = scores.index.str.startswith("planted")
    assert is_planted.sum() == PLANTED
    assert scores[is_planted].max() < scores[~is_planted].min()


def test_other_libraries_open_the_tables_folders_as_they_are(topics, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    weights = write_weights_of(topics, tmp_path / "weights").path
    assert (weights / SELECTED_TEXT).is_file()
    for folder, text in (
        (topics[2] / "pool", "text"),
        (topics[2] / "scores", "score"),
        (weights, "weight"),
    ):
        frame = frame_of(folder)
        assert pd.read_parquet(folder).equals(frame), folder
        for arguments in ({"path": "parquet", "data_dir": str(folder)}, {"path": str(folder)}):
            table = datasets.load_dataset(
                **arguments, split="train", cache_dir=str(tmp_path / "cache")
            )
            assert table[text] == frame[text].tolist(), arguments


def test_two_runs_in_different_folders_give_the_same_bytes(texts, tmp_path):
    for name in ("one", "two"):
        run = write_scores(texts, tmp_path / name, "iforest:trees=20")
        for policy in ("segments", "sampled", "sigmoid"):
            write_weights_of(run, run[2] / policy, policy=policy)
        held_out_stage(run[2] / "pool", run[2] / "held_out")
    files = sorted(
        path.relative_to(tmp_path / "one")
        for path in (tmp_path / "one").rglob("*")
        if path.is_file()
    )
    assert len(files) > 20
    for file in files:
        one, two = (tmp_path / name / file for name in ("one", "two"))
        if file.name == "manifest.json":
            manifests = [json.loads(path.read_text(encoding="utf-8")) for path in (one, two)]
            for manifest in manifests:
                assert manifest.pop("seconds") >= 0
            assert manifests[0] == manifests[1]
        else:
            assert one.read_bytes() == two.read_bytes(), file


def test_pool_text_is_held_out_by_a_hash_and_stays_in_the_pool(topics, tmp_path):
    artifact = held_out_stage(topics[2] / "pool", tmp_path / "h")
    ids = ids_of(artifact.path)
    assert len(ids) == (PLANTED + POOL) // 20
    assert ids < ids_of(topics[2] / "pool")
    assert ids != ids_of(held_out_stage(topics[2] / "pool", tmp_path / "o", seed=1).path)
    (tmp_path / "pool").symlink_to(topics[2] / "pool")
    with pytest.raises(ArtifactError, match="o was made from other settings"):
        TrainingData(tmp_path / "pool", None, tmp_path, tmp_path / "o").hold_out()
    TrainingData(
        topics[2] / "pool", None, tmp_path, tmp_path / "o"
    ).hold_out()  # an arm may train on other text


def test_too_small_a_task_is_refused_with_its_size(topics, tmp_path):
    (tmp_path / "small.txt").write_text(
        "\n".join(f"Step number {n}." for n in range(18)), encoding="utf-8"
    )
    task = TargetText(target_stage(str(tmp_path / "small.txt"), tmp_path / "target"))
    selector = build_selector("detector", "knn", SELECTION)
    with pytest.raises(
        DataError, match=r"the target text has 1\d units; scoring needs at least 20"
    ):
        Scoring(task, topics[1], SELECTION, selector, tmp_path / "scores").run()
    assert not (tmp_path / "scores").exists()
    with pytest.raises(DataError, match="units"):
        rank_stage(task, topics[1], SELECTION, RankSettings(["knn"]), tmp_path / "rank", 0.2)


def test_selectors_see_no_entity_markers_and_the_text_of_the_task_keeps_them(tmp_path):
    lines = [f"<< Step {n} >> binds [[ factor {n} ]]." for n in range(40)]
    (tmp_path / "marked.txt").write_text("\n".join(lines), encoding="utf-8")
    task = TargetText(target_stage(str(tmp_path / "marked.txt"), tmp_path / "target"))
    held_out = [text for batch in task.held_out_units(SELECTION) for text in batch.texts]
    assert held_out
    assert {*task.units(SELECTION).texts, *held_out} == {
        f"Step {n} binds factor {n} ." for n in range(40)
    }
    stored = [
        document.text
        for part in ("fit", "held_out")
        for document in iterate_documents(tmp_path / "target" / part)
    ]
    assert sorted(stored) == sorted(lines)


def test_of_a_handful_of_documents_one_is_held_out_and_of_one_there_is_nothing_to_fit_on(tmp_path):
    (tmp_path / "few.txt").write_text("One.\nTwo.\nThree.", encoding="utf-8")
    (tmp_path / "one.txt").write_text("Only this.", encoding="utf-8")
    for seed in range(8):
        counts = target_stage(str(tmp_path / "few.txt"), tmp_path / f"{seed}", seed=seed).manifest[
            "counts"
        ]
        assert (counts["fit"], counts["held_out"]) in ((1, 2), (2, 1))
    with pytest.raises(DataError, match="1 distinct documents"):
        target_stage(str(tmp_path / "one.txt"), tmp_path / "target")
    assert not (tmp_path / "target").exists()


def settings(texts, out, store, pool="pool.jsonl", task="cells.txt", **selection):
    selection = replace(SELECTION, store=store and str(store), **selection)
    return RunSettings(
        str(out), str(texts / task), [str(texts / pool)], detector="knn", selection=selection
    )


def test_a_second_task_encodes_only_its_own_text(texts, tmp_path, encoder_texts):
    run_score(settings(texts, tmp_path / "one", tmp_path / "store"))
    assert len(encoder_texts) == len(set(encoder_texts)) > 500
    encoder_texts.clear()
    lines = (texts / "cells.txt").read_text(encoding="utf-8").split("\n\n")
    (tmp_path / "other.txt").write_text(
        "\n\n".join(line.replace("ell", "all") for line in lines), encoding="utf-8"
    )
    run_score(settings(texts, tmp_path / "two", tmp_path / "store", task=tmp_path / "other.txt"))
    documents = {
        document.doc_id: document.text for document in iterate_documents(tmp_path / "one" / "pool")
    }
    scores = frame_of(tmp_path / "one" / "scores").itertuples()
    assert encoder_texts
    assert not {documents[row.doc_id][row.start : row.end] for row in scores} & set(encoder_texts)


def test_more_documents_encode_only_themselves(texts, tmp_path, encoder_texts):
    lines = (texts / "pool.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "less.jsonl").write_text("".join(lines[:80]), encoding="utf-8")
    run_score(settings(texts, tmp_path / "less", tmp_path / "store", pool=tmp_path / "less.jsonl"))
    encoder_texts.clear()
    run_score(settings(texts, tmp_path / "more", tmp_path / "store"))
    new = [json.loads(line) for line in lines[80:]]
    assert 0 < len(encoder_texts) <= sum(document["text"].count(".") for document in new)
    assert all(any(text in document["text"] for document in new) for text in encoder_texts)


def test_the_place_of_a_store_changes_no_byte_and_rounding_only_a_little(texts, tmp_path):
    def scores(name, store, **selection):
        artifact = run_score(
            settings(texts, tmp_path / name, store and tmp_path / store, **selection)
        )
        return artifact.fingerprint, (artifact.path / "part-00000.parquet").read_bytes()

    runs = [
        scores(name, store) for name, store in (("a", "x"), ("b", "x"), ("c", "y/z"))
    ]  # filled, read, elsewhere
    assert runs[0] == runs[1] == runs[2]
    scores("exact", None)
    scores("int8", "x", store_dtype="int8")
    exact = frame_of(tmp_path / "exact" / "scores")["score"]
    for name, most_error in (("a", 1e-3), ("int8", 2e-2)):
        assert (frame_of(tmp_path / name / "scores")["score"] - exact).abs().max() < most_error
    with pytest.raises(ArtifactError, match=r'encoder[.]stored: null there, "int8" now'):
        scores("exact", "x", store_dtype="int8")
    plain = Selection().identity()
    assert {"store", "store_dtype"}.isdisjoint(plain)
    assert Selection(store_dtype="int8").identity() == plain
    assert Selection(store="x").identity() == {**plain, "store_dtype": "float16"}
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="store="):
        Selection(store=str(tmp_path / "file"))
