"""Say which model a run ended in, and why.

The input is the content of ``choice.json``, which the step ``final`` of a run writes
(:mod:`dana.stages.final`).
"""

from typing import Any

import pandas as pd

from dana.report.page import Section, Table, decimals, number, text_columns
from dana.report.tables import metric_name
from dana.tasks.kinds import is_error

# Names of candidates by the first word of their kind; {} stands for the model.
FORMS = {
    "tfidf": "TF-IDF with a linear model",
    "vectors": "sentence vectors of {} with a linear model",
    "finetuned": "{}, fine-tuned",
}
# Names of the models of these arms.
MODELS = {
    "base": "the model as it was",
    "unlabelled": "the model adapted on unlabelled texts",
}


def candidate_name(kind: str) -> str:
    """Name a candidate in words.

    Args:
        kind: Kind of the candidate, as :mod:`dana.stages.final_steps` names it: ``tfidf``, or how a
            model is used, and the arm that it is of: ``vectors-base``, ``finetuned-dana``. A way of
            fine-tuning that is not in :data:`FORMS` stands for itself: ``contrastive-dana``.
    """
    form, _, arm = kind.partition("-")
    model = MODELS.get(arm, "the adapted model")
    if form not in FORMS:
        return f"{model}, fine-tuned ({form})"
    return FORMS[form].format(model)


def choice_note(choice: dict[str, Any], folder: str) -> str:
    """Say in two sentences which model the run ended in, why, and what score to expect of it.

    Args:
        choice: Content of ``choice.json``.
        folder: Name of the run's folder.
    """
    count = len(choice["candidates"])
    rank = "the only candidate"
    if count > 1:
        # The margin of dana.finetuning.choice, which chooses: of errors it depends on the labels.
        margin = "within a small margin" if is_error(choice["metric"]) else "within .005"
        rank = f"the best of {count} candidates (of those {margin} the cheapest)"
    expected = f"expect {number(choice['expected'])} {metric_name(choice['metric'])}"
    if choice["low"] is None:
        basis = ", uncorrected for the choice: too few texts for an interval"
    else:
        ends = f"{number(choice['low'])} to {number(choice['high'])}"
        basis = f" (95 % interval {ends}), corrected for having chosen"
    name = candidate_name(choice["choice"])
    note = f"The model in {folder}/model is {name}, {rank}. On new texts {expected}{basis}."
    if choice["waiting"]:
        note += f" {waiting_words(choice['waiting'])}"
    return note


def waiting_words(count: int) -> str:
    """Say how many candidates a run has not tested yet."""
    noun = "candidate is" if count == 1 else "candidates are"
    return f"{count} {noun} not tested yet; the best of all replaces it then."


def choice_section(choice: dict[str, Any], folder: str) -> Section:
    """Return the section with a table of the candidates and their scores, the chosen one in bold.

    Args:
        choice: Content of ``choice.json``.
        folder: Name of the run's folder.
    """
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
        answer += f" {waiting_words(waiting)}"
    return Section("Which model did the run end in?", answer, tables=(table,))
