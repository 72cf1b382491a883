"""``dana report``, from a run's folder to its files; the words are in golden/report.md."""

import json
import re
import shlex
import shutil
import time
import xml.etree.ElementTree as tree
from pathlib import Path

import pandas as pd
import pytest

from dana.cli.main import main
from dana.core.artifacts import MANIFEST
from dana.core.errors import ArtifactError
from dana.report.page import Report, Section, Table, write_page
from dana.report.provenance import reproduction
from dana.report.run import read_run
from dana.stages.report import report_stage
from tests.report.conftest import write_results, write_selection
from tests.toy_task import write_checkpoint, write_task


def read_page(run):
    """The page as a tree of elements; every tag must be closed."""
    html = report_stage(run).read_text(encoding="utf-8")
    return tree.fromstring(re.sub(r"<!DOCTYPE html>|<meta [^>]*>", "", html))


def words(page):
    return "".join(page.find("body").itertext())


@pytest.fixture(scope="module")
def reported_run(shared_run, tmp_path_factory):
    """A copy of the run with its report, whose settings hold markup."""
    run = shutil.copytree(shared_run, tmp_path_factory.mktemp("written") / "toy-run")
    (run / "recipe.yaml").write_text("task: <a & b>\n")
    report_stage(run)
    return run


def contents(run):
    return {
        file.name: file.read_bytes()
        for file in [*run.glob("report.*"), *(run / "tables").iterdir()]
    }


def test_the_same_run_gives_the_same_bytes(reported_run):
    before = contents(reported_run)
    report_stage(reported_run)
    assert contents(reported_run) == before
    assert before.keys() >= {"report.html", "report.md", "seeds.csv"}


def test_json_is_one_object_on_standard_output_and_writes_nothing(reported_run, capsys):
    before = contents(reported_run)
    assert main(["report", str(reported_run), "--json"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    answer, results = json.loads(line), read_run(reported_run).results
    assert answer.keys() == {"headline", "metric", "n", "folds", "arms", "baselines", "verdicts"}
    assert answer["headline"] in (reported_run / "report.md").read_text(encoding="utf-8")
    assert {arm: row["mean"] for arm, row in answer["arms"].items()} == {
        arm_result.arm: arm_result.estimate.mean for arm_result in results
    }
    assert contents(reported_run) == before


def test_the_page_needs_no_other_file_and_escapes_text(reported_run):
    page = read_page(reported_run)
    tags = [element.tag.rpartition("}")[2] for element in page.iter()]
    assert (tags.count("svg"), tags.count("h2"), tags.count("script")) == (5, 6, 0)
    attributes = [item for element in page.iter() for item in element.items()]
    links = [value for name, value in attributes if name.rpartition("}")[2] in ("src", "href")]
    assert {link[0] for link in links} == {"#"}
    assert "tells of <science> & others." in words(page)
    assert "task: <a & b>" in page.find(".//pre").text


def test_every_table_is_a_file(reported_run):
    files = {path.stem: pd.read_csv(path) for path in (reported_run / "tables").glob("*.csv")}
    selection = {"ranking", "score_histogram", "separation", "selected_by_source"}
    outcomes = {"evaluations", "losses", "seeds", "results", "differences"}
    outcomes |= {"classes", "confusions"}
    assert set(files) == selection | outcomes | {"steps", "settings"}
    assert files["selected_by_source"]["selected_units"].sum() == 192
    assert files["selected_by_source"]["share_of_selected_characters"].sum() == pytest.approx(1)
    assert len(files["seeds"]) == 32
    columns = ["task", "metric", "arm", "other", "asked", "n", "arm_score", "other_score"]
    assert list(files["differences"])[:8] == columns
    assert {"collapsed", "units_to_decide", "texts_to_decide"} <= set(files["differences"])


def test_a_table_that_the_page_has_no_more_is_removed_and_no_table_of_another_page(
    shared_run, tmp_path
):
    run = shutil.copytree(shared_run, tmp_path / "run")
    tables = run / "tables"
    write_page(Report("a study", "", [], [section("of_study")]), run, "study")
    write_page(Report("a run", "", [], [section("of_run")]), run, "report")
    report_stage(run)
    assert not (tables / "of_run.csv").exists()
    assert (tables / "of_study.csv").exists()
    listed = json.loads((tables / "report.json").read_text())
    assert {*listed} | {"of_study.csv"} == {file.name for file in tables.glob("*.csv")}


@pytest.mark.parametrize("content", ["", '["arms.csv", "st', "{}", "null"])
def test_a_damaged_list_of_tables_is_written_anew(shared_run, tmp_path, content):
    run = shutil.copytree(shared_run, tmp_path / "run")
    page = report_stage(run).read_bytes()
    listing = run / "tables" / "report.json"
    names = listing.read_bytes()
    listing.write_text(content)
    assert report_stage(run).read_bytes() == page
    assert listing.read_bytes() == names


def test_two_processes_may_write_one_page(tmp_path, monkeypatch):
    """Both find a table that the page has no more, and one of them removes it first."""
    write_page(Report("a run", "", [], [section("gone")]), tmp_path, "report")
    unlink = Path.unlink

    def second(file, missing_ok=False):
        unlink(file)  # the other process
        unlink(file, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", second)
    monkeypatch.setattr("dana.report.page.write_text", lambda file, text: None)
    monkeypatch.setattr("dana.report.page.write_json", lambda file, value: None)
    write_page(Report("a run", "", [], [section("kept")]), tmp_path, "report")
    assert not (tmp_path / "tables" / "gone.csv").exists()


def section(*names):
    frame = pd.DataFrame({"x": [1]})
    return Section("Question?", "Answer.", tables=tuple(Table(name, "", frame) for name in names))


def test_a_pool_accounts_for_every_record(reported_run):
    steps = pd.read_csv(reported_run / "tables" / "steps.csv").set_index("step")
    assert (
        steps.loc["pool", "counts"] == "in 83; kept 80; dropped.duplicate 2; rejected.unreadable 1"
    )


def test_page_text_and_table_say_the_same_verdict(tmp_path):
    """Base was made differently, random is as good."""
    write_results(tmp_path, arms={"random": 0.69, "dana": 0.7}, seeds=5)
    write_results(tmp_path, arms={"base": 0.5}, seeds=5, epochs=2)
    page = words(read_page(tmp_path))
    rows = pd.read_csv(tmp_path / "tables" / "differences.csv").set_index(["arm", "other"])
    unlike, few = rows.loc[("dana", "base")], rows.loc[("dana", "random")]
    assert (unlike["verdict"], unlike["reasons"]) == ("not compared", "epochs 3 against 2")
    assert few["verdict"] == "undecided"
    for text in (page, (tmp_path / "report.md").read_text(encoding="utf-8")):
        assert f"Adapted against not adapted: not compared ({unlike['reasons']})." in text
        assert f"Adapted against random text: undecided ({few['reasons']})." in text
        assert text.count(few["reasons"]) == 1, "the table has the verdict alone"
        assert "No verdict: adapted and not adapted were made differently." in text
        assert not re.search("better|worse", text)


@pytest.mark.parametrize("part", ["ranking", "scores", "adapted", "finetune"])
def test_one_part_is_enough_and_the_others_name_their_commands(shared_run, tmp_path, part):
    source = shared_run / "arms" / "dana" / part if part == "adapted" else shared_run / part
    shutil.copytree(source, tmp_path / "alone" / part)
    page = words(read_page(tmp_path / "alone"))
    commands = {
        "ranking": "score --rank-only",
        "scores": "score",
        "weights": "weigh",
        "adapted": "adapt",
    }
    commands |= {"finetune": "finetune"}
    missing = [f"Make it with dana {command}" for name, command in commands.items() if name != part]
    assert [line for line in missing if line not in page] == []


def test_a_run_of_a_recipe_shows_what_it_has_and_advises_no_single_steps(shared_run, tmp_path):
    shutil.copytree(shared_run / "scores", tmp_path / "alone" / "scores")
    (tmp_path / "alone" / "recipe.yaml").write_text("task: toy\n")
    page = words(read_page(tmp_path / "alone"))
    assert "How well do the scores separate target from pool text?" in page
    assert "Make it with" not in page
    assert "Next: go on: dana run alone." in page


@pytest.mark.parametrize("texts", [["pool"], ["target", "pool"]])
def test_losses_that_were_not_measured_are_said_and_not_shown(whole_run, texts):
    for file in whole_run.rglob("training.jsonl"):
        file.write_text(
            re.sub(rf'("({"|".join(texts)})_loss(_se)?"): [\d.]+', r"\1: null", file.read_text())
        )
    page = words(read_page(whole_run))
    assert page.count("text no loss was measured.") == len(texts)
    assert ("perplexity of held-out target text before and after" in page) == (
        "target" not in texts
    )
    assert "– ± –" not in page
    assert "nan" not in page.lower().split()


def test_an_objective_that_predicts_classes_is_told_by_what_is_right_and_not_by_perplexity(
    whole_run,
):
    for file in whole_run.rglob("training.jsonl"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            if line["kind"] == "evaluation":
                line |= {"target_loss": None, "target_loss_se": None}
                line |= {"pool_accuracy": 0.25 + line["step"] / 1e6, "pool_guess": 0.2}
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = words(read_page(whole_run)).replace("\N{NO-BREAK SPACE}", " ")
    assert "Of held-out pool text the model predicted 25.0 % right before" in page
    assert "where guessing gets 20.0 %" in page
    assert "perplexity of held-out pool text went" not in page
    assert "perplexity of held-out target text before" not in page
    assert "forgotten" not in page


def test_nothing_to_report_writes_nothing(tmp_path):
    for folder, word in ((tmp_path, "dana score"), (tmp_path / "absent", "absent")):
        with pytest.raises(ArtifactError, match=word):
            report_stage(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_hundred_thousand_units_take_seconds(tmp_path):
    """A million took 3 s: nothing loops over units."""
    write_selection(tmp_path, 8400)
    start = time.monotonic()
    report_stage(tmp_path)
    assert time.monotonic() - start < 10


def fingerprints(run):
    manifests = sorted(file for file in run.rglob(MANIFEST) if "seeds" not in file.as_posix())
    return {
        file.relative_to(run).parts[:-2]: json.loads(file.read_text())["fingerprint"]
        for file in manifests
    }


@pytest.mark.slow
def test_the_commands_of_the_page_reproduce_the_run(tmp_path, monkeypatch):
    card, run = write_task(tmp_path / "cards"), tmp_path / "run"
    write_checkpoint(tmp_path / "model")
    words = ["iron", "zinc", "lead", "word20", "word21", "word22", "word23", "word24"]
    rows = [
        {"id": f"p{n}", "text": " ".join([*words[n % 7 :], *words[: n % 5], f"{n}."])}
        for n in range(60)
    ]
    (tmp_path / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    encoder, training = (
        "--encoder hashing:dims=32,words=1",
        "--steps 2 --batch-size 4 --max-tokens 24",
    )
    finetune = f"finetune --task {card} --seeds 2 --set finetune.preset=quick finetune.epochs=1"
    for line in (
        f"score --task {card} --pool {tmp_path}/pool.jsonl --out {run} {encoder} --selector detector:knn",
        f"weigh {run} --beta 0.3 --gamma 3",
        f"adapt {run} --model {tmp_path}/model {training}",
        f"{finetune} --model {run}/adapted --out {run}/finetune/toy/adapted",
    ):
        assert main(shlex.split(line)) == 0
    recipe, commands = reproduction(read_run(run)).split("<<'RECIPE'\n")[1].split("\nRECIPE\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "recipe.yaml").write_text(recipe + "\n")
    for line in commands.splitlines():
        assert line.startswith("#") or main(shlex.split(line)[1:]) == 0
    again = fingerprints(tmp_path / "elsewhere" / "again")
    assert {("scores",), ("weights",), ("adapted",)} <= again.keys()
    assert again.items() <= fingerprints(run).items()
