"""The few-shot study from items to tables: what is written, how it goes on, and that no key is."""

import json
from itertools import product

import pandas as pd
import pytest

from dana.cli.main import main
from dana.studies.few_shot import ARMS, stage
from dana.studies.few_shot.items import Item, Passage
from tests.studies.few_shot.chat_server import KEY, cut, says, serving, status

LABELS = ("news", "review")


@pytest.fixture
def items(monkeypatch):
    """Six items in the place of those of a task; the text of item 0, 2, 4 is of class A."""

    def examples(arm):
        return [[Passage(f"{arm}-{label}{at}", f"{label} {arm}-{label}{at}.") for at in range(2)] for label in LABELS]

    shots, texts = {arm: examples(arm) for arm in ARMS}, [Passage(f"t{at}", f"? t{at}.") for at in range(6)]
    items = [Item(str(at), "3", *LABELS, texts[at], LABELS[at % 2], shots) for at in range(6)]
    monkeypatch.setattr(stage, "items_of_task", lambda settings, card: ({"items": 6}, items))
    return "card"


def replies(tmp_path, *lines):
    path = tmp_path / "replies.jsonl"
    first = {"turn": 1, "reply": "1. Tone\n2. Length\n3. Topic"}
    path.write_text("\n".join(json.dumps(line) for line in (first, *lines, {"reply": "so it says"})))
    return path


def decision(request):
    """Class A for the texts 0 to 3, Class B for the others; criteria before."""
    lines = [message["content"] for message in request["messages"] if message["role"] == "user"]
    if len(lines) < 5:
        return f"1. Tone\n2. Length {len(lines)}\n3. Topic"
    return "Answer: Class A" if any(f"t{number}." in lines[1] for number in range(4)) else "**Class B**"


def study(items, out, chat, *more):
    return main(["few-shot", str(items), "--chat", chat, "--out", str(out), *more])


def read_tables(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("few-shot/*.*"))}


def test_a_study_leaves_the_answer_tables_and_transcripts(tmp_path, items, capsys):
    path = replies(
        tmp_path,
        {"turn": 5, "contains": "t5.", "reply": "I cannot tell."},
        {"turn": 5, "contains": "t4.", "reply": "Hm."},
        {"turn": 5, "contains": "on-news0", "reply": "Answer: Class A"},
        {"turn": 5, "reply": "Class B, not Class A."},
    )
    assert study(items, tmp_path / "out", f"scripted:{path}") == 0
    folder = tmp_path / "out" / "few-shot"
    results = pd.read_csv(folder / "results.csv")
    assert list(zip(results["item"], results["arm"], strict=True)) == list(product(range(6), ("on", "off")))
    on, off = (results[results["arm"] == arm] for arm in ("on", "off"))
    assert list(on["outcome"]) == ["right", "wrong", "right", "wrong", "unparsable", "abstained"]
    assert list(off["outcome"]) == ["wrong", "right", "wrong", "right", "unparsable", "abstained"]
    assert list(off["chosen"].fillna("")) == ["review"] * 4 + ["", ""]
    summary = pd.read_csv(folder / "summary.csv").set_index("arm")
    columns = ["items", "right", "wrong", "abstained", "unparsable", "answered"]
    assert list(summary.loc["on", columns]) == [6, 2, 2, 1, 1, 4]
    assert summary.loc["off", "accuracy"] == pytest.approx(2 / 6)
    assert summary.loc["off", "accuracy_answered"] == 0.5
    comparison = pd.read_csv(folder / "paired.csv").iloc[0]
    assert list(comparison[["both", "only_on", "only_off", "neither"]]) == [0, 2, 2, 2]
    assert capsys.readouterr().out.startswith((folder / "few_shot.md").read_text())
    assert (folder / "items.jsonl").read_text().count("\n") == 6


def test_transcripts_hold_every_turn_and_conversations_have_seeds_of_their_own(tmp_path, items):
    path = replies(tmp_path, {"turn": 5, "reply": "Answer: Class A"})
    seeds = []
    for seed in ("3", "4"):
        assert study(items, tmp_path / seed, f"scripted:{path}", "--seed", seed) == 0
        lines = [json.loads(line) for line in (tmp_path / seed / "few-shot/transcripts.jsonl").open()]
        seeds += [line["seed"] for line in lines]
        assert (lines[0]["item"], lines[0]["arm"], lines[0]["outcome"]) == ("0", "on", "right")
        assert (len(lines[0]["turns"]), lines[0]["turns"][4]["reply"]) == (5, "Answer: Class A")
        assert "news off-news0." in lines[1]["turns"][0]["prompt"]
    assert len(set(seeds)) == 24
    assert max(seeds) < 2**31


def test_a_lost_connection_costs_one_conversation(tmp_path, items, capsys):
    with serving(otherwise=says(decision)) as endpoint:
        chat = f"http:{endpoint.url},model=m,key_env=DANA_TEST_KEY,retries=0"
        assert study(items, tmp_path / "uninterrupted", chat) == 0
        requests = len(endpoint.seen)
        assert requests == 6 * 2 * 5
        begun = tmp_path / "out/few-shot-begun"
        endpoint.answers = [says(decision)] * 18 + [cut]  # in the fourth conversation
        assert study(items, tmp_path / "out", chat) == 2
        assert "IncompleteRead(13 bytes read, 987 more expected)" in capsys.readouterr().err.splitlines()[-1]
        assert sorted(path.name for path in begun.iterdir()) == ["0", "1", "2"]
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["few-shot-begun"]
        endpoint.seen.clear()
        assert study(items, tmp_path / "out", chat.replace("retries=0", "retries=2,timeout=9")) == 0
        assert len(endpoint.seen) == requests - 3 * 5
        assert read_tables(tmp_path / "out") == read_tables(tmp_path / "uninterrupted")
        assert not begun.exists()
        assert study(items, tmp_path / "out", chat) == 0
        assert len(endpoint.seen) == requests - 3 * 5, "what is finished is not asked again"


@pytest.mark.parametrize("otherwise", [status(500, f"no {KEY}"), status(401, f"no {KEY}"), says(f"Class A {KEY}")])
def test_the_key_is_in_no_byte_that_is_written(tmp_path, items, capfd, otherwise):
    with serving([says(f"1. {KEY}")] * 5, otherwise=otherwise) as endpoint:
        study(items, tmp_path / "out", f"http:{endpoint.url},model=m,key_env=DANA_TEST_KEY,retries=1")
        assert {fields["Authorization"] for _, fields, _ in endpoint.seen} == {f"Bearer {KEY}"}
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert files
    assert all(KEY.encode() not in path.read_bytes() for path in files)
    assert KEY not in "".join(capfd.readouterr())
