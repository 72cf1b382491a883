"""``import dana`` offers every public name and imports nothing heavy before it is used."""

import logging
import subprocess
import sys

import pytest

import dana
from dana.core.logging import messages


def test_import_imports_nothing_heavy():
    heavy = "('torch', 'transformers', 'numpy', 'pandas', 'pyarrow', 'sklearn', 'datasets', 'yaml', 'tqdm')"
    code = f"import sys, dana; dir(dana); print([name for name in {heavy} if name in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out == "[]\n"


def test_every_name_is_found_and_says_what_it_is():
    for name in dana.__all__:
        assert name in dir(dana)
        assert getattr(dana, name).__name__ == name
        assert getattr(dana, name).__doc__
    with pytest.raises(AttributeError, match="rnak"):
        dana.rnak  # noqa: B018


@pytest.mark.slow
def test_type_checkers_see_signatures_and_unknown_names(tmp_path):
    file = tmp_path / "use.py"
    file.write_text("import dana\nreveal_type(dana.rank)\ndana.rnak\ndana.score(out=3)\n")
    out = subprocess.run(
        [sys.executable, "-m", "mypy", str(file)], capture_output=True, text=True
    ).stdout
    words = {2: "def (task:", 3: 'has no attribute "rnak"', 4: 'Argument "out"'}
    for line, text in words.items():
        assert any(
            f"use.py:{line}:" in message and text in message for message in out.splitlines()
        ), out


def test_functions_show_the_messages_of_their_command_unless_quiet(
    task_texts, pool_texts, tmp_path
):
    texts = f"{task_texts[:30]!r}, {pool_texts[:30]!r}, selector='lexical'"
    code = f"import dana; scores = dana.score({texts}%s); dana.weigh(scores%s)"
    for quiet, spoken in (("", True), (", quiet=True", False)):
        out = subprocess.run(
            [sys.executable, "-c", code % (quiet, quiet)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert (out.stdout, "selector" in out.stderr or "pool" in out.stderr) == ("", spoken), (
            out.stderr
        )
        assert spoken or not out.stderr


def test_an_application_keeps_its_handlers_and_level(monkeypatch):
    logger, records = logging.getLogger("dana"), []
    handler = logging.Handler()
    handler.emit = records.append
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "level", logging.WARNING)
    for quiet in (False, True):
        with messages(quiet):
            logger.info("no")
            logger.warning("one")
        assert logger.handlers == [handler]
    assert [record.getMessage() for record in records] == ["one"]
