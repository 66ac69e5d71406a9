"""Rows of a result as a table: a pandas DataFrame, or the text of a CSV file without pandas."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .extras import needed_for

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]


def as_frame(rows: Sequence[Row], index: str | None = None) -> pd.DataFrame:
    """The rows as a table, keyed by the column `index`."""
    with needed_for("a table"):
        import pandas as pd

    frame = pd.DataFrame(list(rows))
    return frame.set_index(index) if index and len(rows) else frame


def as_csv(rows: Sequence[Row]) -> str:
    """The same as text, its columns those of any row; every number can be read back as it was.

    >>> print(as_csv([{"layer": "a", "share": 0.1}, {"layer": "b", "share": None, "ed_0": 1e-9}]))
    layer,share,ed_0
    a,0.1,
    b,,1e-09
    <BLANKLINE>
    """
    text = io.StringIO()
    columns = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
