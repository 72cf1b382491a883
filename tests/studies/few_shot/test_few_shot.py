"""The few-shot study from items to tables: accuracy, intervals, comparison; resumed; and no key is written."""

import json
from itertools import product
from math import comb, isnan

import pandas as pd
import pytest
from scipy.stats import beta

from dana.cli.main import main
from dana.core.errors import DataError
from dana.models.generation import ChatDecoder
from dana.studies.few_shot import ARMS, stage
from dana.studies.few_shot.items import Item, Passage
from dana.studies.few_shot.stage import (
    arm_accuracy,
    compare_on_with_off,
    exact_interval,
    study_text,
)
from tests.studies.few_shot.chat_server import KEY, cut, says, serving, status
from tests.studies.few_shot.test_local_chat import write_chat_model

LABELS = ("news", "review")


@pytest.fixture
def items(monkeypatch):
    """Six items in the place of those of a task; the text of item 0, 2, 4 is of class A."""

    def examples(arm):
        return [
            [Passage(f"{arm}-{label}{at}", f"{label} {arm}-{label}{at}.") for at in range(2)]
            for label in LABELS
        ]

    shots, texts = (
        {arm: examples(arm) for arm in ARMS},
        [Passage(f"t{at}", f"? t{at}.") for at in range(6)],
    )
    items = [Item(str(at), "3", *LABELS, texts[at], LABELS[at % 2], shots) for at in range(6)]
    monkeypatch.setattr(stage, "items_of_task", lambda settings, card: ({"items": 6}, items))
    return "card"


def replies(tmp_path, *lines):
    path = tmp_path / "replies.jsonl"
    first = {"turn": 1, "reply": "1. Tone\n2. Length\n3. Topic"}
    path.write_text(
        "\n".join(json.dumps(line) for line in (first, *lines, {"reply": "so it says"}))
    )
    return path


def decision(request):
    """Class A for the texts 0 to 3, Class B for the others; criteria before."""
    lines = [message["content"] for message in request["messages"] if message["role"] == "user"]
    if len(lines) < 5:
        return f"1. Tone\n2. Length {len(lines)}\n3. Topic"
    return (
        "Answer: Class A"
        if any(f"t{number}." in lines[1] for number in range(4))
        else "**Class B**"
    )


def study(items, out, chat, *more):
    return main(["studies", "few-shot", str(items), "--chat", chat, "--out", str(out), *more])


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
    assert list(zip(results["item"], results["arm"], strict=True)) == list(
        product(range(6), ("on", "off"))
    )
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
        lines = [
            json.loads(line) for line in (tmp_path / seed / "few-shot/transcripts.jsonl").open()
        ]
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
        assert (
            "IncompleteRead(13 bytes read, 987 more expected)"
            in capsys.readouterr().err.splitlines()[-1]
        )
        assert sorted(path.name for path in begun.iterdir()) == ["0", "1", "2"]
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["few-shot-begun"]
        endpoint.seen.clear()
        assert study(items, tmp_path / "out", chat.replace("retries=0", "retries=2,timeout=9")) == 0
        assert len(endpoint.seen) == requests - 3 * 5
        assert read_tables(tmp_path / "out") == read_tables(tmp_path / "uninterrupted")
        assert not begun.exists()
        assert study(items, tmp_path / "out", chat) == 0
        assert len(endpoint.seen) == requests - 3 * 5, "what is finished is not asked again"


@pytest.mark.parametrize(
    "otherwise", [status(500, f"no {KEY}"), status(401, f"no {KEY}"), says(f"Class A {KEY}")]
)
def test_the_key_is_in_no_byte_that_is_written(tmp_path, items, capfd, otherwise):
    with serving([says(f"1. {KEY}")] * 5, otherwise=otherwise) as endpoint:
        study(
            items, tmp_path / "out", f"http:{endpoint.url},model=m,key_env=DANA_TEST_KEY,retries=1"
        )
        assert {fields["Authorization"] for _, fields, _ in endpoint.seen} == {f"Bearer {KEY}"}
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert files
    assert all(KEY.encode() not in path.read_bytes() for path in files)
    assert KEY not in "".join(capfd.readouterr())


def outcomes(**counts):
    return [outcome for outcome, count in counts.items() for _ in range(count)]


@pytest.mark.parametrize(("right", "items"), [(0, 5), (5, 5), (1, 9), (30, 72), (400, 1000)])
def test_the_interval_is_that_of_clopper_and_pearson(right, items):
    low = 0.0 if right == 0 else beta.ppf(0.025, right, items - right + 1)
    high = 1.0 if right == items else beta.ppf(0.975, right + 1, items - right)
    assert exact_interval(right, items) == pytest.approx((low, high), abs=1e-9)


def test_who_does_not_answer_is_wrong_and_counted_apart():
    row = arm_accuracy("on", outcomes(right=6, wrong=2, abstained=3, unparsable=1))
    assert (row["items"], row["right"], row["wrong"], row["abstained"], row["unparsable"]) == (
        12,
        6,
        2,
        3,
        1,
    )
    assert (row["accuracy"], row["answered"], row["accuracy_answered"]) == (0.5, 8, 0.75)
    assert (row["low"], row["high"]) == exact_interval(6, 12)
    assert (row["low_answered"], row["high_answered"]) == exact_interval(6, 8)
    assert isnan(arm_accuracy("off", outcomes(abstained=4))["accuracy_answered"])


def pairs(both, only_on, only_off, neither):
    """Results of which so many items are right in both arms, in one, in none; the rows are in no order."""
    rows = []
    for on, off, count in ((1, 1, both), (1, 0, only_on), (0, 1, only_off), (0, 0, neither)):
        for _ in range(count):
            item = str(len(rows) // 2)
            rows.append({"item": item, "arm": "off", "outcome": "right" if off else "abstained"})
            rows.append({"item": item, "arm": "on", "outcome": "right" if on else "wrong"})
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


def test_arms_are_compared_item_by_item():
    row = compare_on_with_off(pairs(20, 9, 1, 4))
    assert (row["both"], row["only_on"], row["only_off"], row["neither"]) == (20, 9, 1, 4)
    assert row["difference"] == pytest.approx(8 / 34)
    assert row["p"] == pytest.approx(2 * (comb(10, 0) + comb(10, 1)) / 2**10)
    mirror = compare_on_with_off(pairs(20, 1, 9, 4))
    assert (mirror["only_on"], mirror["difference"], mirror["p"]) == (
        1,
        -row["difference"],
        row["p"],
    )


def words(on, off, both):
    results = pairs(both, on - both, off - both, 72 - on - off + both)
    arms = [
        arm_accuracy(arm, list(results["outcome"][results["arm"] == arm])) for arm in ("on", "off")
    ]
    return study_text("Study", arms, compare_on_with_off(results))


def test_the_result_comes_first_and_in_words():
    first, second, *_, table = [line for line in words(60, 24, 20).splitlines() if line][1:-1]
    assert "60 of 72 (83 %, exact 95 % interval 73 to 91 %)" in first
    assert first.endswith("better than guessing.")
    assert second.endswith("worse than guessing.")
    shares = ["0.333", "0.227", "0.454", "24", "1.000", "0.858", "1.000"]
    assert table.split() == ["off", "72", "24", "0", "48", "0", *shares]
    assert "by 50 points" in words(60, 24, 20)


def test_what_cannot_be_told_from_guessing_or_chance_is_not_called_better():
    text = words(40, 33, 20)
    assert text.count("may be guessing.") == 2
    assert "The difference of 10 points may be chance" in text
    assert "better with examples of other topics than" in words(24, 60, 20)


def test_conversations_that_are_held_together_change_nothing_but_how_many_are_lost(
    tmp_path, items, monkeypatch
):
    """Twelve conversations, five at a time; the second batch fails once."""
    folder = write_chat_model(tmp_path / "model", positions=2048)
    spec = f"local:{folder},max_new_tokens=3"
    assert study(items, tmp_path / "alone", f"{spec},batch=1") == 0
    answer, calls = ChatDecoder.answer, []

    def failing(self, *args):
        calls.append(len(args[0]))
        if len(calls) == 7:
            raise DataError("memory")
        return answer(self, *args)

    monkeypatch.setattr(ChatDecoder, "answer", failing)
    assert study(items, tmp_path / "together", f"{spec},batch=5") == 2
    assert [path.name for path in (tmp_path / "together/few-shot-begun").iterdir()] == ["0"]
    assert study(items, tmp_path / "together", f"{spec},batch=5") == 0
    assert calls == [5] * 12 + [2] * 5, "the first batch is not held again"
    tables = [read_tables(tmp_path / name) for name in ("alone", "together")]
    lines = [one.pop("transcripts.jsonl").splitlines() for one in tables]
    assert [json.loads(line)["turns"] for line in lines[0]] == [
        json.loads(line)["turns"] for line in lines[1]
    ]
    assert tables[0] == tables[1]
