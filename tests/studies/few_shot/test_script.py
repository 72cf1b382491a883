"""Few-shot: drawing of items, the scripted conversation, parsing of the choice."""

import json
from dataclasses import dataclass, field

import pytest

from dana.core.errors import DataError
from dana.studies.few_shot.items import Item, Passage, draw_items
from dana.studies.few_shot.script import ForcedChoice, converse, parse_choice


def passages(*names):
    return tuple(Passage(name, f"text of {name}, $5 {{x}}") for name in names)


def item(**changes):
    examples = {
        arm: (passages(f"{arm}-a0", f"{arm}-a1"), passages(f"{arm}-b0", f"{arm}-b1"))
        for arm in ("on", "off")
    }
    usual = {
        "id": "7",
        "topic": "3",
        "label_a": "news",
        "label_b": "review",
        "label": "review",
        "examples": examples,
    }
    return Item(**usual | {"text": Passage("t", "the text, $text")} | changes)


@dataclass
class Listener:
    """Answers with the number of the turn, and keeps what it was shown."""

    conversations: list = field(default_factory=list)

    def reply(self, messages, seed):
        self.conversations.append((json.loads(json.dumps(messages)), seed))
        return (
            "Answer: Class B"
            if len(self.conversations) == 5
            else f"reply {len(self.conversations)}\ud800"
        )


def test_the_model_is_led_through_five_turns():
    model = Listener()
    ((turns, choice),) = converse(model, [(item(), "off")], [4])
    assert choice == ForcedChoice.B
    assert [turn["name"] for turn in turns] == [
        "criteria",
        "criterion 1",
        "criterion 2",
        "criterion 3",
        "decision",
    ]
    prompts = [turn["prompt"] for turn in turns]
    first = prompts[0]
    positions = [first.index(f"text of off-{name}, $5 {{x}}") for name in ("a0", "a1", "b0", "b1")]
    assert positions == sorted(positions)
    assert (
        first.index("Texts of Class A:")
        < positions[0]
        < first.index("Texts of Class B:")
        < positions[2]
    )
    assert "on-a0" not in first
    assert "the text, $text" in prompts[1]
    assert "the text, $text" not in "".join(prompts[:1] + prompts[2:])
    assert not any(label in "".join(prompts) for label in ("news", "review")), (
        "the labels are not told"
    )
    assert [f"criterion {number}" in prompts[number] for number in (1, 2, 3)] == [True] * 3
    assert '"Answer: Class A" or "Answer: Class B"' in prompts[4]


def test_each_turn_shows_the_whole_conversation_and_half_a_character_is_replaced():
    model = Listener()
    ((turns, _),) = converse(model, [(item(), "on")], [4])
    messages, seed = model.conversations[-1]
    contents = [part for turn in turns for part in (turn["prompt"], turn["reply"])][:-1]
    assert [message["content"] for message in messages] == contents
    assert [message["role"] for message in messages] == ["user", "assistant"] * 4 + ["user"]
    assert seed == 4
    assert turns[0]["reply"] == "reply 1?"


TABLE = {
    ForcedChoice.A: """
        Answer: Class A
        **Class A**
        A
        Answer: A
        A. It is formal.
        Answer: A rather than B
        Class A, not Class B
        Rather than Class B, I choose Class A
        Class A is more likely than Class B
        The text is Class A instead of Class B.
        Class B cannot be ruled out, but Class A is likelier
        Criterion 1: Class A\\nCriterion 2: Class B\\nCriterion 3: Class B\\n\\nCombined decision: Class A
        Answer: Class B? No.\\nAnswer: Class A
        Is it Class A or Class B? Class A.
        <think>Class B? surely Class B</think>Class A
        \\\\boxed{A}
        Ｃlass Ａ
        Answer: Class A (80% sure)
        {"class": "Class A"}
        Class A because it does not use slang
        Not only Class A
        The text belongs to Class A's territory
        """,
    ForcedChoice.B: """
        "Class B"
        (B)
        B [not A]
        Option B
        ### Answer\\n\\n> Class B
        $\\\\boxed{\\\\text{Class B}}$
        {"answer": "B"}
        not Class A, but Class B
        It isn't Class A. Class B it is
        Class A is unlikely, so Class B
        I prefer Class B over Class A
        Class A? No, Class B.
        Criterion 1 points to Class A.\\nCriterion 2 points to Class A.\\nAnswer: Class B
        It could be both, but Answer: Class B
        Class B (news)
        """,
    ForcedChoice.ABSTAINED: """
        Class A, although it has traits of both classes
        Class A, though I cannot say for sure
        While it is hard to say, Class A is more likely
        Neither
        Answer: neither
        Both Class A and Class B apply
        Class A and Class B are equally likely
        I cannot tell
        Answer: cannot be determined
        There is not enough information to decide.
        I’m sorry, but I can’t help with that.
        As an AI, I do not judge texts.
        Class A seems plausible, but I cannot decide.
        """,
    ForcedChoice.UNPARSABLE: """
        not class A or class B
        The text is more likely to belong to B.
        I'd go with A.
        Class A\\n\\nUnlike Class B, it is formal. Criterion 2 pointed to Class B.
        Criterion 1 points to Class A. Criterion 2 points to Class B. Overall, the text is more likely Class A.
        The text is about cats.
        Class A or Class B
        Class A/B
        Answer: Class A or Answer: Class B
        Class A: formal\\nClass B: informal\\nThe text is formal.
        Answer: A formal text
        Is it class A?
        <think>Class A, no, Class B
        It doesn't match Class B
        """,
}
CASES = [
    (reply.strip().replace("\\n", "\n").replace("\\\\", "\\"), choice)
    for choice, replies in TABLE.items()
    for reply in replies.strip().splitlines()
]


@pytest.mark.parametrize(
    ("reply", "choice"), [*CASES, ("", ForcedChoice.UNPARSABLE)], ids=lambda value: str(value)[:50]
)
def test_a_reply_chooses(reply, choice):
    assert parse_choice(reply) == choice


LABELS = ("argument", "news", "review")


def texts(topic, what, label, count):
    return [
        Passage(f"{topic}-{what}-{label}-{number}", f"{label} {number}") for number in range(count)
    ]


def topics(count=4, test=30, examples=8):
    counts = {"test": test, "on": examples, "off": examples}
    return {
        str(topic): {
            part: {label: texts(topic, part, label, many) for label in LABELS}
            for part, many in counts.items()
        }
        for topic in range(count)
    }


def test_a_triple_does_not_come_back_before_all_were_there():
    items = draw_items(topics(), 30, 5, seed=1)
    triples = [(item.topic, *sorted((item.label_a, item.label_b))) for item in items]
    assert len(set(triples[:12])) == len(set(triples[12:24])) == 12
    assert triples[:12] != triples[12:24]
    assert len({item.text.id for item in items}) == 30
    assert [item.id for item in items] == [str(number) for number in range(30)]
    with pytest.raises(DataError, match="items=72: "):
        draw_items(topics(count=1, test=2), 72, 5, seed=0)


def test_either_class_is_the_texts_with_equal_chance_and_either_label_is_class_a():
    items = draw_items(topics(count=20, test=60), 1200, 1, seed=3)
    of_a = sum(item.label == item.label_a for item in items)
    in_order = sum(item.label_a < item.label_b for item in items)
    both = sum(item.label == item.label_a and item.label_a < item.label_b for item in items)
    assert abs(of_a - 600) < 70  # four deviations
    assert abs(in_order - 600) < 70
    assert abs(both - 300) < 60, "the text's class does not depend on which label is class A"


def test_the_seed_decides_and_more_items_begin_alike():
    assert draw_items(topics(), 20, 5, seed=1) == draw_items(topics(), 30, 5, seed=1)[:20]
    assert draw_items(topics(), 20, 5, seed=1) != draw_items(topics(), 20, 5, seed=2)
