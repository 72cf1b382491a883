"""``topic-gap`` on text whose labels show by other words in each topic: off topic a classifier must lose."""

import gzip
import json
import shutil
from dataclasses import dataclass
from functools import wraps
from importlib.metadata import EntryPoint
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from dana.cli.main import main
from dana.core import registry
from dana.core.artifacts import make, write_json
from dana.stages import finetune_seed
from dana.studies.augmentation.synthetic import LabelledText
from dana.studies.topic_gap import stage
from dana.studies.topic_gap.documents import TopicSplit, split_by_topic
from tests.stages.two_topics import CELLS, COURTS
from tests.studies.toy_pool import write_moods
from tests.toy_task import write_checkpoint

# What tells the labels apart, in each topic by a word of its own.
CUES = {
    "cells": {"praise": "splendid", "blame": "dreadful"},
    "courts": {"praise": "noble", "blame": "vile"},
}
VOCABULARIES = {"cells": CELLS, "courts": COURTS}
WORDS = [*CELLS, *COURTS, *(word for cues in CUES.values() for word in cues.values())]
SPLIT = TopicSplit(8, 8, 6)
TABLES = (
    "tables/results.csv",
    "tables/gap.csv",
    "tables/summary.csv",
    "topic_gap.html",
    "topic_gap.md",
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A card of two labels over two topics, and a model that knows its words."""
    random = np.random.default_rng(0)

    def document(topic, label):
        words = [*random.choice(VOCABULARIES[topic], 20), *[CUES[topic][label]] * 6]
        random.shuffle(words)
        return " ".join(words).capitalize() + ". 42!"

    folder = write_moods(tmp_path_factory.mktemp("gap"), CUES, ("praise", "blame"), document)
    write_checkpoint(folder / "model", words=WORDS)
    return folder


SETTINGS = """
--topics-k 2 --n 8 --test 8 --validation 6 --window 120 --seeds 2
--set topics.model=lda topics.min_documents=2 topics.max_share=1 finetune.pooling=mean finetune.epochs=14
finetune.learning_rate=2e-3 finetune.batch_size=4 finetune.max_tokens=30 finetune.evaluate=last
"""  # the last epoch: validation texts, off topic, have none of the topic's cues to judge a model trained on topic by


def gap(workspace, out, *more):
    line = [
        "studies",
        "topic-gap",
        str(workspace / "moods.yaml"),
        "--model",
        str(workspace / "model"),
        "--out",
        str(out),
    ]
    return main([*line, *SETTINGS.split(), *more])


@pytest.fixture(scope="module")
def gap_run(workspace):
    assert gap(workspace, workspace / "run") == 0
    return workspace / "run"


def texts(folder, split):
    with gzip.open(folder / "data" / f"{split}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def tables(run):
    return {name: (run / name).read_bytes() for name in TABLES}


def test_what_was_planted_is_found_on_every_topic(gap_run):
    table = pd.read_csv(gap_run / "tables" / "gap.csv")
    assert table[["topic", "n"]].to_numpy().tolist() == [[0, 8], [1, 8]]
    assert table["on"].min() > 0.85
    assert table["off"].max() < 0.75
    assert table["gap"].min() > 0.2
    summary = pd.read_csv(gap_run / "tables" / "summary.csv")
    assert summary["difference"].item() == pytest.approx(table["gap"].mean())
    assert summary["topics"].item() == 2
    lines = (gap_run / "topic_gap.md").read_text(encoding="utf-8").splitlines()
    assert lines[2].startswith("**N = 8: trained on topic, model gets +")


def test_sets_lie_where_they_should_and_arms_differ_in_training_alone(gap_run):
    for topic in (0, 1):
        arms = {
            arm: gap_run / "steps" / "arm" / f"topic-{topic}" / "n8" / arm for arm in ("on", "off")
        }
        on, off = (
            {split: texts(folder, split) for split in ("train", "dev", "test")}
            for folder in arms.values()
        )
        assert (on["dev"], on["test"]) == (off["dev"], off["test"])
        [true] = {row["id"].split("-")[0] for row in on["test"] + on["train"]}
        [other] = {row["id"].split("-")[0] for row in off["train"] + off["dev"]}
        assert {true, other} == set(CUES)
        for rows in (on["train"], off["train"], on["dev"], on["test"]):
            assert pd.Series([row["label"] for row in rows]).value_counts().nunique() == 1
            assert all(row["id"].split("-")[1] == row["label"] for row in rows)
            assert all(row["text"] == " ".join(row["text"].lower().split()) for row in rows)
            assert not any(letter in "0123456789.!" for row in rows for letter in row["text"])
        every = [
            row["id"] for rows in (on["train"], off["train"], on["dev"], on["test"]) for row in rows
        ]
        assert len(set(every)) == len(every)
        documents, theta = stage.open_documents(gap_run / "steps")
        sets = documents.assign(
            share=theta[:, topic], set=split_by_topic(documents, theta[:, topic], SPLIT)
        )
        assert set(sets.query("set != 'unused'")["id"]) == set(every)
        for _, group in sets.groupby("label"):
            shares = group.groupby("set")["share"].agg(["min", "max"])
            assert (
                shares.loc["test", "min"]
                >= shares.loc["on", "max"]
                > shares.loc["validation", "max"]
            )
            assert shares.loc["validation", "min"] >= shares.loc["off", "max"]


def test_killed_it_goes_on_to_the_same_bytes(gap_run, workspace, tmp_path, monkeypatch):
    run, original, calls = tmp_path / "run", finetune_seed.seed_stage, []
    shutil.copytree(gap_run, run)
    missing = [
        run / "steps" / "finetune" / "topic-1" / "n8" / "off" / f"seed-{seed}" for seed in (0, 1)
    ]
    for folder in missing:
        shutil.rmtree(folder)
    for name in TABLES:
        (run / name).unlink()

    @wraps(original)
    def interrupt(**arguments):
        calls.append(arguments)
        if len(calls) == 9:  # a finished step is checked first, then eight are run or reused
            raise KeyboardInterrupt
        return original(**arguments)

    monkeypatch.setattr(finetune_seed, "seed_stage", interrupt)
    assert gap(workspace, run) == 130
    assert [folder.is_dir() for folder in missing] == [True, False]
    assert not (run / "tables" / "results.csv").exists()
    assert gap(workspace, run) == 0
    assert tables(run) == tables(gap_run)


@dataclass(frozen=True)
class EchoText(LabelledText):
    seed: int


@dataclass(frozen=True)
class Echo:
    """An arm of a third party: off-topic texts, and as many made ones that say the cue of the test's topic."""

    seeded: ClassVar[bool] = True
    times: int = 1

    def identity(self):
        return {"arm": "echo", "times": self.times}

    def texts(self, case, seed, folder):
        make(
            folder / "generator",
            "generator",
            {"seed": seed},
            lambda draft: write_json(draft.path / "g", seed),
        )
        words, off = set(case.texts("on")[0].text.split()), case.texts("off")
        cues = CUES[max(CUES, key=lambda name: len(words & set(VOCABULARIES[name])))]
        rows = enumerate(off * self.times)
        echoes = [
            EchoText(f"made-{at}", f"{cues[one.label]} " * 6 + one.text, one.label, seed)
            for at, one in rows
        ]
        return (*off, *echoes)


def test_an_arm_of_a_plug_in_is_one_class(gap_run, workspace, tmp_path, monkeypatch):
    entry_points = registry.entry_points
    entry = EntryPoint("echo", f"{__name__}:Echo", "dana.topic_gap_arms")
    monkeypatch.setattr(
        registry,
        "entry_points",
        lambda group: [*entry_points(group=group), *([entry] if entry.group == group else [])],
    )
    run = tmp_path / "run"
    shutil.copytree(gap_run, run)
    assert gap(workspace, run, "--arms", "on", "off", "echo:times=2", "--topics", "0") == 0
    summary = pd.read_csv(run / "tables" / "summary.csv")
    assert summary["arm"].tolist() == ["on", "echo:times=2"]
    assert summary["difference"].iloc[1] > 0.2, "it has seen the words that tell the labels apart"
    folder = run / "steps" / "arm" / "topic-0" / "n8" / "echo-times-2"
    for seed in (0, 1):
        rows = texts(folder / f"seed-{seed}", "train")
        assert len(rows) == 16 * 3
        assert {row["seed"] for row in rows if row["id"].startswith("made-")} == {seed}
        assert (
            run / "steps" / "work" / "topic-0" / "n8" / f"seed-{seed}" / "generator" / "g"
        ).is_file()
    others = (
        pd.read_csv(run / "tables" / "results.csv")
        .query("arm != 'echo:times=2'")
        .reset_index(drop=True)
    )
    all_results = (
        pd.read_csv(gap_run / "tables" / "results.csv").query("topic == 0").reset_index(drop=True)
    )
    pd.testing.assert_frame_equal(others, all_results)


def test_degenerate_topics_are_left_out_of_all_and_refused_by_name(
    workspace, gap_run, tmp_path, monkeypatch, capsys
):
    original = stage.Topics.theta
    monkeypatch.setattr(
        stage.Topics, "theta", lambda self, changes: original(self, changes) * [0, 1] + [0.1, 0]
    )
    run = tmp_path / "run"
    shutil.copytree(gap_run, run)
    shutil.rmtree(run / "steps" / "shares")
    assert gap(workspace, run, "--topics", "0") == 2
    assert "topic 0, n=8: label 'blame'" in capsys.readouterr().err
    assert tables(run) == tables(gap_run)
    assert gap(workspace, run) == 0
    assert pd.read_csv(run / "tables" / "results.csv")["topic"].unique().tolist() == [1]
    assert "Topic 0 " in (run / "topic_gap.md").read_text(encoding="utf-8")
    monkeypatch.setattr(
        stage.Topics, "theta", lambda self, changes: original(self, changes) * 0 + 0.5
    )
    shutil.rmtree(run / "steps" / "shares")
    assert gap(workspace, run) == 2
    assert "topics=all: " in capsys.readouterr().err
