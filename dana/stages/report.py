"""``dana report``: what a run found, as a page, as Markdown, and its tables as CSV and LaTeX."""

from collections.abc import Sequence
from pathlib import Path

from dana.core.artifacts import write_text
from dana.core.config import require
from dana.core.logging import get_logger
from dana.report.collect import collect
from dana.report.compare_runs import compare_runs
from dana.report.latex import to_latex
from dana.report.render import to_html, to_markdown
from dana.report.sections import Report, build_report

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
    return write_report(build_report(collect(run)), run, "report")


def compare_stage(runs: Sequence[Path], out: Path) -> Path:
    """Write ``comparison.html``, ``comparison.md`` and the tables of several runs side by side into a folder.

    Args:
        runs: Folders of at least two runs; the others are compared with the first.
        out: Where to.

    Returns:
        The path of ``comparison.html``.

    Raises:
        ConfigError: If a run is named twice, or only one is named.
        ArtifactError: If there is nothing to report in one of them; names it.
    """
    places = [run.resolve() for run in runs]
    for place, run in enumerate(runs):
        require(places[place] not in places[:place], "--compare", str(run), "named once")
    require(len(runs) > 1, "--compare", " ".join(map(str, runs)), "two runs or more")
    return write_report(compare_runs([collect(run) for run in runs]), out, "comparison")


def write_report(report: Report, folder: Path, stem: str) -> Path:
    """Write a report as ``STEM.html`` and ``STEM.md``, with its tables; returns the path of the page."""
    for table in report.tables:
        write_text(folder / "tables" / f"{table.name}.csv", table.frame.to_csv(index=False))
        if table.columns and not table.folded:
            write_text(folder / "tables" / f"{table.name}.tex", to_latex(table))
    write_text(folder / f"{stem}.md", to_markdown(report))
    write_text(folder / f"{stem}.html", to_html(report))
    log.info("%-9s written  %s", "report", folder / f"{stem}.html")
    return folder / f"{stem}.html"
