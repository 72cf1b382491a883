"""The script of a study: an item to the turns of a conversation with a chat model, and what its last reply chooses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from dana.core.config import read_yaml
from dana.core.errors import ConfigError
from dana.studies.few_shot.base import ChatModel, Message
from dana.studies.few_shot.items import Item, Passage
from dana.studies.few_shot.parse import ForcedChoice, parse_choice

OWN = Path(__file__).parent / "prompts.yaml"
CRITERIA = "criteria"  # the turn that criteria are read from
NEEDED = {"examples_a", "examples_b", "text"}
ALLOWED = NEEDED | {"class_a", "class_b", "label_a", "label_b"}


@dataclass(frozen=True)
class Turn:
    """A turn of a conversation.

    Attributes:
        name: As the script calls it.
        prompt: What was asked.
        reply: What the model said.
    """

    name: str
    prompt: str
    reply: str


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
        of_a, of_b = item.examples[arm]
        values = {
            "class_a": self.classes[0],
            "class_b": self.classes[1],
            "label_a": item.label_a,
            "label_b": item.label_b,
            "examples_a": self._examples(of_a),
            "examples_b": self._examples(of_b),
            "text": item.text.text,
        }
        return [(name, Template(prompt).substitute(values).strip()) for name, prompt in self.turns]

    def _examples(self, passages: Sequence[Passage]) -> str:
        shown = (Template(self.example).substitute(number=at, text=one.text) for at, one in enumerate(passages, 1))
        return "\n\n".join(text.strip() for text in shown)


def converse(model: ChatModel, script: Script, item: Item, arm: str, seed: int) -> tuple[list[Turn], ForcedChoice]:
    """Ask a model about one item, in one conversation.

    Args:
        model: Is shown all of the conversation each time.
        script: What is asked.
        item: The text, its two classes and their examples.
        arm: Whose examples are shown.
        seed: Of the conversation.

    Returns:
        The turns, and what the last reply chooses.

    References:
        Roussinov and Sharoff 2023, section 4.3 and Table 7; chain of thought: Wei et al. 2022.
    """
    messages: list[Message] = []
    turns = []
    for name, prompt in script.prompts(item, arm):
        messages.append({"role": "user", "content": prompt})
        reply = model.reply(messages, seed).encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair, say
        messages.append({"role": "assistant", "content": reply})
        turns.append(Turn(name, prompt, reply))
    return turns, parse_choice(turns[-1].reply, script.classes, (item.label_a, item.label_b))


def load_script(path: Path = OWN) -> Script:
    """Read a script.

    Raises:
        ConfigError: If it is none; names the file and the key, and what is allowed.
    """
    values = read_yaml(path)
    if set(values) != {"classes", "example", "turns"}:
        raise ConfigError(f"{path}: holds {', '.join(map(str, values))}; must be classes, example and turns")
    classes, example, turns = values["classes"], values["example"], values["turns"]
    if not (_are_texts(classes) and len(set(map(str.casefold, classes))) == 2 == len(classes)):
        raise ConfigError(f"{path}: classes={classes!r}: must be two names")
    if not (isinstance(turns, list) and turns and all(_is_turn(turn) for turn in turns)):
        raise ConfigError(f"{path}: turns: must be a list with a name and a prompt each")
    used = _placeholders(path, "example", example, {"number", "text"})
    if "text" not in used:
        raise ConfigError(f"{path}: example: $text is missing")
    used = set().union(*(_placeholders(path, turn["name"], turn["prompt"], ALLOWED) for turn in turns))
    if missing := NEEDED - used:
        raise ConfigError(f"{path}: ${' and $'.join(sorted(missing))} in no prompt, so the model would not be shown it")
    return Script(tuple(classes), example, tuple((turn["name"], turn["prompt"]) for turn in turns))


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) and value.strip() for value in values)


def _is_turn(turn: object) -> bool:
    return isinstance(turn, Mapping) and set(turn) == {"name", "prompt"} and _are_texts(list(turn.values()))


def _placeholders(path: Path, name: str, text: object, allowed: set[str]) -> set[str]:
    template = Template(str(text))
    found = set(template.get_identifiers())
    if not template.is_valid() or not found <= allowed:
        wrong = ", ".join(f"${key}" for key in sorted(found - allowed)) or "a lone $ (write $$)"
        raise ConfigError(f"{path}: {name}: {wrong}; allowed are ${', $'.join(sorted(allowed))}")
    return found
