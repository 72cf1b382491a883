"""Say which model a run ends in, and why, by what its last step ``final`` wrote."""

from typing import Any

import pandas as pd

from dana.report.page import Section, Table, decimals, number, text_columns
from dana.report.tables import metric_name

FORMS = {
    "tfidf": "TF-IDF with a linear model",
    "vectors": "sentence vectors of {} with a linear model",
    "finetuned": "{}, fine-tuned",
}


def candidate_name(kind: str) -> str:
    """Name a candidate in words, by its kind: ``tfidf``, ``vectors-base``, ``contrastive-dana``."""
    form, _, arm = kind.partition("-")
    model = "the model as it was" if arm == "base" else "the adapted model"
    return FORMS.get(form, f"{{}}, fine-tuned ({form})").format(model)


def choice_note(choice: dict[str, Any], folder: str) -> str:
    """Say in a few words which model the run ended in, why, and what to expect of it.

    Args:
        choice: Content of ``choice.json``.
        folder: Name of the run's folder.
    """
    interval = ""
    if choice["low"] is not None:
        ends = f"{number(choice['low'])} to {number(choice['high'])}"
        interval = f" (95 % interval {ends})"
    expected = f"expect {number(choice['expected'])} {metric_name(choice['metric'])}"
    return (
        f"The model in {folder}/model is {candidate_name(choice['choice'])}, the best of "
        f"{len(choice['candidates'])} candidates (of those within .005 the cheapest). On new texts "
        f"{expected}{interval}, corrected for having chosen."
    )


def choice_section(choice: dict[str, Any], folder: str) -> Section:
    """Tabulate the candidates and their scores, the chosen one in bold."""
    frame = pd.DataFrame(choice["candidates"])
    frame.insert(0, "candidate", [candidate_name(kind) for kind in frame["kind"]])
    caption = (
        f"Score ({metric_name(choice['metric'])}) of each candidate on {choice['texts']:,} texts "
        "that it was not fitted to. The chosen one is then fitted to all labelled texts."
    )
    is_chosen = tuple(frame["kind"] == choice["choice"])
    columns = text_columns("candidate") + decimals(3, "score")
    table = Table("candidates", caption, frame, columns, bold=is_chosen)
    answer = f"dana predict {folder} NEW.csv labels new texts with it."
    waiting = int(choice["waiting"])
    if waiting:
        answer += f" {waiting} candidates are not tested yet; the best of all replaces it then."
    return Section("Which model did the run end in?", answer, tables=(table,))
