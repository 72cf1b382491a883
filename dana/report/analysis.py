"""All tables of a run, each made once; sentences, figures and files are then made from the same frames."""

from dataclasses import dataclass, fields

from dana.report.collect import Run
from dana.report.outcomes import difference_table, evaluation_table, loss_table, result_table, seed_table
from dana.report.provenance import setting_table, step_table
from dana.report.tables import Table, histogram, kept_table, planted_table, ranking_table, separation_table


@dataclass(frozen=True)
class Analysis:
    """A run's tables; None for what it does not have."""

    ranking: Table | None
    histogram: Table | None
    separation: Table | None
    kept: Table | None
    planted: Table | None
    evaluations: Table | None
    losses: Table | None
    seeds: Table | None
    results: Table | None
    differences: Table | None
    steps: Table
    settings: Table

    def tables(self) -> list[Table]:
        """Those that there are."""
        return [table for field in fields(self) if (table := getattr(self, field.name)) is not None]


def analyse(run: Run) -> Analysis:
    """Make every table that the run allows."""
    selected, results, evaluations = run.selected, run.results, run.evaluations
    weighed = selected if selected is not None and "weight" in selected.units else None
    return Analysis(
        ranking=ranking_table(run.ranking) if run.ranking is not None else None,
        histogram=histogram(selected) if selected is not None else None,
        separation=separation_table(selected) if selected is not None else None,
        kept=kept_table(weighed) if weighed is not None else None,
        planted=planted_table(weighed) if weighed is not None else None,
        evaluations=evaluation_table(evaluations) if evaluations is not None else None,
        losses=loss_table(evaluations) if evaluations is not None else None,
        seeds=seed_table(results) if results is not None else None,
        results=result_table(results) if results is not None else None,
        differences=difference_table(results) if results is not None else None,
        steps=step_table(run),
        settings=setting_table(run),
    )
