"""``dana report``, from a run's folder to its files; the words are in golden/report.md."""

import json
import shlex
import shutil
import time
from html.parser import HTMLParser

import pandas as pd
import pytest

from dana.cli.main import main
from dana.core.artifacts import MANIFEST
from dana.core.errors import ArtifactError
from dana.report.provenance import reproduction
from dana.report.run import read_run
from dana.stages.report import report_stage
from tests.toy_task import write_checkpoint, write_task


class Page(HTMLParser):
    """Words, tags and network requests of a page; every tag must be closed."""

    EMPTY = frozenset(("meta", "path", "use", "rect"))

    def __init__(self, text: str):
        super().__init__()
        self.open, self.tags, self.requests, self.words = [], [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in self.EMPTY:
            self.open.append(tag)
        links = [value for key, value in attributes if key in ("src", "href", "xlink:href")]
        self.requests += [link for link in links if link[0] != "#"]

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


def read_page(run) -> Page:
    return Page(report_stage(run).read_text(encoding="utf-8"))


def test_the_page_needs_no_other_file_and_escapes_text(whole_run):
    page = read_page(whole_run)
    assert page.requests == []
    assert "script" not in page.tags
    assert (page.tags.count("svg"), page.tags.count("h2")) == (6, 7)
    html = (whole_run / "report.html").read_text(encoding="utf-8")
    assert "tells of &lt;target (planted)&gt; &amp; others." in html
    assert "<target" not in html


def test_every_table_is_a_file(whole_run):
    report_stage(whole_run)
    files = {path.stem: pd.read_csv(path) for path in (whole_run / "tables").glob("*.csv")}
    selection = {"ranking", "score_histogram", "separation", "kept_by_source", "planted"}
    outcomes = {"evaluations", "losses", "seeds", "results", "differences"}
    assert set(files) == selection | outcomes | {"steps", "settings"}
    assert files["kept_by_source"]["kept_units"].sum() == 192
    assert files["kept_by_source"]["share_of_kept_characters"].sum() == pytest.approx(1)
    assert len(files["seeds"]) == 32
    assert list(files["differences"])[:8] == ["task", "metric", "arm", "other", "asked", "n", "mean", "std"]
    assert {"mixed", "collapsed", "seeds_to_decide"} <= set(files["differences"])


def test_a_corpus_accounts_for_every_record(whole_run):
    report_stage(whole_run)
    steps = pd.read_csv(whole_run / "tables" / "steps.csv").set_index("step")
    assert steps.loc["corpus", "counts"] == "in 83; kept 80; dropped.duplicate 2; rejected.unreadable 1"


def test_page_text_and_table_say_the_same_verdict(tmp_path, write):
    """Base was made differently, random lacks seeds only."""
    write["results"](tmp_path, arms={"random": 0.5, "dana": 0.7}, seeds=5)
    write["results"](tmp_path, arms={"base": 0.5}, seeds=5, epochs=2)
    page = read_page(tmp_path).words
    rows = pd.read_csv(tmp_path / "tables" / "differences.csv").set_index(["arm", "other"])
    unlike, few = rows.loc[("dana", "base")], rows.loc[("dana", "random")]
    assert (unlike["verdict"], unlike["reasons"]) == ("not compared", "epochs 3 against 2")
    assert (few["verdict"], few["seeds_to_decide"]) == ("undecided", 6)
    for text in (page, (tmp_path / "report.md").read_text(encoding="utf-8")):
        assert f"dana − base on toy: not compared: {unlike['reasons']}." in text
        assert text.count(f"undecided: {few['reasons']}") == 2  # finding and table
        assert f"({few['reasons']})" in text.split("Which selector")[0]  # headline
        assert "better" not in text
        assert "worse" not in text


def test_the_same_run_gives_the_same_bytes(whole_run):
    def write() -> dict[str, bytes]:
        page = report_stage(whole_run)
        files = [page, page.with_suffix(".md"), *sorted((whole_run / "tables").glob("*"))]
        return {file.name: file.read_bytes() for file in files}

    assert write() == write()


@pytest.mark.parametrize("part", ["ranking", "scores", "adapted", "finetune"])
def test_one_part_is_enough_and_the_others_name_their_commands(whole_run, tmp_path, part):
    source = whole_run / "arms" / "dana" / part if part == "adapted" else whole_run / part
    shutil.copytree(source, tmp_path / "alone" / part)
    page = read_page(tmp_path / "alone").words
    commands = {"ranking": "rank", "scores": "score", "weights": "weigh", "adapted": "adapt", "finetune": "finetune"}
    missing = [f"Make it with dana {command}" for name, command in commands.items() if name != part]
    assert [line for line in missing if line not in page] == []


@pytest.mark.parametrize("texts", [("general",), ("task", "general")])
def test_unmeasured_losses_are_dashes(whole_run, texts):
    for file in whole_run.glob("arms/*/adapted/training.jsonl"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            line.update({f"{text}_loss{end}": None for text in texts for end in ("", "_se") if f"{text}_loss" in line})
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = read_page(whole_run).words
    assert words.count("text no loss was measured.") == len(texts)
    assert "– ± –" in words
    assert "nan" not in words.lower().split()


def test_nothing_to_report_writes_nothing(tmp_path):
    with pytest.raises(ArtifactError, match="dana score"):
        report_stage(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_hundred_thousand_units_take_seconds(tmp_path, write):
    """A million took 3 s: nothing loops over units."""
    write["selection"](tmp_path, 8400)
    start = time.monotonic()
    report_stage(tmp_path)
    assert time.monotonic() - start < 10


def fingerprints(run):
    manifests = sorted(file for file in run.rglob(MANIFEST) if "seeds" not in file.as_posix())
    return {file.relative_to(run).parts[:-2]: json.loads(file.read_text())["fingerprint"] for file in manifests}


@pytest.mark.slow
def test_the_commands_of_the_page_reproduce_the_run(tmp_path, monkeypatch):
    card, run, elsewhere = tmp_path / "cards" / "toy.yaml", tmp_path / "run", tmp_path / "elsewhere"
    write_task(tmp_path / "cards")
    write_checkpoint(tmp_path / "model")
    words = ["iron", "zinc", "lead", "word20", "word21", "word22", "word23", "word24"]
    rows = [{"id": f"p{n}", "text": " ".join([*words[n % 7 :], *words[: n % 5], f"{n}."])} for n in range(60)]
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    encoder, training = "--encoder hashing:dims=32,words=1", "--steps 2 --batch-size 4 --max-tokens 24"
    finetune = f"finetune --task-card {card} --seeds 2 --set finetune.preset=quick finetune.epochs=1"
    for line in (
        f"score --task {card} --general {tmp_path}/pool.jsonl --out {run} {encoder} --detector knn",
        f"weigh {run} --beta 0.3 --gamma 3",
        f"adapt {run} --model {tmp_path}/model {training}",
        f"{finetune} --model {run}/adapted --out {run}/finetune/toy/adapted",
    ):
        assert main(shlex.split(line)) == 0
    block = reproduction(read_run(run))
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    recipe, commands = block.split("<<'RECIPE'\n")[1].split("\nRECIPE\n")
    (elsewhere / "recipe.yaml").write_text(recipe + "\n")
    for line in commands.splitlines():
        assert line.startswith("#") or main(shlex.split(line)[1:]) == 0
    again = fingerprints(elsewhere / "again")
    assert {("scores",), ("weights",), ("adapted",)} <= again.keys()
    assert again.items() <= fingerprints(run).items()


def test_markup_in_settings_is_escaped(whole_run):
    (whole_run / "settings.yaml").write_text("task: <a & b>\n")
    page = report_stage(whole_run).read_text()
    assert "task: &lt;a &amp; b&gt;" in page.split("<pre")[1].split("</pre>")[0]
