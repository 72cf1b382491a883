"""Compare the arms of a run and make the tables that its report is written from."""

from dataclasses import dataclass, replace
from functools import cached_property

from dana.report import provenance, tables
from dana.report.page import Table
from dana.report.probe_verdicts import probe_comparisons
from dana.report.run import RunFrames
from dana.report.verdicts import ArmComparison, compare_arms

COMPARED = (
    "results",
    "differences",
    "variance",
)  # tables that say nothing for sure of an unfinished run


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
        """Comparisons that the first screen tells: of fine-tuned models, or while there are none of frozen vectors."""
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
    scores, comparisons = run.scores, tuple(compare_arms(run.results, run.baselines))
    candidates = [
        provenance.step_table(run),
        provenance.setting_table(run),
        tables.difference_table(comparisons),
    ]
    candidates.append(tables.variance_table(comparisons))
    if run.ranking is not None:
        candidates.append(tables.ranking_table(run.ranking))
    if run.choice is not None:
        candidates.append(tables.choice_table(run.choice))
    if scores is not None:
        candidates += [tables.histogram(scores), tables.separation_table(scores)]
        if "weight" in scores.units:
            candidates += [tables.source_table(scores), tables.planted_table(scores)]
    if run.evaluations is not None:
        candidates += [
            Table("evaluations", "Held-out losses.", run.evaluations),
            tables.loss_table(run.evaluations),
        ]
    if run.results:
        candidates += [
            tables.seed_table(run.results),
            tables.result_table([*run.results, *run.baselines]),
        ]
    if run.probes:
        candidates += [
            tables.probe_table(run.probes),
            tables.probe_difference_table(run.probes),
        ]
    if run.retrieval is not None:
        candidates.append(tables.retrieval_table(run.retrieval))
    available = {table.name: table for table in candidates if table is not None}
    for table in [available[name] for name in COMPARED if run.missing and name in available]:
        available[table.name] = replace(table, grey=(True,) * len(table.frame))
    return Analysis(run, comparisons, available)
