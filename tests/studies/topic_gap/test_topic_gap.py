"""``dana topic-gap`` on text whose labels show by other words in each topic: off topic a classifier must lose."""

import gzip
import json
import shutil
from dataclasses import dataclass, replace
from functools import wraps
from importlib.metadata import EntryPoint
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import yaml

from dana.cli.main import main
from dana.core import registry
from dana.core.artifacts import make, read_json, read_manifest, write_json
from dana.core.config import load
from dana.core.errors import DataError
from dana.core.schemas import read_table
from dana.finetuning.settings import FinetuneSettings
from dana.stages import finetune
from dana.stages.settings import RunSettings
from dana.studies.augmentation.synthetic import LabelledText
from dana.studies.topic_gap import stage
from dana.studies.topic_gap.arms import ArmTexts
from dana.studies.topic_gap.documents import TopicSplit, Window, split_by_topic
from dana.studies.topic_gap.stage import cells_of_topic, topic_splits
from tests.stages.two_topics import CELLS, COURTS
from tests.toy_task import write_checkpoint, write_split, write_task

# What tells the labels apart, in each topic by a word of its own.
CUES = {"cells": {"praise": "splendid", "blame": "dreadful"}, "courts": {"praise": "noble", "blame": "vile"}}
VOCABULARIES = {"cells": CELLS, "courts": COURTS}
WORDS = [*CELLS, *COURTS, *(word for cues in CUES.values() for word in cues.values())]
EACH = 26  # documents of a topic and label
SPLIT = TopicSplit(8, 8, 6)
TABLES = (
    "tables/results.csv",
    "tables/gap.csv",
    "tables/summary.csv",
    "topic_gap.html",
    "topic_gap.md",
)


def document(topic, label, random):
    words = [*random.choice(VOCABULARIES[topic], 20), *[CUES[topic][label]] * 6]
    random.shuffle(words)
    return " ".join(words).capitalize() + ". 42!"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A card of two labels over two topics, and a model that knows its words."""
    folder = tmp_path_factory.mktemp("gap")
    random = np.random.default_rng(0)
    rows = [
        {"id": f"{topic}-{number}-{label}", "text": document(topic, label, random), "label": label}
        for number in range(EACH)
        for topic in CUES
        for label in CUES[topic]
    ]
    for split, part in (("train", rows[:60]), ("dev", rows[60:80]), ("test", rows[80:])):
        write_split(folder / "moods", split, part)
    card = {"name": "moods", "title": "Praise or blame?", "version": 1, "data": {"local": "moods"}}
    card |= {"labels": ["praise", "blame"], "metric": "accuracy", "splits": {}}
    (folder / "moods.yaml").write_text(yaml.safe_dump(card))
    write_checkpoint(folder / "model", words=WORDS)
    return folder


SETTINGS = """
--topics-k 2 --n 8 --test 8 --validation 6 --window 120 --seeds 2
--set topics.model=lda topics.min_documents=2 topics.max_share=1 finetune.pooling=mean finetune.epochs=14
finetune.learning_rate=2e-3 finetune.batch_size=4 finetune.max_tokens=30 finetune.evaluate=last
"""  # the last epoch: validation texts, off topic, have none of the topic's cues to judge a model trained on topic by


def gap(place, out, *more):
    line = ["topic-gap", str(place / "moods.yaml"), "--model", str(place / "model"), "--out", str(out)]
    return main([*line, *SETTINGS.split(), *more])


@pytest.fixture(scope="module")
def measured(place):
    assert gap(place, place / "run") == 0
    return place / "run"


def texts(folder, split):
    with gzip.open(folder / "data" / f"{split}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def tables(run):
    return {name: (run / name).read_bytes() for name in TABLES}


def test_what_was_planted_is_found_on_every_topic(measured):
    table = pd.read_csv(measured / "tables" / "gap.csv")
    assert table[["topic", "n"]].to_numpy().tolist() == [[0, 8], [1, 8]]
    assert table["on"].min() > 0.85
    assert table["off"].max() < 0.75
    assert table["gap"].min() > 0.2
    summary = pd.read_csv(measured / "tables" / "summary.csv")
    assert summary["difference"].item() == pytest.approx(table["gap"].mean())
    assert summary["topics"].item() == 2
    lines = (measured / "topic_gap.md").read_text(encoding="utf-8").splitlines()
    assert lines[2].startswith("**N = 8: trained on topic, model has +")


def test_every_row_is_a_model_that_was_tested_once(measured):
    results = pd.read_csv(measured / "tables" / "results.csv")
    rows = [(topic, arm, seed) for topic in (0, 1) for arm in ("on", "off") for seed in (0, 1)]
    assert list(results[["topic", "arm", "seed"]].itertuples(index=False, name=None)) == rows
    for row in results.to_dict("records"):
        folder = measured / "grid" / "finetune" / f"topic-{row['topic']}" / "n8" / row["arm"] / f"seed-{row['seed']}"
        metrics = read_json(folder / "metrics.json")
        [seed] = metrics["seeds"]
        assert (metrics["metric"], seed["seed"]) == ("macro_f1", row["seed"])
        assert (seed["score"], seed["dev_score"], seed["epoch"]) == (row["score"], row["dev_score"], row["epoch"])
        assert (row["epoch"], len(seed["dev_scores"])) == (14, 1)
        assert (row["train"], row["dev"], row["test"]) == (16, 12, 16)
        assert set(row["words"].split()) <= set(WORDS)
        assert len(row["words"].split()) == 10


def test_the_best_epoch_on_validation_texts_is_tested_unless_another_is_asked_for(place, tmp_path):
    for given, epoch in (({}, "best"), ({"evaluate": "last"}, "last"), ({"preset": "paper"}, "best")):
        asked = {
            "out": str(tmp_path),
            "model": str(place / "model"),
            "finetune": {**given, "seeds": 1, "max_tokens": 30},
        }
        settings = load(RunSettings, asked)
        cells = cells_of_topic(str(place / "moods.yaml"), settings, 0, topic_splits(settings)[0])
        tuned = [cell.settings["settings"] for cell in cells if cell.name.startswith("finetune/")]
        assert len(tuned) == 2, "two arms"
        assert {one.evaluate for one in tuned} == {epoch}


def test_sets_lie_where_they_should_and_arms_differ_in_training_alone(measured):
    for topic in (0, 1):
        arms = {arm: measured / "grid" / "arm" / f"topic-{topic}" / "n8" / arm for arm in ("on", "off")}
        on, off = ({split: texts(folder, split) for split in ("train", "dev", "test")} for folder in arms.values())
        assert (on["dev"], on["test"]) == (off["dev"], off["test"])
        [true] = {row["id"].split("-")[0] for row in on["test"] + on["train"]}
        [other] = {row["id"].split("-")[0] for row in off["train"] + off["dev"]}
        assert {true, other} == set(CUES)
        for rows in (on["train"], off["train"], on["dev"], on["test"]):
            assert pd.Series([row["label"] for row in rows]).value_counts().nunique() == 1
            assert all(row["id"].endswith(row["label"]) for row in rows)
            assert all(row["text"] == " ".join(row["text"].lower().split()) for row in rows)
            assert not any(letter in "0123456789.!" for row in rows for letter in row["text"])
        every = [row["id"] for rows in (on["train"], off["train"], on["dev"], on["test"]) for row in rows]
        assert len(set(every)) == len(every)
        documents, theta = stage.open_documents(measured / "grid")
        sets = documents.assign(share=theta[:, topic], set=split_by_topic(documents, theta[:, topic], SPLIT))
        assert set(sets.query("set != 'unused'")["id"]) == set(every)
        for _, own in sets.groupby("label"):
            shares = own.groupby("set")["share"].agg(["min", "max"])
            assert shares.loc["test", "min"] >= shares.loc["on", "max"] > shares.loc["validation", "max"]
            assert shares.loc["validation", "min"] >= shares.loc["off", "max"]


def test_a_cells_task_is_one_that_dana_finetune_takes(measured, capsys):
    card = measured / "grid" / "arm" / "topic-0" / "n8" / "on" / "card.yaml"
    assert main(["tasks", "check", str(card)]) == 0
    assert "16" in capsys.readouterr().out


@pytest.fixture
def tuned(monkeypatch):
    """The folders that were fine-tuned, in order."""
    found, original = [], finetune.finetune_stage

    @wraps(original)
    def tune(model, card, settings, out, *rest):
        found.append("/".join(out.parts[-4:]))
        if len(found) == tune.killed_at:
            raise KeyboardInterrupt
        return original(model, card, settings, out, *rest)

    tune.killed_at = 0
    tune.found = found
    monkeypatch.setattr(finetune, "finetune_stage", tune)
    return tune


def test_killed_it_goes_on_to_the_same_bytes(measured, place, tmp_path, tuned):
    run = tmp_path / "run"
    shutil.copytree(measured, run)
    missing = [run / "grid" / "finetune" / "topic-1" / "n8" / "off" / f"seed-{seed}" for seed in (0, 1)]
    for folder in missing:
        shutil.rmtree(folder)
    for name in TABLES:
        (run / name).unlink()
    tuned.killed_at = 9  # one of those that are done is asked for first of all
    assert gap(place, run) == 130
    assert [folder.is_dir() for folder in missing] == [True, False]
    assert not (run / "tables" / "results.csv").exists()
    tuned.killed_at = 0
    assert gap(place, run) == 0
    assert tables(run) == tables(measured)


def test_more_topics_and_sizes_leave_finished_cells_as_they_are(measured, place, tmp_path, tuned):
    run = tmp_path / "run"
    assert gap(place, run, "--topics", "1", "--seeds", "1") == 0
    one = pd.read_csv(run / "tables" / "results.csv")
    whole = pd.read_csv(measured / "tables" / "results.csv")
    pd.testing.assert_frame_equal(one, whole[(whole["topic"] == 1) & (whole["seed"] == 0)].reset_index(drop=True))
    said = (run / "topic_gap.md").read_text(encoding="utf-8")
    assert "on one topic, which says nothing of others" in said


@pytest.mark.slow
def test_two_workers_write_the_same_bytes(measured, place, tmp_path):
    assert gap(place, tmp_path / "run", "--jobs", "2") == 0
    assert tables(tmp_path / "run") == tables(measured)


def test_other_settings_are_refused_with_the_flag_named(measured, place, capsys):
    before = tables(measured)
    assert gap(place, measured, "--window", "100") == 2
    assert "(window.length: 120 there, 100 now)" in capsys.readouterr().err
    assert gap(place, measured, "--test", "9") == 2
    assert "(split.test: 8 there, 9 now)" in capsys.readouterr().err
    assert gap(place, measured, "finetune.epochs=3", "--jobs", "2", "--arms", "on", "off", "repeated") == 2
    said = "epochs: 14 there, 3 now"
    assert said in capsys.readouterr().err
    assert tables(measured) == before
    assert not list(measured.glob("grid/arm/*/*/repeated*"))


@dataclass(frozen=True)
class Echoed(LabelledText):
    """A text that says what made it."""

    seed: int


@dataclass(frozen=True)
class Echo:
    """An arm of a third party: off-topic texts, and as many made ones that say the cue of the test's topic."""

    seeded: ClassVar[bool] = True
    times: int = 1

    def identity(self):
        """Its setting."""
        return {"arm": "echo", "times": self.times}

    def texts(self, case, seed, folder):
        """Made ones have provenance; what they are made with is kept in the folder."""
        kept = make(folder / "generator", "generator", {"seed": seed}, lambda draft: write_json(draft.path / "g", seed))
        words = case.texts("on")[0].text.split()
        topic = max(CUES, key=lambda name: len(set(words) & set(VOCABULARIES[name])))
        off = case.texts("off")
        made = [
            Echoed(f"made-{at}", f"{CUES[topic][one.label]} " * 6 + one.text, one.label, seed)
            for at, one in enumerate(off * self.times)
        ]
        assert read_json(kept.path / "g") == seed
        return ArmTexts((*off, *made))


def test_an_arm_of_a_plug_in_is_one_class(measured, place, tmp_path, monkeypatch):
    installed = registry.entry_points
    entry = EntryPoint("echo", f"{__name__}:Echo", "dana.topic_gap_arms")
    monkeypatch.setattr(
        registry, "entry_points", lambda group: [*installed(group=group), *([entry] if entry.group == group else [])]
    )
    run = tmp_path / "run"
    shutil.copytree(measured, run)
    assert gap(place, run, "--arms", "on", "off", "echo:times=2", "--topics", "0") == 0
    summary = pd.read_csv(run / "tables" / "summary.csv")
    assert summary["arm"].tolist() == ["on", "echo:times=2"]
    assert summary["difference"].iloc[1] > 0.2, "it has seen the words that tell the labels apart"
    folder = run / "grid" / "arm" / "topic-0" / "n8" / "echo-times-2"
    for seed in (0, 1):
        rows = texts(folder / f"seed-{seed}", "train")
        assert len(rows) == 16 * 3
        assert {row["seed"] for row in rows if row["id"].startswith("made-")} == {seed}
        assert (run / "grid" / "work" / "topic-0" / "n8" / f"seed-{seed}" / "generator" / "g").is_file()
    kept = pd.read_csv(run / "tables" / "results.csv").query("arm != 'echo:times=2'").reset_index(drop=True)
    whole = pd.read_csv(measured / "tables" / "results.csv").query("topic == 0").reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, whole)


def test_topics_of_other_text_may_be_used(place, measured, tmp_path):
    general = tmp_path / "general.jsonl"
    random = np.random.default_rng(1)
    rows = [{"id": f"g{at}", "text": " ".join(random.choice([CELLS, COURTS][at % 2], 30))} for at in range(60)]
    general.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    of_general = ["--general", str(general), "--topics", "0", "--seeds", "1"]
    assert gap(place, tmp_path / "general", *of_general) == 0
    assert read_table(tmp_path / "general/grid/topics/corpus")["doc_id"][0].as_py().startswith("g")
    fit = ["topics", "fit", "--general", str(general), "--model", "lda", "--k", "2", "--min-documents", "2"]
    assert main([*fit, "--max-share", "1", "--out", str(tmp_path / "topics")]) == 0
    model = ["--topics-of", str(tmp_path / "topics"), "--topics", "0", "--seeds", "1"]
    line = ["topic-gap", str(place / "moods.yaml"), "--model", str(place / "model"), *model]
    line += [
        "--n",
        "8",
        "--test",
        "8",
        "--validation",
        "6",
        "--window",
        "120",
        "--preset",
        "quick",
        "--set",
        "finetune.max_tokens=30",
    ]
    assert main([*line, "--out", str(tmp_path / "run")]) == 0
    ids = {row["id"].split("-")[0] for row in texts(tmp_path / "run/grid/arm/topic-0/n8/on", "test")}
    assert len(ids) == 1
    assert not (tmp_path / "run" / "grid" / "topics").exists()


def test_degenerate_topics_are_left_out_of_all_and_refused_by_name(place, measured, tmp_path, monkeypatch, capsys):
    original = stage.Topics.theta
    monkeypatch.setattr(stage.Topics, "theta", lambda self, given: original(self, given) * [0, 1] + [0.1, 0])
    run = tmp_path / "run"
    shutil.copytree(measured, run)
    shutil.rmtree(run / "grid" / "shares")
    assert gap(place, run, "--topics", "0") == 2
    said = capsys.readouterr().err
    assert "topic 0, n=8: label 'blame': a document to test has a share of 0.1 of the topic, one to train" in said
    assert tables(run) == tables(measured)
    assert gap(place, run) == 0
    assert pd.read_csv(run / "tables" / "results.csv")["topic"].unique().tolist() == [1]
    page = (run / "topic_gap.md").read_text(encoding="utf-8").replace("\\", "")
    assert "is left out, n=8: label 'blame': a document to test has a share of 0.1" in page
    monkeypatch.setattr(stage.Topics, "theta", lambda self, given: original(self, given) * 0 + 0.5)
    shutil.rmtree(run / "grid" / "shares")
    assert gap(place, run) == 2
    assert "topics=all: none is left. topic 0, n=8: label 'blame'" in capsys.readouterr().err


def test_the_root_seed_decides_windows_topics_and_draws(place, tmp_path):
    asked = {"out": str(tmp_path), "model": str(place / "model"), "selection": {"seed": 7}, "finetune": {"seeds": 1}}
    asked |= {"topic_gap": {"n": [5], "test": 5, "validation": 5, "draw": "random", "short": "keep", "window": 90}}
    settings = load(RunSettings, {**asked, "topics": {"model": "lda", "k": [2], "min_documents": 2, "max_share": 1}})
    card, splits = str(place / "moods.yaml"), topic_splits(settings)
    grid = stage.prepare_shares(card, settings, splits)
    about = [read_manifest(grid / name)["depends_on"] for name in ("pool", "topics/topic-model")]
    assert about[0]["window"] == {"length": 90, "short": "keep", "seed": 7}
    assert about[1]["seed"] == 7
    assert splits == [TopicSplit(5, 5, 5, "random", 7)]
    assert next(cells_of_topic(card, settings, 0, splits[0])).settings["split"] == splits[0]


def test_a_random_draw_deals_the_same_documents_otherwise(measured):
    documents, theta = stage.open_documents(measured / "grid")
    found = {}
    for draw, seed in (("ranks", 0), ("random", 0), ("random", 1)):
        sets = split_by_topic(documents, theta[:, 0], replace(SPLIT, draw=draw, seed=seed))
        found[draw, seed] = documents.groupby(sets)["id"].agg(set)
    ranks = found["ranks", 0]
    for dealt in (found["random", 0], found["random", 1]):
        assert dealt["test"] | dealt["on"] == ranks["test"] | ranks["on"]
        assert dealt["off"] | dealt["validation"] == ranks["off"] | ranks["validation"]
        assert dealt["test"] != ranks["test"]
    assert found["random", 0]["test"] != found["random", 1]["test"]


def test_some_labels_alone_are_read_and_learnt(tmp_path):
    card = str(write_task(tmp_path))
    window = Window(20, "keep")
    made = stage.gap_pool_stage(card, tmp_path / "pool", window, ["bird", "fruit"], FinetuneSettings())
    documents = pd.read_parquet(made.path / stage.DOCUMENTS)
    assert set(documents["label"]) == {"bird", "fruit"}
    assert made.manifest["counts"]["dropped"]["other label"] == 70
    assert made.manifest["depends_on"]["taken"] == ["fruit", "bird"], "in the card's order"
    every = stage.gap_pool_stage(card, tmp_path / "every", window, [], FinetuneSettings())
    assert every.manifest["depends_on"]["taken"] == ["fruit", "metal", "bird"]


def test_the_pool_of_real_genres(dana_data, tmp_path):
    made = stage.gap_pool_stage("genre_mix", tmp_path / "pool", Window(1000, "keep"), [], FinetuneSettings())
    counts = made.manifest["counts"]
    assert counts["in"] == 7720 == counts["kept"] + sum(counts["dropped"].values())
    assert counts["kept"] > 7600
    with pytest.raises(DataError, match="label 'argument': none of its 500 documents is left; window=1000, short=drop"):
        stage.gap_pool_stage("genre_mix", tmp_path / "short", Window(1000, "drop"), [], FinetuneSettings())
    assert not (tmp_path / "short").exists()


def test_shares_do_not_depend_on_how_many_documents_are_counted_together(measured, tmp_path, monkeypatch):
    grid = measured / "grid"
    monkeypatch.setattr(stage, "AT_ONCE", 7)
    made = stage.shares_stage(grid / "pool", grid / "topics" / "topic-model", tmp_path / "shares")
    parts = {path: (path / stage.THETA).read_bytes() for path in (made.path, grid / "shares")}
    assert parts[made.path] == parts[grid / "shares"]
