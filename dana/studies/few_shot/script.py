"""Hold the scripted conversation about an item and parse the choice of its last reply."""

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
    """Fill the script with an item and the examples of an arm: name and prompt of each turn."""
    script = read_yaml(SCRIPT)
    example = Template(script["example"])
    passages_a, passages_b = item.examples[arm]
    values = {
        "examples_a": _examples_text(example, passages_a),
        "examples_b": _examples_text(example, passages_b),
        "text": item.text.text,
    }
    prompts = []
    for turn in script["turns"]:
        prompt = Template(turn["prompt"]).substitute(values)
        prompts.append((turn["name"], prompt.strip()))
    return prompts


def _examples_text(example: Template, passages: Sequence[Passage]) -> str:
    """Number the examples of a class and separate them by empty lines."""
    texts = []
    for number, passage in enumerate(passages, 1):
        text = example.substitute(number=number, text=passage.text)
        texts.append(text.strip())
    return "\n\n".join(texts)


def converse(
    model: ChatModel, pairs: Sequence[tuple[Item, str]], seeds: Sequence[int]
) -> list[tuple[list[dict[str, str]], "ForcedChoice"]]:
    """Ask a model about items, each in one conversation.

    Args:
        model: The chat model; one with ``replies`` answers a turn of all conversations at once.
        pairs: An item (the text, its two classes and their examples), and the arm whose examples
            are shown.
        seeds: Seed of the model's sampling, for each conversation.

    Returns:
        For each conversation, ``name``, ``prompt`` and ``reply`` of each turn, and the choice of
        the last reply.
    """
    conversations: list[list[Message]] = [[] for _ in pairs]
    records: list[list[dict[str, str]]] = [[] for _ in pairs]
    scripts = [write_prompts(item, arm) for item, arm in pairs]
    for prompts in zip(*scripts, strict=True):  # one turn of all conversations
        for conversation, (_, prompt) in zip(conversations, prompts, strict=True):
            conversation.append({"role": "user", "content": prompt})
        replies = _replies(model, conversations, seeds)
        for conversation, record, (name, prompt), reply in zip(
            conversations, records, prompts, replies, strict=True
        ):
            conversation.append({"role": "assistant", "content": reply})
            record.append({"name": name, "prompt": prompt, "reply": reply})
    return [(record, parse_choice(record[-1]["reply"])) for record in records]


def _replies(
    model: ChatModel, conversations: Sequence[list[Message]], seeds: Sequence[int]
) -> list[str]:
    """Return the model's next reply in each conversation, without lone surrogates."""
    if hasattr(model, "replies"):
        replies = model.replies(conversations, seeds)
    else:
        replies = [
            model.reply(conversation, seed)
            for conversation, seed in zip(conversations, seeds, strict=True)
        ]
    return [reply.encode("utf-8", "replace").decode("utf-8") for reply in replies]


class ForcedChoice(StrEnum):
    """Choice of a reply."""

    A = "a"
    B = "b"
    ABSTAINED = "abstained"
    UNPARSABLE = "unparsable"


LONGEST = 4000  # characters at the end of a reply that are parsed
_MARKER = r"\b(?:answer|decision|verdict|choice|conclusion|classification|class)\s*(?:is\b|[:=])"
# The rest of the line, or the next line if that is empty.
_ANSWER = re.compile(rf"{_MARKER}([^\w@]*.*)")
_CLASS = re.compile(r"(?<![\w@-])(?:class(?:es)?|category|option)[\s\-(\[]*([ab])(?!\w|-\w)")
_SECOND = re.compile(r"(@[ab]\s*(?:and|or|nor|&|/|,)\s*)([ab])(?!\w)")  # classes A and B
# A letter that is not an article: alone on its line, or in an answer.
_LETTER = re.compile(
    rf"(?m)((?:{_MARKER}|^)\W*)(?<![\w@])([ab])(?=\W*$|\s*[.,;:)\]]|\s+\W?(?:rather|not)\b)"
)
_QUESTION = re.compile(r"[^.!?\n]*\?")
_NEGATED = re.compile(
    # Not class A or class B; more like class A than class B.
    r"\b(?:not(?! only)|\w+n't|cannot|never|n?either|nor|rather than|instead of|than|over|unlike)\b"
    r"[^@.,;:\n]*@[ab](?: (?:or|nor|and) @[ab])?|"
    # Class A is not; class A is less likely.
    r"@[ab] (?:(?:is|does|do|can|could|seems?|looks?) ?)?"
    r"(?:not(?! only)(?! @)|\w+n't|unlikely|less likely)\b"
)
_ABSTAINS = re.compile(
    r"\b(?:neither|both|either|equally|unclear|ambiguous|undecided|undetermined|inconclusive|"
    r"unsure|abstain|refuse|hard to (?:say|tell)|(?:no|not) enough|insufficient|as an ai|won't|"
    r"(?:do not|don't) know|"
    r"(?:can ?not|can't|could not|couldn't|unable to|not able to|(?:im|not )possible to)"
    r"(?: be| \w+ly)?"
    r" (?:tell|told|say|decided?|determined?|choose|classif(?:y|ied)|judge|know|help|answer))\b"
)


def parse_choice(reply: str) -> ForcedChoice:
    """Parse which of two classes a reply chooses.

    The last answer line decides or, without one, the whole reply. Case, markdown, quotes and
    reasoning in ``<think>`` are ignored, and negated classes ("not class B", "rather than class B")
    do not count.

    Args:
        reply: Last reply of the conversation.

    Returns:
        The class, if exactly one is named. ABSTAINED if the reply says that it cannot tell,
        neither, or both, and has no answer line that names one class. Else UNPARSABLE.
    """
    text = _QUESTION.sub(" ", _mark(reply))
    answers = [answer for answer in _ANSWER.findall(text) if answer.strip()]
    decisive = answers[-1] if answers else text
    classes = set(re.findall("@([ab])", _NEGATED.sub(" ", decisive)))
    abstains = bool(_ABSTAINS.search(decisive))
    if len(classes) == 1 and (answers or not abstains):
        return ForcedChoice(classes.pop())
    return ForcedChoice.ABSTAINED if abstains else ForcedChoice.UNPARSABLE


def _mark(reply: str) -> str:
    """Normalise a reply: lower case, no reasoning, markdown, LaTeX or quotes.

    Classes become ``@a`` and ``@b``.
    """
    text = reply.rpartition("</think>")[2].partition("<think>")[0]
    text = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    text = re.sub(r"\\[a-z]+\s*\{", " ", text)  # \boxed{, \text{
    text = re.sub(
        r"[*_`#>~|@\"\u201c\u201d\u201e\u00ab\u00bb\u2018{}$\\]|(?<!\w)'|'(?!\w)", " ", text
    )
    text = re.sub(r"[^\S\n]+", " ", text).strip()[-LONGEST:]
    text = _CLASS.sub(r"@\1", text)
    text = _SECOND.sub(r"\1@\2", text)
    return _LETTER.sub(r"\1@\2", text)
