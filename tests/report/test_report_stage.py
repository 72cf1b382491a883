"""``dana report``, from a run's folder to its files."""

import json
import shutil
import time
from html.parser import HTMLParser

import pandas as pd
import pytest

from dana.core.errors import ArtifactError
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
    assert page.tags.count("svg") == 6
    assert [question.split()[0] for question in page.questions] == [
        "What",
        "How",
        "What",
        "Did",
        "Did",
        "What",
        "How",
    ]
    assert "Make it with" not in page.words
    assert "No " not in page.words.split("What tells this task")[0]


def test_a_beta_that_was_chosen_is_shown_with_its_curve(whole_run):
    place = whole_run / "weights" / "__dana__" / "manifest.json"
    manifest = json.loads(place.read_text(encoding="utf-8"))
    shares = [0.05, 0.2, 1.0]
    curve = [{"share": share, "units": 9, "perplexity": 70 + 9 * share, "perplexity_random": 90.0} for share in shares]
    curve = [
        {**cut, "above_best": 0.0, "standard_error": 0.01, "in_domain": 0.9 - share / 2}
        for cut, share in zip(curve, shares, strict=True)
    ]
    before = Page(report_stage(whole_run).read_text(encoding="utf-8"))
    place.write_text(
        json.dumps(manifest | {"beta": {"beta": 0.2, "reason": "as well", "curve": curve}}), encoding="utf-8"
    )
    page = Page(report_stage(whole_run).read_text(encoding="utf-8"))
    assert page.tags.count("svg") == before.tags.count("svg") + 1
    said = "Perplexity is lowest at 5 % of the pool; 20 % is chosen"
    html = (whole_run / "report.html").read_text(encoding="utf-8")
    kept, after = html.split("What was kept?")[1].split("</section>", 1)
    assert said in kept
    assert said not in after


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
    assert len(files["seeds"]) == 32


def test_lines_of_an_answer_are_paragraphs_of_the_markdown(whole_run):
    report_stage(whole_run)
    text = (whole_run / "report.md").read_text(encoding="utf-8").split("## Did it help downstream?")[1]
    lines = text.strip().splitlines()
    assert lines[0].startswith("dana − base on toy: ")
    assert lines[1] == ""
    assert lines[2].startswith("dana − random on toy: ")


def test_a_corpus_accounts_for_every_record(whole_run):
    report_stage(whole_run)
    steps = pd.read_csv(whole_run / "tables" / "steps.csv").set_index("step")
    assert list(steps.index[:4]) == ["corpus", "ranking", "scores", "weights"]
    assert steps.loc["corpus", "counts"] == "in 83; kept 80; dropped.duplicate 2; rejected.unreadable 1"


def test_page_text_and_table_say_the_same_verdict(tmp_path, write):
    """One rule: base was made otherwise, random lacks nothing but seeds."""
    write["results"](tmp_path, arms={"random": 0.5, "dana": 0.7}, seeds=5, collapsed="")
    write["results"](tmp_path, arms={"base": 0.5}, seeds=5, collapsed="", epochs=2)
    report_stage(tmp_path)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8")).words
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    unlike, few = "epochs 3 against 2", "5 seeds are too few, p cannot fall below 0.062; at least 6 are needed"
    for said in (page, text):
        headline = said.split("What tells this task")[0]
        assert f"dana and base were not made alike ({unlike})" in headline
        assert f"dana against random is undecided ({few})" in headline
        assert f"dana − base on toy: not compared: {unlike}." in said
        assert f"not compared: {unlike}" in said.split("95 % interval")[-1]
        assert f"undecided: {few}" in said.split("95 % interval")[-1]
        for claim in ("better", "worse"):
            assert claim not in said
    rows = pd.read_csv(tmp_path / "tables" / "differences.csv").set_index(["arm", "other"])
    assert rows.loc[("dana", "base"), ["verdict", "reasons"]].tolist() == ["not compared", unlike]
    assert rows.loc[("dana", "random"), ["verdict", "reasons", "seeds_to_decide"]].tolist() == ["undecided", few, 6]
    assert rows.loc[("random", "base"), "verdict"] == "not compared"


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
        ("ranking", ["dana score", "dana weigh", "dana adapt", "dana finetune"]),
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


def test_the_choice_of_the_selector_is_told_with_its_comparison(write, tmp_path):
    write["choice"](tmp_path)
    page = Page(report_stage(tmp_path).read_text(encoding="utf-8"))
    told = page.words.split("What tells this task")[1].split("How well do the scores")[0]
    assert "By held-out task text: the fusion of all has average precision 0.860." in told
    names = [told.index(name) for name in ("fusion (chosen)", "lda", "moore_lewis", "svm")]
    assert names == sorted(names), "best first"
    assert "0.860 (0.840 to 0.880)" in told
    rows = pd.read_csv(tmp_path / "tables" / "choice.csv")
    assert list(rows["name"][rows["chosen"]]) == ["fusion"]
    assert list(rows["weight"].isna()) == [True, False, False, False]


@pytest.mark.parametrize("texts", [("general",), ("task", "general")])
def test_losses_that_could_not_be_measured_are_dashes(whole_run, texts):
    for file in whole_run.glob("arms/*/adapted/training.jsonl"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            line.update({f"{text}_loss{end}": None for text in texts for end in ("", "_se") if f"{text}_loss" in line})
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = Page(report_stage(whole_run).read_text(encoding="utf-8"))
    assert "– ± –" in page.words
    assert page.words.count("text there was nothing to measure.") == len(texts)
    assert "nan" not in page.words.lower().split()


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
