"""Chat models asked to tell two classes apart from a few examples: back-ends, the script, the parser, the study."""

from dana.core.studies import Study

STUDY = Study(
    "few_shot",
    settings=f"{__name__}.settings:FewShotSettings",
    commands={
        "few-shot": (
            "Ask a chat model which of two labels a text has, with examples of the text's topic and of others",
            f"{__name__}.command:add_few_shot",
        )
    },
    tables=f"{__name__}.settings:TABLES",
    unused=f"{__name__}.command:UNUSED",
)
