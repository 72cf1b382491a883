"""A run's frames to all its tables; sentences, figures and CSV files are made from these."""

from dataclasses import dataclass, fields

from dana.report.cost import cost_table
from dana.report.frames import RunFrames
from dana.report.map_figure import nearness_table, point_table
from dana.report.outcomes import difference_table, evaluation_table, loss_table, result_table, seed_table
from dana.report.page import Table
from dana.report.provenance import setting_table, step_table
from dana.report.reproduce import input_table
from dana.report.tables import choice_table, histogram, kept_table, planted_table, ranking_table, separation_table
from dana.report.verdicts import ArmComparison, compare_arms


@dataclass(frozen=True)
class Analysis:
    """A run's tables; None for what it does not have."""

    ranking: Table | None
    choice: Table | None
    histogram: Table | None
    separation: Table | None
    kept: Table | None
    planted: Table | None
    nearness: Table | None
    points: Table | None
    evaluations: Table | None
    losses: Table | None
    comparisons: tuple[ArmComparison, ...]
    seeds: Table | None
    results: Table | None
    differences: Table | None
    cost: Table | None
    steps: Table
    settings: Table
    inputs: Table | None

    def tables(self) -> list[Table]:
        """Those that there are."""
        values = (getattr(self, field.name) for field in fields(self))
        return [value for value in values if isinstance(value, Table)]


def analyse(run: RunFrames) -> Analysis:
    """Make every table that the run allows."""
    selected, cells, evaluations = run.selected, run.cells, run.evaluations
    weighed = selected if selected is not None and "weight" in selected.units else None
    drawn = selected.map if selected is not None else None
    comparisons = tuple(compare_arms(cells))
    return Analysis(
        choice=choice_table(run.choice) if run.choice is not None else None,
        ranking=ranking_table(run.ranking) if run.ranking is not None else None,
        histogram=histogram(selected) if selected is not None else None,
        separation=separation_table(selected) if selected is not None else None,
        kept=kept_table(weighed) if weighed is not None else None,
        planted=planted_table(weighed) if weighed is not None else None,
        nearness=nearness_table(drawn) if drawn is not None else None,
        points=point_table(drawn) if drawn is not None else None,
        evaluations=evaluation_table(evaluations) if evaluations is not None else None,
        losses=loss_table(evaluations) if evaluations is not None else None,
        comparisons=comparisons,
        seeds=seed_table(cells) if cells else None,
        results=result_table(cells) if cells else None,
        differences=difference_table(comparisons),
        cost=cost_table(run),
        steps=step_table(run),
        settings=setting_table(run),
        inputs=input_table(run),
    )
