"""The documentation against the tree: paths and commands that it names exist, examples run, the site is whole."""

import gzip
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dana.cli.main import build_parser, main
from tests import architecture
from tests.present import needs_studies

pytestmark = needs_studies  # the pages are about them, too

ROOT = Path(__file__).parent.parent
# docs/results/ is history: its pages stay as they were written.
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "tasks" / "README.md"]
PAGES += [path for path in sorted((ROOT / "docs").rglob("*.md")) if "results" not in path.parts]
PAGES += sorted((ROOT / "recipes").rglob("*.md"))
PATH = re.compile(r"(?<![\w./-])(?:dana|tests|recipes|docs|benchmarks|tasks|accelerate_configs)/[\w./*-]*\w[\w./*-]*")
COMMAND = re.compile(r"(?:^|&& |-m |\d[.:] )dana ([a-z]+(?:-[a-z]+)*)\b([^#|;&]*)")


def _page(path):
    return str(path.relative_to(ROOT))


def _fenced(path, language):
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def _is_there(name, page):
    """Whether a path, or a pattern, is that of a file: from the root, or from the page that names it."""
    name = name.rstrip("./")
    return any(folder.joinpath(name).exists() or any(folder.glob(name)) for folder in (ROOT, page.parent))


@pytest.mark.parametrize("page", PAGES, ids=_page)
def test_every_path_that_is_named_exists(page):
    text = page.read_text(encoding="utf-8")
    assert not {name for name in PATH.findall(text) if "NAME" not in name and not _is_there(name, page)}


def _code(page):
    """Every line of the page that is code: in backquotes, indented or fenced."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", text)
    return lines + [line.strip() for line in text.splitlines() if line.startswith("    ")]


def _commands():
    return _choices(build_parser())


def _choices(parser):
    return next((action.choices for action in parser._actions if isinstance(action.choices, dict)), {})


@pytest.mark.parametrize("page", PAGES, ids=_page)
def test_every_command_and_flag_that_is_named_exists(page):
    commands = _commands()
    for line in _code(page):
        for name, rest in COMMAND.findall(line):
            assert name in commands, f"dana {name}"
            parsers = [commands[name], *_choices(commands[name]).values()]
            known = {flag for parser in parsers for flag in parser._option_string_actions if flag.startswith("--")}
            unknown = set(re.findall(r"(?<!\S)--[a-z][\w-]*", rest)) - known
            assert not unknown, f"dana {name}: {unknown}"


def test_every_name_whose_docstring_is_shown_is_there():
    for page in PAGES:
        for name in re.findall(r"^::: ([\w.]+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            module, _, attribute = name.rpartition(".")
            assert hasattr(importlib.import_module(module), attribute), f"{_page(page)}: {name}"


def test_every_page_is_in_the_site():
    listed = sorted(re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))


def test_every_guarantee_is_kept_by_a_test_that_is_there():
    rows = re.findall(
        r"^\| (?!promise|-)(.+?) \| (.+?) \|$", (ROOT / "docs/guarantees.md").read_text("utf-8"), re.MULTILINE
    )
    tests = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(rows) >= 20
    assert not [promise for promise, kept in rows if not re.findall(r"`test_\w+`", kept)]
    assert not [name for _, kept in rows for name in re.findall(r"`(test_\w+)`", kept) if f"def {name}(" not in tests]


def test_every_recipe_that_is_launched_is_there():
    for page in PAGES:
        for name in re.findall(
            r"(?:launch|sbatch|torchrun|python)[^`\n]* (recipes/\S+\.(?:py|sh))", page.read_text("utf-8")
        ):
            assert (ROOT / name).is_file(), f"{_page(page)}: {name}"


def test_the_table_of_rooms_is_that_of_the_imports():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(table) == sorted(set(architecture.graph()) - {"dana", "__main__"})


def _small(text, model):
    """An example's settings at a size for tests."""
    changes = {"bert-base-uncased": str(model), "--steps 1000": "--steps 2 --batch-size 4 --max-tokens 32"}
    changes["--seeds 8"] = "--seeds 2 --set finetune.max_tokens=32 finetune.epochs=1"
    changes["dana score --task"] = "dana score --detector knn --encoder hashing --task"
    changes["dana rank"] = "dana rank --detectors knn,pca --encoder hashing"
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


def _run(lines, model):
    """The commands of a shell example, by the command line's own function."""
    for line in lines.splitlines():
        words = shlex.split(_small(line, model), comments=True)
        if words:
            assert words[0] == "dana"
            assert main(words[1:]) == 0, line


@pytest.fixture
def own_text(tmp_path, monkeypatch, repository_texts):
    """The folder that the page's reader has: tickets.csv, pool/ and texts to label."""
    import json

    import pandas as pd

    monkeypatch.chdir(tmp_path)
    texts = [
        f"{kind} {at} {text[:150]}" for at, text in enumerate(repository_texts[:60]) for kind in ("invoice", "disk")
    ]
    labels = ["billing", "hardware"] * 60
    pd.DataFrame({"text": texts, "label": labels}).to_csv("tickets.csv", index=False)
    Path("pool").mkdir()
    pool = "".join(json.dumps({"text": text}) + "\n" for text in repository_texts[60:])
    Path("pool/general.jsonl").write_text(pool, encoding="utf-8")
    Path("new.jsonl").write_text('{"text": "the invoice is wrong"}\n', encoding="utf-8")
    return tmp_path


@pytest.fixture
def model(tmp_path_factory, tiny_tokenizer):
    from dana.models.language_model import new_encoder

    folder = tmp_path_factory.mktemp("model")
    checkpoint = new_encoder("bert", "tiny", tiny_tokenizer, dropout=0.0, seed=0)
    checkpoint.model.save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_the_first_adaptation_runs_as_it_is_written(own_text, model, capsys):
    page = ROOT / "docs" / "guide" / "first-adaptation.md"
    (python,), (card,) = _fenced(page, "python"), _fenced(page, "yaml")
    exec(compile(python, str(page), "exec"), {})
    printed = capsys.readouterr().out
    counts = list(yaml.safe_load(card)["splits"].values())
    assert printed.split("]")[1].split() == [str(count) for count in counts], "the card says what was printed"
    Path("tickets.yaml").write_text(card, encoding="utf-8")
    for lines in _fenced(page, "bash"):
        _run(lines, model)
    named = re.findall(r"`(runs/\S+)`", page.read_text(encoding="utf-8"))
    assert "runs/tickets/report.html" in named
    assert [name for name in named if not Path(name).exists()] == []
    assert Path("labelled.parquet").is_file()


@pytest.mark.slow
def test_the_shell_example_of_the_readme_runs_as_it_is_written(own_text, model):
    Path("tickets.csv").rename("notes.csv")
    Path("pool/general.jsonl.gz").write_bytes(gzip.compress(Path("pool/general.jsonl").read_bytes()))
    (lines,) = _fenced(ROOT / "README.md", "bash")
    _run(lines, model)
    assert Path("runs/mine/adapted/config.json").is_file()


def test_the_python_example_of_the_readme_is_the_one_that_the_page_of_the_interface_runs():
    assert _fenced(ROOT / "README.md", "python") == _fenced(ROOT / "docs" / "reference" / "api.md", "python")[:1]


def test_every_page_that_the_readme_links_to_is_there():
    links = re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.slow
def test_the_site_is_built_strictly_and_loads_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True)
    assert loads_from_elsewhere(tmp_path) == []
    # The theme's script would fetch a library for diagrams from elsewhere.
    assert not [path for path in tmp_path.rglob("*.html") if 'class="mermaid"' in path.read_text("utf-8")]


def loads_from_elsewhere(site):
    """Fonts, scripts, styles and pictures that a built page would fetch from another host."""
    load = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\"' >]+")
    link = re.compile(
        r"<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preconnect|preload|icon))[^>]*\bhref=[\"']?(?:https?:)?//[^>]+"
    )
    style = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^\"')]+")
    found = [
        (path.name, match)
        for path in site.rglob("*.html")
        for kind in (load, link)
        for match in kind.findall(path.read_text("utf-8"))
    ]
    return found + [
        (path.name, match) for path in site.rglob("*.css") for match in style.findall(path.read_text("utf-8"))
    ]


SMALL = "finetune.seeds=2 finetune.epochs=1 finetune.max_tokens=32 adapt.steps=2 adapt.batch_size=4 adapt.max_tokens=32"
PAPER_COMMANDS = {
    "table1": "rank {given} --detectors knn,pca --out out",
    "table2": "score {given} --detector knn --out out",
    "table4": "run papers/dana/table4 {settings} ranking.detectors=[knn] detector=knn weigh.gamma=2 weigh.min_tail=2",
    "table5": "run papers/dana/table5 {settings} ranking.detectors=[knn] detector=knn weigh.gamma=2 weigh.min_tail=2",
    "figure3": "rank {given} --detectors knn --out out",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER_COMMANDS)
def test_the_tables_of_dana_run_at_a_small_size(name, own_text, model):
    """Each YAML as it is, with a tiny model for BERT and few units."""
    page = ROOT / "docs" / "guide" / "first-adaptation.md"
    exec(compile(_fenced(page, "python")[0], str(page), "exec"), {})
    Path("tickets.yaml").write_text(_fenced(page, "yaml")[0], encoding="utf-8")
    encoder = f"selection.encoder=transformer:{model} selection.units=window:32"
    given = f"--config papers/dana/{name} --task tickets.yaml --general pool/ --set {encoder}"
    settings = f"task=tickets.yaml general=[pool/] model={model} out=out {encoder} {SMALL}"
    assert main(shlex.split(PAPER_COMMANDS[name].format(given=given, settings=settings))) == 0
    made = {"table1": "ranking", "figure3": "ranking", "table2": "scores"}.get(name, "report.html")
    assert Path("out", made).exists()
    if name == "table5":
        assert Path("out/arms/continuous/adapted/config.json").is_file()
