"""A story at the head of a page: chapters of words, spectra side by side, tables, pictures."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..explanation.explanation import Explanation
from ..extras import needed_for
from .condense import Condensed
from .scale import against_chance, chance_limit

FAINT = 0.3  # how strong a colour may be that chance would give, as page.js has it


class Row(NamedTuple):
    """A row of a table, and a sentence on it."""

    name: str
    cells: Sequence[object]
    sentence: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under headings, the first of which is that of the names."""

    headings: Sequence[str]
    rows: Sequence[Row]


@dataclass(frozen=True)
class Gallery:
    """Pictures side by side: under each name as many, `(h, w)` or `(h, w, 3)` of bytes."""

    columns: Mapping[str, Sequence[ArrayLike]]
    caption: str = ""


@dataclass(frozen=True)
class Chapter:
    """A part of a story: what is said, then what is shown."""

    title: str
    text: Sequence[str] = ()
    spectra: Sequence[tuple[Explanation, str]] = ()  # and a sentence on each
    table: Table | None = None
    gallery: Gallery | None = None
    caption: str = ""  # of the spectra


@dataclass(frozen=True)
class Story:
    """What the chapters come to, and the chapters; `detail` heads the explanation below them."""

    title: str
    answer: str
    chapters: Sequence[Chapter]
    detail: str = "In detail"


def story_data(story: Story) -> dict[str, Any]:
    """A story as plain numbers and text."""
    return {
        "title": story.title,
        "answer": story.answer,
        "detail": story.detail,
        "chapters": [
            {
                "title": chapter.title,
                "text": list(chapter.text),
                "spectra": _spectra(chapter.spectra),
                "caption": chapter.caption,
                "table": _table(chapter.table) if chapter.table else None,
                "gallery": _gallery(chapter.gallery) if chapter.gallery else None,
            }
            for chapter in story.chapters
        ],
    }


def _spectra(seen: Sequence[tuple[Explanation, str]]) -> list[dict[str, Any]]:
    """Heatmaps of the kernel shape that most layers have, all on one scale of colours."""
    made = []
    for why, sentence in seen:
        ((shape, _),) = Counter(layer.shape for layer in why.layers.values()).most_common(1)
        paths = [path for path, layer in why.layers.items() if layer.shape == shape]
        made.append((why, sentence, paths, [_column(why, path) for path in paths]))
    limit = max((chance_limit(v for v, _ in columns) for *_, columns in made), default=1.0)
    return [
        {
            "title": why.title,
            "sentence": sentence,
            "rows": max(len(values) for values, _ in columns),
            "columns": [
                {"path": path, "cells": _cells(values, inside, limit)}
                for path, (values, inside) in zip(paths, columns, strict=True)
            ],
        }
        for why, sentence, paths, columns in made
    ]


def _column(why: Explanation, path: str) -> tuple[list[float | None], list[bool]]:
    """A layer's doublings against chance, and which of them chance could have given."""
    layer = why.layers[path]
    shown = Condensed.of(layer.shape, why.totals)
    energies = shown.energies(why[path].ed)
    low, high = shown.band(layer.energy_chance)
    return against_chance(energies, shown.even), [low <= energy <= high for energy in energies]


def _cells(values: list[float | None], inside: list[bool], limit: float) -> list[float | None]:
    """Places on the scale, from -1 to 1."""
    return [
        None if value is None else max(-1.0, min(value / limit, 1.0)) * (FAINT if faint else 1.0)
        for value, faint in zip(values, inside, strict=True)
    ]


def _table(table: Table) -> dict[str, Any]:
    width = len(table.headings)
    for row in table.rows:
        if len(row.cells) + 1 != width:
            raise ValueError(f"{row.name!r} has {len(row.cells)} cells, not {width - 1}")
    return {
        "headings": list(table.headings),
        "rows": [
            {"name": row.name, "cells": [str(cell) for cell in row.cells], "said": row.sentence}
            for row in table.rows
        ],
    }


def _gallery(gallery: Gallery) -> dict[str, Any]:
    counts = {name: len(pictures) for name, pictures in gallery.columns.items()}
    if len(set(counts.values())) != 1:
        raise ValueError(f"a gallery needs as many pictures under each name, not {counts}")
    return {
        "caption": gallery.caption,
        "names": list(gallery.columns),
        "rows": [
            [picture_address(picture) for picture in row]
            for row in zip(*gallery.columns.values(), strict=True)
        ],
    }


def picture_address(picture: ArrayLike) -> str:
    """A picture as an address that holds all of it, so that a page needs no other file.

    >>> picture_address(np.zeros((2, 2), np.uint8))[:22]
    'data:image/png;base64,'
    """
    pixels = np.asarray(picture)
    if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or pixels.shape[2:] == (3,)):
        raise ValueError(
            "a picture is an array (h, w) or (h, w, 3) of bytes, not "
            f"{tuple(pixels.shape)} of {pixels.dtype}"
        )
    with needed_for("a page with pictures"):
        from PIL import Image
    held = io.BytesIO()
    Image.fromarray(pixels).save(held, format="png")
    return "data:image/png;base64," + base64.b64encode(held.getvalue()).decode("ascii")
