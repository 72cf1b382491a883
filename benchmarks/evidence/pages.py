"""Write what the committed rows say into the README and two pages of docs/results, between two marks."""

from pathlib import Path

from figure import draw
from plan import BASE, CHOSEN, RANDOM, SIZES, TASKS
from rows import Results
from verdicts import (
    agreement_text,
    average_table,
    choice_of,
    control_table,
    difference,
    filled,
    forgetting_table,
    in_words,
    masked_table,
    own_parts_table,
    own_table,
    pooled,
    prediction_table,
    question_table,
    score_table,
    scores_of,
    tuned_table,
    variant_table,
    worth_text,
)

from dana.core.artifacts import write_text
from dana.finetuning.pilot import NONE

ROOT = Path(__file__).parents[2]
BEGIN = "<!-- written by: python benchmarks evidence WORK --write -->"
END = "<!-- end of what is written -->"


def markdown(rows: list[dict[str, str]]) -> str:
    """Format rows as a table in Markdown; a column is what any row has."""
    rows = filled(rows)
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(row[name] for name in names) + " |" for row in rows]
    return "\n".join(lines)


def summary(results: Results, size: int = SIZES[0]) -> str:
    """Return the table of the README: what each task gains with few labels, and the mean of all."""
    rows = []
    for task in TASKS:
        base = scores_of(results, task.name, BASE, size)
        random = scores_of(results, task.name, RANDOM, size)
        chosen = scores_of(results, task.name, CHOSEN, size)
        if base is None:
            continue
        row = {"task": task.name, "base": f"{base.accuracy:.3f}"}
        if chosen is not None and random is not None:
            row["random text"] = f"{random.accuracy:.3f}"
            row["chosen text"] = f"{chosen.accuracy:.3f}"
            best = "chosen text" if chosen.accuracy > random.accuracy else "random text"
            row[best] = f"**{row[best]}**"
            row["chosen - base"] = in_words(difference(chosen, base))
            row["chosen - random"] = in_words(difference(chosen, random))
            row["worth labels"] = worth_text(results, task.name, chosen.accuracy, size)
        elif choice_of(results, task.name) == NONE:
            row["random text"] = "not adapted: the pilot expects no gain"
        rows.append(row)
    of_base = pooled(results, size, CHOSEN, BASE)
    of_random = pooled(results, size, CHOSEN, RANDOM)
    if of_base is not None and of_random is not None:
        last = {"task": f"mean of {len(rows)}"}
        last["chosen - base"] = in_words(of_base)
        last["chosen - random"] = in_words(of_random)
        rows.append(last)
    return markdown(rows)


def all_tables(results: Results) -> str:
    """Return every table of the experiment that has a row, each under its title."""
    parts: list[tuple[str, list[dict[str, str]]]] = []
    for size in SIZES:
        parts.append((f"{size} labels: accuracy (macro-F1)", score_table(results, size)))
        parts.append((f"{size} labels: the questions", question_table(results, size)))
    parts += [
        ("The whole model fine-tuned with 500 labels", tuned_table(results)),
        ("The control: chosen text with its sentences shuffled", control_table(results)),
        ("Masked tokens where the first pilot chose none", masked_table(results)),
        ("Variants, with 100 and 500 labels", variant_table(results)),
        ("What the pilot predicted, and what came", prediction_table(results)),
        ("Other tasks: accuracy after less before", forgetting_table(results)),
        ("Averages of the base and the adapted model", average_table(results)),
    ]
    tables = [f"**{title}**\n\n{markdown(rows)}" for title, rows in parts if rows]
    agreement = agreement_text(results)
    if agreement:
        tables.append(agreement)
    return "\n\n".join(tables)


def own_tables(results: Results) -> str:
    """Return what adapting on a task's own texts gains, and what on few of them, where that is measured."""
    parts = [markdown(own_table(results))]
    few = own_parts_table(results)
    if few:
        parts.append(f"**Few of them**\n\n{markdown(few)}")
    return "\n\n".join(parts)


def between_marks(page: str, text: str, begin: str = BEGIN) -> str:
    """Replace what stands between the marks of a page; `begin` is the first one.

    Raises:
        ValueError: If the page lacks them.
    """
    start = page.index(begin) + len(begin)
    return f"{page[:start]}\n{text}\n{page[page.index(END, start) :]}"


def write_pages(results: Results) -> None:
    """Write the pages and the figure anew."""
    for name, text in (
        ("README.md", summary(results)),
        ("docs/results/adaptation.md", all_tables(results)),
        ("docs/results/few-labels.md", own_tables(results)),
    ):
        path = ROOT / name
        write_text(path, between_marks(path.read_text(encoding="utf-8"), text))
    draw(results)
