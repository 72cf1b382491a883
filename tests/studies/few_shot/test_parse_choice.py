"""Forced choice: replies as models give them, and what each chooses."""

import pytest

from dana.studies.few_shot.script import ForcedChoice, parse_choice

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
