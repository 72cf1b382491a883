"""Units of a clustering's sample as examples to read, each with its log density."""

from dataclasses import dataclass

import pandas as pd

from dana.report.examples import UnitExample, beginning
from dana.report.tables import number


@dataclass(frozen=True)
class DensityExample(UnitExample):
    """A unit whose score is its log density."""

    @property
    def note(self) -> str:
        """Rounded for a page."""
        return f"log density {number(self.score, 1)}"


def quoted(sample: pd.DataFrame, place: int) -> DensityExample:
    """A unit of the sample, of :class:`dana.studies.clusters.learned.LearnedClusters`, on one line."""
    row = sample.iloc[place]
    return DensityExample(float(row["log_density"]), "", beginning(" ".join(row["text"].split())), "")
