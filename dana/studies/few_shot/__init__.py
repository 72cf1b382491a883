"""Ask a chat model to tell two classes apart by examples on and off a text's topic."""

from dana.core.studies import Study

# Arms and their examples.
ARMS = {"on": "examples of the text's own topic", "off": "examples of other topics"}


HELP = "Ask a chat model which of two labels a text has, given examples on and off its topic"
STUDY = Study(
    "few_shot",
    settings=f"{__name__}.settings:FewShotSettings",
    commands={"few-shot": (HELP, f"{__name__}.command:add_few_shot")},
)
