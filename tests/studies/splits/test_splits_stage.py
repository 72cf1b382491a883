"""``splits make`` and ``audit``: hashes of lines, keep-first, draw, cap; what is written, printed and counted."""

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dana.cli.main import main
from dana.core.errors import DataError
from dana.studies.splits.aligned import open_aligned
from dana.studies.splits.stage import (
    Outcome,
    SplitSettings,
    assign_splits,
    audit_folders,
    hash_lines,
    keep_first,
    read_overlap,
    splits_stage,
)
from tests.studies.toy_pool import content

# Few different lines, so that they repeat, and empty ones.
LINES = st.sampled_from(["", *"abcdefgh"])
PAIRS = st.lists(st.tuples(LINES, LINES), min_size=1, max_size=60)


def outcomes(rows):
    return keep_first(*hash_lines(rows)).tolist()


def distinct(count, start=0):
    return [(f"s{at}", f"t{at}") for at in range(start, start + count)]


def assign(rows, **sizes):
    return assign_splits({"x": hash_lines(rows, sizes.get("seed", 0))}, SplitSettings(**sizes))["x"]


def select(rows, outcome, code):
    return [row for row, results in zip(rows, outcome.tolist(), strict=True) if results == code]


def test_what_was_dropped_does_not_stand_in_the_way():
    """(b, y) is kept: y was seen, but in no pair that is kept."""
    rows = [
        ("a", "x"),
        ("a", "y"),
        ("b", "y"),
        ("c", "x"),
        ("b", "x"),
        ("", "z"),
        ("d", ""),
        ("e", "z"),
    ]
    results = [Outcome(code).name for code in outcomes(rows)]
    assert results == [
        "TRAIN",
        "REPEATED",
        "TRAIN",
        "REPEATED",
        "REPEATED",
        "BLANK",
        "BLANK",
        "TRAIN",
    ]


def greedy(rows):
    """The same with two sets of lines."""
    sources, targets, results = set(), set(), []
    for source, target in rows:
        repeats = source in sources or target in targets
        results.append(
            Outcome.BLANK
            if not source or not target
            else Outcome.REPEATED
            if repeats
            else Outcome.TRAIN
        )
        if source and target and not repeats:
            sources.add(source)
            targets.add(target)
    return results


@given(PAIRS)
def test_keep_first_is_the_greedy_loop_over_two_sets(rows):
    assert outcomes(rows) == greedy(rows)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=60, max_size=150),
    st.data(),
)
def test_nothing_repeats_and_nothing_crosses_in_any_domain_or_between(numbers, data):
    rows = [
        (f"s{source}" if source else "", f"t{target}" if target else "")
        for source, target in numbers
    ]
    cut = data.draw(st.integers(30, len(rows) - 30))
    domains = {"one": rows[:cut], "two": rows[cut:]}
    sizes = SplitSettings(
        dev=2,
        test=3,
        cap=data.draw(st.sampled_from([None, 1, 5])),
        seed=data.draw(st.integers(0, 3)),
    )
    try:
        results = assign_splits(
            {name: hash_lines(rows, sizes.seed) for name, rows in domains.items()}, sizes
        )
    except DataError:  # too few are kept
        return
    held_out, train = [], []
    for name, rows in domains.items():
        parts = {
            code: select(rows, results[name], code)
            for code in (Outcome.TRAIN, Outcome.DEV, Outcome.TEST)
        }
        assert [len(parts[code]) for code in (Outcome.DEV, Outcome.TEST)] == [2, 3]
        assert 1 <= len(parts[Outcome.TRAIN]) <= (sizes.cap or len(rows))
        for side in (0, 1):
            lines = [row[side] for part in parts.values() for row in part]
            assert "" not in lines
            assert max(Counter(lines).values()) == 1
        held_out += parts[Outcome.DEV] + parts[Outcome.TEST]
        train += parts[Outcome.TRAIN]
    for side in (0, 1):
        lines = [row[side] for row in held_out]
        assert len(set(lines)) == len(lines)
        assert not {row[side] for row in train} & set(lines)


def test_the_draw_is_by_the_source_and_the_seed_alone():
    rows = distinct(100)
    outcome = assign(rows, dev=10, test=20)
    again = assign(rows[::-1], dev=10, test=20)
    other_targets = assign([(source, target + "!") for source, target in rows], dev=10, test=20)
    assert again[::-1].tolist() == outcome.tolist() == other_targets.tolist()
    assert assign(rows, dev=10, test=20, seed=1).tolist() != outcome.tolist()


def test_test_is_the_smallest_hashes_then_dev_then_what_a_cap_keeps():
    rows = distinct(100)
    order = np.argsort(hash_lines(rows)[0])
    reference = np.full(100, Outcome.OVER_CAP)
    for start, end, code in ((0, 20, Outcome.TEST), (20, 30, Outcome.DEV), (30, 45, Outcome.TRAIN)):
        reference[order[start:end]] = code
    assert assign(rows, dev=10, test=20, cap=15).tolist() == reference.tolist()


def test_hashes_are_the_same_on_every_machine():
    """Pinned; an empty line is 0."""
    source, target = hash_lines([("Haus", "house"), ("", "é")], seed=3)
    assert source.tolist() == [11399868122390626114, 0]
    assert target.tolist() == [3756309148455155062, 1146287752342852906]
    assert hash_lines([("Haus", "house")], seed=4)[0] != source[0]


REASONS = ["repeated", "blank", "held_out_elsewhere", "over_cap"]
SIZES = SplitSettings(dev=4, test=5, cap=20)


def lines(name, count):
    """Every fourth source and every fifth target was there before, and every tenth target is blank."""
    source = [f"{name} Quelle {at - 3 if at % 4 == 3 else at}" for at in range(count)]
    target = [
        "" if at % 10 == 9 else f"{name} target {at - 4 if at % 5 == 4 else at}"
        for at in range(count)
    ]
    return source, target


def write_domain(folder, name, count=100):
    files = [folder / f"{name}.{side}" for side in ("de", "en")]
    for file, column in zip(files, lines(name, count), strict=True):
        file.write_text("".join(f"{line}\n" for line in column))
    return files


@pytest.fixture
def domains(tmp_path):
    return {
        name: open_aligned(write_domain(tmp_path, name), ["de", "en"]) for name in ("law", "it")
    }


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
        copies = [
            Path(shutil.copy(file, tmp_path / "moved" / f"{name}-{file.name}.txt"))
            for file in text.files
        ]
        copies_by_name[name] = open_aligned(copies, ["de", "en"])
    again = splits_stage(copies_by_name, tmp_path / "again", SIZES)
    assert content(tmp_path / "out") == content(tmp_path / "again")
    assert first.fingerprint == again.fingerprint
    assert len(content(tmp_path / "out")) == 8


def test_a_file_that_changes_while_it_is_read_is_refused(domains, tmp_path, monkeypatch):
    file = domains["it"].files[1]
    monkeypatch.setattr(
        "dana.studies.splits.stage.assign_splits", lambda *of: (file.touch(), assign_splits(*of))[1]
    )
    with pytest.raises(DataError, match=f"{file.name}: changed while it was read"):
        splits_stage(domains, tmp_path / "out", SIZES)


def test_the_audit_of_our_splits_finds_nothing_and_of_what_was_put_in_all(domains, tmp_path):
    splits_stage(domains, tmp_path / "out", SIZES)
    rows = read_overlap(tmp_path / "out")
    assert list(rows["domain"]) == ["law"] * 6 + ["it"] * 6  # in the order given
    assert not rows["shared"].any()
    audit = audit_folders([tmp_path / "out"])
    pd.testing.assert_frame_equal(
        audit.sort_values("domain", ascending=False, kind="stable", ignore_index=True), rows
    )
    external = tmp_path / "theirs"
    external.mkdir()
    for split in ("train", "dev", "test"):
        table(tmp_path / "out", "it", split).to_json(
            external / f"{split}.jsonl", orient="records", lines=True
        )
    dev = table(tmp_path / "out", "it", "dev")
    with (external / "train.jsonl").open("a") as train:
        for at in range(3):
            pair = (
                {"de": dev.de[at], "en": f"other {at}"} if at else {"de": "other", "en": dev.en[0]}
            )
            train.write(json.dumps(pair) + "\n")
    files = audit_folders([external], ["de", "en"], tmp_path / "audit")
    assert files["shared"].tolist() == [2, 1, 3, 0, 0, 0]
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "audit" / "overlap.csv"), files)


def test_the_command_prints_sizes_and_the_audit(tmp_path, capsys):
    base = [
        "studies",
        "splits",
        "make",
        "--domain",
        "it",
        *write_domain(tmp_path, "it"),
        "--sides",
        "de",
        "en",
        "--cap",
        20,
    ]
    assert main([*map(str, [*base, "--dev", 4, "--test", 5, "--out", tmp_path / "out"])]) == 0
    heading, sizes, _, columns, *overlap = capsys.readouterr().out.splitlines()
    assert heading.split() == ["domain", "in", *REASONS, "train", "dev", "test"]
    assert sizes.split() == ["it", "100", "25", "10", "0", "36", "20", "4", "5"]
    assert columns.split() == ["share", "of", "domain", "de", "en", "either"]
    assert overlap[0].count("0/4 (0.00%)") == 3
    assert main(["studies", "splits", "audit", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.splitlines() == [columns, *overlap[:2]]
