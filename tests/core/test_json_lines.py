"""JSON lines: what a line is, and that a packed file's bytes depend on nothing but the rows."""

import gzip
import json

from dana.core.files import json_lines, write_packed_lines

ROWS = [{"id": "1", "text": "größer\nals"}, {"id": "2", "text": "\u2028"}]


def test_a_row_is_a_line_of_readable_text():
    assert json_lines(ROWS).splitlines(keepends=False)[0] == '{"id": "1", "text": "größer\\nals"}'
    assert [json.loads(line) for line in json_lines(ROWS).split("\n")[:-1]] == ROWS
    assert json_lines([]) == ""


def test_a_packed_file_is_the_same_under_any_name(tmp_path):
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        assert write_packed_lines(tmp_path / name, iter(ROWS)) == 2
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()
    assert (tmp_path / "a.jsonl.gz").read_bytes()[4:8] == bytes(4), "no time"
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()).decode() == json_lines(ROWS)
