"""The model of a run: three forms that open without dana, and new text that is labelled with it."""

import csv
import json
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import toy_task
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

import dana
from dana.cli.main import main
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.files import replace_folder
from dana.encoders.transformer import AUTO, TransformerEncoder
from dana.finetuning import result_model
from dana.finetuning.likeness import Likeness, fit_likeness, save_likeness
from dana.finetuning.probe import fitted, probe_scores
from dana.finetuning.result_model import (
    FINE_TUNED,
    TFIDF,
    VECTORS,
    Description,
    open_result,
    pipeline_targets,
    save_tfidf,
    save_vectors,
)
from dana.finetuning.saved import save_classifier
from dana.models.classifier import new_classifier
from dana.models.folder import load_own_tokenizer
from dana.tasks.card import TaskCard
from dana.tasks.columns import Columns
from dana.tasks.examples import Example, joined_texts
from dana.tasks.kinds import find_kind

NAMES = [*toy_task.SIGNS]
ROWS = toy_task.rows(90, 1)
NEW = toy_task.rows(12, 2)
COLUMNS = Columns("sentence", separator=";")
EXAMPLES = [Example(row["id"], row["text"], NAMES.index(row["label"])) for row in ROWS]
TEXTS = [row["text"] for row in ROWS]
KIND = find_kind("single_label")(tuple(NAMES))
# Words that no training text has.
STRANGE = [" ".join(f"strange{number}{place}" for place in range(9)) for number in range(60)]
SETTINGS = Description(TFIDF, "single_label", tuple(NAMES), "macro_f1", COLUMNS)


def words_pipeline(texts, labels, kind):
    """The linear model of the baselines."""
    model = OneVsRestClassifier(LogisticRegression(C=100.0)) if kind.has_labels else Ridge()
    words = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", ngram_range=(1, 2), sublinear_tf=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of labels that no text has
        return make_pipeline(words, model).fit(texts, pipeline_targets(labels, kind))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(toy_task.write_checkpoint(tmp_path_factory.mktemp("base")))


@pytest.fixture(scope="module")
def runs(checkpoint, tmp_path_factory):
    """Folders of runs that ended in each form, by form."""
    root = tmp_path_factory.mktemp("runs")
    labels = [example.label for example in EXAMPLES]
    for form in (TFIDF, VECTORS, FINE_TUNED):
        (root / form / "model").mkdir(parents=True)
        (root / form / "recipe.yaml").write_text("out: .\n")
    save_tfidf(root / TFIDF / "model", words_pipeline(TEXTS, labels, KIND), SETTINGS)
    vectors = TransformerEncoder(checkpoint, AUTO, max_tokens=16).encode(TEXTS).cpu().numpy()
    pipeline = fitted(vectors, pipeline_targets(labels, KIND), KIND, 1.0)
    description = replace(SETTINGS, form=VECTORS, max_tokens=16)
    save_vectors(root / VECTORS / "model", checkpoint, pipeline, description)
    tokenizer = load_own_tokenizer(checkpoint)
    tokenizer.model_max_length = 24
    classifier = new_classifier(checkpoint, len(NAMES), 0)
    save_classifier(classifier, tokenizer, KIND, root / FINE_TUNED / "model")
    replace(SETTINGS, form=FINE_TUNED).write(root / FINE_TUNED / "model")
    for form in (TFIDF, VECTORS, FINE_TUNED):
        save_likeness(root / form / "model", EXAMPLES, STRANGE[20:])
    return root


def write_csv(path, rows, separator=";"):
    with path.open("w", newline="") as stream:
        csv.writer(stream, delimiter=separator).writerows(rows)
    return path


def new_table(path, texts=None):
    texts = texts or [row["text"] for row in NEW]
    return write_csv(path, [["n", "sentence"], *enumerate(texts)])


def predict(capsys, *arguments):
    """Run the command; returns its lines, as objects."""
    assert main(["predict", *map(str, arguments)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def error_of(capsys, *arguments):
    assert main(["predict", *map(str, arguments)]) == 2
    (line,) = [
        line for line in capsys.readouterr().err.splitlines() if line.startswith("dana: error:")
    ]
    return line


@pytest.mark.parametrize("form", [TFIDF, VECTORS, FINE_TUNED])
@pytest.mark.parametrize("inside", ["", "model"])
def test_a_folder_and_a_table_like_that_of_init_are_enough(runs, tmp_path, capsys, form, inside):
    rows = predict(capsys, runs / form / inside, new_table(tmp_path / "new.csv"))
    assert [row["text"] for row in rows] == [row["text"] for row in NEW]
    assert all(1 / 3 <= row["probability"] <= 1 for row in rows)
    assert {row["label"] for row in rows} <= {*NAMES}
    if form == TFIDF:
        assert [row["label"] for row in rows] == [row["label"] for row in NEW]


def test_the_folder_may_be_the_one_that_one_is_in(runs, tmp_path, capsys, monkeypatch):
    new = new_table(tmp_path / "new.csv")
    expected = predict(capsys, runs / TFIDF, new)
    monkeypatch.chdir(runs / TFIDF)
    assert predict(capsys, ".", new) == expected
    monkeypatch.chdir(runs / TFIDF / "model")
    assert predict(capsys, ".", new) == expected


@pytest.fixture
def two_models(tmp_path):
    """Two models of vectors of two encoders, with labels in another order."""
    models = []
    for number in range(2):
        base = str(toy_task.write_checkpoint(tmp_path / f"base-{number}", seed=number))
        vectors = TransformerEncoder(base, AUTO, max_tokens=16).encode(TEXTS).cpu().numpy()
        labels = [(example.label + number) % len(NAMES) for example in EXAMPLES]
        pipeline = fitted(vectors, pipeline_targets(labels, KIND), KIND, 1.0)
        folder = tmp_path / f"model-{number}"
        folder.mkdir()
        save_vectors(folder, base, pipeline, replace(SETTINGS, form=VECTORS, max_tokens=16))
        models.append(folder)
    return models


def put(model, path):
    """Put a copy of a model in the place of that of a run."""
    copy = path.with_name("copy")
    shutil.copytree(model, copy)
    path.parent.mkdir(exist_ok=True)
    replace_folder(copy, path)


def test_a_loaded_model_labels_as_it_did_though_a_run_has_replaced_it(two_models, tmp_path):
    texts = [row["text"] for row in NEW]
    old, new = (dana.load(model).predict(texts) for model in two_models)
    assert not old.equals(new)
    run = tmp_path / "run"
    run.mkdir()
    put(two_models[0], run / "model")
    loaded = dana.load(run)
    put(two_models[1], run / "model")
    pd.testing.assert_frame_equal(loaded.predict(texts), old)
    pd.testing.assert_frame_equal(dana.load(run).predict(texts), new)


def test_a_model_that_is_replaced_while_it_is_opened_is_opened_again(
    two_models, tmp_path, monkeypatch
):
    texts = [row["text"] for row in NEW]
    new = dana.load(two_models[1]).predict(texts)
    run = tmp_path / "run"
    run.mkdir()
    put(two_models[0], run / "model")
    load_pipeline = result_model._load_pipeline
    replacing = iter([two_models[1]])

    def load_and_replace(folder):
        pipeline = load_pipeline(folder)
        for model in replacing:
            put(model, run / "model")
        return pipeline

    monkeypatch.setattr(result_model, "_load_pipeline", load_and_replace)
    pd.testing.assert_frame_equal(dana.load(run).predict(texts), new)


def test_the_three_formats_of_the_output_hold_the_same(runs, tmp_path, capsys):
    new = new_table(tmp_path / "new.csv")
    for suffix in ("csv", "jsonl", "parquet"):
        out = tmp_path / f"out.{suffix}"
        assert main(["predict", str(runs / TFIDF), str(new), "--out", str(out)]) == 0
        assert capsys.readouterr().out == f"written: {out} (12 texts)\n"
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    table = pd.read_csv(tmp_path / "out.csv", sep=";")
    assert [*table] == [*lines[0]] == [*rows[0]] == ["id", "text", "label", "probability", "unlike"]
    for line, row, cells in zip(lines, rows, table.to_dict("records"), strict=True):
        assert (line["text"], line["label"]) == (row["text"], row["label"])
        assert (cells["text"], cells["label"]) == (row["text"], row["label"])
        assert line["probability"] == cells["probability"] == round(row["probability"], 6)
        assert line["unlike"] == cells["unlike"] == row["unlike"]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "tsv", "csv.gz"])
def test_other_formats_are_read_by_the_same_column(runs, tmp_path, capsys, suffix):
    new = tmp_path / f"new.{suffix}"
    frame = pd.DataFrame({"n": range(12), "sentence": [row["text"] for row in NEW]})
    if suffix == "jsonl":
        frame.to_json(new, orient="records", lines=True)
    elif suffix == "parquet":
        frame.to_parquet(new)
    else:
        frame.to_csv(new, index=False, sep="\t" if suffix == "tsv" else "|")
    rows = predict(capsys, runs / TFIDF, new)
    assert [row["label"] for row in rows] == [row["label"] for row in NEW]


def test_scikit_learn_and_skops_open_tfidf_without_dana(runs, tmp_path, capsys):
    rows = predict(capsys, runs / TFIDF, new_table(tmp_path / "new.csv"))
    code = f"""
import sys
sys.modules["dana"] = None
from skops.io import load
pipeline = load({str(runs / TFIDF / "model" / "model.skops")!r})
print(*pipeline.predict({[row["text"] for row in NEW]!r}))
"""
    command = [sys.executable, "-W", "error", "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.split() == [row["label"] for row in rows]


def test_sentence_transformers_opens_the_encoder_without_a_warning(runs, tmp_path, capfd):
    from sentence_transformers import SentenceTransformer
    from skops.io import load

    folder = runs / VECTORS / "model"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder = SentenceTransformer(str(folder / "encoder"), device="cpu")
        vectors = encoder.encode([row["text"] for row in NEW])
    assert "warn" not in capfd.readouterr().err.lower()
    assert encoder.max_seq_length == 16
    pipeline = load(folder / "model.skops")
    table = dana.load(folder).predict([row["text"] for row in NEW])
    assert [*table["label"]] == [*pipeline.predict(vectors)]
    assert table["probability"].to_numpy() == pytest.approx(
        pipeline.predict_proba(vectors).max(1), abs=1e-5
    )


def test_the_pipeline_of_transformers_opens_a_fine_tuned_model(runs):
    from transformers import pipeline

    folder = runs / FINE_TUNED / "model"
    texts = [row["text"] for row in NEW]
    answers = pipeline("text-classification", str(folder), device="cpu")(texts, truncation=True)
    table = dana.load(runs / FINE_TUNED).predict(texts)
    assert [*table["label"]] == [answer["label"] for answer in answers]
    assert table["probability"].to_numpy() == pytest.approx(
        [answer["score"] for answer in answers], abs=1e-5
    )


# Kinds of label


def labelled(kind_name):
    """A kind with labels of the toy texts; the last label of several is that of no text."""
    codes = [example.label for example in EXAMPLES]
    if kind_name == "multi_label":
        return find_kind(kind_name)(("a", "b", "c", "none")), [
            (code, 2) if code < 2 else (2,) for code in codes
        ]
    if kind_name == "regression":
        return find_kind(kind_name)(()), [float(code) for code in codes]
    return find_kind("single_label")(("none", *NAMES)), [code + 1 for code in codes]


@pytest.mark.parametrize("kind_name", ["single_label", "multi_label", "regression"])
def test_every_kind_of_label_is_saved_and_predicted(kind_name, checkpoint, tmp_path):
    kind, labels = labelled(kind_name)
    given = Description(TFIDF, kind_name, kind.labels, kind.main_metric)
    for form in (TFIDF, VECTORS):
        (tmp_path / form).mkdir()
    pipeline = words_pipeline(TEXTS, labels, kind)
    save_tfidf(tmp_path / TFIDF, pipeline, given)
    vectors = TransformerEncoder(checkpoint, AUTO, max_tokens=16).encode(TEXTS).cpu().numpy()
    linear = fitted(vectors, pipeline_targets(labels, kind), kind, 0.1)
    description = replace(given, form=VECTORS, max_tokens=16)
    save_vectors(tmp_path / VECTORS, checkpoint, linear, description)
    rows = np.arange(len(TEXTS))
    expected = {
        TFIDF: pipeline.predict(TEXTS),
        VECTORS: probe_scores(vectors, kind.gather(labels), kind, rows, rows, 0.1),
    }
    for form, predictions in expected.items():
        table = dana.load(tmp_path / form).predict(TEXTS)
        assert open_result(tmp_path / form).description.labels == kind.labels
        if kind_name == "regression":
            assert table["value"].to_numpy() == pytest.approx(predictions, abs=1e-4)
        elif form == TFIDF and kind_name == "multi_label":
            names = [[kind.labels[code] for code in np.flatnonzero(row)] for row in predictions]
            assert [[*row] for row in table["label"]] == names
        elif form == TFIDF:
            assert [*table["label"]] == [*predictions]
        else:
            codes = [code if isinstance(code, tuple) else (code,) for code in predictions]
            names = [[kind.labels[code] for code in row] for row in codes]
            given_names = [[*np.atleast_1d(row)] for row in table["label"]]
            assert given_names == names


def test_labels_of_words_are_refused_by_name():
    with pytest.raises(ConfigError, match="kind='token_labels': must be another: each word has"):
        Description(TFIDF, "token_labels", ("O", "B"), "entity_f1")


def test_pairs_are_read_from_their_two_columns(tmp_path, capsys):
    examples = [replace(example, pair=f"and {example.text}") for example in EXAMPLES]
    columns = Columns("left", text_pair="right")
    labels = [example.label for example in examples]
    pipeline = words_pipeline(joined_texts(examples), labels, KIND)
    save_tfidf(tmp_path, pipeline, replace(SETTINGS, columns=columns))
    pairs = [(row["text"], f"and {row['text']}") for row in NEW]
    new = write_csv(tmp_path / "new.csv", [["left", "right"], *pairs], ",")
    rows = predict(capsys, tmp_path, new)
    assert [row["label"] for row in rows] == [row["label"] for row in NEW]
    assert [(row["text"], row["text_pair"]) for row in rows] == pairs
    table = dana.load(tmp_path).predict(pairs)
    assert [*table["label"]] == [row["label"] for row in NEW]
    with pytest.raises(DataError, match=r"texts\[0\]: must be a pair of texts"):
        dana.load(tmp_path).predict(["alone"])
    assert "no 'right'; found left, n" in error_of(
        capsys, tmp_path, write_csv(tmp_path / "one.csv", [["left", "n"], ["a", 1]])
    )


# What init found


def test_init_remembers_names_of_columns_separator_and_header(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [[row["id"], row["text"], row["label"]] for row in ROWS]
    pool = tmp_path / "pool.jsonl"
    pool.write_text("".join(json.dumps({"text": text}) + "\n" for text in STRANGE))
    found = {}
    for name, header in (("named", [["Doc_ID", "sentence", "category"]]), ("bare", [])):
        write_csv(tmp_path / f"{name}.csv", [*header, *rows])
        dana.init(f"{name}.csv", pool, quiet=True)
        found[name] = Columns.of_card(TaskCard.read(tmp_path / name / "card.yaml"))
    assert found["named"] == Columns("sentence", id="Doc_ID", separator=";")
    assert found["bare"] == Columns("2", separator=";", header=False)


def test_a_table_without_a_header_is_read_by_its_places(runs, tmp_path, capsys):
    folder = shutil.copytree(runs / TFIDF / "model", tmp_path / "bare")
    description = open_result(folder).description
    replace(description, columns=Columns("2", header=False)).write(folder)
    texts = [row["text"] for row in NEW]
    for rows in (list(enumerate(texts)), [[text] for text in texts]):
        answers = predict(capsys, folder, write_csv(tmp_path / "new.csv", rows))
        assert [row["text"] for row in answers] == texts


# Texts unlike those of the training


@pytest.mark.parametrize("form", [TFIDF, VECTORS, FINE_TUNED])
def test_the_share_of_unlike_texts_is_said(runs, tmp_path, capsys, caplog, form):
    texts = [*(row["text"] for row in toy_task.rows(60, 5)), *STRANGE[:20]]
    with caplog.at_level("INFO", logger="dana"):
        rows = predict(capsys, runs / form, new_table(tmp_path / "new.csv", texts))
    unlike = [row["unlike"] for row in rows]
    share = round(100 * sum(unlike) / 80)
    assert f"{share} % of 80 texts are unlike what the model was trained on" in caplog.text
    assert sum(unlike[:60]) <= 9, "about 5 % of texts of the same kind"
    assert all(unlike[60:])
    table = dana.load(runs / form).predict(texts)
    assert [*table["unlike"]] == unlike
    out = tmp_path / "out.csv"
    assert main(["predict", str(runs / form), str(tmp_path / "new.csv"), "--out", str(out)]) == 0
    assert (
        main(["predict", str(runs / form), str(tmp_path / "new.csv"), "--out", str(out), "--json"])
        == 0
    )
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["unlike"] == pytest.approx(sum(unlike) / 80)


def test_the_limit_is_exceeded_by_a_twentieth_of_held_out_texts():
    random = np.random.default_rng(0)
    vectors = random.normal(size=(2000, 5))
    pool = random.normal(size=(500, 5)) + 1
    for detector, background in (("knn", None), ("density_ratio", pool)):
        likeness = fit_likeness(vectors[:1000], np.arange(1000) % 5, detector, background)
        assert np.mean(likeness.is_unlike(vectors[1000:])) == pytest.approx(0.05, abs=0.02)
    assert fit_likeness(vectors[:10], np.arange(10) % 5) is None
    assert fit_likeness(np.ones((50, 5)), np.arange(50) % 5) is None
    assert fit_likeness(vectors, np.zeros(2000)) is None


def test_a_detector_that_is_not_installed_leaves_the_predictions(runs, tmp_path, caplog):
    folder = shutil.copytree(runs / TFIDF / "model", tmp_path / "model")
    texts = [row["text"] for row in NEW]
    before = dana.load(folder).predict(texts)
    file = folder / "likeness.json"
    file.write_text(file.read_text().replace("density_ratio", "of_a_stranger"))
    with caplog.at_level("WARNING", logger="dana"):
        after = dana.load(folder).predict(texts)
    assert "unknown detector 'of_a_stranger'" in caplog.text
    pd.testing.assert_frame_equal(after, before.drop(columns="unlike"))
    assert Likeness.load(tmp_path) is None


# Where a model is


@pytest.mark.parametrize("use", ["command", "function"])
def test_the_former_model_is_restored_where_its_replacement_was_killed(runs, tmp_path, capsys, use):
    run = shutil.copytree(runs / TFIDF, tmp_path / "run")
    (run / "model").rename(run / ".model.old")
    if use == "command":
        assert predict(capsys, run, new_table(tmp_path / "new.csv"))
    else:
        assert len(dana.load(run / "model").predict(["an owl"])) == 1
    assert [path.name for path in run.iterdir() if "model" in path.name] == ["model"]


def test_a_moved_model_needs_nothing_of_its_run(runs, tmp_path):
    texts = [row["text"] for row in NEW]
    for form in (TFIDF, VECTORS, FINE_TUNED):
        moved = shutil.copytree(runs / form / "model", tmp_path / form)
        expected = dana.load(runs / form).predict(texts)
        pd.testing.assert_frame_equal(dana.load(moved).predict(texts), expected)


def test_what_is_no_model_is_one_line(runs, tmp_path, capsys, monkeypatch):
    new = new_table(tmp_path / "new.csv")
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "recipe.yaml").write_text("out: .\n")
    assert f"this run has no model yet; make it with: dana run {begun}" in error_of(
        capsys, begun, new
    )
    (tmp_path / "empty").mkdir()
    assert "no classifier here" in error_of(capsys, tmp_path / "empty", new)
    folder = shutil.copytree(runs / TFIDF / "model", tmp_path / "model")
    file = folder / "result.json"
    content = file.read_text()
    for text, message in (
        ("{", "cannot be read"),
        ("{}", "damaged: no format"),
        (content.replace('"format": 1', '"format": 9'), "this dana reads format 1"),
        (content.replace('"tfidf"', '"other"'), "must be one of tfidf, vectors, fine-tuned"),
        (content.replace('"owl"', '"x"').replace('"bird"', '"x"'), "predicts 'bird', unlike"),
        (content.replace('"kind"', '"sort"'), "damaged"),
    ):
        file.write_text(text)
        assert message in error_of(capsys, folder, new)
    file.write_text(content)
    (folder / "model.skops").write_bytes(b"PK nothing")
    assert "model.skops: cannot be read" in error_of(capsys, folder, new)
    (folder / "model.skops").unlink()
    assert "model.skops: cannot be read" in error_of(capsys, folder, new)
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    assert "to open it: pip install skops scikit-learn" in error_of(capsys, folder, new)


def test_a_pipeline_with_other_types_is_refused(runs, tmp_path):
    from sklearn.preprocessing import FunctionTransformer
    from skops.io import dump

    folder = shutil.copytree(runs / TFIDF / "model", tmp_path / "model")
    dump(make_pipeline(FunctionTransformer(shutil.rmtree)), folder / "model.skops")
    with pytest.raises(ArtifactError, match=r"is not what dana saves.*rmtree"):
        open_result(folder)


def test_a_model_of_another_scikit_learn_is_opened_with_a_warning(runs, tmp_path, caplog):
    folder = shutil.copytree(runs / TFIDF / "model", tmp_path / "model")
    description = open_result(folder).description
    replace(description, versions={"scikit-learn": "1.6.0"}).write(folder)
    with caplog.at_level("WARNING", logger="dana"):
        open_result(folder)
    assert "saved by scikit-learn 1.6.0, here is" in caplog.text


# Bad input


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("new.csv", "", "new.csv:1: the file is empty"),
        ("new.csv", "n;body\n1;x\n", "new.csv:2: no 'sentence'; found n, body; --text-field names"),
        (
            "new.csv",
            "n;sentence\n1;x\n2\n",
            "new.csv:3: expected 2 columns as in the header, got 1",
        ),
        ("new.csv", "n;sentence\n1;\n", "new.csv:2: the text is empty"),
        ("new.csv", "n;sentence\n", "no text to label"),
        ("new.csv", "sentence;sentence\na;b\n", "names the column 'sentence' twice"),
        ("new.jsonl", '{"sentence": 3}\n', "new.jsonl:1: 'sentence' is int, not text"),
        ("new.parquet", "PAR1", "not a Parquet file, or damaged"),
        ("new.odt", "x", "new.odt"),
    ],
)
def test_what_cannot_be_labelled_is_one_line(runs, tmp_path, capsys, name, content, message):
    (tmp_path / name).write_text(content)
    assert message in error_of(capsys, runs / TFIDF, tmp_path / name)


def test_a_wrong_output_is_refused_before_the_model_is_opened(runs, tmp_path, capsys):
    new = new_table(tmp_path / "new.csv")
    message = error_of(capsys, runs / TFIDF, new, "--out", tmp_path / "x.txt")
    assert "must be a file that ends in .csv, .parquet, .jsonl" in message
    assert "is one of the input files" in error_of(capsys, tmp_path / "none", new, "--out", new)


def test_rows_in_memory_have_the_columns_of_the_table(runs):
    model = dana.load(runs / TFIDF)
    assert model.labels == tuple(NAMES)
    texts = [row["text"] for row in NEW]
    table = pd.DataFrame({"n": range(12), "sentence": texts})
    expected = model.predict(texts)
    for rows in (table, table.to_dict("records"), table["sentence"], (text for text in texts)):
        pd.testing.assert_frame_equal(model.predict(rows), expected)
    for rows, message in (
        ("one text", "texts: is a str; give a list"),
        ([], "texts: holds no text"),
        (["a", None], r"texts\[1\]"),
        (["a", " "], r"texts\[1\]: the text is empty"),
        ([{"body": "x"}], r"texts\[0\]: no 'sentence'; found body"),
        ([{"sentence": None}], r"texts\[0\]: 'sentence' is null, not text"),
    ):
        with pytest.raises(DataError, match=message):
            model.predict(rows)
