"""Pairs of the translation study: what is dropped, what is refused, message catalogues as training text."""

import gettext
import struct
from pathlib import Path

import pandas as pd
import pytest
from toy_translation import toy_lines, toy_settings, write_sides

from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.studies.translation.pairs import (
    AUDIT,
    CATALOGUES,
    open_pairs,
    pairs_stage,
    read_catalogues,
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
    counts = {"read": 45, "repeated": 2, "held_out": 2, "long": 1, "overlap": 0, "kept": 20}
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


def write_catalogue(
    folder: Path, name: str, messages: dict[str, str], charset: str = "UTF-8"
) -> Path:
    """A catalogue as gettext's msgfmt writes it."""
    rows = sorted({"": f"Content-Type: text/plain; charset={charset}\n", **messages}.items())
    both = [[text.encode(charset) for text in side] for side in zip(*rows, strict=True)]
    position, tables, blob = 28 + 16 * len(rows), [], b""
    for side in both:
        for text in side:
            tables.append(struct.pack("<II", len(text), position + len(blob)))
            blob += text + b"\0"
    path = folder / "share" / "de" / "LC_MESSAGES" / f"{name}.mo"
    path.parent.mkdir(parents=True, exist_ok=True)
    head = struct.pack("<7I", 0x950412DE, 0, len(rows), 28, 28 + 8 * len(rows), 0, 0)
    path.write_bytes(head + b"".join(tables) + blob)
    return path


MESSAGES = {
    "_Open the file\nnow": "_Öffne die Datei jetzt",
    "menu\x04&Close this window": "Dieses Fenster &schließen",
    "use file_name or cut & paste": "nimm file_name oder kopiere & klebe",
    "two words": "zwei Worte",
}


def test_messages_are_pairs_without_marks_of_menus_and_damaged_catalogues_are_left_out(
    tmp_path, heard
):
    catalogue = write_catalogue(tmp_path, "app", MESSAGES)
    damaged = [tmp_path / f"{name}.mo" for name in ("other", "short", "charset")]
    head = catalogue.read_bytes()
    contents = (b"none", head[:10], head.replace(b"charset=UTF-8", b"charset=FOO-8"))
    for file, content in zip(damaged, contents, strict=True):
        file.write_bytes(content)
    pairs, table = read_catalogues([catalogue, *damaged], ["de", "en"])
    expected = [
        ("Öffne die Datei jetzt", "Open the file now"),
        ("Dieses Fenster schließen", "Close this window"),
        ("nimm file_name oder kopiere & klebe", "use file_name or cut & paste"),
    ]
    assert sorted(zip(pairs["source"], pairs["target"], strict=True)) == sorted(expected)
    assert table["pairs"].tolist() == [3, 0, 0, 0]
    assert "catalogue" in heard.text
    with pytest.raises(DataError, match="no message catalogue has a translation of 3 words"):
        read_catalogues(damaged, ["de", "en"])
    swapped, _ = read_catalogues([write_catalogue(tmp_path, "app", MESSAGES)], ["en", "de"])
    assert swapped["source"].tolist() == pairs["target"].tolist()


def test_catalogues_of_the_machine_train_a_domain_without_what_test_text_has(tmp_path, monkeypatch):
    monkeypatch.setattr(gettext, "bindtextdomain", lambda domain: str(tmp_path / "share"))
    monkeypatch.setattr("dana.studies.translation.pairs.FOLDERS", ())
    messages = {
        f"message number {n} is {n * 7} long": f"Meldung Nummer {n} ist {n * 7} lang"
        for n in range(40)
    }
    messages["please see: Please, wait a moment!"] = "Bitte einen Moment warten"
    messages["kindly wait for some time"] = "Achtung. Bitte warten Sie jetzt"
    write_catalogue(tmp_path, "app", messages)
    settings = toy_settings(tmp_path, catalogues="it")
    settings.test["it"] = write_sides(
        tmp_path, "it", (["Bitte warten Sie jetzt"], ["Please wait a moment."])
    )
    artifact = pairs_stage(settings, tmp_path / "pairs")
    row = audit_of(artifact).loc["it", "train"]
    assert row[["read", "overlap", "kept"]].tolist() == [42, 2, 20]
    assert settings.domains == ["garden", "it", "kitchen"]
    assert pd.read_csv(artifact.path / CATALOGUES)["catalogue"].tolist() == ["app.mo"]
    write_catalogue(tmp_path, "app", {"another message is here": "hier steht noch etwas"})
    with pytest.raises(ArtifactError, match=r"catalogues\.it\.app\.mo"):
        pairs_stage(settings, tmp_path / "pairs")


def test_catalogues_need_english_and_files(tmp_path, monkeypatch):
    monkeypatch.setattr(gettext, "bindtextdomain", lambda domain: str(tmp_path))
    monkeypatch.setattr("dana.studies.translation.pairs.FOLDERS", ())
    for sides, says in ((["de", "fr"], "with en"), (["de", "en"], "message catalogues")):
        with pytest.raises(ConfigError, match=says):
            pairs_stage(toy_settings(tmp_path, catalogues="it", sides=sides), tmp_path / "pairs")
