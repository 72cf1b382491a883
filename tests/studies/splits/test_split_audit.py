"""Overlap of dev and test with train, counted by hand."""

import pytest

from dana.studies.splits.aligned import open_aligned
from dana.studies.splits.stage import audit_domains


@pytest.fixture
def write(tmp_path):
    """Writes pairs, or single texts, and opens them."""

    def write(name, rows):
        files = []
        for side in range(len(rows[0])):
            files.append(tmp_path / f"{name}.{side}")
            files[-1].write_text("".join(f"{row[side]}\n" for row in rows))
        return open_aligned(files, [f"side{side}" for side in range(len(files))])

    return write


def audit_of(domains):
    return audit_domains(domains).to_dict("records")


def shared_counts(rows, **where):
    """Counts by side, of the rows that are asked for."""
    return {row["side"]: row["shared"] for row in rows if where.items() <= row.items()}


TRAIN = [("a", "x"), ("b", "y"), ("b", "z"), ("", "w"), ("c", "")]
DEV = [("a", "-"), ("-", "y"), ("b", "z"), ("x", "a"), ("", "-"), ("a", "-2"), ("-3", "")]
TEST = [("-", "x"), (" a ", "q"), ("q", "q")]


def test_by_each_side_and_by_either(write):
    rows = audit_of({"d": {"train": write("train", TRAIN), "dev": write("dev", DEV), "test": write("test", TEST)}})
    assert shared_counts(rows, split="dev") == {"side0": 3, "side1": 2, "either": 4}
    assert shared_counts(rows, split="test") == {"side0": 1, "side1": 1, "either": 2}
    assert [row["split"] for row in rows[::3]] == ["dev", "test"]
    assert rows[0] == {"domain": "d", "split": "dev", "side": "side0", "lines": 7, "shared": 3, "share": 3 / 7}


def test_each_domain_is_looked_for_in_its_own_train(write):
    one = {"train": write("t1", [("a", "1")]), "dev": write("d1", [("b", "2")]), "test": write("e1", [("c", "9")])}
    two = {"train": write("t2", [("b", "3")]), "test": write("e2", [("b", "4"), ("a", "1"), ("e", "9")])}
    rows = audit_of({"one": one, "two": two})
    assert shared_counts(rows, domain="one", split="dev")["either"] == 0
    assert shared_counts(rows, domain="two", split="test")["either"] == 1
    assert shared_counts(rows, domain="two", split="dev") == {}
