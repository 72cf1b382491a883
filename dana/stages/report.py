"""``dana report``: write the report of a run, or of several, as HTML, Markdown and CSV tables."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dana.core.artifacts import write_json
from dana.core.config import require
from dana.core.launch import on_rank_0
from dana.core.logging import get_logger
from dana.report.analysis import analyse
from dana.report.compare_runs import compare_runs
from dana.report.headline import search_notes
from dana.report.page import write_page
from dana.report.run import LOOKS, read_outcomes, read_run, retrieval_frame
from dana.report.sections import build_report
from dana.report.summary import summary
from dana.report.verdicts import compare_arms, reason_to_stop
from dana.stages.join import join_run

log = get_logger(__name__)


def report_stage(run: Path) -> Path:
    """Write ``report.html``, ``report.md`` and ``tables/*.csv`` into a run's folder, finished or not.

    The same run gives the same bytes.

    Args:
        run: A folder with at least one of ``ranking/``, ``scores/``, ``adapted/``, ``finetune/``.

    Returns:
        The path of ``report.html``.

    Raises:
        ArtifactError: If there is nothing to report, or a file is not what dana writes.
    """
    join_run(run)
    return write_page(build_report(read_run(run)), run, "report")


def search_lines(run: Path) -> list[str]:
    """Say of a run that leaves an encoder where its vectors are worse for search than those of the base.

    Args:
        run: Folder of the run.

    Returns:
        A line for each adapted model that is worse; none without an encoder.

    Raises:
        ArtifactError: If a file is not what dana writes.
    """
    if not (run / "encoder").is_dir():
        return []
    return [f"  {note}" for note in search_notes(retrieval_frame(run))]


def look_stage(out: Path, arms: Collection[str], adaptations: int, horizon: int) -> str:
    """Look at the results after an adaptation, and record it in ``looks.json``.

    Args:
        out: Folder of the run.
        arms: Arms that are compared.
        adaptations: Number of adaptations before this look; with more of them it is over, and
            decides nothing.
        horizon: Number of adaptations planned.

    Returns:
        Why the run may stop; empty if it goes on.
    """

    def look() -> str:
        join_run(out, arms)
        run = read_outcomes(out)
        if any(result.adaptations > adaptations for result in run.results):
            return ""
        rows = compare_arms(
            [replace(result, horizon=horizon) for result in run.results], run.baselines
        )
        stop = reason_to_stop(rows)
        write_json(out / LOOKS, {"horizon": horizon, "adaptations": adaptations, "stop": stop})
        log.info(
            "look      after adaptation %d of %d: %s", adaptations, horizon, stop or "going on"
        )
        return stop

    return on_rank_0(look)


def run_summary(run: Path) -> dict[str, Any]:
    """Summarise the scores and verdicts of a run for a program; writes nothing.

    Raises:
        ArtifactError: As :func:`report_stage`.
    """
    return summary(analyse(read_run(run)))


def compare_stage(runs: Sequence[Path], out: Path) -> Path:
    """Write ``comparison.html``, ``comparison.md`` and tables that compare several runs.

    Args:
        runs: Folders of at least two runs; the others are compared with the first.
        out: Folder to write into.

    Returns:
        Path of ``comparison.html``.

    Raises:
        ConfigError: If a run is given twice, or only one is given.
        ArtifactError: If a run has nothing to report; names it.
    """
    paths = [run.resolve() for run in runs]
    for index, run in enumerate(runs):
        require(paths[index] not in paths[:index], "--compare", str(run), "named once")
    require(len(runs) > 1, "--compare", " ".join(map(str, runs)), "two runs or more")
    return write_page(compare_runs([read_run(run) for run in runs]), out, "comparison")
