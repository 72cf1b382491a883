"""The structure that docs/architecture.md draws, held against the imports; what importing may cost.

What good code looks like stands in CONTRIBUTING.md and is looked at in review, not counted here.
"""

import re
import subprocess
import sys
from pathlib import Path

import architecture
from architecture import ROOT, circle, imported_files, python_files, room, study

from tests.present import needs_studies

# Room to the rooms that it may import.
ALLOWED = {
    "core": set(),
    "corpus": {"core"},
    "detectors": {"core"},
    "models": {"core"},
    "encoders": {"core", "models"},
    "tasks": {"core", "corpus"},
    "train": {"core", "models"},
    "weighting": {"core", "models"},
    "selectors": {"core", "corpus", "detectors", "encoders", "models", "train"},
    "finetuning": {"core", "detectors", "encoders", "models", "tasks", "train"},
    "report": {"core", "tasks"},
    "scoring": {"core", "corpus", "encoders", "selectors"},
    "stages": {
        "core",
        "corpus",
        "encoders",
        "finetuning",
        "models",
        "report",
        "scoring",
        "tasks",
        "train",
        "weighting",
    },
    "api": {"core", "corpus", "stages", "tasks", "train"},
    "dana": {"api", "core", "scoring", "selectors", "train"},
    "cli": {"core", "stages", "tasks"},
    "__main__": {"cli"},
    "studies": {
        "cli",
        "core",
        "corpus",
        "encoders",
        "models",
        "report",
        "scoring",
        "selectors",
        "stages",
        "tasks",
        "train",
        "weighting",
    },
    "recipes": {
        "cli",
        "core",
        "corpus",
        "encoders",
        "models",
        "report",
        "scoring",
        "stages",
        "studies",
        "train",
    },
    "benchmarks": {
        "core",
        "corpus",
        "detectors",
        "encoders",
        "finetuning",
        "models",
        "report",
        "scoring",
        "stages",
        "studies",
        "tasks",
        "train",
    },
}

# Study to the studies that it may import.
STUDIES = {
    "augmentation": {"topics"},
    "topic_gap": {"topics", "augmentation"},
    "few_shot": {"topic_gap"},
}
STUDIES |= {"translation": {"comparison", "splits"}}

PACKAGE = [path for path in python_files("dana") if "evaluation_modules" not in path.parts]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def names_with(pattern: str, paths: list[Path]) -> list[str]:
    return [name(path) for path in paths if re.search(pattern, path.read_text(encoding="utf-8"))]


@needs_studies
def test_rooms_import_only_what_the_table_allows():
    assert architecture.graph().keys() == ALLOWED.keys()
    forbidden = {
        way: files for way, files in architecture.arrows().items() if way[1] not in ALLOWED[way[0]]
    }
    assert not forbidden, "\n".join(file for files in forbidden.values() for file in files)


def test_the_core_neither_imports_nor_names_a_study():
    assert not [
        one
        for one, others in ALLOWED.items()
        if "studies" in others and one not in ("benchmarks", "recipes")
    ]
    names, commands = (
        r"clusters|topics|topic.gap|few.shot|augment(ation)?",
        "clusters|topics|compare|splits|augment",
    )
    studies = rf"dana\.studies\.\w|\.({names})\b|[\"'`]({names})\b|\bdana ({commands}|few-shot|topic-gap)\b"
    assert not names_with(studies, [path for path in PACKAGE if room(path) != "studies"])


def test_studies_import_only_the_studies_that_the_table_allows():
    ways = {
        (study(path), study(other))
        for path in PACKAGE
        if study(path)
        for other in imported_files(path)
    }
    between = {(one, other) for one, other in ways if other and one != other}
    assert between <= {(one, other) for one, others in STUDIES.items() for other in others}


def test_no_files_import_each_other_in_a_circle():
    files = circle({path: imported_files(path) for path in python_files()})
    assert not files, " -> ".join(map(name, files))
    one, two, three, four = map(Path, "abcd")
    assert circle({one: {two, four}, two: {three}, three: {two}, four: set()}) == [two, three, two]
    assert circle({one: {two, three}, two: {three}, three: set()}) == []


def test_relative_imports_count(tmp_path, monkeypatch):
    monkeypatch.setattr(architecture, "ROOT", tmp_path)
    files, run, errors = (
        tmp_path / "dana" / name for name in ("core/files.py", "stages/run.py", "core/errors.py")
    )
    for path in (files, run, errors):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "from ..stages import run\nfrom . import errors\nfrom .errors import DanaError\n"
        )
    assert architecture.imported_files(files) == {run, errors}


@needs_studies
def test_the_picture_is_that_of_the_imports():
    """Else redraw it: ``python tests/architecture.py``."""
    assert architecture.PICTURE.read_text(encoding="utf-8") == architecture.picture()


def modules_after(code: str) -> set[str]:
    """Modules that a new process has imported after some code."""
    code = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before)"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_settings_import_pydantic_and_nothing_heavier():
    """Then the ``--help`` of a command reads the fields themselves. YAML and progress bars are light."""
    modules = {module.partition(".")[0] for module in modules_after("import dana.stages.settings")}
    others = {
        module for module in modules - set(sys.stdlib_module_names) if not module.startswith("_")
    }
    checks = {
        "pydantic",
        "pydantic_core",
        "annotated_types",
        "typing_extensions",
        "typing_inspection",
    }
    assert others <= {"dana", "yaml", "tqdm", "cython_runtime"} | checks


def test_help_imports_nothing_heavy():
    """Of a study, it imports what says which commands it brings."""
    modules = modules_after(
        "import dana.cli.main\ndana.cli.main.build_parser(['--help']).format_help()"
    )
    assert not {"torch", "transformers", "numpy", "sklearn"} & modules
    assert not [
        module for module in modules if module.startswith("dana.studies.") and module.count(".") > 2
    ]
