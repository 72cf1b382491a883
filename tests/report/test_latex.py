r"""Tables as LaTeX: every mark of TeX in a cell is escaped, and every row has as many cells as the head."""

import re

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dana.report.latex import MARKS, latex_text, to_latex
from dana.report.tables import Column, Table
from dana.stages.report import report_stage

SPECIAL = set("\\{}$&#^_~%")  # category codes that are not letter, other or space: plain TeX, INITEX and LaTeX alike
ESCAPES = {escaped: letter for letter, escaped in MARKS.items()}
TOKEN = re.compile("|".join(map(re.escape, sorted(ESCAPES, key=len, reverse=True))) + "|.", re.DOTALL)


def shown(escaped):
    """What LaTeX sets: escapes read back; a mark that is left bare is an error."""
    letters = []
    for token in TOKEN.findall(escaped):
        assert token in ESCAPES or token not in SPECIAL, f"{token} is bare in {escaped}"
        letters.append(ESCAPES.get(token, token))
    return "".join(letters)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("macro_f1 & 5 % of $9", r"macro\_f1 \& 5 \% of \$9"),
        ("a\\b{c}#1", r"a\textbackslash{}b\{c\}\#1"),
        ("−0.5 ± 0.1 → β", r"$-$0.5 $\pm$ 0.1 $\to$ $\beta$"),
        ("95\N{NO-BREAK SPACE}% – …", r"95~\% -- \ldots{}"),
        ("~/x^2 <y|z>", r"\textasciitilde{}/x\textasciicircum{}2 $<$y$|$z$>$"),
        ("[1] *", "{[}1{]} {*}"),
        ("--seeds", "{-}{-}seeds"),
        ("two\nlines  more", "two lines more"),
    ],
)
def test_marks_of_tex_are_escaped(text, escaped):
    assert latex_text(text) == escaped


@given(st.text(st.sampled_from([*MARKS, *"ab1 .,`\n\té漢"]), max_size=40))
def test_any_text_is_shown_as_it_is_on_one_line(text):
    text = text.replace("\N{NO-BREAK SPACE}", "x")
    assert shown(latex_text(text)) == " ".join(text.split())


def test_a_table_is_a_booktabs_tabular_with_its_caption_as_a_comment():
    frame = pd.DataFrame({"name": ["a_b", "c&d"], "value": [1, 2]})
    columns = (Column("the name", lambda row: row.name, numeric=False), Column("%", lambda row: str(row.value)))
    assert to_latex(Table("x", "One\nline.", frame, columns, marked=(True, False))).splitlines()[1:] == [
        "% One line.",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"the name & \% \\",
        r"\midrule",
        r"\textbf{a\_b} & \textbf{1} \\",
        r"c\&d & 2 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_every_table_of_the_page_has_a_file_whose_rows_fit(whole_run):
    report_stage(whole_run)
    found = {file.stem: file.read_text() for file in (whole_run / "tables").glob("*.tex")}
    shown_tables = {"ranking", "separation", "kept_by_source", "planted", "nearness", "losses"}
    assert set(found) == shown_tables | {"differences", "results", "cost", "steps"}
    for text in found.values():
        lines = text.splitlines()
        columns = len(re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)[1])
        rows = [line for line in lines if line.endswith(r" \\")]
        assert len(rows) >= 2
        for row in rows:
            assert len(re.findall(r"(?<!\\)&", row)) == columns - 1
            assert row.count("{") - row.count(r"\{") == row.count("}") - row.count(r"\}")
        assert lines[-1] == r"\end{tabular}"
    assert r"\textbf{knn (chosen)}" in found["ranking"]
    assert r"toy & dana $-$ base" in found["differences"]
