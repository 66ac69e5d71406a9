import io

import pandas as pd

from explainfix.table import as_csv, as_frame

ROWS = [
    {"layer": 'a "quoted", name', "share": 0.1 + 0.2, "count": 3, "fixed_by": None},
    {"layer": "two\nlines", "share": 1e-300, "count": 4, "fixed_by": "ghaar", "ed_1": 2.5},
]


def test_a_csv_file_holds_what_the_table_does():
    """Read by another program, every number is as it was."""
    read = pd.read_csv(io.StringIO(as_csv(ROWS)), dtype=str, keep_default_na=False)
    table = as_frame(ROWS)
    assert list(read) == list(table)
    for name in read:
        for ours, theirs in zip(read[name], table[name], strict=True):
            assert ours == "" if pd.isna(theirs) else type(theirs)(ours) == theirs


def test_no_rows():
    assert as_frame([], "layer").empty
    assert as_csv([]).strip() == ""
