"""Tables that come with datasets: columns that must be there, and names that must be known."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd


def read_table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """A CSV file as texts, empty where nothing stands, or an error if it lacks a column."""
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (ValueError, OSError) as error:  # pandas raises subclasses of ValueError
        raise ValueError(f"{str(path)!r} cannot be read as a table: {error}") from None
    missing = [column for column in columns if column not in table]
    if missing:
        found = ", ".join(map(repr, table.columns[:6]))
        raise ValueError(f"{str(path)!r} has no column {missing[0]!r}: found {found}")
    return table
