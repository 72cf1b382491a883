"""Pairs of the translation study: what is dropped, what is refused."""

import pandas as pd
import pytest
from toy_translation import toy_lines, toy_settings, write_sides

from dana.core.errors import DataError
from dana.studies.translation.pairs import (
    AUDIT,
    open_pairs,
    pairs_stage,
    script_of,
    unknown_share,
)


def audit_of(artifact):
    return pd.read_csv(artifact.path / AUDIT).set_index(["domain", "split"])


def test_training_text_has_no_line_of_an_earlier_pair_or_of_held_out_text(tmp_path):
    settings = toy_settings(tmp_path, longest=9)
    german, english = toy_lines("kitchen", 40)
    tests = toy_lines("garden", 6, 1)
    german += [german[5], "neu hier", tests[0][2], "ein Satz ohne", "x " * 10]
    english += ["a new line", english[7], "one more line", tests[1][3], "y"]
    settings.train["kitchen"] = write_sides(
        tmp_path, "more", ([*german, "", "leer"], [*english, "nothing", " "])
    )
    artifact = pairs_stage(settings, tmp_path / "pairs")
    row = audit_of(artifact).loc["kitchen", "train"]
    # Repeats of a line that was drawn for development would be held out.
    counts = {"read": 45, "repeated": 2, "held_out": 2, "long": 1, "kept": 20}
    assert row[list(counts)].to_dict() == counts, "twenty are development text"
    train, dev = (open_pairs(artifact.path, "kitchen", split) for split in ("train", "dev"))
    assert len(dev) == 20
    assert sorted([*train["source"], *dev["source"]]) == sorted(toy_lines("kitchen", 40)[0])
    assert train["doc_id"].is_unique
    assert row["target_words"] == 6 * 20
    again = pairs_stage(settings, tmp_path / "again")
    assert open_pairs(again.path, "kitchen", "dev").equals(dev), "the draw is that of a hash"


def test_given_development_text_is_used_and_leaves_the_training_text_of_all_domains(tmp_path):
    settings = toy_settings(tmp_path)
    settings.dev["garden"] = write_sides(tmp_path, "dev", toy_lines("kitchen", 3))
    audit = audit_of(pairs_stage(settings, tmp_path / "pairs"))
    assert audit.loc[("garden", "dev"), "kept"] == 3
    assert audit.loc[("garden", "train"), "kept"] == 40
    assert audit.loc[("kitchen", "train"), "held_out"] == 3
    assert audit.loc[("kitchen", "train"), "kept"] == 17


def test_given_development_text_loses_lines_of_test_text(tmp_path):
    settings = toy_settings(tmp_path)
    tests = toy_lines("kitchen", 6, 1)
    lines = (
        ["noch ein Satz", "eine Zeile", tests[0][2]],
        ["one more line", tests[1][4], "a third line"],
    )
    settings.dev["garden"] = write_sides(tmp_path, "dev", lines)
    artifact = pairs_stage(settings, tmp_path / "pairs")
    row = audit_of(artifact).loc["garden", "dev"]
    assert row[["read", "held_out", "kept"]].tolist() == [3, 2, 1]
    assert open_pairs(artifact.path, "garden", "dev")["target"].tolist() == ["one more line"]
    settings.dev["garden"] = settings.test["kitchen"]
    with pytest.raises(DataError, match=r"dev garden: no pair is left \({'held_out': 6}\)"):
        pairs_stage(settings, tmp_path / "other")


def test_unknown_words_are_counted_as_they_run():
    assert unknown_share(["der Apfel", "rot"], ["Der Apfel, der Baum"]) == 0.25
    assert unknown_share([], [""]) == 0


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (
            (["ein Haus", "ein Baum"], ["a house"]),
            r"x\.de: 2 lines, .*x\.en: 1 lines: must be equal",
        ),
        ((["ein Haus", "ein Baum"], ["", " "]), r"x\.en: every line of the side en is empty"),
        ((["ein Haus", ""], ["", "a tree"]), "no line has text on both sides"),
        (
            (["ein Haus"] * 3, ["ein Haus"] * 2 + ["a house"]),
            "2 of 3 lines are the same as de and en",
        ),
        (
            (["один дом"] * 3, ["a house"] * 3),
            r"x\.de: its side de is in Cyrillic letters, must be in Latin ones",
        ),
        ((["ein Haus"] * 3, ["ένα σπίτι"] * 3), r"x\.en: its side en is in Greek letters"),
    ],
)
def test_bad_files_are_refused_by_name_and_nothing_is_left(tmp_path, lines, says):
    settings = toy_settings(tmp_path)
    settings.test["kitchen"] = write_sides(tmp_path, "x", lines)
    with pytest.raises(DataError, match=says):
        pairs_stage(settings, tmp_path / "pairs")
    assert not (tmp_path / "pairs").exists()


def test_unknown_languages_must_have_the_same_script_in_all_files(tmp_path):
    settings = toy_settings(tmp_path, sides=["one", "two"])
    pairs_stage(settings, tmp_path / "pairs")
    settings.test["garden"] = write_sides(tmp_path, "x", (["один дом"], ["a house"]))
    with pytest.raises(
        DataError, match="its side one is in Cyrillic letters, must be in Latin ones"
    ):
        pairs_stage(settings, tmp_path / "other")


def test_too_few_pairs_are_refused(tmp_path):
    with pytest.raises(DataError, match="train garden: 40 pairs are left, held_out=40 pairs"):
        pairs_stage(toy_settings(tmp_path, held_out=40), tmp_path / "pairs")


def test_scripts_are_those_of_most_letters():
    assert script_of(["Straße 12", "и"]) == "LATIN"
    assert script_of(["家は大きい 123 ab"]) == "HIRAGANA"
    assert script_of(["中文 a"]) == "CJK"
    assert script_of(["12 !"]) == "UNKNOWN"
