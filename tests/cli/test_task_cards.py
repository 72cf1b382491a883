"""``dana task``: list, show."""

import toy_task
import yaml

from dana.cli.main import main
from dana.tasks.finder import TASK_PATH, card_names


def test_list_has_a_line_a_card_and_a_tag_filters(capsys):
    assert main(["task", "list"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == [
        "name",
        "kind",
        "metric",
        "labels",
        "train",
        "dev",
        "test",
        "data",
        "tags",
        "title",
    ]
    assert [line.split()[0] for line in lines] == card_names()
    assert main(["task", "list", "--tag", "news"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == [
        "agnews",
        "agnews_rest",
        "hyperpartisan",
    ]


def test_show_prints_yaml_and_where_the_data_is(tmp_path, capsys):
    path = toy_task.write_task(tmp_path / "cards")
    toy_task.write_split(tmp_path / "other" / "toy", "dev", [])
    assert main(["task", "show", str(path), "--data", str(tmp_path / "other")]) == 0
    output = capsys.readouterr().out
    assert f"# dev: {tmp_path / 'other' / 'toy' / 'dev.jsonl'}\n" in output
    assert "# test: missing: task toy: no test data (looked for " in output
    assert yaml.safe_load(output)["labels"] == ["fruit", "metal", "bird"]
    assert main(["task", "show", "citation_intent"]) == 0
    assert "name: acl_arc\n" in capsys.readouterr().out


def test_strict_makes_a_warning_exit_code_1(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("DANA_DATA", raising=False)
    path = str(toy_task.write_task(tmp_path / "cards"))
    assert main(["task", "check", path, "--strict"]) == 0
    toy_task.write_split(tmp_path / "cards" / "toy", "test", toy_task.rows(60, 1))
    assert main(["task", "check", path, "--strict"]) == 1
    output = capsys.readouterr()
    assert "warning: test: 60 of 60 examples (100.0%) are also in train" in output.out
    assert f"dana: error: {path}: " in output.err


def test_a_task_path_is_in_the_recipe_and_found_by_later_commands(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("DANA_DATA", raising=False)
    monkeypatch.setenv(TASK_PATH, "")
    toy_task.write_task(tmp_path / "cards", name="words")
    pool, run, cards = (
        tmp_path / "pool.jsonl",
        str(tmp_path / "run"),
        ["--task-path", str(tmp_path / "cards")],
    )
    pool.write_text(
        "".join(f'{{"text": "word{at} word{at + 1} apple pear"}}\n' for at in range(30))
    )
    encoder = ["--encoder", "hashing:dims=16", "--set", "ranking.detectors=[knn,pca]"]
    rank = [
        "score",
        "--rank-only",
        "--task",
        "words",
        "--pool",
        str(pool),
        "--out",
        run,
        *encoder,
    ]
    score = ["score", "--out", run, "--selector", "detector:knn"]
    for line, code in ((["task", "list", *cards], 0), (rank, 2), ([*rank, *cards], 0), (score, 0)):
        assert main(line) == code
        monkeypatch.setenv(TASK_PATH, "")  # which a command sets
    assert "words" in [line.split()[0] for line in capsys.readouterr().out.splitlines() if line]
