"""``dana init``: a table and a pool become the folder of a run, whole or not at all."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from transformers import AutoConfig, BertConfig

import dana
from dana.cli.main import main
from dana.core.config import RECIPE
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.files import restore_folder
from dana.core.schemas import Document
from dana.core.settings import load
from dana.stages import init as init_stage
from dana.stages.init import (
    FILES,
    Survey,
    _beginnings,
    _default_name,
    choose_budget,
    default_objective,
    survey_pool,
)
from dana.stages.recipe import read_recipe
from dana.stages.run import check_pool, describe_tasks, plan_run
from dana.stages.settings import RunSettings, load_settings
from dana.stages.steps.run import Run
from dana.stages.steps.runner import execute
from dana.tasks.card import TaskCard
from dana.weighting.settings import Budget
from tests.families import FAMILIES
from tests.toy_task import rows, write_checkpoint, write_decoder

WORDS = [
    f"{letter}{vowel}{end}"
    for letter in "bdfgklmnprst"
    for vowel in "aeiou"
    for end in ("n", "r", "sk")
]
TOPICS = WORDS[:60], WORDS[30:90], WORDS[90:]


def draw(topic, seed):
    """A text of 14 words of a topic."""
    return (
        " ".join(np.random.default_rng([topic, seed]).choice(TOPICS[topic], 14)).capitalize() + "."
    )


TEXTS = [draw(n % 2, n) for n in range(80)]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A working directory with tickets.csv and pool/."""
    monkeypatch.chdir(tmp_path)
    table().to_csv("tickets.csv", index=False, sep=";")
    (tmp_path / "pool").mkdir()
    texts = [{"text": f"Before. {TEXTS[n]}" if n < 3 else draw(2, n)} for n in range(30)]
    (tmp_path / "pool" / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    return tmp_path


def table():
    return pd.DataFrame({"body": TEXTS, "kind": ["fruit", "metal"] * 40})


def test_the_folder_holds_card_texts_and_recipe_with_what_was_found(home, capfd):
    assert main(["init", "tickets.csv", "--pool", "pool"]) == 0
    folder = home / "tickets"
    assert {path.name for path in folder.iterdir()} == FILES
    frame = pd.read_parquet(folder / "texts.parquet")
    assert [*frame] == ["id", "text", "label", "fold"]
    assert [*frame["text"]] == TEXTS
    card = TaskCard.read(folder / "card.yaml")
    assert (card.name, card.labels, card.folds) == ("tickets", ["fruit", "metal"], "fold")
    assert card.made_from["texts"] == {"fruit": 40, "metal": 40}
    assert card.made_from["columns"] == {"text": "body", "label": "kind"}
    assert card.made_from["rows"] == 80
    recipe = (folder / "recipe.yaml").read_text()
    assert "# 80 texts, in 5 folds, each text once" in recipe
    assert "# 3 of the first 30 hold your texts" in recipe
    out, err = capfd.readouterr()
    assert out == "next:    dana run tickets --quick   # then without --quick\n"
    classes = "80 of 80 rows, in 2 classes: fruit (40), metal (40)"
    assert all(
        words in err
        for words in (
            classes,
            "separated by semicolons",
            "5 folds",
            "3 of the first 30",
            "7 × training on 50 steps (--quick)",
            "macro-F1 can be decided by the probe",
            "tickets: 48 texts are tested, in 3 of 5 folds",
            "tickets: 80 texts are tested, in 5 of 5 folds",
            "macro-F1 can be decided by fine-tuning",
            "11 × training on 50 steps",
        )
    ), err
    assert [path.name for path in home.iterdir() if path.name.startswith(".")] == []


def test_texts_that_the_model_cannot_read_are_said(home, capfd):
    """The Russian for a printer that has stopped; the base has read English."""
    broken = "Принтер на втором этаже перестал работать, заявка номер"
    texts = [f"{broken} {number}." for number in range(80)]
    pd.DataFrame({"body": texts, "kind": ["a", "b"] * 40}).to_csv("russian.csv", index=False)
    assert main(["init", "russian.csv", "--pool", "pool", "--model", "dana-mini"]) == 0
    words = "of the letters of your texts as unknown or one by one"
    assert f"dana-mini reads 100% {words}" in capfd.readouterr().err
    assert words in (home / "russian" / "recipe.yaml").read_text(encoding="utf-8")
    english = [f"The printer on floor {number} does not print the letters." for number in range(80)]
    pd.DataFrame({"body": english, "kind": ["a", "b"] * 40}).to_csv("english.csv", index=False)
    assert main(["init", "english.csv", "--pool", "pool", "--model", "dana-mini"]) == 0
    assert words not in capfd.readouterr().err


def test_a_pool_of_the_labelled_texts_alone_is_refused(home, capfd):
    rows = [json.dumps({"text": text}) + "\n" for text in TEXTS]
    (home / "same.jsonl").write_text("".join(rows))
    assert main(["init", "tickets.csv", "--pool", "same.jsonl"]) == 2
    err = capfd.readouterr().err
    assert "same.jsonl: all 80 documents hold your labelled texts" in err
    assert "name other text by --pool" in err
    assert not (home / "tickets").exists()
    (home / "more.jsonl").write_text("".join(rows) + json.dumps({"text": draw(2, 1)}) + "\n")
    assert main(["init", "tickets.csv", "--pool", "more.jsonl"]) == 0


def test_a_long_label_of_several_lines_is_shown_short_on_one(home, capfd):
    long = "fruit\nof " + "trees " * 40
    table().replace({"kind": {"fruit": long}}).to_csv("tickets.csv", index=False, sep=";")
    assert main(["init", "tickets.csv", "--pool", "pool", "--label", "kind"]) == 0
    err = capfd.readouterr().err
    assert "fruit of trees trees" in err
    assert "... (40), metal (40)" in err
    assert max(map(len, err.splitlines())) < 300


def test_no_difference_above_one_is_said_to_be_seen(home, caplog):
    caplog.set_level("INFO", "dana")
    dana.init("tickets.csv", "pool", folds=2)
    assert "80 texts, in 2 folds, each text once" in caplog.text
    assert "a difference of about 0.29 macro-F1 can be decided by the probe" in caplog.text
    assert "tickets: 80 texts are tested, in 2 of 2 folds" in caplog.text
    assert "too few texts or folds to decide any difference by fine-tuning" in caplog.text


def test_the_recipe_is_read_from_its_folder(home):
    dana.init("tickets.csv", "pool", out="deep/tickets", label="kind")
    values, path = read_recipe("deep/tickets")
    assert str(path) == "deep/tickets/recipe.yaml"
    paths = values["out"], values["task"], *values["pool"]
    assert paths == ("deep/tickets", "deep/tickets/card.yaml", "pool")
    assert read_recipe("deep/tickets/recipe.yaml")[0] == values
    dana.init("tickets.csv", ["pool/*.jsonl", home / "pool"], out="deep/other")
    assert read_recipe("deep/other")[0]["pool"] == [
        "pool/*.jsonl",
        str(home / "pool"),
    ]
    recipe = (
        (home / "deep/other/recipe.yaml")
        .read_text()
        .replace("../../pool/*.jsonl", "s3://bucket/*.jsonl.gz")
    )
    (home / "deep/other/recipe.yaml").write_text(recipe)
    assert read_recipe("deep/other")[0]["pool"][0] == "s3://bucket/*.jsonl.gz"
    for folder in (home, home / "nope"):
        with pytest.raises(ConfigError, match=folder.name):
            read_recipe(folder)


def test_a_named_column_is_that_of_the_pool_too(home, capfd):
    (home / "other.jsonl").write_text(
        "".join(json.dumps({"body": draw(2, n), "n": n}) + "\n" for n in range(30))
    )
    assert main(["init", "tickets.csv", "--pool", "other.jsonl"]) == 2
    assert (
        "other.jsonl:1: the field 'text' is missing; available: body, n; " in capfd.readouterr().err
    )
    assert main(["init", "tickets.csv", "--pool", "other.jsonl", "pool", "--text", "body"]) == 0
    assert load(RunSettings, read_recipe("tickets")[0]).inputs.text_field == ["body", "text"]


def test_a_table_in_memory_gives_the_bytes_of_its_file(home):
    dana.init("tickets.csv", "pool", out="one")
    assert str(dana.init(table(), ["pool"])) == "table"
    assert (home / "one" / "texts.parquet").read_bytes() != b""
    one, two = (
        pd.read_parquet(f"{name}/texts.parquet").drop(columns="id") for name in ("one", "table")
    )
    pd.testing.assert_frame_equal(one, two)
    assert (home / "one" / "recipe.yaml").read_bytes() == (
        home / "table" / "recipe.yaml"
    ).read_bytes()


def test_a_second_init_replaces_a_folder_without_results_and_no_other(home):
    dana.init("tickets.csv", "pool")
    dana.init("tickets.csv", "pool", folds=3)
    assert pd.read_parquet("tickets/texts.parquet")["fold"].nunique() == 3
    (home / "tickets" / "pool").mkdir()
    before = {path.name: path.stat().st_mtime_ns for path in (home / "tickets").iterdir()}
    with pytest.raises(ArtifactError, match="tickets: holds pool; name another folder by --out"):
        dana.init("tickets.csv", "pool")
    assert {path.name: path.stat().st_mtime_ns for path in (home / "tickets").iterdir()} == before


def test_a_run_that_begins_during_a_second_init_keeps_its_results(home, monkeypatch):
    folder = dana.init("tickets.csv", "pool")
    recipe = (folder / RECIPE).read_text()

    def read(*arguments):
        (folder / "pool").mkdir()  # as dana run makes it in another terminal
        return read_sample(*arguments)

    read_sample = init_stage._read_sample
    monkeypatch.setattr(init_stage, "_read_sample", read)
    with pytest.raises(ArtifactError, match="tickets: holds pool; name another folder by --out"):
        dana.init("tickets.csv", "pool", folds=3)
    assert (folder / "pool").is_dir()
    assert (folder / RECIPE).read_text() == recipe
    assert [path.name for path in home.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("mail/tickets.v2.csv", "tickets"),
        ("mail", "mail-run"),
        (".", "work-run"),
        ("mail/..", "work-run"),
        (".hidden.csv", "hidden"),
        ("https://example.org/tickets.csv", "tickets"),
        ("/", "table"),
        ("-", "stdin"),
    ],
)
def test_the_folder_is_named_by_the_table(table, name, tmp_path, monkeypatch):
    (tmp_path / "work" / "mail").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    assert _default_name(table) == name


def test_a_link_to_a_folder_is_not_replaced(home):
    (home / "there").mkdir()
    (home / "link").symlink_to("there")
    with pytest.raises(
        ArtifactError, match=r"link: is a symbolic link; name its folder: --out .*there"
    ):
        dana.init("tickets.csv", "pool", out="link")
    assert (home / "link").is_symlink()


@pytest.mark.parametrize("name", ["notes.txt", *sorted(FILES)])
def test_a_file_is_not_replaced_by_a_folder(name, home):
    (home / name).write_text("mine")
    before = sorted(home.rglob("*"))
    with pytest.raises(ArtifactError, match=f"^{name}: is a file; choose another --out$"):
        dana.init("tickets.csv", "pool", out=name)
    assert sorted(home.rglob("*")) == before
    assert (home / name).read_text() == "mine"


@pytest.mark.parametrize(
    ("pool", "settings", "error", "words"),
    [
        ("pol", {}, DataError, "did you mean 'pool'?"),
        ([], {}, ConfigError, "pool"),
        ("pool", {"label": "knid"}, ConfigError, "did you mean 'kind'?"),
        ("pool", {"test": "nope.csv"}, DataError, "nope.csv"),
        ("pool", {"folds": 50}, ConfigError, "50 folds"),
        ("pool", {"out": "two\nlines"}, ConfigError, "without line ends"),
    ],
)
def test_what_cannot_be_used_leaves_nothing(pool, settings, error, words, home):
    before = sorted(home.rglob("*"))
    with pytest.raises(error, match=words.replace("?", r"\?")):
        dana.init("tickets.csv", pool, **settings)
    assert sorted(home.rglob("*")) == before


def test_a_kill_while_a_folder_is_replaced_leaves_the_former_one(home, monkeypatch):
    folder = dana.init("tickets.csv", "pool")
    recipe = (folder / RECIPE).read_text()
    rename = Path.rename

    def rename_or_die(self, target):
        if Path(target).name == folder.name:
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename_or_die)
        with pytest.raises(KeyboardInterrupt):
            dana.init("tickets.csv", "pool", folds=2)
    restore_folder(folder)
    assert (folder / RECIPE).read_text() == recipe
    assert str(dana.init("tickets.csv", "pool", folds=2)) == "tickets"


def test_a_folder_a_label_is_not_overwritten_by_its_run(home):
    for n, text in enumerate(TEXTS):
        (home / "mail" / "ab"[n % 2]).mkdir(parents=True, exist_ok=True)
        (home / "mail" / "ab"[n % 2] / f"{n}.txt").write_text(text)
    assert str(dana.init("mail", "pool")) == "mail-run"


def test_settings_of_a_call_take_the_place_of_those_that_they_exclude(home, monkeypatch):
    folder = dana.init("tickets.csv", "pool")
    ready = []

    def run_recipe(settings, *_):
        ready.append(settings)
        raise ConfigError("enough")

    monkeypatch.setattr("dana.api.runs.run_recipe", run_recipe)
    for settings in ({"adapt": {"tokens": 500_000}}, {"weigh": {"beta": 0.1}}):
        with pytest.raises(ConfigError, match="enough"):
            dana.run(folder, **settings)
    tokens, beta = ready
    assert (tokens.adapt.tokens, tokens.adapt.steps) == (500_000, None)
    assert (beta.weigh.share, beta.weigh.budget) == (0.1, None)


def test_a_run_is_the_same_by_its_path_and_from_another_directory(home, monkeypatch):
    folder = dana.init("tickets.csv", "pool").resolve()

    def fingerprints(name):
        return plan_run(load_settings(read_recipe(name)[0])).fingerprints

    here = fingerprints("tickets")
    assert fingerprints(folder) == here
    for place in (folder, folder.parent / "pool"):
        monkeypatch.chdir(place)
        assert fingerprints(Path(os.path.relpath(folder))) == here
        assert fingerprints(folder) == here


def test_the_pool_is_compared_with_the_texts():
    near, far = (
        [Document(f"{topic}-{n}", "", draw(topic, 100 + n)) for n in range(80)] for topic in (0, 2)
    )
    found = [
        survey_pool([*near[:count], *far[count:]], TEXTS).alike_shares for count in (0, 20, 80)
    ]
    assert all(lowest <= highest for lowest, highest in found)
    none, some, all_of_it = found
    assert none[1] < 0.1 < some[0]
    assert some[1] < 0.5 < all_of_it[0]
    assert survey_pool(far, TEXTS[:50]) == Survey(holding_count=0, alike_shares=None)


def test_books_are_compared_by_their_beginnings(monkeypatch):
    lengths = [3000, 10, 5000]
    books = [Document(str(n), "", "x" * length) for n, length in enumerate(lengths)]
    assert _beginnings(books) == books
    monkeypatch.setattr("dana.stages.init.MOST_CHARACTERS", 6000)
    assert [len(book.text) for book in _beginnings(books)] == [2000, 10, 2000]


def test_records_of_a_pool_without_text_end_init_or_are_left_out_by_it_and_by_the_run(home, capfd):
    pool = home / "nulls.jsonl"
    lines = [json.dumps({"text": draw(2, n)}) for n in range(40)]
    pool.write_text("\n".join([*lines, json.dumps({"text": None})]))
    command = ["init", "tickets.csv", "--pool", "nulls.jsonl", "--out", "nulls"]
    assert main(command) == 2
    assert "nulls.jsonl:41: the field 'text' must be text" in capfd.readouterr().err
    assert not Path("nulls").exists()
    assert main([*command, "--on-bad-record", "skip"]) == 0
    assert load_settings(read_recipe("nulls")[0]).on_bad_record == "skip"
    assert main([*command, "--on-bad-record", "ignore"]) == 2
    assert "on_bad_record" in capfd.readouterr().err


def test_a_quick_run_says_what_it_can_decide_before_it_reads_text(home, caplog):
    caplog.set_level("INFO", "dana")
    folder = dana.init("tickets.csv", "pool")
    settings = load(RunSettings, read_recipe(folder)[0])
    caplog.clear()
    describe_tasks(settings, quick=True)
    assert "tickets: 48 texts are tested, in 3 of 5 folds" in caplog.text
    assert "macro-F1 can be decided by the probe" in caplog.text
    assert "--quick ends after the probe" in caplog.text
    assert "by fine-tuning" not in caplog.text
    caplog.clear()
    describe_tasks(settings, quick=False)
    assert "tickets: 80 texts are tested, in 5 of 5 folds" in caplog.text
    assert "macro-F1 can be decided by fine-tuning" in caplog.text


@pytest.mark.slow
def test_a_quick_run_ends_after_the_probe_and_the_run_goes_on_from_there(home, monkeypatch, capfd):
    pd.DataFrame(rows(60, 1)).to_csv("toy.csv", index=False)
    documents = [json.dumps({"text": row["text"]}) + "\n" for row in rows(200, 9)]
    (home / "pool" / "more.jsonl").write_text("".join(documents))
    assert main(["init", "toy.csv", "--pool", "pool"]) == 0
    texts = pd.read_parquet("toy/texts.parquet")
    line = ["run", "toy", "--set", f"model={write_checkpoint(home / 'model')}", "selector=random"]
    line += ["jobs=1", "adapt.objective=masked"]  # in one order, and with an adapted model
    line += ["adapt.tokens=400", "adapt.batch_size=8", "adapt.max_tokens=24"]
    line += ["finetune.preset=quick", "finetune.epochs=1", "finetune.max_tokens=24"]
    line += ["seeds.adaptations=2", "seeds.finetunings=1", "probe.sizes=[12]", "probe.draws=2"]
    line += ["candidates=[]"]

    def tested():
        results = home / "toy" / "finetune" / "toy"
        tables = [
            pd.read_parquet(results / arm / "predictions.parquet")
            for arm in ("base", "random", "dana")
        ]
        return [sorted(table["id"]) for table in tables]

    def manifests():
        files = (home / "toy").rglob("__dana__/manifest.json")
        return {path: path.stat().st_mtime_ns for path in files if "nested" in path.parts}

    monkeypatch.setattr("dana.stages.run.QUICK_ADAPTATIONS", 1)
    recipe = Path("toy/recipe.yaml").read_text()
    assert main([*line, "--quick"]) == 0
    assert not (home / "toy" / "finetune").exists()
    lines = capfd.readouterr().err.splitlines()
    heads = [line for line in lines if line.startswith("scores    after")]
    assert heads == [
        "scores    after the baselines and the base:",
        "scores    after adaptation 1:",
    ]
    first, second = (lines.index(head) for head in heads)
    names = [line.split("  ")[0] for line in lines[first + 2 : first + 6]]
    assert names == ["constant prediction", "TF-IDF", "sentence vectors", "base"]
    assert not any("reading texts" in line for line in lines[:first])
    probed = [line.split() for line in lines[second:] if "on its vectors" in line]
    assert [row[0] for row in probed] == ["base", "random", "dana"]
    counts = {row[-1] for row in probed}
    assert counts == {str((texts["fold"] == 0).sum())}, "all on the fold that all were tested on"
    assert (home / "toy" / "report.html").is_file()
    made_by_quick = manifests()
    assert main(line) == 0
    lines = capfd.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("scores    after")] == [
        "scores    after the fine-tuning of adaptation 1:",
        "scores    after adaptation 2:",
        "scores    after the fine-tuning of adaptation 2:",
    ], "what was shown before is not shown again"
    assert tested() == [sorted(texts["id"][texts["fold"] < 2])] * 3
    assert manifests().items() > made_by_quick.items(), "nothing is made twice"
    assert Path("toy/recipe.yaml").read_text() == recipe, "what dana init wrote stays"
    with pytest.raises(ArtifactError, match="toy: holds"):
        dana.init("toy.csv", "pool")


@pytest.mark.parametrize(
    ("objective", "pool", "steps", "budget"),
    [
        ("masked", 1_000_000, 25, "1000000 tokens"),
        ("position", 40_000, 50, "3200 documents"),
        ("crops", 40_000, 150, "3200 documents"),
        ("auto", 40_000, 25, "1600 documents"),
        ("crops", 100, 50, "20 documents"),
    ],
)
def test_no_more_is_selected_than_an_arm_reads(objective, pool, steps, budget):
    documents = [Document(str(n), "", draw(2, n)) for n in range(100)]
    found, share = choose_budget(objective, documents, pool, steps)
    assert found == Budget.parse(budget)
    assert 0 < share <= 0.2


def test_special_tokens_are_no_part_of_a_fifth_of_the_pool():
    documents = [Document(str(n), "", "good morning all") for n in range(1000)]
    assert choose_budget("masked", documents, 1000, 50) == (Budget(600, "tokens"), 0.2)


def test_no_more_is_selected_than_a_fifth_of_the_pool():
    documents = [Document(str(n), "", draw(2, n)) for n in range(100)]
    for objective in ("masked", "position", "crops"):
        _, share = choose_budget(objective, documents, 100, 50)
        assert share == pytest.approx(0.2, abs=0.005)


@pytest.mark.parametrize(
    ("objective", "kind"),
    [("masked", "tokens"), ("position", "documents"), ("crops", "documents")],
)
def test_the_recipe_selects_as_much_as_is_said_and_the_run_selects_that(
    objective, kind, home, caplog
):
    caplog.set_level("INFO", "dana")
    records = [{"text": " ".join(draw(n % 3, 9 * n + m) for m in range(5))} for n in range(100)]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (home / "pool" / "all.jsonl").write_text(lines)
    folder = dana.init("tickets.csv", "pool", objective=objective)
    text = (folder / "recipe.yaml").read_text()
    settings = load_settings(read_recipe(folder)[0])
    assert settings.adapt.objective == objective
    budget = settings.weigh.effective_budget
    assert budget.kind == kind
    said = f"the arms select {budget.amount:,.0f} {kind} each, about 20% of it"
    assert said in text
    assert said in caplog.text
    settings = load_settings(
        read_recipe(folder)[0], ["selector=lexical", f"model={write_checkpoint(home / 'model')}"]
    )
    run = plan_run(settings)
    steps = tuple(
        step
        for step in run.steps
        if step.name in ("texts", "score/dana", "weigh/dana", "score/random", "weigh/random")
    )
    execute(Run(run.folder, steps), 1)
    for arm in ("random", "dana"):
        [part] = (folder / "arms" / arm / "weights").glob("part-*.parquet")
        weights = pd.read_parquet(part)
        chosen = weights[weights["weight"] > 0]
        if kind == "documents":
            assert chosen["doc_id"].nunique() == budget.amount == 20
        else:
            assert 0.15 < len(chosen) / len(weights) <= 0.22


def test_another_amount_on_the_command_line_takes_the_place_of_the_budget(home, capfd):
    dana.init("tickets.csv", "pool", objective="position")
    line = ["run", "tickets", "--dry-run", "--set", "selector=random"]
    assert main([*line, "weigh.beta=0.1", "adapt.tokens=5000"]) == 0
    assert "training on 5,000 tokens" in capfd.readouterr().out
    assert main([*line, "weigh.beta=2"]) == 2
    assert main(["init", "tickets.csv", "--pool", "pool", "--objective", "crop"]) == 2
    assert "objective='crop': must be one of masked, position" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arms", "quick"),
    [
        (["pool", "random", "dana", "task"], {"random", "dana"}),
        (["pool", "task"], {"pool", "task"}),
        (
            {"same": {}, "first": {"mix": {"task": 1.0}}, "random": {"selector": "random"}}
            | {"dana": {"after": "first", "adapt": {"tokens": 900}}},
            {"random", "dana", "first"},
        ),
    ],
    ids=["ready", "without", "after"],
)
def test_the_steps_of_a_quick_run_are_some_of_the_run(home, arms, quick):
    dana.init("tickets.csv", "pool", objective="masked")
    values = read_recipe("tickets")[0] | {"arms": arms, "selector": "lexical"}
    values["adapt"] |= {"tokens": 600}
    settings = load_settings(values)
    every, some = (plan_run(settings, quick=is_quick).fingerprints for is_quick in (False, True))
    common = {
        name: value for name, value in some.items() if not name.startswith(("gate/", "final/"))
    }
    assert every.items() > common.items()
    adapted = [name for name in some if name.startswith("adapt/")]
    adaptations = [name for name in adapted if not name.endswith("/final")]
    assert {name.split("/")[1] for name in adaptations} == quick
    assert len(adaptations) == 3 * len(quick)
    assert not [name for name in some if name.startswith("finetune/")]
    values["probe"] = {"enabled": False}
    without = plan_run(load_settings(values), quick=True).fingerprints
    folds = {name.split("/")[3] for name in without if name.startswith("finetune/tickets/base")}
    assert len(folds) == 3, "what is not probed is fine-tuned"


def test_a_model_that_is_chosen_by_speed_stands_in_the_recipe_by_name(home, monkeypatch):
    monkeypatch.setattr("dana.stages.init.choose_base", lambda: ("minilm", {"minilm": 100.0}))
    folder = dana.init("tickets.csv", "pool", model="auto")
    recipe = (folder / "recipe.yaml").read_text()
    assert 'model: "minilm"' in recipe
    assert "model: auto" not in recipe
    assert read_recipe(folder)[0]["model"] == "minilm"


@pytest.mark.parametrize(
    ("model_type", "kind", "objective"),
    [
        ("bert", "single_label", "auto"),
        ("modernbert", "multi_label", "auto"),
        ("mpnet", "regression", "auto"),
        ("bert", "token_labels", "masked"),
        ("llama", "single_label", "causal"),
    ],
)
def test_a_pilot_chooses_the_objective_where_one_can(model_type, kind, objective):
    assert default_objective(AutoConfig.for_model(model_type), kind) == objective


def test_a_decoder_gets_a_recipe_that_trains_it(home):
    config = AutoConfig.for_model("llama", max_position_embeddings=64)
    model = write_decoder(home / "decoder", ["a", "b"])
    settings = load_settings(read_recipe(dana.init("tickets.csv", "pool", model=str(model)))[0])
    assert settings.adapt.objective == "causal"
    settings.adapt.make_objective().auto_class(config)
    assert settings.adapt.tokens == 1_000_000
    assert settings.adapt.learning_rate == 1e-5
    assert settings.weigh.budget.endswith("tokens")


@pytest.mark.parametrize(
    ("family", "objective", "words"),
    [
        ("t5", None, "no objective of dana for plain text adapts it, but it can be fine-tuned"),
        ("gpt2", "auto", "adapt it with --objective causal"),
        ("gpt2", "position", "adapt it with --objective causal"),
        ("bert", "causal", "adapt it with --objective masked"),
    ],
)
def test_a_model_that_the_objective_cannot_train_is_refused(home, family, objective, words):
    FAMILIES[family].save(home / family)
    with pytest.raises(ConfigError, match=words):
        dana.init("tickets.csv", "pool", model=family, objective=objective, out="refused")
    assert not (home / "refused").exists()


def test_a_wide_base_trains_shorter_on_a_processor_and_selects_less(home, monkeypatch):
    config = BertConfig(hidden_size=384, max_position_embeddings=64)
    monkeypatch.setattr("dana.stages.init.load_config", lambda name: config)
    lines = "".join(json.dumps({"text": draw(2, n)}) + "\n" for n in range(20_000))
    (home / "pool" / "all.jsonl").write_text(lines)
    settings = load_settings(read_recipe(dana.init("tickets.csv", "pool", objective="crops"))[0])
    assert settings.adapt.steps == 25
    assert settings.adapt.max_tokens == 64
    assert settings.weigh.effective_budget == Budget.parse("1600 documents")


@pytest.mark.parametrize(
    ("device", "count", "jobs"), [("cpu", 8, 2), ("cpu", 1, 1), ("cuda", 8, 1)]
)
def test_two_steps_run_side_by_side_on_a_processor_of_several_cores(
    home, device, count, jobs, monkeypatch
):
    monkeypatch.setattr("dana.stages.init.cores", lambda: count)
    monkeypatch.setattr("dana.stages.init.find_device", lambda: SimpleNamespace(type=device))
    folder = dana.init("tickets.csv", "pool")
    assert load_settings(read_recipe(folder)[0]).jobs == jobs


def test_a_model_that_is_not_there_leaves_nothing(home):
    with pytest.raises(ArtifactError, match="no such folder"):
        dana.init("tickets.csv", "pool", model="./nowhere")
    assert not Path("tickets").exists()


def test_the_pool_of_a_run_is_looked_for_without_the_files_of_the_run(home):
    dana.init("tickets.csv", "pool")
    values, _ = read_recipe(Path("tickets"))
    (home / "tickets" / "notes").write_text("a file without a suffix")
    settings = load_settings({**values, "pool": [str(home)]})
    check_pool(settings)
    missing = load_settings({**values, "pool": [str(home / "nope")]})
    with pytest.raises(DataError, match="nope"):
        check_pool(missing)
    (home / "tickets" / "pool").mkdir()
    (home / "tickets" / "pool" / "part-00000.parquet").write_bytes(b"read already")
    check_pool(missing)
    assert main(["run", "tickets", "--dry-run", "--set", "pool=[nope]"]) == 0
    shutil.rmtree(home / "tickets" / "pool")
    assert main(["run", "tickets", "--dry-run", "--set", "pool=[nope]"]) == 2


def write_more(home, texts):
    """Texts without labels, with the columns of tickets.csv."""
    pd.DataFrame({"body": texts, "date": "today"}).to_csv("more.csv", index=False, sep=";")


def test_texts_without_labels_get_an_arm_beside_the_pool(home, capfd):
    write_more(home, [*TEXTS[:4], *(draw(n % 2, 500 + n) for n in range(40))])
    assert main(["init", "tickets.csv", "--pool", "pool", "--unlabelled", "more.csv"]) == 0
    err = capfd.readouterr().err
    words = "about 44 texts without labels; 4 of the first 44 hold your texts: left out by dana run"
    assert words in err
    recipe = (home / "tickets" / RECIPE).read_text(encoding="utf-8")
    assert f"# {words}" in recipe
    settings = load_settings(read_recipe("tickets")[0])
    assert settings.pool == ["pool"]
    assert settings.unlabelled == ["more.csv"]
    assert settings.arms == ["random", "dana", "unlabelled"]
    # The column of the table is read after the field that is usual for pools.
    assert settings.inputs.text_field == ["text", "body"]
    execute(Run(Path("tickets"), tuple(steps_named(settings, "texts"))))
    kept = pd.read_parquet("tickets/unlabelled/part-00000.parquet")["text"]
    assert len(kept) == 40
    names = [step.name for step in plan_run(settings, quick=True).steps]
    assert {"pilot", "pilot/unlabelled", "adapt/unlabelled", "adapt/dana"} <= {*names}


def steps_named(settings, *names):
    """The steps of a run that have these names."""
    return [step for step in plan_run(settings).steps if step.name in names]


def test_without_a_pool_the_texts_without_labels_are_all_that_is_adapted_on(home, capfd):
    write_more(home, [draw(n % 2, 500 + n) for n in range(40)])
    assert main(["init", "tickets.csv", "--unlabelled", "more.csv", "--text", "body"]) == 0
    settings = load_settings(read_recipe("tickets")[0])
    assert settings.pool == settings.unlabelled == ["more.csv"]
    assert settings.arms == ["unlabelled"]
    assert settings.inputs.text_field == ["body", "text"]
    assert "budget" not in (home / "tickets" / RECIPE).read_text(encoding="utf-8")
    assert "like your texts" not in capfd.readouterr().err
    names = [step.name for step in plan_run(settings).steps]
    assert not [name for name in names if name.startswith(("score/", "weigh/", "pilot/final"))]
    assert "final/vectors-unlabelled" in names


def test_without_a_pool_the_column_of_the_table_is_read_before_a_field_text(home):
    texts = [draw(n % 2, 500 + n) for n in range(40)]
    links = [f"tickets.example/{n}" for n in range(40)]
    pd.DataFrame({"text": links, "body": texts}).to_csv("more.csv", index=False)
    assert main(["init", "tickets.csv", "--unlabelled", "more.csv"]) == 0
    settings = load_settings(read_recipe("tickets")[0])
    assert settings.inputs.text_field == ["body", "text"]
    execute(Run(Path("tickets"), tuple(steps_named(settings, "texts"))))
    kept = pd.read_parquet("tickets/unlabelled/part-00000.parquet")["text"]
    assert [*kept] == texts


def test_beside_a_pool_two_fields_of_text_are_not_guessed_between(home, capfd):
    texts = [draw(n % 2, 500 + n) for n in range(40)]
    links = [f"tickets.example/{n}" for n in range(40)]
    pd.DataFrame({"text": links, "body": texts}).to_csv("more.csv", index=False)
    command = ["init", "tickets.csv", "--pool", "pool", "--unlabelled", "more.csv"]
    assert main(command) == 2
    err = capfd.readouterr().err
    assert (
        "more.csv: has text in the field 'body', as the table has it, and in the field 'text'"
        in err
    )
    assert not (home / "tickets").exists()
    assert main([*command, "--text", "body"]) == 0
    settings = load_settings(read_recipe("tickets")[0])
    assert settings.inputs.text_field == ["body", "text"]
    # The same text in both fields is no question.
    pd.DataFrame({"text": texts, "body": texts}).to_csv("more.csv", index=False)
    assert main([*command, "--out", "other"]) == 0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "name text to choose from by --pool, or texts of the same kind without labels by"),
        (["--unlabelled", "-"], "--unlabelled -: dana run reads the text again"),
        (["--unlabelled", "none.csv"], "none.csv"),
        (["--unlabelled", "same.csv"], "all 5 documents hold your labelled texts"),
        (["--unlabelled", "short.csv"], "all 1 documents hold your labelled texts"),
        (
            ["--unlabelled", "title.csv"],
            "available: title, page; name it by --text-field (init: --text), or rename",
        ),
    ],
)
def test_texts_without_labels_that_cannot_be_used_are_refused(home, capfd, flags, says):
    frame = table()
    frame.loc[0, "body"] = "Out of paper"
    frame.to_csv("tickets.csv", index=False, sep=";")
    frame[["body"]][1:6].to_csv("same.csv", index=False)
    pd.DataFrame({"body": ["out of  paper!"]}).to_csv("short.csv", index=False)
    pd.DataFrame({"title": ["a title"], "page": [3]}).to_csv("title.csv", index=False)
    assert main(["init", "tickets.csv", *flags]) == 2
    assert says in capfd.readouterr().err
    assert not (home / "tickets").exists()


def test_a_table_in_memory_takes_texts_without_labels_from_files(home):
    write_more(home, [draw(n % 2, 500 + n) for n in range(40)])
    dana.init(table(), out="memory", unlabelled="more.csv")
    assert read_recipe("memory")[0]["unlabelled"] == ["more.csv"]
    with pytest.raises(ConfigError, match=r"unlabelled=\[\]: must be at least one file"):
        dana.init(table(), out="other", unlabelled=[])


def test_a_table_that_is_labelled_in_part_gives_both(home, caplog):
    """The rows with a label are the task, the others are adapted on."""
    caplog.set_level("INFO", "dana")
    more = [draw(n % 2, 500 + n) for n in range(40)]
    rest = pd.DataFrame({"body": more, "kind": [""] * 40})
    pd.concat([table(), rest]).to_csv("tickets.csv", index=False, sep=";")
    dana.init("tickets.csv", unlabelled="tickets.csv")
    assert "40 without a label" in caplog.text
    assert "to adapt on such texts: --unlabelled with this file, too" in caplog.text
    assert "80 of the first 120 hold your texts" in caplog.text
    execute(
        Run(
            Path("tickets"),
            tuple(steps_named(load_settings(read_recipe("tickets")[0]), "texts")),
        )
    )
    kept = pd.read_parquet("tickets/unlabelled/part-00000.parquet")["text"]
    assert {*kept} == {*more}
