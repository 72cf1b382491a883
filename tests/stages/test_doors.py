"""Every form of a table gives every door the same rows: init, its pool, score, predict, a card."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import datasets
import pandas as pd
import pytest
import yaml
import zstandard

from dana.cli.main import main
from dana.core.errors import DataError
from dana.core.schemas import iterate_documents
from dana.corpus import sources
from dana.corpus.head import sample_documents
from dana.corpus.inputs import Inputs
from dana.stages.predict import NewText
from dana.stages.texts import pool_stage, target_stage
from dana.tasks.card import TaskCard
from dana.tasks.columns import Columns
from dana.tasks.examples import read_split
from dana.tasks.kinds import find_kind
from dana.tasks.labelled import read_labelled

TEXTS = [f'Die Größe der {n}. Birne, "süß"; und | mehr' for n in range(12)]
TEXTS += [f"Zinc – {n} pieces of lead" for n in range(12)]
ROWS = [{"text": text, "label": "fm"[place // 12]} for place, text in enumerate(TEXTS)]
HEADER = ["text", "label"]


def delimited(mark=",", end="\n", header=True, quoting=csv.QUOTE_MINIMAL, before="", after=""):
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=mark, quoting=quoting, lineterminator=after + end)
    if header:
        writer.writerow(HEADER)
    writer.writerows([row[name] for name in HEADER] for row in ROWS)
    return before + stream.getvalue()


def unquoted(mark):
    lines = [HEADER, *([row[name] for name in HEADER] for row in ROWS)]
    return "".join(mark.join(line) + "\n" for line in lines)


def json_lines(end="\n"):
    return end.join(json.dumps(row, ensure_ascii=False) for row in ROWS) + end


def text(content, encoding="utf-8", pack=bytes):
    return lambda path: path.write_bytes(pack(content.encode(encoding)))


def saved(path):
    datasets.disable_progress_bars()
    datasets.Dataset.from_list(ROWS).save_to_disk(path, num_shards=2)


def saved_dictionary(path):
    parts = {"train": ROWS[:16], "validation": ROWS[16:]}
    dictionary = {name: datasets.Dataset.from_list(rows) for name, rows in parts.items()}
    datasets.DatasetDict(dictionary).save_to_disk(path)


def sheet(path):
    frame = pd.DataFrame([["A report", None], [None, None], HEADER])
    rows = pd.DataFrame([[row[name] for name in HEADER] for row in ROWS])
    pd.concat([frame, rows]).to_excel(path, header=False, index=False)


def keys(path):
    for label in "fm":
        (path / f"label={label}").mkdir(parents=True)
        texts = [{"text": row["text"]} for row in ROWS if row["label"] == label]
        pd.DataFrame(texts).to_csv(path / f"label={label}" / "part.csv", index=False)


def parts(path):
    path.mkdir()
    pd.DataFrame(ROWS[:9]).to_csv(path / "a.csv", index=False, sep=";")
    pd.DataFrame(ROWS[9:20]).to_parquet(path / "b.parquet")
    (path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS[20:]))


FILES = {
    "comma.csv": text(delimited()),
    "quoted.csv": text(delimited(quoting=csv.QUOTE_ALL)),
    "semicolon.csv": text(delimited(";"), "cp1252"),
    "bar.csv": text(delimited("|")),
    "tab.csv": text(delimited("\t", quoting=csv.QUOTE_ALL)),
    "mark.csv": text(delimited(";", "\r\n"), "utf-8-sig"),
    "wide.csv": text(delimited("\t"), "utf-16"),
    "returns.csv": text(delimited(end="\r")),
    "hint.csv": text(delimited(";", before="sep=;\n")),
    "title.csv": text(delimited(before="A report\n\n")),
    "ends.csv": text(delimited(after=",")),
    "quotes.tsv": text(unquoted("\t")),
    "table.txt": text(unquoted("\t")),
    "table": text(delimited(";", quoting=csv.QUOTE_ALL)),
    "lines": text(json_lines()),
    "lines.jsonl": text(json_lines()),
    "lines.ndjson": text(json_lines("\r\n"), "utf-8-sig"),
    "array.json": text(json.dumps(ROWS)),
    "printed.json": text(json.dumps(ROWS, indent=2)),
    "objects.json": text("\n".join(json.dumps(row, indent=1) for row in ROWS)),
    "table.parquet": lambda path: pd.DataFrame(ROWS).to_parquet(path),
    "table.xlsx": sheet,
    "packed.csv.gz": text(delimited(";"), "cp1252", gzip.compress),
    "packed.csv.bz2": text(delimited(), pack=bz2.compress),
    "packed.tsv.xz": text(unquoted("\t"), pack=lzma.compress),
    "packed.csv.zst": text(delimited("\t"), "utf-16", zstandard.compress),
    "packed.jsonl.bz2": text(json_lines(), pack=bz2.compress),
    "packed.jsonl.xz": text(json_lines(), pack=lzma.compress),
    "packed.json.gz": text(json.dumps(ROWS), pack=gzip.compress),
    "unpacked.csv.gz": text(delimited()),
    "packed.csv": text(delimited(), pack=gzip.compress),
    "saved": saved,
    "dictionary": saved_dictionary,
    "keys": keys,
    "parts": parts,
    "-": text(delimited(";"), "cp1252"),
    "pipe": text(json_lines()),
}
NO_CARD = ("table", "lines", "dictionary", "keys", "parts", "-", "pipe")


def given(path, monkeypatch):
    """Write a form, and return the source that names it."""
    name = path.name
    sources._stored.cache_clear()
    if name == "pipe":
        os.mkfifo(path)
        stored = path.with_suffix(".stored")
        FILES[name](stored)
        writer = threading.Thread(target=lambda: path.write_bytes(stored.read_bytes()))
        writer.start()
        return str(path)
    if name == "-":
        path = path.with_name("stdin")
        FILES[name](path)
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=path.open("rb")))
        return "-"
    FILES[name](path)
    return str(path)


def init(source, folder):
    table = read_labelled(source).texts
    pairs = zip(table["text"], table["label"], strict=True)
    return sorted(text for text, label in pairs if label == "fm"[TEXTS.index(text) // 12])


def pool(source, folder):
    made = pool_stage([source], folder / "run" / "pool")
    return sorted(document.text for document in iterate_documents(made.path))


def pool_of_init(source, folder):
    documents, _ = sample_documents([source], folder / "run", Inputs(), "fail", 1000)
    return sorted(document.text for document in documents)


def task(source, folder):
    made = target_stage(source, folder / "run" / "target")
    parts = [iterate_documents(made.path / name) for name in ("fit", "held_out")]
    return sorted(document.text for part in parts for document in part)


def predict(source, folder):
    examples = NewText([source]).examples(Columns(), find_kind("single_label")(("f", "m")))
    return sorted(example.text for example in examples)


def card(source, folder):
    path = Path(source)
    values = {
        "name": "t",
        "title": "t",
        "version": 1,
        "labels": ["f", "m"],
        "metric": "accuracy",
        "splits": {},
        "data": {"file": "{split}"},
    }
    (folder / "t.yaml").write_text(yaml.safe_dump(values))
    target = folder / path.name.replace(path.name.partition(".")[0], "train", 1)
    path.rename(target)
    examples = read_split(TaskCard.read(folder / "t.yaml"), "train")
    return sorted(one.text for one in examples if one.label == TEXTS.index(one.text) // 12)


DOORS = [init, pool, pool_of_init, task, predict, card]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
@pytest.mark.parametrize("name", FILES)
def test_every_form_gives_every_door_the_same_rows(name, door, tmp_path, monkeypatch):
    if door is card and name in NO_CARD:
        pytest.skip("a card names its files by their suffix")
    source = given(tmp_path / name, monkeypatch)
    assert door(source, tmp_path) == sorted(TEXTS)


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_table_without_a_header_has_numbers_at_every_door(door, tmp_path):
    path = tmp_path / "bare.csv"
    path.write_text(delimited(header=False), encoding="utf-8")
    if door is init:
        assert init(str(path), tmp_path) == sorted(TEXTS)
        assert read_labelled(path).columns == {"text": "1", "label": "2"}
        return
    inputs = Inputs(["1"])
    if door is pool:
        made = pool_stage([str(path)], tmp_path / "run" / "pool", inputs=inputs)
        read = [document.text for document in iterate_documents(made.path)]
    elif door is pool_of_init:
        documents, _ = sample_documents([str(path)], tmp_path, inputs, "fail", 1000)
        read = [document.text for document in documents]
    elif door is task:
        made = target_stage(str(path), tmp_path / "run" / "target", inputs=inputs)
        parts = [iterate_documents(made.path / name) for name in ("fit", "held_out")]
        read = [document.text for part in parts for document in part]
    else:
        columns = Columns("1", header=False)
        kind = find_kind("single_label")(("f", "m"))
        read = [example.text for example in NewText([str(path)]).examples(columns, kind)]
    assert sorted(read) == sorted(TEXTS)


def test_a_folder_of_a_file_per_text_is_read_alike_by_init_and_predict(tmp_path):
    for number, row in enumerate(ROWS):
        folder = tmp_path / "mail" / row["label"]
        folder.mkdir(parents=True, exist_ok=True)
        lines = row["text"].replace(". ", ".\n")
        (folder / f"{number}.txt").write_text(lines, encoding="cp1252" if number % 2 else "utf-8")
    labelled = read_labelled(tmp_path / "mail")
    expected = sorted(text.replace(". ", ".\n") for text in TEXTS)
    assert sorted(labelled.texts["text"]) == expected
    assert labelled.form == {"text_documents": "file"}
    columns = Columns(text_documents="file")
    kind = find_kind("single_label")(("f", "m"))
    examples = NewText([str(tmp_path / "mail")]).examples(columns, kind)
    assert sorted(example.text for example in examples) == expected


def test_standard_input_is_a_table_of_init_and_no_pool(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # A pool of nothing but the labelled texts would be refused.
    rows = [*ROWS, {**ROWS[0], "text": "A text without a label."}]
    pd.DataFrame(rows).to_csv("pool.csv", sep="|", index=False)
    for source, flags, message in (
        ("-", ["--pool", "pool.csv"], ""),
        ("pool.csv", ["--pool", "-"], "--pool -: dana run reads the text again; save it in a file"),
    ):
        given(tmp_path / "-", monkeypatch)
        assert main(["init", source, *flags, "--out", "t", "--folds", "2"]) == 2 * bool(message)
        assert message in capsys.readouterr().err
    assert sorted(pd.read_parquet("t/texts.parquet")["text"]) == sorted(TEXTS)


def test_nothing_from_standard_input_and_devices_are_refused(tmp_path, monkeypatch):
    sources._stored.cache_clear()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO()))
    with pytest.raises(DataError, match=r"^-: nothing came from it; pipe a file"):
        sources.expand("-")
    with pytest.raises(DataError, match=r"^/dev/zero: is a device, no file; name a file, or -"):
        sources.expand("/dev/zero")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "state.json: not as Dataset.save_to_disk writes it; save"),
        (
            '{"_data_files": [{"filename": "gone.arrow"}]}',
            "gone.arrow: is missing; copy the folder",
        ),
        ('{"_data_files": [], "_indices_data_files": [1]}', "its rows have an order of their own"),
    ],
)
def test_a_saved_folder_that_is_not_whole_is_refused(tmp_path, content, words):
    saved(tmp_path / "saved")
    (tmp_path / "saved" / "state.json").write_text(content)
    with pytest.raises(DataError, match=words):
        sources.expand(str(tmp_path / "saved"))
