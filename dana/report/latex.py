r"""Tables to LaTeX: a booktabs tabular each, with the cells that the page shows, for ``\input`` into a paper."""

from dana.report.tables import Table

# Ends of an optional argument and a star are looked for behind the end of a row.
MARKS = {letter: f"\\{letter}" for letter in "&%$#_{}"} | {letter: f"{{{letter}}}" for letter in "[]*"}
MARKS |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
MARKS |= {letter: f"${letter}$" for letter in "<>|"}
MARKS |= {"−": "$-$", "±": r"$\pm$", "→": r"$\to$", "β": r"$\beta$", "–": "--", "…": r"\ldots{}"}
MARKS |= {"\N{NO-BREAK SPACE}": "~", "-": "{-}"}  # two of the latter would become a dash
HEAD = r"% \usepackage{booktabs}; letters beyond Latin need LuaLaTeX or XeLaTeX with a font that has them."


def to_latex(table: Table) -> str:
    """A table's shown rows as a ``tabular``; its caption is a comment, marked rows are bold.

    Args:
        table: With columns.
    """
    marked = {True: r"\textbf{%s}", False: "%s"}
    rows = [[marked[bold] % latex_text(cell) for cell in cells] for cells, bold in table.rows()]
    lines = [
        HEAD,
        f"% {' '.join(table.caption.split())}",
        rf"\begin{{tabular}}{{{''.join('r' if column.numeric else 'l' for column in table.columns)}}}",
        r"\toprule",
        _row([latex_text(column.header) for column in table.columns]),
        r"\midrule",
        *map(_row, rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def latex_text(text: str) -> str:
    """Text that LaTeX shows as it is, on one line."""
    return " ".join("".join(MARKS.get(letter, letter) for letter in text).split())
