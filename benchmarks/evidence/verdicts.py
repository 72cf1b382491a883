"""Answer the questions of the plan from the committed rows: differences, intervals, and what a gain is worth in labels.

The interval and p are those of docs/statistics.md: a difference for each adaptation and test
text, averaged over the draws of labels; U over adaptations plus T over texts. p is Holm's over tasks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from plan import (
    AVERAGED,
    BASE,
    CHOSEN,
    CURVE,
    DRAWS,
    DSIR,
    FORGETTING,
    MODEL,
    OTHER_STEPS,
    OWN,
    OWN_AND_CHOSEN,
    OWN_OBJECTIVE,
    OWN_PARTS,
    PAPER_SEGMENTS,
    PAPER_SIGMOID,
    PILOT,
    RANDOM,
    SECOND_PILOT,
    SHUFFLED,
    SIZES,
    SMALL,
    STEPS,
    TARGET_TEXTS,
    TASKS,
    VARIATIONS,
    VARIED_TASKS,
)
from rows import Results, decode_counts
from scipy.stats import spearmanr

from dana.core.learning_curve import CurvePoint, labels_worth
from dana.core.statistics import ALPHA, TwoLevel, holm, two_level
from dana.core.text_table import tabulate
from dana.finetuning.pilot import NONE

RETRIEVAL = "mrr_10"
FINDS = "finds documents of the pool, MRR@10"  # a column
LEAST_PAIRS = 6  # of a correlation
QUESTIONS = ((CHOSEN, RANDOM), (CHOSEN, BASE), (CHOSEN, DSIR))


@dataclass(frozen=True)
class Scores:
    """What the models of an arm score on the test texts.

    Attributes:
        indices: Number of each adaptation.
        right: Share of the draws that predict a text rightly, shape (adaptations, texts).
        macro_f1: Mean over adaptations.
    """

    indices: list[int]
    right: np.ndarray
    macro_f1: float

    @property
    def accuracy(self) -> float:
        """Mean over adaptations and texts."""
        return float(self.right.mean())


def choice_of(results: Results, task: str) -> str | None:
    """Return the objective that the pilot chose; None if it was not run."""
    rows = results.find(task, arm=PILOT)
    return rows[0]["choice"] if rows else None


def scores_of(
    results: Results, task: str, arm: str, size: int, measure: str = "probe", **names: Any
) -> Scores | None:
    """Return the scores of an arm; None if there is no model.

    Args:
        results: All rows.
        task: Name of the task.
        arm: Name of the arm.
        size: Number of labels.
        measure: ``probe`` or ``finetune``.
        **names: What differs from the primary question: objective, model, steps.
    """
    is_base = arm == BASE
    usual: dict[str, Any] = {
        "objective": NONE if is_base else choice_of(results, task),
        "model": MODEL,
        "steps": 0 if is_base else STEPS,
    }
    rows = results.find(task, arm=arm, size=size, measure=measure, **{**usual, **names})
    if not rows:
        return None
    right = np.stack([decode_counts(row["correct"]) / row["draws"] for row in rows])
    macro = float(np.mean([row["macro_f1"] for row in rows]))
    return Scores([row["index"] for row in rows], right, macro)


def difference(ours: Scores, others: Scores) -> TwoLevel:
    """Compare two arms, adaptation by adaptation; the base has one row, which is that of all.

    Of arms with different numbers of adaptations the common ones are compared.
    """
    if len(others.indices) == 1 and len(ours.indices) > 1:
        values = ours.right - others.right
        return two_level(values, len(values))
    common = [index for index in ours.indices if index in others.indices]
    mine = ours.right[[ours.indices.index(index) for index in common]]
    theirs = others.right[[others.indices.index(index) for index in common]]
    return two_level(mine - theirs, len(common))


def differences(
    results: Results, size: int, arm: str, other: str, measure: str = "probe"
) -> dict[str, TwoLevel]:
    """Compare two arms on every task that has both."""
    found = {}
    for task in TASKS:
        ours = scores_of(results, task.name, arm, size, measure)
        others = scores_of(results, task.name, other, size, measure)
        if ours is not None and others is not None and len(ours.indices) > 1:
            found[task.name] = difference(ours, others)
    return found


def unchanged(results: Results) -> int:
    """Count the tasks whose pilot chose none: all their arms are the base, and every difference is 0."""
    return sum(choice_of(results, task.name) == NONE for task in TASKS)


def pooled(results: Results, size: int, arm: str, other: str) -> TwoLevel | None:
    """Compare two arms over all piloted tasks, each counting alike, those that stay the base with 0.

    An adaptation of random text serves several tasks. So the units are the numbers of the adaptations:
    the difference of a number is the mean over tasks. None before two numbers are whole.
    """
    tasks = list(differences(results, size, arm, other))
    count = len(tasks) + unchanged(results)
    gains: dict[int, list[float]] = {}
    by_text = 0.0
    texts = []
    for task in tasks:
        ours = scores_of(results, task, arm, size)
        others = scores_of(results, task, other, size)
        assert ours is not None, "differences has this task"
        assert others is not None, "differences has this task"
        by_text += difference(ours, others).by_text / count**2
        texts.append(ours.right.shape[1])
        theirs = dict(zip(others.indices, others.right.mean(1), strict=True))
        for index, mine in zip(ours.indices, ours.right.mean(1), strict=True):
            rival = theirs[0] if len(theirs) == 1 else theirs.get(index)
            if rival is not None:
                gains.setdefault(index, []).append(float(mine - rival))
    whole = [sum(values) / count for values in gains.values() if len(values) == len(tasks)]
    if len(whole) < 2:
        return None
    by_unit = float(np.var(whole, ddof=1)) / len(whole)
    return TwoLevel(float(np.mean(whole)), by_unit, by_text, len(whole), min(texts))


def worth_in_labels(results: Results, task: str, score: float, size: int) -> float | None:
    """Return how many more labels give the base the same accuracy (:func:`labels_worth`)."""
    points = []
    for labels in CURVE:
        base = scores_of(results, task, BASE, labels)
        if base is not None:
            points.append(CurvePoint(labels, base.accuracy, math.nan, DRAWS))
    return labels_worth(points, score, size)


def worth_text(results: Results, task: str, score: float, size: int) -> str:
    """Write :func:`worth_in_labels`; empty where the score gains nothing, or nothing can be said."""
    worth = worth_in_labels(results, task, score, size)
    if not worth:
        return ""
    if math.isfinite(worth):
        return f"{worth:.0f}"
    measured = [labels for labels in CURVE if scores_of(results, task, BASE, labels) is not None]
    most = measured[-1] - size
    return f"more than {most:,}" if most else ""


def verdict(row: TwoLevel, p: float) -> str:
    """Name the outcome of a question."""
    if p > ALPHA:
        return "undecided"
    return "better" if row.mean > 0 else "worse"


def in_words(row: TwoLevel) -> str:
    """Write a difference with its interval."""
    low, high = row.interval
    return f"{row.mean:+.3f} ({low:+.3f} to {high:+.3f})"


def score_table(results: Results, size: int) -> list[dict[str, str]]:
    """Return accuracy, and macro-F1 in brackets, of every arm."""
    rows = []
    for task in TASKS:
        row = {"task": task.name, "objective": choice_of(results, task.name) or "not piloted"}
        for arm in (BASE, RANDOM, CHOSEN, DSIR):
            scores = scores_of(results, task.name, arm, size)
            row[arm] = "" if scores is None else f"{scores.accuracy:.3f} ({scores.macro_f1:.3f})"
        chosen = scores_of(results, task.name, CHOSEN, size)
        row["n"] = str(len(chosen.indices)) if chosen else ""
        if chosen is not None:
            row["worth labels"] = worth_text(results, task.name, chosen.accuracy, size)
        rows.append(row)
    return rows


def question_table(results: Results, size: int) -> list[dict[str, str]]:
    """Return every question, task by task, with verdicts after Holm's method over tasks."""
    rows = []
    for arm, other in QUESTIONS:
        found = differences(results, size, arm, other)
        p_values = [row.p for row in found.values()] + [1.0] * unchanged(results)
        adjusted = dict(zip(found, holm(p_values), strict=False))
        for task, row in found.items():
            rows.append(
                {
                    "question": f"{arm} - {other}",
                    "task": task,
                    "difference": in_words(row),
                    "p (Holm)": f"{adjusted[task]:.2g}",
                    "verdict": verdict(row, adjusted[task]),
                }
            )
        mean = pooled(results, size, arm, other)
        if mean is not None:
            rows.append(
                {
                    "question": f"{arm} - {other}",
                    "task": f"mean of {len(found) + unchanged(results)}",
                    "difference": in_words(mean),
                    "p (Holm)": f"{mean.p:.2g}",
                    "verdict": verdict(mean, mean.p),
                }
            )
    return rows


def tuned_table(results: Results) -> list[dict[str, str]]:
    """Return accuracies of fine-tuned models and their differences, Holm over the tasks of a question."""
    rows = []
    for arm, other in ((CHOSEN, RANDOM), (CHOSEN, BASE)):
        found = differences(results, TARGET_TEXTS, arm, other, "finetune")
        adjusted = holm([row.p for row in found.values()])
        for (task, row), p in zip(found.items(), adjusted, strict=True):
            scores = [
                scores_of(results, task, one, TARGET_TEXTS, "finetune") for one in (other, arm)
            ]
            accuracies = [f"{one.accuracy:.3f}" for one in scores if one is not None]
            rows.append(
                {
                    "question": f"{arm} - {other}",
                    "task": task,
                    "accuracies": ", ".join(accuracies[::-1]),
                    "n": str(row.units),
                    "difference": in_words(row),
                    "p (Holm)": f"{p:.2g}",
                    "verdict": verdict(row, p),
                }
            )
    return rows


def control_table(results: Results) -> list[dict[str, str]]:
    """Return what is left of the gain over the base where the text has lost the answer."""
    rows = []
    for task in TASKS:
        row = {"task": task.name, "objective": choice_of(results, task.name) or ""}
        for size in SIZES:
            base = scores_of(results, task.name, BASE, size)
            for arm in (CHOSEN, SHUFFLED):
                scores = scores_of(results, task.name, arm, size)
                if scores is not None and base is not None:
                    row[f"{arm} - base, {size}"] = in_words(difference(scores, base))
        rows.append(row)
    return [row for row in rows if f"{SHUFFLED} - base, {SIZES[0]}" in row]


def own_table(results: Results) -> list[dict[str, str]]:
    """Return what adapting on the task's own texts gains, alone and together with chosen text."""
    rows = []
    for task in TASKS:
        choice = choice_of(results, task.name)
        objective = choice
        if choice == NONE or (choice == "position" and task.group is None):
            objective = OWN_OBJECTIVE
        for size in SIZES:
            base = scores_of(results, task.name, BASE, size)
            own = scores_of(results, task.name, OWN, size, objective=objective)
            if base is None or own is None or len(own.indices) < 2:
                continue
            both = scores_of(results, task.name, OWN_AND_CHOSEN, size)
            row = {"task": task.name, "objective": str(objective), "labels": str(size)}
            row["base"] = f"{base.accuracy:.3f}"
            random = scores_of(results, task.name, RANDOM, size, objective=objective)
            chosen = scores_of(results, task.name, CHOSEN, size, objective=objective)
            row["random text"] = "" if random is None else f"{random.accuracy:.3f}"
            row["chosen text"] = "" if chosen is None else f"{chosen.accuracy:.3f}"
            row["own texts"] = f"{own.accuracy:.3f}"
            row["own and chosen"] = "" if both is None else f"{both.accuracy:.3f}"
            row["adaptations"] = str(len(own.indices))
            row["own - base"] = in_words(difference(own, base))
            if random is not None and len(random.indices) > 1:
                row["own - random"] = in_words(difference(own, random))
            rows.append(row)
    return rows


def own_parts_table(results: Results) -> list[dict[str, str]]:
    """Return what adapting on few of a task's own documents gains, beside all of them.

    A mean is over the first adaptations, as many as each number of documents has.
    """
    columns = {arm: f"{count} documents" for arm, count in OWN_PARTS.items()} | {OWN: "all"}
    rows = []
    for task in TASKS:
        choice = choice_of(results, task.name)
        for size in SIZES:
            base = scores_of(results, task.name, BASE, size)
            found = {
                arm: scores_of(results, task.name, arm, size, objective=choice) for arm in columns
            }
            right = {arm: scores.right for arm, scores in found.items() if scores is not None}
            if base is None or len(right) < len(columns):
                continue
            count = min(map(len, right.values()))
            row = {"task": task.name, "labels": str(size), "adaptations": str(count)}
            row["base"] = f"{base.accuracy:.3f}"
            for arm, column in columns.items():
                mean = float(right[arm][:count].mean())
                row[column] = f"{mean:.3f} ({mean - base.accuracy:+.3f})"
            rows.append(row)
    return rows


def masked_table(results: Results) -> list[dict[str, str]]:
    """Return what masked tokens on chosen text gain where the pilot chose none.

    Beside it stands what a second pilot predicts, which tries them.
    """
    rows = []
    for task in TASKS:
        if choice_of(results, task.name) != NONE:
            continue
        for size in SIZES:
            base = scores_of(results, task.name, BASE, size)
            chosen = scores_of(results, task.name, CHOSEN, size, objective=OWN_OBJECTIVE)
            random = scores_of(results, task.name, RANDOM, size, objective=OWN_OBJECTIVE)
            if base is None or chosen is None or random is None or len(chosen.indices) < 2:
                continue
            row = {"task": task.name, "labels": str(size), "base": f"{base.accuracy:.3f}"}
            row["random text"] = f"{random.accuracy:.3f}"
            row["chosen text"] = f"{chosen.accuracy:.3f}"
            row["adaptations"] = str(len(chosen.indices))
            row["chosen - base"] = in_words(difference(chosen, base))
            row["chosen - random"] = in_words(difference(chosen, random))
            row["pilot"] = pilot_text(results, task.name, OWN_OBJECTIVE)
            rows.append(row)
    return rows


def pilot_text(results: Results, task: str, objective: str) -> str:
    """Write what the second pilot predicted of an objective, and whether it took it; empty if it was not run."""
    for row in results.find(task, arm=SECOND_PILOT):
        for trial in row["trials"]:
            if trial["objective"] == objective and trial["gain"] is not None:
                taken = "taken" if row["choice"] == objective else f"took {row['choice']}"
                return f"{trial['gain']:+.3f} ± {trial['error']:.3f}, {taken}"
    return ""


def variant_table(results: Results) -> list[dict[str, str]]:
    """Return what other bases, lengths and the paper's own path reach; two adaptations decide nothing."""
    kinds: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
        (f"{steps} steps", {"steps": steps}, (RANDOM, CHOSEN)) for steps in OTHER_STEPS
    ]
    kinds.append((SMALL, {"model": SMALL}, (RANDOM, CHOSEN)))
    kinds.append((PAPER_SEGMENTS, {}, (PAPER_SEGMENTS,)))
    kinds.append((PAPER_SIGMOID, {}, (PAPER_SIGMOID,)))
    rows = []
    for task in VARIED_TASKS:
        for name, names, arms in kinds:
            row = {"task": task, "variant": name}
            of_base = {key: value for key, value in names.items() if key == "model"}
            base = [scores_of(results, task, BASE, size, **of_base) for size in SIZES]
            row["base"] = in_numbers(base)
            is_measured = False
            for arm in arms:
                scores = [scores_of(results, task, arm, size, **names) for size in SIZES]
                column = arm if len(arms) > 1 else "chosen"
                row[column] = in_numbers(scores)
                is_measured = is_measured or any(one is not None for one in scores)
            if is_measured:
                rows.append(row)
    return rows


def forgetting_table(results: Results) -> list[dict[str, str]]:
    """Return what other tasks lose or gain by the adaptation to a task."""
    rows = []
    for task in TASKS:
        objective = choice_of(results, task.name)
        row = {"adapted to": task.name, "objective": objective or ""}
        measured = {}
        for other in FORGETTING:
            for size in SIZES:
                gain = gain_of(results, other, objective, size, f"{CHOSEN} for {task.name}")
                measured[f"{other}, {size}"] = "" if gain is None else f"{gain:+.3f}"
        measured[FINDS] = retrieval_text(results, task.name)
        if any(measured.values()):
            rows.append({**row, **measured})
    return rows


def retrieval_text(results: Results, task: str) -> str:
    """Write how well the base and the adapted models find documents of the pool; empty if not measured."""
    before = retrieval_of(results, task, BASE)
    after = retrieval_of(results, task, CHOSEN)
    if before is None or after is None:
        return ""
    return f"{before:.3f} → {after:.3f}"


def retrieval_of(results: Results, task: str, arm: str) -> float | None:
    """Return how well the models of an arm find documents of the pool, their mean; None if not measured."""
    rows = results.find(task, arm=arm, measure="retrieval", model=MODEL)
    if not rows:
        return None
    return float(np.mean([row[RETRIEVAL] for row in rows]))


def average_table(results: Results) -> list[dict[str, str]]:
    """Return what is left of a gain, and of search, if an adapted model is averaged with the base."""
    arms = {CHOSEN: 0.0, **AVERAGED, BASE: 1.0}
    rows = []
    for task in TASKS:
        if scores_of(results, task.name, next(iter(AVERAGED)), SIZES[0]) is None:
            continue
        for arm, share in arms.items():
            row = {"task": task.name, "share of the base": f"{share:g}"}
            for size in SIZES:
                scores = scores_of(results, task.name, arm, size)
                if scores is not None:
                    kept = scores.right[: 1 if arm == BASE else VARIATIONS]
                    row[f"{size} labels"] = f"{kept.mean():.3f}"
            found = retrieval_of(results, task.name, arm)
            row[FINDS] = "" if found is None else f"{found:.3f}"
            rows.append(row)
    return rows


def in_numbers(scores: Sequence[Scores | None]) -> str:
    """Write the accuracies of each number of labels."""
    return ", ".join("" if one is None else f"{one.accuracy:.3f}" for one in scores)


def trials_of(results: Results, task: str) -> list[tuple[dict[str, Any], str]]:
    """Return the trials of a task's pilots, each with what the table says of the choice.

    The second pilot tried the objectives of the first again, so only what it alone tried counts.
    """
    found = []
    known: set[str] = set()
    for arm, words in ((PILOT, "yes"), (SECOND_PILOT, "yes, by the second pilot")):
        for row in results.find(task, arm=arm):
            for trial in row["trials"]:
                objective = trial["objective"]
                if objective == NONE or objective in known or trial["gain"] is None:
                    continue
                known.add(objective)
                found.append((trial, words if row["choice"] == objective else ""))
    return found


def prediction_table(results: Results) -> list[dict[str, str]]:
    """Return what the pilots predicted of each objective, beside what 50 steps on chosen text gained."""
    rows = []
    for task in TASKS:
        for trial, taken in trials_of(results, task.name):
            row = {
                "task": task.name,
                "objective": trial["objective"],
                "taken": taken,
                "pilot": f"{trial['gain']:+.3f} ± {trial['error']:.3f}",
            }
            for size in SIZES:
                gain = gain_of(results, task.name, trial["objective"], size)
                if gain is not None:
                    row[f"gain at {size}"] = f"{gain:+.3f}"
            rows.append(row)
    return rows


def gain_of(
    results: Results, task: str, objective: str | None, size: int, arm: str = CHOSEN
) -> float | None:
    """Return what an objective on the text of an arm gains in accuracy over the base; None if it was not trained."""
    base = scores_of(results, task, BASE, size)
    scores = scores_of(results, task, arm, size, objective=objective)
    if base is None or scores is None:
        return None
    return scores.accuracy - base.accuracy


def prediction_agreement(results: Results, size: int) -> tuple[float, int] | None:
    """Return Spearman's correlation of the pilots' predictions with what came, and the number of pairs.

    A pair is an objective on a task; None before there are six, also of objectives that were not chosen.
    """
    predictions = []
    outcomes = []
    for task in TASKS:
        for trial, _ in trials_of(results, task.name):
            gain = gain_of(results, task.name, trial["objective"], size)
            if gain is not None:
                predictions.append(trial["gain"])
                outcomes.append(gain)
    if len(predictions) < LEAST_PAIRS:
        return None
    return float(spearmanr(predictions, outcomes).statistic), len(predictions)


def agreement_text(results: Results) -> str:
    """Say how well the pilots predicted; empty where too little is known."""
    parts = []
    for size in SIZES:
        found = prediction_agreement(results, size)
        if found is not None:
            correlation, pairs = found
            parts.append(f"{correlation:.2f} with {size} labels ({pairs} pairs)")
    if not parts:
        return ""
    return "Rank correlation of the pilots' predictions with what came: " + ", ".join(parts) + "."


def print_tables(results: Results) -> None:
    """Print scores and questions for each number of labels, then everything else that is there."""
    for size in SIZES:
        print(
            f"\n{size} labels: accuracy (macro-F1)\n{tabulate(filled(score_table(results, size)))}"
        )
        questions = question_table(results, size)
        if questions:
            print(f"\n{tabulate(questions)}")
    others = {
        f"the whole model fine-tuned, {TARGET_TEXTS} labels": tuned_table(results),
        "the control: chosen text with its sentences shuffled": control_table(results),
        "the task's own texts": own_table(results),
        "few of the task's own documents": own_parts_table(results),
        "masked tokens where the first pilot chose none": masked_table(results),
        f"variants, {' and '.join(map(str, SIZES))} labels": variant_table(results),
        "what the pilot predicted": prediction_table(results),
        "other tasks, chosen - base": forgetting_table(results),
        "averages with the base": average_table(results),
    }
    for title, rows in others.items():
        if rows:
            print(f"\n{title}\n{tabulate(filled(rows))}")
    print(f"\n{agreement_text(results)}")


def filled(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Give every row the columns of all, empty where it has none."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name, "") for name in names} for row in rows]
