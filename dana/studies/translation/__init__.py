"""Measure which text trains the better translator.

Translators are trained by domain and on selected text, and tested on every domain.
"""

from dana.core.studies import Study

HELP = "Train translators on domains and on selected text, and test each on every domain"
STUDY = Study(
    "translation",
    settings=f"{__name__}.settings:TranslationSettings",
    commands={"translation": (HELP, f"{__name__}.command:add_translation")},
)
