"""The page of a timeline: how spectra moved while a network trained, with a slider over it."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

from ..explanation.advice import stage_of
from ..registry import views
from ..store import written
from ..watch.timeline import Snapshot, Timeline
from .condense import Condensed
from .labels import short_labels
from .page import embed_json, fill_template, finite, percent, read_scripts, rough
from .scale import against_chance, chance_limit, difference_limit, differences

_NUMBERS = 250_000  # of spectra on a page: some two megabytes
_COLUMNS = 12  # moments in the table


@views.register("timeline")
def write_timeline(line: Timeline, path: str | Path, *, overwrite: bool = False) -> None:
    """Write the page of a timeline."""
    data = finite(timeline_data(line))
    text = fill_template(
        "timeline.html",
        {**data, "json": embed_json(data), "script": read_scripts("parts.js", "timeline.js")},
        raw=("json", "script"),
        filters={"rough": rough, "percent": percent},
    )
    with written(Path(path), overwrite=overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8")


def timeline_data(line: Timeline) -> dict[str, Any]:
    """Everything the page shows, as plain numbers and text."""
    from .. import __version__

    paths = list(line.layers)
    each = sum(min(math.prod(layer.shape), 256) + 4 for layer in line.layers.values())
    kept = spread(len(line.snapshots), max(_NUMBERS // max(each, 1), 2))
    labels = dict(zip(paths, short_labels(paths), strict=True))
    layers = [
        _layer_data(line, path, kept) | {"label": labels[path], "stage": stage}
        for path, stage in stage_of(paths).items()
    ]
    last = line.snapshots[-1]
    return {
        "title": line.title,
        "version": __version__,
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "basis": line.basis,
        "verdict": line.verdict,
        "tone": _tone(line),
        "summary": {
            "layers": len(paths),
            "kernels": sum(layer.kernels for layer in line.layers.values()),
            "fixed_layers": sum(layer.fixed_by is not None for layer in line.layers.values()),
            "epochs": last.epoch,
            "steps": last.step,
            "snapshots": len(line.snapshots),
            "shown": len(kept),
        },
        "moments": _moments_data([line.snapshots[i] for i in kept]),
        "columns": spread(len(kept), _COLUMNS),
        "shapes": [_shape_data(line, shape, layers) for shape in line.bases],
        "layers": layers,
    }


def spread(count: int, most: int) -> list[int]:
    """So many of `count` places at most, evenly spread, the first and the last among them.

    >>> spread(4, 9), spread(9, 3)
    ([0, 1, 2, 3], [0, 4, 8])
    """
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)]


def _tone(line: Timeline) -> str:
    if any(seen.changed for seen in line.snapshots):
        return "bad"
    return "good" if any(layer.fixed_by for layer in line.layers.values()) else ""


def _moments_data(seen: list[Snapshot]) -> list[dict[str, Any]]:
    one_an_epoch = len({each.epoch for each in seen}) == len(seen)
    return [
        {
            "name": each.name,
            "short": f"epoch {each.epoch}" if one_an_epoch and each.epoch else each.name,
            "at": each.step or each.epoch,  # along the curves: by steps where they were counted
            "changed": list(each.changed),
        }
        for each in seen
    ]


def _layer_data(line: Timeline, path: str, kept: list[int]) -> dict[str, Any]:
    layer = line.layers[path]
    shown = Condensed.of(layer.shape, line.bases)
    return {
        "path": path,
        "shape": "x".join(map(str, layer.shape)),
        "kernels": layer.kernels,
        "fixed": layer.fixed_by,
        "drift": line.drift(path)[kept].tolist(),
        "low": line.low_share(path)[kept].tolist(),
        "shares": [shown.energies(row) for row in line.shares(path)[kept]],
        "bands": [_band(line.snapshots[i], path, shown) for i in kept],
    }


def _band(seen: Snapshot, path: str, shown: Condensed) -> list[float]:
    """Where a share would lie by chance."""
    if path not in seen.chance:
        return [math.nan, math.nan]
    total = max(float(seen.ed[path].sum()), 1e-300)
    return [edge / total for edge in shown.band(seen.chance[path])]


def _shape_data(
    line: Timeline, shape: tuple[int, ...], layers: list[dict[str, Any]]
) -> dict[str, Any]:
    name = "x".join(map(str, shape))
    basis, shown = line.bases[shape], Condensed.of(shape, line.bases)
    mine = [layer["shares"] for layer in layers if layer["shape"] == name]
    named = basis.frequencies is not None and shown.groups is None
    return {
        "name": name,
        "shape": list(shape),
        "pictured": list(shown.pictured),
        "groups": shown.groups,
        "note": shown.note,
        "basis": shown.picture(shown.filters(basis.rows)).tolist(),
        "frequencies": [list(k) for k in basis.frequencies or ()] if named else None,
        "layers": [i for i, layer in enumerate(layers) if layer["shape"] == name],
        "limits": {
            "chance": chance_limit(
                against_chance(row, shown.even) for rows in mine for row in rows
            ),
            "difference": difference_limit(
                differences(_first(rows), row) for rows in mine for row in rows
            ),
        },
    }


def _first(rows: list[list[float]]) -> list[float]:
    """The spectrum that a layer's drift is measured from."""
    return next((row for row in rows if all(map(math.isfinite, row))), rows[0])
