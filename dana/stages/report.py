"""``dana report``: what a run found, as a page, as Markdown, and its tables as CSV."""

from collections.abc import Sequence
from pathlib import Path

from dana.core.config import require
from dana.report.compare_runs import compare_runs
from dana.report.page import write_page
from dana.report.run import read_run
from dana.report.sections import build_report


def report_stage(run: Path) -> Path:
    """Write ``report.html``, ``report.md`` and ``tables/*.csv`` into a run's folder.

    The same run gives the same bytes.

    Args:
        run: A folder with at least one of ``ranking/``, ``scores/``, ``adapted/``, ``finetune/``.

    Returns:
        The path of ``report.html``.

    Raises:
        ArtifactError: If there is nothing to report, or a file is not what dana writes.
    """
    return write_page(build_report(read_run(run)), run, "report")


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
    return write_page(compare_runs([read_run(run) for run in runs]), out, "comparison")
