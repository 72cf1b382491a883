"""The script and the items: what a model is shown, turn by turn, and what is refused."""

import json
from dataclasses import dataclass, field

import pytest

from dana.core.errors import DataError
from dana.studies.few_shot.chat import ScriptedChat
from dana.studies.few_shot.items import Item, Passage
from dana.studies.few_shot.script import ForcedChoice, converse


def passages(*names):
    return tuple(Passage(name, f"text of {name}, $5 {{x}}") for name in names)


def item(**changes):
    examples = {arm: (passages(f"{arm}-a0", f"{arm}-a1"), passages(f"{arm}-b0", f"{arm}-b1")) for arm in ("on", "off")}
    usual = {"id": "7", "topic": "3", "label_a": "news", "label_b": "review", "label": "review", "examples": examples}
    return Item(**usual | {"text": Passage("t", "the text, $text")} | changes)


@dataclass
class Listener:
    """Answers with the number of the turn, and keeps what it was shown."""

    conversations: list = field(default_factory=list)

    def reply(self, messages, seed):
        self.conversations.append((json.loads(json.dumps(messages)), seed))
        return "Answer: Class B" if len(self.conversations) == 5 else f"reply {len(self.conversations)}\ud800"


def test_the_model_is_led_through_five_turns():
    model = Listener()
    turns, choice = converse(model, item(), "off", seed=4)
    assert choice == ForcedChoice.B
    assert [turn["name"] for turn in turns] == ["criteria", "criterion 1", "criterion 2", "criterion 3", "decision"]
    prompts = [turn["prompt"] for turn in turns]
    first = prompts[0]
    positions = [first.index(f"text of off-{name}, $5 {{x}}") for name in ("a0", "a1", "b0", "b1")]
    assert positions == sorted(positions)
    assert first.index("Texts of Class A:") < positions[0] < first.index("Texts of Class B:") < positions[2]
    assert "on-a0" not in first
    assert "the text, $text" in prompts[1]
    assert "the text, $text" not in "".join(prompts[:1] + prompts[2:])
    assert not any(label in "".join(prompts) for label in ("news", "review")), "the labels are not told"
    assert [f"criterion {number}" in prompts[number] for number in (1, 2, 3)] == [True] * 3
    assert '"Answer: Class A" or "Answer: Class B"' in prompts[4]


def test_each_turn_shows_the_whole_conversation_and_half_a_character_is_replaced():
    model = Listener()
    turns, _ = converse(model, item(), "on", seed=4)
    messages, seed = model.conversations[-1]
    contents = [part for turn in turns for part in (turn["prompt"], turn["reply"])][:-1]
    assert [message["content"] for message in messages] == contents
    assert [message["role"] for message in messages] == ["user", "assistant"] * 4 + ["user"]
    assert seed == 4
    assert turns[0]["reply"] == "reply 1?"


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
    with pytest.raises(DataError, match="turn 2: 'and'"):
        model.reply([{"role": "user", "content": "plum"}, talk[1], {"role": "user", "content": "and"}], 0)
