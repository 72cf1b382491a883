"""Chat models asked to tell two classes apart from a few examples: back-ends, the script, the parser, the study."""

from dataclasses import dataclass

from dana.core.config import require
from dana.core.studies import Study

# Arm to what its examples are.
ARMS = {"on": "examples of the text's own topic", "off": "examples of other topics"}


@dataclass(frozen=True)
class FewShotSettings:
    """How a chat model is asked to tell two labels apart.

    Attributes:
        chat: The chat model: ``local:MODEL``, ``http:BASE_URL,model=NAME,key_env=VARIABLE`` or ``scripted:FILE``.
        items: Texts that are asked about, drawn.
        shots: Examples of each of the two labels.
        n: Texts of each label, on topic and off it, that examples are drawn from.
    """

    chat: str = ""
    items: int = 72
    shots: int = 5
    n: int = 30

    def __post_init__(self) -> None:
        require(self.items >= 1, "items", self.items, "at least 1")
        require(self.shots >= 1, "shots", self.shots, "at least 1")
        require(self.n >= self.shots, "n", self.n, f"at least shots, {self.shots}")


STUDY = Study(
    "few_shot",
    settings=f"{__name__}:FewShotSettings",
    commands={
        "few-shot": (
            "Ask a chat model which of two labels a text has, with examples of the text's topic and of others",
            f"{__name__}.command:add_few_shot",
        )
    },
)
