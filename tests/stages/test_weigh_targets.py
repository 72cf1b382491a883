"""Weights for several runs on one pool: a target's share of the kept text, and what is refused."""

import json
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from two_topics import CELLS, COURTS, frame_of, one_document, read_selected

import dana
from dana.cli.main import main
from dana.core.errors import ConfigError, Contradiction
from dana.core.files import file_digest
from dana.core.schemas import iterate_documents, part_files, read_table
from dana.stages.weigh import weigh_targets_stage
from dana.train.examples import weights_by_document
from dana.weighting.pool import Pool
from dana.weighting.settings import WeighSettings

STARS = ["orbit", "planet", "comet", "galaxy", "nebula", "quasar"]
STARS += ["pulsar", "telescope", "crater", "eclipse", "meteor", "solstice"]
SCORING = {"encoder": "hashing:dims=64,words=1", "detector": "knn"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Score two runs, of texts on cells and on stars, on a pool with 30 documents of each among 240."""
    folder = tmp_path_factory.mktemp("targets")
    random = np.random.default_rng(0)
    kinds = random.permutation(["cells"] * 30 + ["stars"] * 30 + ["courts"] * 180).tolist()
    vocabulary = {"cells": CELLS, "stars": STARS, "courts": COURTS}
    records = [
        {
            "id": f"{kind}-{n}",
            "source": kind,
            "text": one_document(vocabulary[kind], random, 1 + n % 5),
        }
        for n, kind in enumerate(kinds)
    ]
    (folder / "pool.jsonl").write_text(
        "".join(json.dumps(record) + "\n" for record in records), encoding="utf-8"
    )
    for name in ("cells", "stars"):
        texts = "\n\n".join(one_document(vocabulary[name], random, 3) for _ in range(100))
        (folder / f"{name}.txt").write_text(texts, encoding="utf-8")
        dana.score(
            folder / f"{name}.txt", folder / "pool.jsonl", out=folder / "runs" / name, **SCORING
        )
    return [folder / "runs" / "cells", folder / "runs" / "stars"]


def write_targets(runs, folder, proportions=(0.75, 0.25), **settings):
    return weigh_targets_stage(
        runs, proportions, WeighSettings(**{"gamma": 2, "beta": 0.15, **settings}), folder
    )


@pytest.mark.parametrize("policy", ["segments", "sampled"])
def test_each_target_keeps_its_own_text_in_its_proportion(runs, tmp_path, policy):
    artifact = write_targets(runs, tmp_path / "w", policy=policy, sharpness=20.0)
    weights = frame_of(artifact.path)
    selection = weights[weights["weight"] > 0]
    share = selection["target"].value_counts(normalize=True)
    assert share["cells"] == pytest.approx(0.75, abs=0.03)
    assert (selection["target"] == selection["source"]).mean() > 0.9
    assert weights.loc[weights["weight"] == 0, "target"].isna().all()
    assert not weights.duplicated(["doc_id", "unit"]).any()
    assert round(0.15 * len(weights)) - 4 < len(selection) <= round(0.15 * len(weights))
    lines = read_selected(artifact.path)
    documents = {
        document.doc_id: document.text for document in iterate_documents(runs[0] / "corpus")
    }
    assert all(
        line["text"] == documents[line["doc_id"]][line["start"] : line["end"]] for line in lines
    )
    assert sum(line["last_unit"] - line["first_unit"] + 1 for line in lines) == len(selection)
    assert {line["target"] for line in lines} == {"cells", "stars"}
    scores = {
        run.name: frame_of(run / "scores").set_index(["doc_id", "unit"])["score"] for run in runs
    }
    for line in lines:
        units = [
            (line["doc_id"], unit) for unit in range(line["first_unit"], line["last_unit"] + 1)
        ]
        assert line["score"] == pytest.approx(scores[line["target"]].loc[units].mean())
    assert artifact.manifest["targets"]["cells"]["weight"] == (selection["target"] == "cells").sum()
    assert artifact.manifest["targets"]["stars"]["in_domain"]["kept"]["value"] > 0.8


def test_a_target_that_gets_nothing_is_warned_of(runs, tmp_path, heard):
    artifact = write_targets(
        runs, tmp_path / "w", beta=1.0, gamma=10**6, stream=True
    )  # one segment
    assert set(frame_of(artifact.path)["target"]) == {"cells"}
    cells, stars = (artifact.manifest["targets"][name]["in_domain"] for name in ("cells", "stars"))
    assert cells["recall"]["value"] == 1
    assert stars == {
        "unknown": "the selection would hold no more held-out task text than a random one"
    }
    assert heard.text.count("nothing is kept for target") == 1
    assert "nothing is kept for target stars: others take all that it wants" in heard.text


def test_targets_share_out_a_budget_in_tokens(runs, tmp_path, tiny_tokenizer, byte_level):
    folder, artifacts = tmp_path / "tokenizer", []
    settings = {"budget": "1000 tokens", "gamma": 1, "tokenizer": str(folder)}
    # A space between units is a byte of no unit.
    for tokenizer, low, high in ((tiny_tokenizer, 900, 1000), (byte_level, 850, 1100)):
        shutil.rmtree(folder, ignore_errors=True)
        tokenizer.save_pretrained(folder)
        artifacts.append(write_targets(runs, tmp_path / f"w{high}", **settings))
        tokens = {"cells": 0, "stars": 0}
        for line in read_selected(artifacts[-1].path):
            tokens[line["target"]] += len(
                tokenizer(line["text"], add_special_tokens=False)["input_ids"]
            )
        assert low < sum(tokens.values()) <= high
        assert tokens["cells"] / sum(tokens.values()) == pytest.approx(0.75, abs=0.02)
    assert artifacts[0].fingerprint != artifacts[1].fingerprint
    with pytest.raises(Contradiction, match=r"tokenizer: .* there, .* now"):
        write_targets(runs, artifacts[0].path, **settings)
    assert write_targets(runs, artifacts[1].path, **settings).manifest == artifacts[1].manifest
    assert set(write_targets(runs, tmp_path / "units").manifest["depends_on"]) == {
        "scores",
        "proportions",
        "settings",
    }


@pytest.mark.parametrize("policy", ["segments", "sampled", "sigmoid"])
def test_the_order_of_the_runs_changes_no_byte(runs, tmp_path, policy):
    one = write_targets(runs, tmp_path / "one", policy=policy)
    two = write_targets(runs[::-1], tmp_path / "two", proportions=(0.25, 0.75), policy=policy)
    assert one.fingerprint == two.fingerprint
    assert one.manifest["counts"] == two.manifest["counts"]
    assert one.manifest["targets"] == two.manifest["targets"]
    assert [file_digest(part) for part in part_files(one.path)] == [
        file_digest(part) for part in part_files(two.path)
    ]


def test_runs_that_do_not_belong_together_are_refused(runs, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"the same target as .*cells; give each once"):
        write_targets([runs[0], runs[0]], tmp_path / "w")
    other = tmp_path / "other"
    (tmp_path / "pool.txt").write_text("A cell divides.\nA court rules.", encoding="utf-8")
    dana.score(runs[0].parent.parent / "cells.txt", tmp_path / "pool.txt", out=other, **SCORING)
    with pytest.raises(
        ConfigError, match=r"other: its scores are not of .*corpus; score the same general text"
    ):
        write_targets([runs[0], other], tmp_path / "w")
    table = read_table(runs[1] / "scores")
    start = pa.array(table["start"].to_numpy() + (np.arange(len(table)) == 700))
    moved = table.set_column(table.schema.get_field_index("start"), "start", start)
    for stars in (table.slice(1), moved):
        pools = {runs[0] / "scores": Pool(runs[0] / "scores"), runs[1] / "scores": Pool(stars)}
        monkeypatch.setattr("dana.stages.weigh.scored_pool", pools.get)
        with pytest.raises(
            ConfigError, match=r"stars: cut into other units than .*cells; score both with the same"
        ):
            write_targets(runs, tmp_path / "w")
    assert not (tmp_path / "w").exists()


def test_the_command_and_the_function_leave_the_same_table(runs, tmp_path, capsys):
    flags = ["--proportions", "0.75,0.25", "--gamma", "2", "--beta", "0.15"]
    assert main(["weigh", *map(str, runs), *flags, "--out", str(tmp_path / "w")]) == 0
    stdout = capsys.readouterr().out
    assert all(
        text in stdout for text in ("cells (75%):", "stars (25%):", f"dana adapt {runs[0]} ")
    )
    table = dana.weigh(runs, proportions=[0.75, 0.25], to=tmp_path / "v", gamma=2, beta=0.15)
    pd.testing.assert_frame_equal(table, frame_of(tmp_path / "w"))
    rows = pa.concat_tables(
        [rows for _, rows in weights_by_document(tmp_path / "w")]
    )  # as training reads them
    np.testing.assert_array_equal(rows["weight"], table["weight"])
    assert (
        main(
            [
                "weigh",
                *map(str, runs),
                "--proportions",
                "0.5,0.5",
                *flags[2:],
                "--out",
                str(tmp_path / "w"),
            ]
        )
        == 2
    )
    assert "proportions.cells: 0.75 there, 0.5 now" in capsys.readouterr().err
