"""The page of an outcome: one HTML file with its pictures inside."""

from __future__ import annotations

import base64
from collections import Counter
from pathlib import Path

from ..lab.checkpoint import writing
from ..lab.tally import duration
from ..report import page as report_page
from .results import Record, show

PAGE = "page.html"
FOLDER = Path(__file__).parent


def write_page(folder: Path, record: Record) -> Path:
    """Write the page of the outcome in a folder."""
    path = folder / PAGE
    with writing(path) as temporary:
        temporary.write_text(render_page(folder, record), encoding="utf-8")
    return path


def render_page(folder: Path, record: Record) -> str:
    """The page as text; the pictures are read from the folder."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def picture(name: str) -> str:
        return "data:image/png;base64," + base64.b64encode((folder / name).read_bytes()).decode()

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"show": show, "duration": duration, "picture": picture}
    css = (report_page.FOLDER / "page.css", FOLDER / "page.css")
    return environment.get_template("page.html").render(
        record,
        words=Counter(claim["word"] for claim in record["claims"]),
        css=Markup("\n".join(file.read_text(encoding="utf-8") for file in css)),
    )
