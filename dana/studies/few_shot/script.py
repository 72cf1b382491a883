"""The script of a study: an item to the turns of a conversation, and its last reply to one of two classes or none."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from string import Template

from dana.core.config import read_yaml
from dana.core.errors import ConfigError
from dana.studies.few_shot.chat import ChatModel, Message
from dana.studies.few_shot.items import Item, Passage

OWN = Path(__file__).parent / "prompts.yaml"
CRITERIA = "criteria"  # the turn that criteria are read from
NEEDED = {"examples_a", "examples_b", "text"}
ALLOWED = NEEDED | {"class_a", "class_b", "label_a", "label_b"}


@dataclass(frozen=True)
class Script:
    """What is asked, see ``dana/studies/few_shot/prompts.yaml``.

    Attributes:
        classes: What the two classes are called.
        example: Template of an example: its number and text.
        turns: Names and templates of the prompts, in their order.
    """

    classes: tuple[str, str]
    example: str
    turns: tuple[tuple[str, str], ...]

    def prompts(self, item: Item, arm: str) -> list[tuple[str, str]]:
        """Name and prompt of every turn, with the examples of an arm."""
        of_a, of_b = map(self._examples, item.examples[arm])
        values = {"examples_a": of_a, "examples_b": of_b, "label_a": item.label_a, "label_b": item.label_b}
        values |= {"class_a": self.classes[0], "class_b": self.classes[1], "text": item.text.text}
        return [(name, Template(prompt).substitute(values).strip()) for name, prompt in self.turns]

    def _examples(self, passages: Sequence[Passage]) -> str:
        shown = (Template(self.example).substitute(number=at, text=one.text) for at, one in enumerate(passages, 1))
        return "\n\n".join(text.strip() for text in shown)


def converse(
    model: ChatModel, script: Script, item: Item, arm: str, seed: int
) -> tuple[list[dict[str, str]], "ForcedChoice"]:
    """Ask a model about one item, in one conversation.

    Args:
        model: Is shown all of the conversation each time.
        script: What is asked.
        item: The text, its two classes and their examples.
        arm: Whose examples are shown.
        seed: Handed on to the model.

    Returns:
        ``name``, ``prompt`` and ``reply`` of each turn; and what the last reply chooses.
    """
    messages: list[Message] = []
    turns = []
    for name, prompt in script.prompts(item, arm):
        messages.append({"role": "user", "content": prompt})
        reply = model.reply(messages, seed).encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair, say
        messages.append({"role": "assistant", "content": reply})
        turns.append({"name": name, "prompt": prompt, "reply": reply})
    return turns, parse_choice(reply, script.classes, (item.label_a, item.label_b))


def load_script(path: Path = OWN) -> Script:
    """Read a script.

    Raises:
        ConfigError: If it is none; names the file and the key, and what is allowed.
    """
    values = read_yaml(path)
    if set(values) != {"classes", "example", "turns"}:
        raise ConfigError(f"{path}: holds {', '.join(map(str, values))}; must be classes, example and turns")
    classes, turns = values["classes"], values["turns"]
    if not (_are_texts(classes) and len(set(map(str.casefold, classes))) == 2 == len(classes)):
        raise ConfigError(f"{path}: classes={classes!r}: must be two names")
    if not (isinstance(turns, list) and turns) or not all(
        isinstance(turn, dict) and set(turn) == {"name", "prompt"} and _are_texts([*turn.values()]) for turn in turns
    ):
        raise ConfigError(f"{path}: turns: must be a list with a name and a prompt each")
    script = Script(tuple(classes), values["example"], tuple((turn["name"], turn["prompt"]) for turn in turns))
    if "text" not in _placeholders(path, "example", script.example, {"number", "text"}):
        raise ConfigError(f"{path}: example: $text is missing")
    used = set().union(*(_placeholders(path, name, prompt, ALLOWED) for name, prompt in script.turns))
    if missing := NEEDED - used:
        raise ConfigError(f"{path}: ${' and $'.join(sorted(missing))} in no prompt, so the model would not be shown it")
    return script


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) and value.strip() for value in values)


def _placeholders(path: Path, name: str, text: object, allowed: set[str]) -> set[str]:
    template = Template(str(text))
    used = set(template.get_identifiers())
    if not template.is_valid() or not used <= allowed:
        wrong = ", ".join(f"${key}" for key in sorted(used - allowed)) or "a lone $ (write $$)"
        raise ConfigError(f"{path}: {name}: {wrong}; allowed are ${', $'.join(sorted(allowed))}")
    return used


_NUMBERED = re.compile(r"^\W*(?:criteri(?:on|um|a)\s*)?#?(\d{1,2})\s*[.):\-]", re.IGNORECASE)
_BULLET = re.compile(r"^\s*[-*\u2022]\s+")


def list_criteria(reply: str) -> list[str]:
    """The criteria in a reply: its numbered points, else its bullets, else its paragraphs but those ending in a colon.

    Args:
        reply: To a prompt that asks for criteria.

    Returns:
        A line each, without number and markdown, in their order; what stands before the first point is left out.
    """
    lines = reply.strip().splitlines()
    for mark in (_NUMBERED, _BULLET):
        if any(mark.match(line) for line in lines):
            points: list[list[str]] = []
            for line in lines:
                if mark.match(line):
                    points.append([mark.sub("", line, count=1)])
                elif points:
                    points[-1].append(line)
            return [_in_one_line(" ".join(point)) for point in points]
    paragraphs = [_in_one_line(part) for part in re.split(r"\n\s*\n", reply)]
    return [part for part in paragraphs if part and not part.endswith(":")]


def _in_one_line(text: str) -> str:
    return " ".join(re.sub(r"[*_`#]{1,3}", "", text).split())


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
_ANSWER = re.compile(r"\b(?:answer|decision|verdict|choice|conclusion|classification|prediction|class)\s*(?:is\b|[:=])")
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
_ENDS = (
    r"(?=\W*$|\s*[.,;:)\]]|\s+\W?(?:rather|not|over|instead|because|since|as)\b)"  # after a letter that is no article
)
_SAYS = r"\b(?:to|with|choose|chose|pick|select)\b"


def parse_choice(reply: str, classes: tuple[str, str], labels: tuple[str, str] = ("", "")) -> ForcedChoice:
    """Which of two classes a reply settles on, read from its answer line, its conclusion, or all of it, in this order.

    Case, markdown, quotes and a model's thinking aloud (``<think>``) do not count. A class that is negated ("not class
    B", "rather than class B") is not chosen. Labels count only where no class is named at all.

    Args:
        reply: What the model said last.
        classes: What the script calls the classes, for example ``("Class A", "Class B")``.
        labels: Names of the classes' labels; two that differ by case or marks alone do not count.

    Returns:
        ABSTAINED if it says that it cannot tell, or neither, or both; UNPARSABLE if it chooses nothing, or both without
        a conclusion.
    """
    marked = _mark_classes(_plain(reply), *map(_plain, classes))
    names = [_pattern(_plain(label)) for label in labels]
    if "@" not in marked and all(names) and names[0] != names[1]:  # News and news are not told apart by a reply
        marked = _mark(marked, names)
    marked = re.sub(r"\s*[&/]\s*(?=@)", " or ", marked)
    marked = _QUESTION.sub(" ", marked)
    readings = _answer_line(marked) or _line_alone(marked) or _conclusion(marked) or _settled(marked)
    return readings or ForcedChoice.UNPARSABLE


def _plain(text: str) -> str:
    """Lower case, without thinking, markdown, LaTeX and quotes; lines stay lines."""
    text = text.rpartition("</think>")[2].partition("<think>")[0]
    text = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    text = re.sub(r"\\[a-z]+\s*\{", " ", text)  # \boxed{, \text{
    text = re.sub(r"[*_`#>~|@\"\u201c\u201d\u201e\u00ab\u00bb\u2018{}$\\]", " ", text)
    text = re.sub(r"(?<!\w)'|'(?!\w)", " ", text)
    return re.sub(r"[^\S\n]+", " ", text).strip()[-LONGEST:]


def _pattern(name: str) -> str:
    """A pattern of a plain name, whose blanks and hyphens may be one or the other, or none."""
    return r"[\s\-]*".join(map(re.escape, re.split(r"[\s\-]+", name)))


def _mark(text: str, patterns: Sequence[str]) -> str:
    """Write ``@a`` and ``@b`` where the two are named; the longer name first, as one may be part of the other."""
    named = sorted(zip(patterns, ("@a", "@b"), strict=True), key=lambda pair: -len(pair[0]))
    whole = "|".join(f"({pattern})" for pattern, _ in named)
    whole = rf"(?<!\w)(?<!\w-)(?:{whole})(?!\w|-\w)"
    return re.sub(whole, lambda match: named[int(match.lastindex or 1) - 1][1], text)


def _mark_classes(text: str, class_a: str, class_b: str) -> str:
    """Mark where two classes are named; of Class A and Class B also category, group and option A, and A alone."""
    (head, _, tail_a), (head_b, _, tail_b) = class_a.rpartition(" "), class_b.rpartition(" ")
    if not head or head != head_b:
        return _mark(text, [_pattern(class_a), _pattern(class_b)])
    heads = rf"(?:{re.escape(head)}(?:es|s)?|category|group|option)[\s\-(\[]*"
    text = _mark(text, [heads + re.escape(tail_a), heads + re.escape(tail_b)])
    for tail, sign in ((re.escape(tail_a), "@a"), (re.escape(tail_b), "@b")):
        text = re.sub(rf"(@[ab]\s*(?:and|or|nor|&|/|,)\s*){tail}(?!\w)", rf"\1{sign}", text)  # classes A and B
        text = re.sub(rf"(?m)^[^\w@]*{tail}[^\w@]*$", sign, text)
        leads = rf"((?:{_ANSWER.pattern}|{_SAYS}|^)\W*)"
        text = re.sub(rf"(?m){leads}(?<![\w@]){tail}{_ENDS}", rf"\1{sign}", text)
    return text


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


def _answer_line(text: str) -> ForcedChoice | None:
    """The last line with a marker such as "Answer:", or the line after it where nothing follows the marker."""
    lines = [line for line in text.splitlines() if line.strip()]
    for line, after in zip(reversed(lines), ["", *reversed(lines)], strict=False):
        if match := _ANSWER.search(line):
            rest = line[match.end() :]
            return _settled(rest if re.search(r"\w", rest) else after)
    return None


def _line_alone(text: str) -> ForcedChoice | None:
    """A line that is nothing but one class, if only one class has such a line."""
    alone = set(re.findall(r"(?m)^\W*@([ab])\W*$", text))
    return ForcedChoice(alone.pop()) if len(alone) == 1 else None


def _conclusion(text: str) -> ForcedChoice | None:
    """The last sentence that concludes."""
    choices = (_settled(part) for part in reversed(_SENTENCES.split(text)) if _CONCLUDES.search(part))
    return next(filter(None, choices), None)
