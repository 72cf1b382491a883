"""Compare the arms of a run and make the tables that its report is written from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dana.report import provenance, tables
from dana.report.page import Table
from dana.report.probe_verdicts import probe_comparisons
from dana.report.run import RunFrames
from dana.report.verdicts import ArmComparison, compare_arms

# Tables that say nothing for sure of an unfinished run.
COMPARED = ("results", "differences")


@dataclass(frozen=True)
class Analysis:
    """Comparisons and tables of a run.

    Attributes:
        run: Data of the run.
        comparisons: All pairs of arms that are shown, with their verdicts.
        tables: Tables that the run has data for, by name.
    """

    run: RunFrames
    comparisons: tuple[ArmComparison, ...]
    tables: dict[str, Table]

    @property
    def questions(self) -> list[ArmComparison]:
        """Comparisons of fine-tuned models that get a verdict."""
        return [row for row in self.comparisons if row.asked]

    @cached_property
    def first_questions(self) -> list[ArmComparison]:
        """Comparisons that the first screen tells.

        They are of fine-tuned models, or while there are none of frozen vectors.
        """
        return self.questions or probe_comparisons(self.run.probes, self.run.baselines)

    @property
    def is_of_vectors(self) -> bool:
        """Whether the first screen tells of frozen vectors."""
        return bool(self.first_questions) and not self.questions

    def get(self, *names: str) -> tuple[Table, ...]:
        """Return the tables of these names that exist."""
        return tuple(self.tables[name] for name in names if name in self.tables)


def analyse(run: RunFrames) -> Analysis:
    """Compare the arms of a run and make every table that it has data for."""
    comparisons = tuple(compare_arms(run.results, run.baselines))
    available = {table.name: table for table in _tables(run, comparisons) if table is not None}
    if run.missing:
        for name in COMPARED:
            if name in available:
                available[name] = _greyed(available[name])
    return Analysis(run, comparisons, available)


def _tables(run: RunFrames, comparisons: Sequence[ArmComparison]) -> list[Table | None]:
    """Make the tables of a run; some are None for want of rows."""
    made = [
        provenance.step_table(run),
        provenance.setting_table(run),
        tables.difference_table(comparisons),
    ]
    if run.ranking is not None:
        made.append(tables.ranking_table(run.ranking))
    if run.choice is not None:
        made.append(tables.choice_table(run.choice))
    if run.scores is not None:
        made.append(tables.histogram(run.scores))
        made.append(tables.separation_table(run.scores))
        if "weight" in run.scores.units:
            made.append(tables.source_table(run.scores))
    if run.evaluations is not None:
        made.append(Table("evaluations", "Held-out losses.", run.evaluations))
        made.append(tables.loss_table(run.evaluations))
    if run.results:
        made.append(tables.seed_table(run.results))
        made.append(tables.result_table([*run.results, *run.baselines]))
    if run.probes:
        made.append(tables.probe_table(run.probes))
        made.append(tables.probe_difference_table(run.probes))
    if run.retrieval is not None:
        made.append(tables.retrieval_table(run.retrieval))
    return made


def _greyed(table: Table) -> Table:
    """Return a table with every row shown as no measurement."""
    return replace(table, grey=(True,) * len(table.frame))
