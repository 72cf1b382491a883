"""The script of a study: an item to the turns of a conversation, and its last reply to one of two classes or none."""

import re
import unicodedata
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from string import Template

from dana.core.config import read_yaml
from dana.studies.few_shot.chat import ChatModel, Message
from dana.studies.few_shot.items import Item, Passage

SCRIPT = Path(__file__).parent / "prompts.yaml"


def write_prompts(item: Item, arm: str) -> list[tuple[str, str]]:
    """Name and prompt of every turn, with the examples of an arm."""
    script = read_yaml(SCRIPT)

    def shown(passages: Sequence[Passage]) -> str:
        example = Template(script["example"])
        texts = (example.substitute(number=number, text=one.text) for number, one in enumerate(passages, 1))
        return "\n\n".join(text.strip() for text in texts)

    examples_a, examples_b = map(shown, item.examples[arm])
    values = {"examples_a": examples_a, "examples_b": examples_b, "text": item.text.text}
    return [(turn["name"], Template(turn["prompt"]).substitute(values).strip()) for turn in script["turns"]]


def converse(model: ChatModel, item: Item, arm: str, seed: int) -> tuple[list[dict[str, str]], "ForcedChoice"]:
    """Ask a model about one item, in one conversation.

    Args:
        model: Is shown all of the conversation each time.
        item: The text, its two classes and their examples.
        arm: Whose examples are shown.
        seed: Handed on to the model.

    Returns:
        ``name``, ``prompt`` and ``reply`` of each turn; and what the last reply chooses.
    """
    messages: list[Message] = []
    turns = []
    for name, prompt in write_prompts(item, arm):
        messages.append({"role": "user", "content": prompt})
        reply = model.reply(messages, seed).encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair, say
        messages.append({"role": "assistant", "content": reply})
        turns.append({"name": name, "prompt": prompt, "reply": reply})
    return turns, parse_choice(reply)


class ForcedChoice(StrEnum):
    """What a reply chooses."""

    A = "a"
    B = "b"
    ABSTAINED = "abstained"
    UNPARSABLE = "unparsable"


LONGEST = 4000  # characters at the end of a reply that are read: a model that repeats itself for ever decides nothing

# A model that cannot say, whatever it said before; one that sees no difference, unless it chooses all the same.
_UNABLE = re.compile(
    r"(?:can ?not|can't|could not|couldn't|(?:un|not )able to|(?:im|not )possible to|won't)(?: \w+){0,2}? "
    r"(?:be )?(?:tell|told|say|said|decided?|determined?|choose|classif(?:y|ied)|judge|know|pick|assign|answer|help|"
    r"assist|comply|provide|distinguish)\b(?! (?:for (?:sure|certain)|with (?:certain|confid)|definit))|"
    r"\b(?:undetermined|undecided|undecidable|inconclusive|unsure|i abstain|i refuse|declin(?:e|ing)|insufficient|"
    r"(?:no|not|n't)(?: have| contain| provide)? enough|(?:do not|don't) know|no (?:decision|answer|clear))\b"
)
_NO_DIFFERENCE = re.compile(
    r"\bneither\b|^\W*both\W*$|\bboth (?:classes|of them|equally|apply|fit|@)|"
    r"\b(?:belongs?|fits?|be|is|suits?|matche?s?)(?: to| into| in)? both\b|"
    r"\b(?:unclear|ambiguous|not clear|(?:hard|difficult) to|equally|a tie|n/a|as an ai|be either)\b|"
    r"\beither (?:class|one|of|@)"
)
_MARKER = r"\b(?:answer|decision|verdict|choice|conclusion|classification|prediction|class)\s*(?:is\b|[:=])"
_ANSWER = re.compile(rf"{_MARKER}([^\w@]*.*)")  # the rest of the line, or the next one where nothing is left of it
_ALONE = re.compile(r"(?m)^\W*@([ab])\W*$")
_CONCLUDES = re.compile(
    r"\b(?:overall|therefore|thus|hence|conclu\w+|final(?:ly)?|combin\w+|taken together|together|on balance|in sum|"
    r"all in all|all three|so|decision|verdict|choose|my choice|i(?:'d| would)? (?:pick|say|classify)|classified)\b"
)
_BEFORE = r"\b(?:not(?! only)|\w+n't|cannot|never|nor|no|rather than|instead of|than|over|unlike|against|opposed to)\b"
_NEGATED = re.compile(
    rf"{_BEFORE}[^@]*(@[ab](?: (?:or|nor|and) @[ab])?)|"  # not class A or class B; more like class A than class B
    r"(@[ab])(?: (?:is|does|do|can|could|seems?|looks?|fits?))? "  # class B does not fit
    r"(?:not(?! only)(?! @)|isn't|doesn't|don't|cannot|can't|unlikely|less likely|(?:be )?(?:ruled out|excluded))\b"
)
_CONCEDES = r"(?:even though|although|though|while|whereas|despite)\b"
_CLAUSES = re.compile(rf"[.,;:!()\n\u2013\u2014]| - |\b(?:but|however|yet|because|since|still)\b|\b(?={_CONCEDES})")
_QUESTION = re.compile(r"[^.!?\n]*\?")
_SENTENCES = re.compile(r"[.!\n]")
_CLASS = re.compile(r"(?<![\w@])(?<!\w-)(?:class(?:es)?|category|group|option)[\s\-(\[]*([ab])(?!\w|-\w)")
_SECOND = re.compile(r"(@[ab]\s*(?:and|or|nor|&|/|,)\s*)([ab])(?!\w)")  # classes A and B
# A letter that is no article: alone on its line, or where an answer stands and with what may follow one.
_LETTER = re.compile(
    rf"(?m)((?:{_MARKER}|\b(?:to|with|choose|chose|pick|select)\b|^)\W*)(?<![\w@])([ab])"
    r"(?=\W*$|\s*[.,;:)\]]|\s+\W?(?:rather|not|over|instead|because|since|as)\b)"
)


def parse_choice(reply: str) -> ForcedChoice:
    """Which of two classes a reply settles on, read from its answer line, its conclusion, or all of it, in this order.

    Case, markdown, quotes and a model's thinking aloud (``<think>``) do not count. A class that is negated ("not class
    B", "rather than class B") is not chosen.

    Args:
        reply: What the model said last.

    Returns:
        ABSTAINED if it says that it cannot tell, or neither, or both; UNPARSABLE if it chooses nothing, or both without
        a conclusion.
    """
    text = _QUESTION.sub(" ", _marked(reply))
    answers, alone = _ANSWER.findall(text)[-1:], set(_ALONE.findall(text))
    conclusions = [sentence for sentence in _SENTENCES.split(text) if _CONCLUDES.search(sentence)]
    parts = [*answers, *(f"@{sign}" for sign in alone if len(alone) == 1), *reversed(conclusions), text]
    return next(filter(None, map(_settled, parts)), ForcedChoice.UNPARSABLE)


def _marked(reply: str) -> str:
    """Lower case, without thinking, markdown, LaTeX and quotes, where ``@a`` and ``@b`` stand for the classes."""
    text = reply.rpartition("</think>")[2].partition("<think>")[0]
    text = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    text = re.sub(r"\\[a-z]+\s*\{", " ", text)  # \boxed{, \text{
    text = re.sub(r"[*_`#>~|@\"\u201c\u201d\u201e\u00ab\u00bb\u2018{}$\\]", " ", text)
    text = re.sub(r"(?<!\w)'|'(?!\w)", " ", text)
    text = re.sub(r"[^\S\n]+", " ", text).strip()[-LONGEST:]
    text = _LETTER.sub(r"\1@\2", _SECOND.sub(r"\1@\2", _CLASS.sub(r"@\1", text)))
    return re.sub(r"\s*[&/]\s*(?=@)", " or ", text)


def _signs(text: str) -> set[str]:
    return set(re.findall("@([ab])", text))


def _settled(text: str) -> ForcedChoice | None:
    """What the clauses of a text agree on; None if they do not, or say nothing.

    A clause chooses the one class that it names without negating it, unless it is an aside; or it says that the model
    cannot tell, which counts where no clause after it chooses; or that both classes fit, or neither.
    """
    chosen: set[str] = set()
    negated: set[str] = set()
    unable = no_difference = False
    for clause in _CLAUSES.split(text):
        named, is_aside = _signs(_NEGATED.sub(" ", clause)), "whether" in clause or re.match(rf"\s*{_CONCEDES}", clause)
        negated |= _signs(" ".join(match[0] for match in _NEGATED.finditer(clause)))
        alike = bool(_NO_DIFFERENCE.search(clause))
        no_difference |= alike
        if _UNABLE.search(clause):
            unable = True
        elif len(named) == 1 and not (alike or is_aside):
            unable = False
            chosen |= named
    if unable:
        return ForcedChoice.ABSTAINED
    if chosen:
        return ForcedChoice(chosen.pop()) if len(chosen) == 1 else None
    return ForcedChoice.ABSTAINED if no_difference or negated == {"a", "b"} else None
