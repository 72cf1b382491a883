"""Few-shot study: ask a chat model to tell two classes apart from examples on and off a text's topic."""

from dataclasses import dataclass

from dana.core.config import check_fields
from dana.core.studies import Study

# Arms and their examples.
ARMS = {"on": "examples of the text's own topic", "off": "examples of other topics"}


@dataclass(frozen=True)
class FewShotSettings:
    """Chat model and items of a few-shot study.

    Attributes:
        chat: The chat model: ``local:MODEL``, ``http:BASE_URL,model=NAME,key_env=VARIABLE`` or
            ``scripted:FILE``.
        items: Number of texts to classify, drawn at random.
        shots: Examples of each of the two labels.
        n: Texts of each label, on and off topic, that examples are drawn from.
    """

    chat: str = ""
    items: int = 72
    shots: int = 5
    n: int = 30

    def __post_init__(self) -> None:
        check_fields(
            self, items="at least 1", shots="at least 1", n=f"at least shots, {self.shots}"
        )


HELP = "Ask a chat model which of two labels a text has, given examples on and off its topic"
STUDY = Study(
    "few_shot",
    settings=f"{__name__}:FewShotSettings",
    commands={"few-shot": (HELP, f"{__name__}.command:add_few_shot")},
)
