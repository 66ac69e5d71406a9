"""The page of an explanation: one HTML file that opens from disk and fetches nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def render_page(data: Mapping[str, Any]) -> str:
    """The whole page as text: words and tables from the template, pictures drawn by its script.

    `data` is what JSON can hold: `title`, `summary`, `advice`, `shapes`, `layers` and so on.
    Layer names are data, so they are escaped wherever they go; NaN and infinity become gaps.
    """
    clean = finite(data)
    drawn = {name: value for name, value in clean.items() if name != "story"}
    return fill_template(
        "page.html",
        {**clean, "json": embed_json(drawn), "script": read_scripts("parts.js", "page.js")},
        raw=("json", "script"),
        filters={"rough": rough, "percent": percent},
    )


def fill_template(
    name: str,
    values: Mapping[str, Any],
    *,
    folder: Path = FOLDER,
    raw: Sequence[str] = (),
    filters: Mapping[str, Callable[..., Any]] | None = None,
) -> str:
    """A page in our frame: a template of `folder` and the style beside it, over ours.

    What is said in it is escaped, but for the values named in `raw`.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader([folder, FOLDER]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters or {}
    styles = dict.fromkeys((FOLDER / "page.css", (folder / name).with_suffix(".css")))
    return environment.get_template(name).render(
        {**values, **{key: Markup(values[key]) for key in raw}},
        css=Markup("\n".join(style.read_text("utf-8") for style in styles)),
        theme=Markup((FOLDER / "theme.js").read_text("utf-8")),
    )


def read_scripts(*names: str) -> str:
    """The scripts of a page, one after the other."""
    return "\n".join((FOLDER / name).read_text("utf-8") for name in names)


def embed_json(value: Any) -> str:
    r"""JSON that may stand inside a `<script>` element, whatever its strings hold.

    >>> print(embed_json({"path": "</script>", "ed": [0.123456789, float("nan")]}))
    {"path":"\u003c/script\u003e","ed":[0.12346,null]}
    """
    text = json.dumps(finite(value), separators=(",", ":"), allow_nan=False)
    # An HTML parser looks for "</script" and "<!--" before any JSON is read.
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def rough(count: int) -> str:
    """A count as people say it.

    >>> rough(17), rough(36864), rough(1256000), rough(25557032)
    ('17', '36,864', '1.26 million', '25.6 million')
    """
    if count < 1_000_000:
        return f"{count:,}"
    value, unit = (count / 1e9, "billion") if count >= 1e9 else (count / 1e6, "million")
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


def percent(share: float | None) -> str:
    """A share as a percentage with about two digits; a dash where there is none.

    >>> percent(0.4423), percent(0.0123), percent(0.0001), percent(0), percent(None)
    ('44%', '1.2%', '<0.1%', '0%', '–')
    """
    if share is None:
        return "–"
    if 0 < share < 0.001:
        return "<0.1%"
    return f"{100 * share:.0f}%" if share >= 0.0995 or share == 0 else f"{100 * share:.1f}%"


def finite(value: Any) -> Any:
    """The same structure with five digits per number, and None for what is not a number."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value
