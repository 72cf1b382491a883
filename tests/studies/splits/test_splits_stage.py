"""``dana splits make`` and ``dana splits audit``: what is written, said and counted."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from dana.cli.main import main
from dana.studies.splits.aligned import open_aligned
from dana.studies.splits.stage import SplitSettings, audit_folders, read_overlap, splits_stage
from tests.studies.toy_pool import content

REASONS = ["repeated", "blank", "held_out_elsewhere", "over_cap"]
SIZES = SplitSettings(dev=4, test=5, cap=20)


def lines(name, count):
    """Every fourth source and every fifth target was there before, and every tenth target is blank."""
    source = [f"{name} Quelle {at - 3 if at % 4 == 3 else at}" for at in range(count)]
    target = ["" if at % 10 == 9 else f"{name} target {at - 4 if at % 5 == 4 else at}" for at in range(count)]
    return source, target


def write_domain(folder, name, count=100):
    files = [folder / f"{name}.{side}" for side in ("de", "en")]
    for file, column in zip(files, lines(name, count), strict=True):
        file.write_text("".join(f"{line}\n" for line in column))
    return files


@pytest.fixture
def domains(tmp_path):
    return {name: open_aligned(write_domain(tmp_path, name), ["de", "en"]) for name in ("law", "it")}


def table(out, domain, split):
    return pd.read_parquet(out / domain / f"{split}.parquet")


def test_rows_are_those_of_the_input_in_its_order_and_none_shares_a_line(domains, tmp_path):
    splits_stage(domains, tmp_path / "out", SIZES)
    for name in domains:
        source, target = lines(name, 100)
        parts = [table(tmp_path / "out", name, split) for split in ("train", "dev", "test")]
        assert [len(part) for part in parts] == [20, 4, 5]
        for part in parts:
            assert part.columns.tolist() == ["line", "de", "en"]
            assert part.line.is_monotonic_increasing
            assert part.de.tolist() == [source[line - 1] for line in part.line]
            assert part.en.tolist() == [target[line - 1] for line in part.line]
        all_rows = pd.concat(parts)
        assert not all_rows.de.duplicated().any()
        assert not all_rows.en.duplicated().any()
        assert (all_rows.en != "").all()


def test_every_row_is_counted(domains, tmp_path):
    counts = splits_stage(domains, tmp_path / "out", SIZES).manifest["counts"]
    for of in (counts, *counts["domains"].values()):
        assert of["in"] == sum(count for name, count in of.items() if name not in ("in", "domains"))
    columns = ["in", *REASONS, "train", "dev", "test"]
    assert [counts["domains"]["it"][name] for name in columns] == [100, 25, 10, 0, 36, 20, 4, 5]
    assert counts["in"] == 200
    sizes = pd.read_csv(tmp_path / "out" / "sizes.csv", index_col="domain")
    assert sizes.loc["it", ["in", "blank", "over_cap", "train"]].tolist() == [100, 10, 36, 20]
    assert list(sizes.index) == ["law", "it"]


def test_the_same_settings_give_the_same_bytes(domains, tmp_path, monkeypatch):
    """Wherever the files lie, and whatever the blocks are."""
    first = splits_stage(domains, tmp_path / "out", SIZES)
    (tmp_path / "moved").mkdir()
    copies_by_name = {}
    for name, text in domains.items():
        copies = [Path(shutil.copy(file, tmp_path / "moved" / f"{name}-{file.name}.txt")) for file in text.files]
        copies_by_name[name] = open_aligned(copies, ["de", "en"])
    again = splits_stage(copies_by_name, tmp_path / "again", SIZES)
    assert content(tmp_path / "out") == content(tmp_path / "again")
    assert first.fingerprint == again.fingerprint
    assert len(content(tmp_path / "out")) == 8


def test_the_audit_of_our_splits_finds_nothing_and_of_what_was_put_in_all(domains, tmp_path):
    splits_stage(domains, tmp_path / "out", SIZES)
    rows = read_overlap(tmp_path / "out")
    assert list(rows["domain"]) == ["law"] * 6 + ["it"] * 6  # in the order given
    assert not rows["shared"].any()
    audit = audit_folders([tmp_path / "out"])
    pd.testing.assert_frame_equal(audit.sort_values("domain", ascending=False, kind="stable", ignore_index=True), rows)
    external = tmp_path / "theirs"
    external.mkdir()
    for split in ("train", "dev", "test"):
        table(tmp_path / "out", "it", split).to_json(external / f"{split}.jsonl", orient="records", lines=True)
    dev = table(tmp_path / "out", "it", "dev")
    with (external / "train.jsonl").open("a") as train:
        for at in range(3):
            pair = {"de": dev.de[at], "en": f"other {at}"} if at else {"de": "other", "en": dev.en[0]}
            train.write(json.dumps(pair) + "\n")
    files = audit_folders([external], ["de", "en"], tmp_path / "audit")
    assert files["shared"].tolist() == [2, 1, 3, 0, 0, 0]
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "audit" / "overlap.csv"), files)


def test_the_command_prints_sizes_and_the_audit(tmp_path, capsys):
    base = ["splits", "make", "--domain", "it", *write_domain(tmp_path, "it"), "--sides", "de", "en", "--cap", 20]
    assert main([*map(str, [*base, "--dev", 4, "--test", 5, "--out", tmp_path / "out"])]) == 0
    heading, sizes, _, columns, *overlap = capsys.readouterr().out.splitlines()
    assert heading.split() == ["domain", "in", *REASONS, "train", "dev", "test"]
    assert sizes.split() == ["it", "100", "25", "10", "0", "36", "20", "4", "5"]
    assert columns.split() == ["share", "of", "domain", "de", "en", "either"]
    assert overlap[0].count("0/4 (0.00%)") == 3
    assert main(["splits", "audit", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.splitlines() == [columns, *overlap[:2]]
