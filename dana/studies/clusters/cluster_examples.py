"""Units of a clustering's sample as examples to read, each with its log density."""

import pandas as pd

from dana.report.examples import beginning
from dana.report.page import UnitExample, number


def quoted(sample: pd.DataFrame, place: int) -> UnitExample:
    """A unit of the sample, of :class:`dana.studies.clusters.learned.LearnedClusters`, on one line."""
    row = sample.iloc[place]
    return UnitExample(beginning(" ".join(row["text"].split())), f"log density {number(row['log_density'], 1)}")
