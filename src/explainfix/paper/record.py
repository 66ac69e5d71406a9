"""An outcome on disk: outcome.json, figures and the page; all there whole, or as it was."""

from __future__ import annotations

import datetime
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..lab.run.checkpoint import writing
from .experiment import Experiment, Outcome
from .figures import draw_picture

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
OUTCOME = "outcome.json"

Record = dict[str, Any]  # what outcome.json holds


def write_outcome(
    folder: Path, experiment: Experiment, outcome: Outcome, about: dict[str, Any]
) -> Record:
    """Write figures and outcome.json; `about` is the scale, the command, the seconds."""
    check_complete(experiment, outcome)
    folder.mkdir(parents=True, exist_ok=True)
    figures = []
    for number, (caption, figure) in enumerate(outcome.figures.items(), start=1):
        names = {"file": f"figure-{number}.png", "dark": f"figure-{number}-dark.png"}
        for dark, name in enumerate(names.values()):
            with writing(folder / name) as temporary:
                temporary.write_bytes(draw_picture(figure, dark=bool(dark)))
        figures.append({"caption": caption, **names})
    record: Record = {
        "format": FORMAT,
        "version": _version(),
        "name": experiment.name,
        "title": experiment.title,
        "reference": experiment.reference,
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        **about,
        "claims": [
            {**asdict(claim), **asdict(outcome.verdicts[claim.key])} for claim in experiment.claims
        ],
        "tables": [
            {"caption": caption, **_plain(table)} for caption, table in outcome.tables.items()
        ],
        "figures": figures,
        "notes": outcome.notes,
    }
    with writing(folder / OUTCOME) as temporary:
        temporary.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    kept = {name for entry in figures for name in entry.values()}
    for old in folder.glob("figure-*.png"):
        if old.name not in kept:
            old.unlink()
    return record


def read_outcome(folder: Path) -> Record | None:
    """The outcome in a folder, `None` if there is none; of another version, an error."""
    file = folder / OUTCOME
    if not file.is_file():
        return None
    try:
        record: Record = json.loads(file.read_text(encoding="utf-8"))
        found = (record["format"], record["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{str(file)!r} is damaged: {error}") from None
    if found != (FORMAT, _version()):
        raise ValueError(
            f"{str(file)!r} is of explainfix {found[1]}, format {found[0]}; this is {_version()}, "
            f"format {FORMAT}: choose another --folder, or --force to write over the outcome "
            "(runs are kept)"
        )
    return record


def check_complete(experiment: Experiment, outcome: Outcome) -> None:
    """Raise unless every claim has a verdict, and every verdict a claim."""
    claimed, judged = {claim.key for claim in experiment.claims}, set(outcome.verdicts)
    if claimed != judged:
        missing = ", ".join(map(repr, sorted(claimed ^ judged)))
        raise ValueError(f"experiment {experiment.name!r}: claims and verdicts differ in {missing}")


def show(cell: Any) -> str:
    """A cell of a table as people read it.

    >>> [show(cell) for cell in (None, 116695, 0.04143, 2e-5, 12.345, 12345.6, "GHaar", True)]
    ['–', '116,695', '0.0414', '2e-05', '12.3', '12,346', 'GHaar', 'yes']
    """
    if cell is None:
        return "–"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        size = abs(cell)
        if 0 < size < 0.001:
            return f"{cell:.2g}"
        return f"{cell:,.{4 if size < 2 else 1 if size < 100 else 0}f}"
    return str(cell)


def _plain(table: pd.DataFrame) -> dict[str, Any]:
    """A table as columns and rows of what JSON can hold; a plain count of rows is left out."""
    import pandas as pd

    counted = isinstance(table.index, pd.RangeIndex) and table.index.name is None
    frame = table if counted else table.reset_index()
    rows = [[_cell(value) for value in row] for row in frame.astype(object).to_numpy().tolist()]
    return {"columns": [str(column) for column in frame.columns], "rows": rows}


def _cell(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if isinstance(value, bool | int | float) else str(value)


def _version() -> str:
    from .. import __version__

    return __version__
