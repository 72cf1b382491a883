"""``import dana`` offers every public name and imports nothing heavy before it is used."""

import subprocess
import sys

import pytest

import dana


def test_import_takes_less_than_a_tenth_of_a_second_and_imports_nothing_heavy():
    heavy = "('torch', 'transformers', 'numpy', 'pandas', 'pyarrow', 'sklearn', 'datasets', 'yaml', 'tqdm')"
    code = (
        "import sys, time; start = time.perf_counter(); import dana; dir(dana); "
        f"print(time.perf_counter() - start, [name for name in {heavy} if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    seconds, _, modules = out.strip().partition(" ")
    assert modules == "[]"
    assert float(seconds) < 0.1


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
    out = subprocess.run([sys.executable, "-m", "mypy", str(file)], capture_output=True, text=True).stdout
    words = {2: "def (task:", 3: 'has no attribute "rnak"', 4: 'Argument "out"'}
    for line, text in words.items():
        assert any(f"use.py:{line}:" in message and text in message for message in out.splitlines()), out
