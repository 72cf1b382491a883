"""The script of recipes/papers/domain_clusters that writes the messages of this machine's programs as parallel text."""

import gettext
import struct
import sys
from importlib import util
from pathlib import Path

import pandas as pd
import pytest

FILE = Path(__file__).parents[3] / "recipes" / "papers" / "domain_clusters" / "catalogues.py"


@pytest.fixture
def script(tmp_path, monkeypatch):
    """The script on a machine whose catalogues are in the test's folder alone."""
    monkeypatch.setattr(gettext, "bindtextdomain", lambda domain: str(tmp_path / "share"))
    spec = util.spec_from_file_location("catalogues_recipe", FILE)
    module = util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "FOLDERS", ())
    return module


def lines_of(folder, side):
    return (folder / f"messages.{side}").read_text(encoding="utf-8").splitlines()


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
    script, tmp_path, heard
):
    head = write_catalogue(tmp_path, "app", MESSAGES).read_bytes()
    contents = {
        "other": b"none",
        "short": head[:10],
        "charset": head.replace(b"charset=UTF-8", b"charset=FOO-8"),
    }
    for name, content in contents.items():
        write_catalogue(tmp_path, name, {}).write_bytes(content)
    out = tmp_path / "out"
    assert script.main(["--out", str(out)]) == 0
    expected = [
        ("Öffne die Datei jetzt", "Open the file now"),
        ("Dieses Fenster schließen", "Close this window"),
        ("nimm file_name oder kopiere & klebe", "use file_name or cut & paste"),
    ]
    pairs = list(zip(lines_of(out, "de"), lines_of(out, "en"), strict=True))
    assert sorted(pairs) == sorted(expected)
    table = pd.read_csv(out / "catalogues.csv").set_index("catalogue")
    assert table["pairs"].to_dict() == {"app.mo": 3, "charset.mo": 0, "other.mo": 0, "short.mo": 0}
    assert "cannot be read and is left out" in heard.text


def test_messages_that_text_apart_has_are_left_out(script, tmp_path):
    messages = {
        f"message number {n} is {n * 7} long": f"Meldung Nummer {n} ist {n * 7} lang"
        for n in range(40)
    }
    messages["please see: Please, wait a moment!"] = "Bitte einen Moment warten"
    messages["kindly wait for some time"] = "Achtung. Bitte warten Sie jetzt"
    write_catalogue(tmp_path, "app", messages)
    (tmp_path / "test.de").write_text("Bitte warten Sie jetzt\n", encoding="utf-8")
    (tmp_path / "test.en").write_text("Please wait a moment.\n", encoding="utf-8")
    apart = ["--apart", str(tmp_path / "test.de"), str(tmp_path / "test.en")]
    out = tmp_path / "out"
    assert script.main([*apart, "--out", str(out)]) == 0
    assert len(lines_of(out, "de")) == len(lines_of(out, "en")) == 40
    assert "Bitte einen Moment warten" not in lines_of(out, "de")


def test_catalogues_need_english_and_messages(script, tmp_path, capsys):
    out = tmp_path / "out"
    for sides in (["de", "fr"], ["en", "en"]):
        assert script.main(["--sides", *sides, "--out", str(out)]) == 2
        assert "must be en, the language of messages, and another" in capsys.readouterr().err
    assert script.main(["--out", str(out)]) == 2
    assert "must be a language with message catalogues" in capsys.readouterr().err
    write_catalogue(tmp_path, "app", {"two words": "zwei Worte"})
    assert script.main(["--out", str(out), "--dry-run"]) == 0
    assert script.main(["--out", str(out)]) == 2
    assert "no message catalogue has a translation of 3 words" in capsys.readouterr().err
    assert not out.exists()
