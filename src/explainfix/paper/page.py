"""The page of an outcome: one HTML file with its pictures inside."""

from __future__ import annotations

import base64
from collections import Counter
from pathlib import Path

from ..lab.run.checkpoint import writing
from ..lab.sweep.progress import duration
from ..report.page import fill_template
from .record import Record, show

PAGE = "page.html"


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
