"""Show the scores of a run on the screen as soon as a part of it is done, and keep its report up to date."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dana.core.errors import DanaError
from dana.core.launch import single_process
from dana.core.logging import get_logger
from dana.core.schemas import FINAL
from dana.core.text_table import tabulate
from dana.report.arm_results import BASELINE_TITLES, ArmResult
from dana.report.page import interval_text, number
from dana.report.probes import ALL, LINEAR, ProbeResult, read_probes
from dana.report.run import arm_order, read_outcomes
from dana.report.tables import metric_name
from dana.stages.report import report_stage
from dana.stages.steps.run import Run
from dana.stages.steps.step import Step

log = get_logger(__name__)

FIRST = "the baselines and the base"
SELECTED = "the selection"
PILOT = "the pilot"
DIGITS = 3  # of a score on the screen


def _part_of(step: Step) -> str:
    """Return the part of a run that a step belongs to, in words; empty for none that is shown."""
    kind, *parts = step.name.split("/")
    if FINAL in step.repetition:  # of the model at the end
        return ""
    # A study may name its steps otherwise, as dana's own does: texts/NAME.
    index = next((int(part) for part in step.repetition if part.isdigit()), 0)
    if kind == "baselines" or (kind == "probe" and parts[1] == "base"):
        return FIRST
    if kind == "weigh" and not index:
        return SELECTED
    if kind == "pilot":
        return PILOT
    if kind in ("probe", "loss"):
        return f"adaptation {index + 1}"
    if kind == "finetune":
        return f"the fine-tuning of adaptation {index + 1}"
    return ""


class Progress:
    """Says what finished steps found, each time that a part of a run is done.

    Args:
        run: The steps.

    Attributes:
        left: Names of the steps that are ahead, by the part of the run; without those that are done
            already.
    """

    def __init__(self, run: Run) -> None:
        self._folder = run.folder
        self.left: dict[str, set[str]] = defaultdict(set)
        states = run.states()
        for step in run.steps:
            part = _part_of(step)
            if part and states[step.name] != "done":
                self.left[part].add(step.name)

    def tell(self, step: Step) -> None:
        """Count a finished step; at the end of a part write the report, and show the scores if there are new ones.

        Args:
            step: The step.
        """
        part = _part_of(step)
        if step.name not in self.left[part]:
            return
        self.left[part].remove(step.name)
        if not self.left[part]:
            self._show(part)

    def _show(self, part: str) -> None:
        """Write the report, and the scores on the screen; a run goes on where that fails."""
        try:
            # The other processes of a launch do not come here.
            with single_process():
                report_stage(self._folder)
                text = scores_text(self._folder) if part not in (SELECTED, PILOT) else ""
        except DanaError as error:
            log.debug("no report after %s: %s", part, error)
            return
        if text:
            log.info("scores    after %s:\n%s", part, text)


def scores_text(folder: Path) -> str:
    """Format the scores of a run so far as a table; empty if there are none.

    A row has a baseline, the vectors of a model with a linear classifier, or a fine-tuned model. Of
    tasks with folds the texts of those that all models of a kind were tested on are counted.

    Args:
        folder: Folder of the run, finished or not.

    Raises:
        ArtifactError: If a file is damaged.
    """
    outcomes = read_outcomes(folder)
    probes = [
        probe for probe in read_probes(folder) if probe.method == LINEAR and probe.size == ALL
    ]
    probes.sort(key=lambda probe: arm_order(probe.arm))
    tasks = [result.task for result in (*outcomes.baselines, *outcomes.results)]
    tasks += [probe.task for probe in probes]
    blocks = []
    for task in dict.fromkeys(tasks):
        of_task = [probe for probe in probes if probe.task == task]
        tuned = [result for result in outcomes.results if result.task == task]
        baselines = [result for result in outcomes.baselines if result.task == task]
        blocks.append(_task_text(task, baselines, of_task, tuned))
    return "\n".join(blocks)


def _task_text(
    task: str,
    baselines: Sequence[ArmResult],
    probes: Sequence[ProbeResult],
    tuned: Sequence[ArmResult],
) -> str:
    """Format the scores of one task."""
    if probes:
        baselines = [_on_texts(baseline, probes[0].ids) for baseline in baselines]
    rows = []
    for result in baselines:
        title = BASELINE_TITLES.get(result.arm, result.arm)
        rows.append(_row(title, "baseline", result.metric, result))
    rows += [_row(probe.arm, "linear on its vectors", probe.metric, probe) for probe in probes]
    rows += [_row(result.arm, "fine-tuned", result.metric, result) for result in tuned]
    return tabulate([{task: row.pop("model"), **row} for row in rows])


def _row(
    model: str, classifier: str, metric: str, result: ArmResult | ProbeResult
) -> dict[str, str | int]:
    """Make the row of one model."""
    estimate = result.estimate
    low, high = result.interval
    return {
        "model": model,
        "classifier": classifier,
        metric_name(metric): number(estimate.mean, DIGITS),
        "95 % interval": interval_text(low, high, DIGITS, sign=False),
        "texts": int(estimate.texts),
    }


def _on_texts(result: ArmResult, ids: np.ndarray) -> ArmResult:
    """Return a result on some of its test texts; the same if it was tested on none of them."""
    some = result.on_texts(ids)
    return some if some.predictions.ids.size else result
