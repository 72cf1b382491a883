"""The script and the items: what a model is shown, turn by turn, and what is refused."""

import json
from dataclasses import dataclass, field

import pytest
import yaml

from dana.core.errors import ConfigError, DanaError, DataError
from dana.studies.few_shot.chat import ScriptedChat
from dana.studies.few_shot.items import Item, Passage, item_line, read_items
from dana.studies.few_shot.script import OWN, ForcedChoice, converse, load_script


def passages(*names):
    return tuple(Passage(name, f"text of {name}, $5 {{x}}") for name in names)


def item(**changes):
    examples = {arm: (passages(f"{arm}-a0", f"{arm}-a1"), passages(f"{arm}-b0", f"{arm}-b1")) for arm in ("on", "off")}
    usual = {"id": "7", "topic": "3", "label_a": "news", "label_b": "review", "label": "review", "examples": examples}
    return Item(**usual | {"text": Passage("t", "the text, $text")} | changes)


@dataclass
class Listener:
    """Answers with the number of the turn, and keeps what it was shown."""

    shown: list = field(default_factory=list)

    def reply(self, messages, seed):
        self.shown.append((json.loads(json.dumps(messages)), seed))
        return "Answer: Class B" if len(self.shown) == 5 else f"reply {len(self.shown)}\ud800"


def test_the_model_is_led_through_five_turns():
    model = Listener()
    turns, choice = converse(model, load_script(), item(), "off", seed=4)
    assert choice == ForcedChoice.B
    assert [turn["name"] for turn in turns] == ["criteria", "criterion 1", "criterion 2", "criterion 3", "decision"]
    prompts = [turn["prompt"] for turn in turns]
    first = prompts[0]
    places = [first.index(f"text of off-{name}, $5 {{x}}") for name in ("a0", "a1", "b0", "b1")]
    assert places == sorted(places)
    assert first.index("Texts of Class A:") < places[0] < first.index("Texts of Class B:") < places[2]
    assert "on-a0" not in first
    assert "the text, $text" in prompts[1]
    assert "the text, $text" not in "".join(prompts[:1] + prompts[2:])
    assert not any(label in "".join(prompts) for label in ("news", "review")), "the labels are not told"
    assert [f"criterion {number}" in prompts[number] for number in (1, 2, 3)] == [True] * 3
    assert '"Answer: Class A" or "Answer: Class B"' in prompts[4]


def test_each_turn_shows_the_whole_conversation_and_half_a_character_is_replaced():
    model = Listener()
    turns, _ = converse(model, load_script(), item(), "on", seed=4)
    messages, seed = model.shown[-1]
    said = [part for turn in turns for part in (turn["prompt"], turn["reply"])][:-1]
    assert [message["content"] for message in messages] == said
    assert [message["role"] for message in messages] == ["user", "assistant"] * 4 + ["user"]
    assert seed == 4
    assert turns[0]["reply"] == "reply 1?"


def script(tmp_path, **changes):
    path = tmp_path / "script.yaml"
    values = yaml.safe_load(OWN.read_text()) | changes
    path.write_text(yaml.safe_dump({key: value for key, value in values.items() if value is not None}))
    return path


def test_a_script_of_ones_own(tmp_path):
    turns = [{"name": "all", "prompt": "$examples_a|$examples_b|$text|$label_a/$label_b|$$1"}]
    path = script(tmp_path, classes=["Sort 1", "Sort 2"], example="$number=$text;", turns=turns)
    assert load_script(path).prompts(item(text=Passage("t", "T")), "on") == [
        (
            "all",
            "1=text of on-a0, $5 {x};\n\n2=text of on-a1, $5 {x};|1=text of on-b0, $5 {x};\n\n2=text of on-b1, $5 {x};"
            "|T|news/review|$1",
        )
    ]
    reply = tmp_path / "replies.jsonl"
    reply.write_text('{"reply": "Sort 1"}')
    assert converse(ScriptedChat(str(reply)), load_script(path), item(), "on", 0)[1] == ForcedChoice.A


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"classes": ["A"]}, "classes=['A']: must be two names"),
        ({"classes": ["Class A", "class a"]}, "must be two names"),
        ({"turns": []}, "turns: must be a list with a name and a prompt each"),
        ({"turns": [{"name": "x"}]}, "turns: must be a list"),
        ({"turns": [{"name": "x", "prompt": "$examples_a $text"}]}, "$examples_b in no prompt"),
        ({"turns": [{"name": "x", "prompt": "$exmples_a"}]}, "x: $exmples_a; allowed are $class_a"),
        ({"turns": [{"name": "x", "prompt": "5 $ $text"}]}, "x: a lone $ (write $$)"),
        ({"example": "Example $number"}, "example: $text is missing"),
        ({"example": "$label_a $text"}, "example: $label_a; allowed are $number, $text"),
        ({"example": None}, "must be classes, example and turns"),
        ({"more": 1}, "must be classes, example and turns"),
    ],
)
def test_what_is_no_script(tmp_path, changes, said):
    path = script(tmp_path, **changes)
    with pytest.raises(ConfigError) as caught:
        load_script(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_items_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "items.jsonl"
    made = [item(id=str(number), text=Passage(f"t{number}", "é\u2028x")) for number in range(3)]
    path.write_text("".join(map(item_line, made)), encoding="utf-8")
    assert read_items(path, ["on", "off"]) == made
    assert [list(one.examples) for one in read_items(path, ["off"])] == [["off"]] * 3


LINE = json.loads(item_line(item()))
ON = LINE["examples"]["on"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"label": "poem"}, "must be two labels, and the text's must be one of them"),
        ({"label_a": "review"}, "must be two labels"),
        ({"label_a": None}, "no 'label_a'"),
        ({"text": {"id": "t", "text": " "}}, "the text of 't' is empty"),
        ({"text": "T"}, "no item: "),
        ({"text": {"id": "t", "text": "x \ud83d y"}}, r"'\ud83d' in position"),
        ({"topic": "\ud83d"}, "surrogates not allowed"),
        ({"examples": {"off": ON}}, "no 'on'"),
        ({"examples": {"on": [ON[0]], "off": ON}}, "must be two lists"),
        ({"examples": {"on": [ON[0], ON[1][:1]], "off": ON}}, "2 and 1 examples; must be equally many"),
        ({"examples": {"on": [[], []], "off": ON}}, "0 and 0 examples"),
        ({"text": {"id": "on-a0", "text": "x"}}, "its text 'on-a0' is also an example"),
    ],
)
def test_what_is_no_item(tmp_path, changes, said):
    path = tmp_path / "items.jsonl"
    values = {key: value for key, value in (LINE | changes).items() if value is not None}
    path.write_text(f"{json.dumps(LINE | {'id': '1'})}\n\n{json.dumps(values)}\n")
    with pytest.raises(DataError) as caught:
        read_items(path, ["on", "off"])
    assert f"{path}:3: " in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (json.dumps(LINE) + "\n" + json.dumps(LINE), ":2: the id '7' was there"),
        ("{", ":1: not JSON"),
        ("\n", "no items"),
    ],
)
def test_items_that_cannot_be_told_apart_or_are_none(tmp_path, content, said):
    path = tmp_path / "items.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=said):
        read_items(path, ["on"])


def test_the_first_line_that_fits_answers(tmp_path):
    path = tmp_path / "replies.jsonl"
    lines = [
        {"turn": 2, "contains": "pear", "reply": "two"},
        {"turn": 1, "reply": "one"},
        {"contains": "pear", "reply": "x"},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    talk = [{"role": "user", "content": "a pear"}, {"role": "assistant", "content": "one"}]
    model = ScriptedChat(str(path))
    assert model.reply(talk[:1], 0) == "one"
    assert model.reply([*talk, {"role": "user", "content": "and"}], 0) == "two"
    assert model.reply([*talk, *talk, {"role": "user", "content": "and"}], 0) == "x"
    with pytest.raises(DataError, match="no line answers turn 2: 'and'"):
        model.reply([{"role": "user", "content": "plum"}, talk[1], {"role": "user", "content": "and"}], 0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("reply", ":1: not JSON"),
        ('{"turn": 1}', ":1: must be an object with 'reply'"),
        ('{"reply": 1}', ":1: reply=1: allowed are"),
        ('{"reply": "x", "turn": true}', "turn=True"),
        ('{"reply": "x", "trun": 1}', "trun=1"),
        (b"\xff", "not UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_replies_that_are_none(tmp_path, content, said):
    path = tmp_path / "replies.jsonl"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DanaError) as caught:
        ScriptedChat(str(path))
    assert said in str(caught.value)


def test_a_line_separator_in_a_reply_ends_no_line(tmp_path):
    path = tmp_path / "replies.jsonl"
    path.write_text(json.dumps({"reply": "one\u2028two\u0085three"}, ensure_ascii=False), encoding="utf-8")
    assert ScriptedChat(str(path)).reply([{"role": "user", "content": "?"}], 0) == "one\u2028two\u0085three"
