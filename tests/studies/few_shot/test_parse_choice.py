"""Forced choice: replies as models give them, and what each chooses."""

import re

import pytest

from dana.studies.few_shot.script import ForcedChoice, parse_choice

TABLE = {
    ForcedChoice.A: """
        Answer: Class A
        answer: class a.
        **Class A**
        A
        Answer: A
        A, because it is formal
        A. It is formal.
        Answer: A rather than B
        Class A, not Class B
        Class A not class B
        Class A (not Class B)
        Rather than Class B, I choose Class A
        more like class A than class B
        Class A is more likely than Class B
        Class A wins over Class B
        The text is Class A instead of Class B.
        Class B does not fit. Class A.
        Class B cannot be ruled out, but Class A is likelier
        Criterion 1: Class A\\nCriterion 2: Class B\\nCriterion 3: Class B\\n\\nCombined decision: Class A
        Answer: Class B? No.\\nAnswer: Class A
        Is it Class A or Class B? Class A.
        <think>Class B? surely Class B</think>Class A
        hmm, Class B</think>\\nAnswer: Class A
        \\\\boxed{A}
        Ｃlass Ａ
        class-A
        Class 'A'
        Answer:\\n\\n> **Class A**
        Answer: Class A (80% sure)
        {"class": "Class A"}
        Class A because it does not use slang
        I would not hesitate: Class A
        Not only Class A
        The text belongs to Class A's territory
        Category A
        """,
    ForcedChoice.B: """
        "Class B"
        (B)
        B [not A]
        CLASS B!!!
        class_b
        Option B
        ### Answer\\n\\n> Class B
        $\\\\boxed{\\\\text{Class B}}$
        {"answer": "B"}
        My verdict: B!
        not Class A, but Class B
        Not Class A but Class B.
        It is not class A; it is class B
        It isn't Class A. Class B it is
        It can't be Class A, so it must be Class B.
        Class A is unlikely, so Class B
        It is Class B rather than Class A
        It is closer to Class B than to Class A
        I prefer Class B over Class A
        Class A? No, Class B.
        No. Class B
        Criterion 1 points to Class A.\\nCriterion 2 points to Class A.\\nAnswer: Class B
        It could be both, but Answer: Class B
        Combining all three: Class B
        Class B (news)
        It reads like news. Class B.
        """,
    ForcedChoice.ABSTAINED: """
        Class A, although it has traits of both classes
        Class A, though I cannot say for sure
        While it is hard to say, Class A is more likely
        It is hard to say, but Class A
        Neither
        Neither Class A nor Class B
        Answer: neither
        Both
        Both Class A and Class B apply
        The text could be either.
        Class A and Class B are equally likely
        I cannot tell
        I cannot tell whether it is Class A or Class B.
        I can't decide between Class A and Class B
        Answer: cannot be determined
        It is unclear.
        I don't know
        There is not enough information to decide.
        I’m sorry, but I can’t help with that.
        As an AI, I do not judge texts.
        I won't choose
        Class A seems plausible, but I cannot decide.
        """,
    ForcedChoice.UNPARSABLE: """
        not class A or class B
        It is not Class A, nor Class B
        The text is more likely to belong to B.
        So it belongs to Class B, even though Class A is close.
        While Class A is plausible, Class B fits better.
        I'd go with A.
        Class A\\n\\nUnlike Class B, it is formal. Criterion 2 pointed to Class B.
        Criterion 1 points to Class A. Criterion 2 points to Class B. Overall, the text is more likely Class A.
        Hello!
        The text is about cats.
        Class A or Class B
        Classes A and B
        Class A/B
        Class A > Class B
        Answer: Class A or Answer: Class B
        Criterion 1: Class A. Criterion 2: Class B. Criterion 3: Class A.
        Class A: formal\\nClass B: informal\\nThe text is formal.
        a) formal\\nb) informal
        A text about cats
        Answer: A formal text
        It belongs to a class of its own
        Is it class A?
        <think>Class A, no, Class B
        Class 2
        It doesn't match Class B
        newspaper
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


SWAPPED = str.maketrans("abABＡ", "baBAＢ")


@pytest.mark.parametrize(
    ("reply", "choice"),
    [case for case in CASES if re.fullmatch(r"(?s)\W*class [ab]\b(?!/).*", case[0].lower())],
    ids=lambda value: str(value)[:50],
)
def test_classes_in_the_other_order_swap_the_choice(reply, choice):
    turned = re.sub(r"(?i)(?<=class )[ab]\b", lambda match: match[0].translate(SWAPPED), reply)
    mirrored = {ForcedChoice.A: ForcedChoice.B, ForcedChoice.B: ForcedChoice.A}.get(choice, choice)
    assert parse_choice(turned) == mirrored
