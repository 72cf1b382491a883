"""``dana init`` on labels of every shape: a card that reads them, a question where they do not tell."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import dana
from dana.cli.main import main
from dana.core.errors import ConfigError, DataError
from dana.core.settings import load
from dana.stages.recipe import read_recipe
from dana.stages.run import plan_run
from dana.stages.settings import RunSettings, load_settings
from dana.tasks.card import TaskCard, load_card
from dana.tasks.examples import read_folds, read_splits

WORDS = [f"{letter}{vowel}{end}" for letter in "bdfgkl" for vowel in "aeiou" for end in ("n", "sk")]
TEXTS = [
    " ".join(np.random.default_rng(n).choice(WORDS, 6 + n % 3)).capitalize() for n in range(48)
]
NAMES = ("red", "green", "blue")
SETS = [[name for place, name in enumerate(NAMES) if (n + 1) >> place & 1] for n in range(48)]
BITS = [[int(name in names) for name in NAMES] for names in SETS]
NUMBERS = [round(n / 7, 3) for n in range(48)]
TAGS = [["O"] * (len(text.split()) - 1) + ["B-end"] for text in TEXTS]


def frame(**columns):
    return pd.DataFrame({"text": TEXTS, **columns})


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A working directory with a pool."""
    monkeypatch.chdir(tmp_path)
    rows = [{"text": " ".join(np.random.default_rng(n).choice(WORDS, 20))} for n in range(30)]
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def write(form, path):
    """A table in a form, and what the call says of it."""
    path = str(path)
    words = [text.split() for text in TEXTS]
    lines = {
        "lists.jsonl": frame(label=SETS),
        "vectors.jsonl": frame(label=BITS),
        "tags.jsonl": pd.DataFrame({"tokens": words, "ner": TAGS}),
    }
    columns = {name: [row[place] for row in BITS] for place, name in enumerate(NAMES)}
    tables = {
        "text_of_lists.csv": frame(label=[str(names) for names in SETS]),
        "numpy.csv": frame(label=[str(np.array(row)) for row in BITS]),
        "separated.csv": frame(tags=["; ".join(names) or "[]" for names in SETS]),
        "columns.csv": frame(**columns),
        "columns_beside_another.csv": frame(**columns, source=["web", "mail"] * 24),
        "numbers.csv": frame(label=NUMBERS),
        "pairs.csv": frame(other=TEXTS[::-1], label=["yes", "no"] * 24),
    }
    if form in lines:
        lines[form].to_json(path, orient="records", lines=True)
    elif form.endswith(".parquet"):
        frame(label=[np.array(row) for row in BITS]).to_parquet(path)
    else:
        tables[form].to_csv(path, index=False)


MULTI = {"kind": "multi_label", "labels": sorted(NAMES), "metric": "micro_f1"}
FORMS = [
    ("lists.jsonl", {}, MULTI, SETS),
    ("text_of_lists.csv", {}, MULTI, SETS),
    ("separated.csv", {"label": "tags"}, MULTI, SETS),
    ("vectors.jsonl", {"labels": NAMES}, MULTI, SETS),
    ("vectors.parquet", {"labels": NAMES}, MULTI, SETS),
    ("numpy.csv", {"labels": NAMES}, MULTI, SETS),
    ("columns.csv", {}, MULTI, SETS),
    ("columns_beside_another.csv", {"label": NAMES}, MULTI, SETS),
    ("numbers.csv", {}, {"kind": "regression", "labels": [], "metric": "pearson"}, NUMBERS),
    ("tags.jsonl", {}, {"kind": "token_labels", "metric": "span_f1"}, TAGS),
    (
        "pairs.csv",
        {"text": "text", "text_pair": "other"},
        {"kind": "single_label", "labels": ["no", "yes"], "text_pair": "text_pair"},
        ["yes", "no"] * 24,
    ),
]


@pytest.mark.parametrize(("form", "options", "expected", "labels"), FORMS, ids=lambda row: row)
def test_a_table_of_any_shape_of_labels_becomes_a_card_that_reads_it(
    form, options, expected, labels, home
):
    write(form, home / form)
    folder = dana.init(form, "pool.jsonl", out="run", **options)
    card = TaskCard.read(folder / "card.yaml")
    assert {name: getattr(card, name) for name in expected} == expected
    examples = read_folds(card)
    assert {example.fold for example in examples} == {*range(5)}
    by_text = dict(zip(TEXTS, labels, strict=True))
    for example in examples:
        label = by_text[example.text]
        if card.labels:
            codes = example.label if isinstance(example.label, tuple) else (example.label,)
            names = [card.labels[code] for code in codes]
            given = [label] if isinstance(label, str) else label
            is_ordered = card.kind == "token_labels"
            assert names == (given if is_ordered else sorted(given))
        else:
            assert example.label == label
        assert example.pair is None or example.pair == TEXTS[47 - TEXTS.index(example.text)]
    assert plan_run(load_settings(read_recipe(folder)[0]), False).steps


def test_stratified_folds_share_out_rare_labels_and_large_numbers(home):
    sets = [["common", "rare"] if n % 8 == 0 else ["common"] for n in range(40)]
    for n in range(0, 40, 3):
        sets[n] = [*sets[n], "other"]
    rare = {text for text, names in zip(TEXTS, sets, strict=False) if "rare" in names}
    dana.init(frame(label=[*sets, *[["common"]] * 8]), "pool.jsonl", out="sets")
    texts = pd.read_parquet("sets/texts.parquet")
    assert texts[texts["text"].isin(rare)].groupby("fold").size().tolist() == [1] * 5
    dana.init(frame(label=NUMBERS), "pool.jsonl", out="numbers")
    means = pd.read_parquet("numbers/texts.parquet").groupby("fold")["label"].mean()
    assert means.max() - means.min() < 1.2


QUESTIONS = [
    (["a|b", "c|d", "e"] * 16, {"single_label": ["a|b", "c|d", "e"], "multi_label": [*"abcde"]}),
    ([0] * 13 + [1] * 14 + [*range(2, 23)], {"single_label": ["0", "1"], "regression": []}),
    (["0,5", "1,5", "2"] * 16, {"multi_label": ["0", "1", "2", "5"], "regression": []}),
]


@pytest.mark.parametrize(("labels", "answers"), QUESTIONS)
def test_the_commands_that_are_named_decide_it(labels, answers, home, capfd):
    frame(label=labels).to_csv("my table.csv", index=False)
    assert main(["init", "my table.csv", "--pool", "pool.jsonl"]) == 2
    assert not (home / "my table").exists()
    error = capfd.readouterr().err
    commands = re.findall(r"dana (init .*? --kind \w+)", error)
    assert len(commands) == len(answers) == 2
    for number, command in enumerate(commands):
        words = shlex.split(command)
        assert main([*words, "--out", f"run{number}"]) == 0
        card = TaskCard.read(home / f"run{number}" / "card.yaml")
        assert card.kind == words[-1]
        expected = answers[card.kind]
        assert expected is None or card.labels == expected


def test_a_vector_asks_for_names_by_a_command_that_is_right(home, capfd):
    write("vectors.jsonl", home / "vectors.jsonl")
    assert main(["init", "vectors.jsonl", "--pool", "pool.jsonl"]) == 2
    [command] = re.findall(
        r"dana (init vectors.jsonl --pool pool.jsonl --labels [\w ]+);", capfd.readouterr().err
    )
    assert main(command.split()) == 0
    assert TaskCard.read(home / "vectors/card.yaml").labels == ["name1", "name2", "name3"]


def test_several_columns_are_named_by_several_flags_before_the_table_too(home, capfd):
    write("columns_beside_another.csv", home / "table.csv")
    assert main(["init", "table.csv", "--pool", "pool.jsonl"]) == 2
    error = capfd.readouterr().err
    assert "--label red --label green --label blue" in error
    line = ["init", "--label", "red", "--label", "blue", "table.csv", "--pool", "pool.jsonl"]
    assert main(line) == 0
    assert TaskCard.read(home / "table/card.yaml").labels == ["blue", "red"]


def test_columns_with_one_label_a_text_are_one_label_if_that_is_said(home, caplog):
    caplog.set_level("INFO", "dana")
    one_hot = frame(a=[1, 0, 0] * 16, b=[0, 1, 0] * 16, c=[0, 0, 1] * 16)
    dana.init(one_hot, "pool.jsonl", out="several")
    assert "every text has exactly one of the labels; kind='single_label' learns" in caplog.text
    dana.init(one_hot, "pool.jsonl", out="one", kind="single_label")
    card = TaskCard.read(home / "one/card.yaml")
    assert (card.kind, card.labels, card.metric) == ("single_label", ["a", "b", "c"], "macro_f1")


@pytest.mark.parametrize(
    ("shares", "is_balanced"), [((36, 12), True), ((35, 13), False), ((24, 24), False)]
)
def test_classes_are_balanced_where_the_largest_has_three_times_the_smallest(
    shares, is_balanced, home, caplog
):
    caplog.set_level("INFO", "dana")
    labels = ["many\n# of: {them}"] * shares[0] + ["few"] * shares[1]
    folder = dana.init(frame(label=labels), "pool.jsonl", out="run")
    recipe = (folder / "recipe.yaml").read_text()
    assert ("finetune: {class_weight: balanced}" in recipe) == is_balanced
    assert ("many # of: {them} has 3.0 times the texts of few" in caplog.text) == is_balanced
    weight = load(RunSettings, read_recipe(folder)[0]).finetune.class_weight
    assert weight == ("balanced" if is_balanced else None)


def files(folder, *places):
    for number, place in enumerate(places):
        for part in range(6):
            path = folder / place / f"{part}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(TEXTS[(number * 6 + part) % 48])


SPLITS = [
    ("train/pos", "train/neg", "test/pos", "test/neg"),
    ("Train/pos", "Train/neg", "TEST/pos", "TEST/neg"),
    ("pos/train", "neg/train", "pos/test", "neg/test"),
]


@pytest.mark.parametrize("places", SPLITS)
def test_folders_of_splits_are_no_labels(places, home, caplog):
    caplog.set_level("INFO", "dana")
    files(home / "reviews", *places, "train/unsup" if "rain" in places[0][:5] else "unsup")
    folder = dana.init("reviews", "pool.jsonl", out="run")
    card = TaskCard.read(folder / "card.yaml")
    assert card.labels == ["neg", "pos"]
    tested = {example.text for example in read_splits(card)["test"]}
    assert tested == {*TEXTS[12:24]}
    assert "left out: 6 unlabelled; to adapt on them: --unlabelled reviews/" in caplog.text
    assert "folders are splits: " in caplog.text


def test_texts_of_dev_are_trained_on_and_without_test_there_are_folds(home):
    files(home / "both", "train/pos", "train/neg", "valid/pos", "valid/neg", "test/pos", "test/neg")
    files(home / "dev", "train/pos", "train/neg", "validation/pos", "validation/neg")
    for name, folds in (("both", {-1: 24, 0: 12}), ("dev", None)):
        dana.init(name, "pool.jsonl", out=f"{name}-run")
        texts = pd.read_parquet(f"{name}-run/texts.parquet")
        assert {*texts["label"]} == {"neg", "pos"}
        assert texts["fold"].value_counts().to_dict() == folds or texts["fold"].nunique() == 5


@pytest.mark.parametrize(
    ("places", "words"),
    [
        (("train", "bus"), None),
        (("train/pos", "bus"), "train may be splits, or labels like bus"),
        (("train", "test"), "test/LABEL/0.txt; labels: rename test"),
        (("train/pos", "train", "test/pos"), "train/LABEL/0.txt"),
        (("test/pos", "test/neg"), "none is in a folder train"),
    ],
)
def test_folders_that_may_be_splits_or_labels_are_refused(places, words, home, capfd):
    files(home / "texts", *places)
    code = main(["init", "texts", "--pool", "pool.jsonl"])
    error = capfd.readouterr().err
    if words is None:
        assert code == 0
        assert yaml.safe_load((home / "texts-run/card.yaml").read_text())["labels"] == [
            "bus",
            "train",
        ]
    else:
        assert code == 2
        assert words in error
        assert not (home / "texts-run").exists()


def test_a_folder_of_files_and_folds_beside_a_test_split_are_refused_with_the_way_out(home, capfd):
    files(home / "reviews", *SPLITS[0])
    (home / "files").mkdir()
    for name in ("train.csv", "test.csv"):
        frame(label=["a", "b"] * 24).to_csv(home / "files" / name, index=False)
    with pytest.raises(ConfigError, match="--folds with reviews/train"):
        dana.init("reviews", "pool.jsonl", folds=3)
    assert main(["init", "files", "--pool", "pool.jsonl"]) == 2
    assert "files/train.csv --test files/test.csv" in capfd.readouterr().err


def test_a_saved_data_set_of_splits_and_its_files_are_no_single_table(home):
    from datasets import Dataset, DatasetDict

    table = frame(label=["a", "b"] * 24)
    parts = {"train": table[:36], "test": table[36:].reset_index(drop=True)}
    DatasetDict({name: Dataset.from_pandas(part) for name, part in parts.items()}).save_to_disk(
        "saved"
    )
    with pytest.raises(DataError, match="give them: saved/train --test saved/test"):
        dana.init("saved", "pool.jsonl", out="run")
    dana.init("saved/train", "pool.jsonl", out="run", test="saved/test")
    Path("shards").mkdir()
    for name in ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"):
        table.to_parquet(f"shards/{name}.parquet")
    with pytest.raises(DataError, match="move the files of each to a folder of its own"):
        dana.init("shards", "pool.jsonl", out="other")
    assert not Path("other").exists()


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_classes_that_datasets_writes_as_numbers_have_their_names(home, form):
    from datasets import ClassLabel, Dataset, Features, Sequence, Value

    class_label = ClassLabel(names=["World", "Sports"])
    features = Features(
        text=Value("string"), label=class_label, tags=Sequence(class_label), hits=Value("int64")
    )
    rows = frame(label=[0, 1, -1] * 16)  # -1: a text without a class
    rows["tags"] = [[0], [1], [0, 1]] * 16
    rows["hits"] = [0, 1, 1] * 16
    saved = Dataset.from_pandas(rows[list(features)], features=features)
    if form == "arrow":
        saved.save_to_disk("saved")
    else:
        Path("saved").mkdir()
        saved.to_parquet("saved/a.parquet")
    dana.init("saved", "pool.jsonl", out="one", label="label")
    assert load_card("one/card.yaml").labels == ["Sports", "World"]
    assert pd.read_parquet("one/texts.parquet")["label"].value_counts().tolist() == [16, 16]
    dana.init("saved", "pool.jsonl", out="several", label="tags")
    card = load_card("several/card.yaml")
    assert (card.kind, card.labels) == ("multi_label", ["Sports", "World"])
    dana.init("saved", "pool.jsonl", out="numbers", label="hits")
    assert load_card("numbers/card.yaml").labels == ["0", "1"]


def test_a_column_of_lists_that_an_older_datasets_wrote_hides_no_names_of_classes(home):
    class_label = {"names": ["World", "Sports"], "_type": "ClassLabel"}
    features = {
        "text": {"dtype": "string", "_type": "Value"},
        "label": class_label,
        "tags": [class_label],
        "words": {"feature": [{"dtype": "string", "_type": "Value"}], "_type": "Sequence"},
    }
    rows = frame(label=[0, 1] * 24)
    rows["tags"] = [[0], [1], [0, 1]] * 16
    rows["words"] = [[["a"]]] * 48
    table = pa.Table.from_pandas(rows[list(features)], preserve_index=False)
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(table.replace_schema_metadata(metadata), "old.parquet")
    dana.init("old.parquet", "pool.jsonl", out="one", label="label")
    assert load_card("one/card.yaml").labels == ["Sports", "World"]
    dana.init("old.parquet", "pool.jsonl", out="several", label="tags")
    assert load_card("several/card.yaml").labels == ["Sports", "World"]
