"""What is mistyped is answered in one line that names the nearest thing there is."""

from pathlib import Path

import pytest

from dana.cli.main import main


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("wiegh x", "weigh"),
        ("weigh x --bta 2", "--beta"),
        ("adapt x --learning_rate=1", "--learning-rate"),
        ("detectors lst", "list"),
    ],
)
def test_commands_and_flags(line, near, capsys):
    with pytest.raises(SystemExit) as left:
        main(line.split())
    assert left.value.code == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert f"did you mean '{near}'?" in said


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("rank --task notes.tx --general pool.jsonl", "notes.txt"),
        ("rank --task notes.txt --general pool.json", "pool.jsonl"),
        ("rank --task notes.txt --general pool.jsonl --config ./mime.yaml", "mine.yaml"),
        ("weigh runs/mne", "runs/mine"),
        ("weigh rums/mine", "runs"),
        ("report runs/mne", "runs/mine"),
        ("adapt runs/mine --model ./runs/mime", "runs/mine"),
        ("weigh runs/mine --config mine.yaml", "beta"),
    ],
)
def test_paths_and_keys(line, near, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("runs/mine").mkdir(parents=True)
    for name in ("notes.txt", "pool.jsonl", "mine.py"):
        Path(name).write_text('{"text": "a"}\n')
    Path("mine.yaml").write_text("weigh: {beata: 1}\n")
    assert main(line.split()) == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert f"did you mean '{near}'?" in said
