"""Format data frames as text for a terminal."""

from typing import Any, cast

import pandas as pd

from dana.core.text_table import tabulate


def frame_text(frame: pd.DataFrame) -> str:
    """Format the rows of a frame as a table, without its index."""
    return tabulate(cast(Any, frame.to_dict("records")))
