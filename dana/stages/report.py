"""``dana report``: what a run found, as a page, as Markdown, and its tables as CSV and LaTeX."""

from pathlib import Path

from dana.core.artifacts import write_text
from dana.core.logging import get_logger
from dana.report.collect import collect
from dana.report.latex import to_latex
from dana.report.render import to_html, to_markdown
from dana.report.sections import build_report

log = get_logger(__name__)


def report_stage(run: Path) -> Path:
    """Write ``report.html``, ``report.md``, ``tables/*.csv`` and ``tables/*.tex`` into a run's folder.

    The same run gives the same bytes.

    Args:
        run: A folder with at least one of ``ranking/``, ``scores/``, ``adapted/``, ``finetune/``.

    Returns:
        The path of ``report.html``.

    Raises:
        ArtifactError: If there is nothing to report, or a file is not what dana writes.
    """
    report = build_report(collect(run))
    for table in report.tables:
        write_text(run / "tables" / f"{table.name}.csv", table.frame.to_csv(index=False))
        if table.columns and not table.folded:
            write_text(run / "tables" / f"{table.name}.tex", to_latex(table))
    write_text(run / "report.md", to_markdown(report))
    write_text(run / "report.html", to_html(report))
    log.info("%-9s written  %s", "report", run / "report.html")
    return run / "report.html"
