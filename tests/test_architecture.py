"""The structure that docs/architecture.md draws, held against the imports, and the budgets of its size.

A number here is raised only by what an issue grants, in a commit that says which.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import architecture
from architecture import ROOT, circle, code_lines, imported_files, python_files, room, statements, study, tree

from tests.present import needs_studies

# Room to the rooms that it may import, and why.
ALLOWED = {
    "core": {},
    "corpus": {"core": "errors, files, schemas"},
    "detectors": {"core": "registry, random numbers, errors"},
    "models": {"core": "files, tensors, errors"},
    "encoders": {"core": "registry, files, errors", "models": "checkpoints, tokenizers, vocabularies"},
    "tasks": {"core": "errors, files, artifacts", "corpus": "reads and compares texts"},
    "train": {"core": "launch, files, random numbers", "models": "checkpoints, heads, tokenizers"},
    "weighting": {"core": "schemas, statistics, artifacts", "models": "budgets in tokens, perplexity"},
    "selectors": {
        "core": "registry, random numbers, errors",
        "corpus": "units and their n-grams",
        "detectors": "scores of embedded units",
        "encoders": "embeds the units",
        "models": "n-gram models, text classifiers",
        "train": "tunes a classifier of texts",
    },
    "finetuning": {
        "core": "files, random numbers, errors",
        "models": "checkpoints with heads",
        "tasks": "labelled examples and metrics",
        "train": "supervised loop, schedule and precision",
    },
    "report": {"core": "artifacts, schemas, statistics", "tasks": "metrics of each kind"},
    "scoring": {
        "core": "artifacts, launch, schemas",
        "corpus": "units of both texts",
        "encoders": "timed by a dry run",
        "selectors": "score the units, hold detectors",
    },
    "stages": {
        "core": "artifacts, settings, launch",
        "corpus": "reads both texts",
        "encoders": "ranking's vectors, stored files",
        "finetuning": "finetune, predict, evaluate",
        "models": "base models, tokenizers",
        "report": "writes the report",
        "scoring": "score and rank",
        "tasks": "task cards and examples",
        "train": "adapt and pretrain",
        "weighting": "weigh",
    },
    "api": {
        "core": "errors, files, settings",
        "corpus": "texts given in memory",
        "stages": "calls the verbs",
        "tasks": "labelled texts in memory",
        "train": "model, examples for other trainers",
    },
    "dana": {
        "api": "hands its functions on",
        "core": "hands DanaError on",
        "scoring": "hands load_selector on",
        "selectors": "hands DetectorSelector on",
        "train": "hands the trainer on",
    },
    "cli": {"core": "errors, settings, logging", "stages": "calls the verbs", "tasks": "finds and shows cards"},
    "__main__": {"cli": "runs it"},
    "studies": {
        "cli": "flags of their commands",
        "core": "artifacts, files, errors",
        "corpus": "reads texts",
        "encoders": "word vectors, stored vectors",
        "models": "language models",
        "report": "sections, tables and figures",
        "scoring": "assigns units in shards",
        "selectors": "a study's own selectors",
        "stages": "cells that call verbs",
        "tasks": "labelled texts",
        "train": "supervised loop of a generator",
        "weighting": "spread over groups",
    },
    "recipes": {
        "cli": "a verb a file",
        "core": "artifacts, random numbers, errors",
        "corpus": "reads and cuts texts",
        "encoders": "vectors of the papers' sentences",
        "models": "n-gram models of novels",
        "scoring": "datatrove's steps",
        "stages": "verbs and their settings",
        "studies": "the papers' tables and figures",
    },
    "benchmarks": {
        "core": "registries and artifacts",
        "detectors": "fits beside the rivals'",
        "encoders": "a store to read",
        "models": "an untrained model",
        "scoring": "scores many documents",
        "stages": "reads and weighs",
        "studies": "assigns clusters, plants texts",
        "tasks": "cuts labelled tasks",
        "train": "trains beside the rival",
    },
}

# Study to the studies that it may import.
STUDIES = {"augmentation": {"topics"}, "topic_gap": {"topics", "augmentation"}, "few_shot": {"topic_gap"}}
STUDIES |= {"translation": {"comparison", "splits"}}

MOST_ROOMS, MOST_ARROWS = 24, 80
# Of dana/ and recipes/. To come: core 15,600, extras 1,200, studies 3,500, recipes 1,100; 21,870 statements, 260 files.
MOST_CODE_LINES = {"core": 19_974, "extras": 946, "studies": 4_718, "recipes": 1_235}
MOST_STATEMENTS, MOST_FILES = 25_928, 269  # of dana/
EXTRAS = ("scoring/engines/", "core/storage.py", "core/known_sources.py", "corpus/hub.py")
EXTRAS += ("encoders/cache.py",)
MOST_LINES_OF_A_FILE, MOST_LINES_OF_A_FUNCTION = 500, 80  # blanks, comments and docstrings too

PACKAGE = [path for path in python_files("dana") if "evaluation_modules" not in path.parts]
CODE = [*PACKAGE, *python_files("recipes", "benchmarks")]
NAMED = (ast.FunctionDef, ast.ClassDef)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def nodes(*kinds: type[ast.AST], paths: list[Path] = PACKAGE) -> Iterator[tuple[str, Any]]:
    """File and node of every node of some kinds."""
    for path in paths:
        yield from ((name(path), node) for node in ast.walk(tree(path)) if isinstance(node, kinds))


def names_with(pattern: str, paths: list[Path]) -> list[str]:
    return [name(path) for path in paths if re.search(pattern, path.read_text(encoding="utf-8"))]


@needs_studies
def test_rooms_import_only_what_the_table_allows():
    assert architecture.graph().keys() == ALLOWED.keys()
    forbidden = {way: files for way, files in architecture.arrows().items() if way[1] not in ALLOWED[way[0]]}
    assert not forbidden, "\n".join(file for files in forbidden.values() for file in files)


@needs_studies
def test_every_arrow_that_is_allowed_is_used_and_has_a_reason_of_five_words():
    pairs = {(one, other): why for one, others in ALLOWED.items() for other, why in others.items()}
    assert set(pairs) == set(architecture.arrows())
    assert not [way for way, why in pairs.items() if not 1 <= len(why.split()) <= 5]
    assert len(ALLOWED) <= MOST_ROOMS
    assert len(pairs) <= MOST_ARROWS


def test_the_core_neither_imports_nor_names_a_study():
    assert not [one for one, others in ALLOWED.items() if "studies" in others and one not in ("benchmarks", "recipes")]
    names, commands = r"clusters|topics|topic.gap|few.shot|augment(ation)?", "clusters|topics|compare|splits|augment"
    studies = rf"dana\.studies\.\w|\.({names})\b|[\"'`]({names})\b|\bdana ({commands}|few-shot|topic-gap)\b"
    assert not names_with(studies, [path for path in PACKAGE if room(path) != "studies"])


def test_studies_import_only_the_studies_that_the_table_allows():
    ways = {(study(path), study(other)) for path in PACKAGE if study(path) for other in imported_files(path)}
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
    files, run, errors = (tmp_path / "dana" / name for name in ("core/files.py", "stages/run.py", "core/errors.py"))
    for path in (files, run, errors):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("from ..stages import run\nfrom . import errors\nfrom .errors import DanaError\n")
    assert architecture.imported_files(files) == {run, errors}


def _group(path: Path) -> str:
    if room(path) in ("studies", "recipes"):
        return room(path)
    return "extras" if str(path.relative_to(ROOT / "dana")).startswith(EXTRAS) else "core"


def test_the_code_keeps_its_budget():
    lines = Counter()
    for path in python_files("dana", "recipes"):
        lines[_group(path)] += code_lines(path)
    assert not {group: count for group, count in lines.items() if count > MOST_CODE_LINES[group]}
    assert sum(map(statements, python_files("dana"))) <= MOST_STATEMENTS
    assert len(python_files("dana")) <= MOST_FILES


def test_code_lines_are_those_without_blanks_comments_and_docstrings(tmp_path):
    path = tmp_path / "code.py"
    path.write_text(
        '"""One.\n\nTwo."""\n\n# Why.\nx = """a\nb"""  # what\n\n\ndef f(\n    y,\n):\n    """Three."""\n    return y\n'
    )
    assert (code_lines(path), statements(path)) == (6, 5)


def test_files_and_functions_are_not_too_long():
    lengths = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE}
    assert not {file: lines for file, lines in lengths.items() if lines > MOST_LINES_OF_A_FILE}
    functions = [(file, one.name, one.end_lineno - one.lineno + 1) for file, one in nodes(ast.FunctionDef)]
    assert not [function for function in functions if function[-1] > MOST_LINES_OF_A_FUNCTION]


@needs_studies
def test_the_picture_is_that_of_the_imports():
    """Else redraw it: ``python tests/architecture.py``."""
    assert architecture.PICTURE.read_text(encoding="utf-8") == architecture.picture()


def test_nothing_happens_on_import():
    """A module's top level only imports, defines and names things: no calls that act, no environment."""
    acts = [
        f"{name(path)}:{node.lineno}"
        for path in PACKAGE
        for node in tree(path).body
        if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
    ]
    assert not acts


# What goes on while others look at it: a count, a draft, a run. All other dataclasses are parameters or outcomes.
CHANGING = {"_File", "Notices", "Tally", "_Removed", "Verified", "_Clock", "Draft", "Meter"}
CHANGING |= {"CheckpointPolicy", "TrainingState"}


def test_dataclasses_are_frozen():
    decorators = [
        (file, node.name, ast.unparse(decorator))
        for file, node in nodes(ast.ClassDef)
        for decorator in node.decorator_list
        if node.name not in CHANGING
    ]
    dataclasses = [one for one in decorators if one[-1].startswith("dataclass")]
    assert not [one for one in dataclasses if one[-1] != "dataclass(frozen=True)"]


def modules_after(code: str) -> set[str]:
    """Modules that a new process has imported after some code."""
    code = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_settings_import_the_standard_library_alone():
    """Then ``dana --help`` reads the dataclasses themselves. YAML and progress bars are light."""
    modules = {module.partition(".")[0] for module in modules_after("import dana.stages.settings")}
    others = {module for module in modules - set(sys.stdlib_module_names) if not module.startswith("_")}
    assert others <= {"dana", "yaml", "tqdm", "cython_runtime"}


def test_help_imports_nothing_heavy():
    """Of a study, it imports what says which commands it brings."""
    modules = modules_after("import dana.cli.main\ndana.cli.main.build_parser(['--help']).format_help()")
    assert not {"torch", "transformers", "numpy", "sklearn"} & modules
    assert not [module for module in modules if module.startswith("dana.studies.") and module.count(".") > 2]


def test_no_two_test_files_and_no_two_public_things_have_one_name():
    """pytest imports files by it. Checks are not counted: a promise has the same name for every kind of component."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    modules = [tree(path).body for path in PACKAGE if path.name != "checks.py"]
    names += [node.name for body in modules for node in body if isinstance(node, NAMED)]
    public = Counter(name for name in names if not name.startswith("_"))
    assert not {name: count for name, count in public.items() if count > 1}


def test_first_lines_are_statements_with_a_verb_and_no_requirement_is_cited_by_its_code():
    assert not names_with(r"\b(A-)?D-?\d\d\b", PACKAGE), "write the fact and its source"
    docstrings = [(file, node, ast.get_docstring(node) or "") for file, node in nodes(ast.Module, *NAMED, paths=CODE)]
    lines = [(file, node, text.partition("\n")[0]) for file, node, text in docstrings]
    assert not [(file, line) for file, _, line in lines if line.endswith("?")]
    functions = [(file, line, node) for file, node, line in lines if isinstance(node, ast.FunctionDef)]
    verbless = [(file, line, node) for file, line, node in functions if NO_VERB.match(line)]
    assert not [one[:2] for one in verbless if "property" not in " ".join(map(ast.unparse, one[2].decorator_list))]


# Words that do not say what the value is; a participle says what was done to it.
VAGUE = re.compile(
    "about|going|here|most|least|mine|own|places?|there|things?|theirs|whole|chosen|drawn|found|given|held|kept|known|made|"
    "seen|said|shown|taken|told|written|(?!seed$|need$|feed$|embed$|speed$)[a-z]+ed"
)
NO_VERB = re.compile(
    "(?:an?|all|and|as|at|both|by|each|every|everything|for|from|how|if|in|its|no|nothing|of|on|one|same|see|some|that|the|"
    r"their|these|this|those|two|what|when|where|whether|which|who|why|with)\b",
    re.IGNORECASE,
)
# Names of stored tensors, of manifests' fields and of networks' layers.
STORED = {"CrossFitted", "hidden", "kept"}


def _is_bool(annotation: ast.expr | None) -> bool:
    return annotation is not None and ast.unparse(annotation) in ("bool", "ClassVar[bool]")


def _names(path: Path) -> set[str]:
    """Names of classes, functions, arguments and variables; a flag's may be a participle."""
    names, flags = set(), set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.AnnAssign) and _is_bool(node.annotation):
            flags.add(node.target)
        elif isinstance(node, NAMED):
            names.add(node.name)
        elif isinstance(node, ast.arg) and not _is_bool(node.annotation):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in flags:
            names.add(node.id)
    return names - STORED


def _is_vague(identifier: str) -> bool:
    word = identifier.strip("_")
    if word[:1].isupper() and not word.isupper():
        word = re.findall("[A-Z][a-z0-9]*", word)[-1].lower()
    return bool(VAGUE.fullmatch(word))


def test_names_are_nouns_of_the_field():
    assert not [(name(path), one) for path in CODE for one in sorted(_names(path)) if _is_vague(one)]


def test_no_three_files_are_called_checkpoint():
    assert len([path for path in PACKAGE if path.stem.startswith("checkpoint")]) < 3
