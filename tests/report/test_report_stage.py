"""``dana report``, from a run's folder to its files."""

import shutil
import time
from html.parser import HTMLParser

import pandas as pd
import pytest

from dana.errors import ArtifactError
from dana.stages.report import report_stage


class Page(HTMLParser):
    """Text, tags and what a page asks the network for; every tag must be closed."""

    EMPTY = frozenset(("meta", "path", "use", "rect"))

    def __init__(self, text: str):
        super().__init__()
        self.open, self.tags, self.requests, self.words, self.questions = [], [], [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in self.EMPTY:
            self.open.append(tag)
        self.requests += [
            value for key, value in attributes if key in ("src", "href", "xlink:href") and value[0] != "#"
        ]

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data
        if self.open and self.open[-1] == "h2":
            self.questions.append(data)


def test_the_page_stands_alone_and_asks_its_questions_in_order(whole_run):
    page = Page(report_stage(whole_run).read_text(encoding="utf-8"))
    assert page.open == []
    assert page.requests == []
    assert "script" not in page.tags
    assert page.tags.count("svg") == 5
    assert [question.split()[0] for question in page.questions] == [
        "Which",
        "How",
        "What",
        "Did",
        "Did",
        "How",
    ]
    assert "Make it with" not in page.words
    assert "No " not in page.words.split("Which detector")[0]


def test_text_of_the_corpus_is_shown_and_never_markup(whole_run):
    html = report_stage(whole_run).read_text(encoding="utf-8")
    assert "tells of &lt;target (planted)&gt; &amp; others." in html
    assert "<target" not in html
    assert r"tells of \<target (planted)\> & others." in (whole_run / "report.md").read_text(encoding="utf-8")


def test_every_shown_number_is_in_a_file(whole_run):
    report_stage(whole_run)
    files = {path.stem: pd.read_csv(path) for path in (whole_run / "tables").glob("*.csv")}
    selection = {"ranking", "score_histogram", "separation", "kept_by_source", "planted"}
    outcomes = {"evaluations", "losses", "seeds", "results", "differences"}
    assert set(files) == selection | outcomes | {"steps", "settings"}
    kept = files["kept_by_source"]
    assert kept["kept_units"].sum() == 192
    assert kept["share_of_kept_characters"].sum() == pytest.approx(1)
    assert files["differences"]["arm"].iloc[0] == "dana"
    assert len(files["seeds"]) == 20


def test_a_corpus_accounts_for_every_record(whole_run):
    report_stage(whole_run)
    steps = pd.read_csv(whole_run / "tables" / "steps.csv").set_index("step")
    assert list(steps.index[:4]) == ["corpus", "ranking.json", "scores", "weights"]
    assert steps.loc["corpus", "counts"] == "in 83; kept 80; dropped.duplicate 2; rejected.unreadable 1"


def test_the_same_run_gives_the_same_bytes(whole_run):
    def written() -> dict[str, bytes]:
        report_stage(whole_run)
        files = [
            whole_run / "report.html",
            whole_run / "report.md",
            *sorted((whole_run / "tables").glob("*")),
        ]
        return {file.name: file.read_bytes() for file in files}

    assert written() == written()


@pytest.mark.parametrize(
    ("part", "left"),
    [
        ("ranking.json", ["dana score", "dana weigh", "dana adapt", "dana finetune"]),
        ("scores", ["dana rank", "dana weigh", "dana adapt", "dana finetune"]),
        ("adapted", ["dana rank", "dana score", "dana weigh", "dana finetune"]),
        ("finetune", ["dana rank", "dana score", "dana weigh", "dana adapt"]),
    ],
)
def test_one_part_is_enough_and_the_others_say_how_to_make_them(whole_run, tmp_path, part, left):
    alone = tmp_path / "alone"
    alone.mkdir()
    source = whole_run / "arms" / "dana" / part if part == "adapted" else whole_run / part
    (shutil.copytree if source.is_dir() else shutil.copy)(source, alone / part)
    page = Page(report_stage(alone).read_text(encoding="utf-8"))
    assert [command for command in left if command not in page.words] == []
    assert page.words.count("Make it with") == 4


def test_nothing_to_report_writes_nothing(tmp_path):
    with pytest.raises(ArtifactError, match="nothing to report"):
        report_stage(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_hundred_thousand_units_take_seconds(tmp_path, write):
    """One million took 3 s when this was written: nothing loops over units."""
    write["selection"](tmp_path, 8400)
    begun = time.monotonic()
    report_stage(tmp_path)
    assert time.monotonic() - begun < 10
