"""What is said of files: how plain text was cut, characters that were lost."""

import pytest

from dana.corpus.documents import Tally, read_documents


@pytest.fixture
def said(caplog):
    """Reads files and gives the log lines."""
    caplog.set_level("INFO", "dana")

    def read(*paths):
        list(read_documents([str(path) for path in paths], "skip", Tally()))
        return [record.getMessage() for record in caplog.records]

    return read


def test_how_plain_text_was_cut_is_said(tmp_path, said):
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "b.txt").write_text("one b\nand\n\ntwo b\n")
    (tmp_path / "c.jsonl").write_text('{"text": "c"}\n')
    assert said(tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "c.jsonl") == [
        f"input     {tmp_path}/a.txt: 3 documents, one per line",
        f"input     {tmp_path}/b.txt: 2 documents, one per paragraph (between blank lines)",
    ]


def test_lost_characters_are_said(tmp_path, said):
    (tmp_path / "x.txt").write_bytes("Zwölf\nBoxkämpfer\nlaufen\n".encode("latin-1"))
    (warning,) = [line for line in said(tmp_path / "x.txt") if "U+FFFD" in line]
    assert warning.startswith(f"{tmp_path}/x.txt: 2 records hold U+FFFD")
