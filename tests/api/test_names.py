"""``import dana`` offers every public name and imports nothing heavy before it is used."""

import subprocess
import sys

import pytest

import dana


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_import_takes_less_than_a_tenth_of_a_second_and_imports_nothing_heavy():
    heavy = "('torch', 'transformers', 'numpy', 'pandas', 'pyarrow', 'sklearn', 'datasets', 'yaml', 'tqdm')"
    code = (
        "import sys, time; start = time.perf_counter(); import dana; dir(dana); "
        f"print(time.perf_counter() - start, [name for name in {heavy} if name in sys.modules])"
    )
    seconds, _, modules = run_python(code).partition(" ")
    assert modules == "[]"
    assert float(seconds) < 0.1


@pytest.mark.parametrize("name", dana.__all__)
def test_every_name_is_found_and_says_what_it_is(name):
    assert name in dir(dana)
    assert getattr(dana, name).__name__ == name
    assert getattr(dana, name).__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="rnak"):
        dana.rnak  # noqa: B018


@pytest.mark.slow
def test_type_checkers_see_signatures_and_unknown_names(tmp_path):
    file = tmp_path / "use.py"
    file.write_text("import dana\nreveal_type(dana.rank)\ndana.rnak\ndana.score(out=3)\n")
    ran = subprocess.run([sys.executable, "-m", "mypy", str(file)], capture_output=True, text=True)
    lines = [line for line in ran.stdout.splitlines() if line.startswith(str(file)) or "use.py" in line]
    assert any(":2:" in line and "def (task:" in line for line in lines)
    assert any(":3:" in line and 'has no attribute "rnak"' in line for line in lines)
    assert any(":4:" in line and 'Argument "out"' in line for line in lines)
