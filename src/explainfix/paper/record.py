"""An outcome on disk: outcome.json, figures and one HTML page; each whole, or as it was."""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..lab.run.checkpoint import writing
from ..lab.sweep.progress import duration
from ..report.page import fill_template
from .experiment import Evidence, Experiment, Rows
from .figures import draw_picture

FORMAT = 1
OUTCOME, PAGE = "outcome.json", "page.html"

Record = dict[str, Any]  # what outcome.json holds


def write_outcome(
    folder: Path, experiment: Experiment, evidence: Evidence, about: dict[str, Any]
) -> Record:
    """Write figures and outcome.json; `about` is the scale, the command, the seconds."""
    check_complete(experiment, evidence)
    folder.mkdir(parents=True, exist_ok=True)
    figures = []
    for number, (caption, figure) in enumerate(evidence.figures.items(), start=1):
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
            {
                "key": claim.key,
                "text": claim.text,
                "paper": claim.paper,
                "rule": str(claim.rule),
                **asdict(evidence.verdicts[claim.key]),
            }
            for claim in experiment.claims
        ],
        "tables": [
            {"caption": caption, **_plain(table)} for caption, table in evidence.tables.items()
        ],
        "figures": figures,
        "notes": evidence.notes,
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


def write_page(folder: Path, record: Record) -> Path:
    """Write the page of the outcome in a folder."""
    path = folder / PAGE
    with writing(path) as temporary:
        temporary.write_text(render_page(folder, record), encoding="utf-8")
    return path


def render_page(folder: Path, record: Record) -> str:
    """The page as text; the pictures are read from the folder."""

    def picture(name: str) -> str:
        return "data:image/png;base64," + base64.b64encode((folder / name).read_bytes()).decode()

    words = Counter(claim["word"] for claim in record["claims"])
    return fill_template(
        "outcome.html",
        {**record, "words": words},
        folder=Path(__file__).parent,
        filters={"show": show, "duration": duration, "picture": picture},
    )


def check_complete(experiment: Experiment, evidence: Evidence) -> None:
    """Raise unless every claim has a verdict, and every verdict a claim."""
    claimed, judged = {claim.key for claim in experiment.claims}, set(evidence.verdicts)
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


def _plain(table: Rows) -> dict[str, Any]:
    """A table as columns and rows of what JSON can hold."""
    columns = list(dict.fromkeys(column for row in table for column in row))
    return {
        "columns": columns,
        "rows": [[_cell(row.get(column)) for column in columns] for row in table],
    }


def _cell(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if isinstance(value, bool | int | float) else str(value)


def _version() -> str:
    from .. import __version__

    return __version__
