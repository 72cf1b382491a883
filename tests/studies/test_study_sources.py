"""``--verify`` in the commands of studies: where sources are read it is there, and elsewhere it is refused."""

import pytest

from tests.corpus.test_known_sources import test_help_names_verify as names_verify
from tests.corpus.test_known_sources import test_verify_is_refused_where_no_source_is_looked_at as is_refused


@pytest.mark.parametrize("line", ["clusters", "topics show", "topics fit", "compare --dry-run"])
def test_verify_is_refused_where_a_study_looks_at_no_source(line, tmp_path, monkeypatch, capsys):
    is_refused(line.split(), tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize("command", ["clusters", "topics", "compare"])
def test_help_of_a_study_names_verify(command, capsys):
    names_verify(command, capsys)
