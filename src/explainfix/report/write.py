"""The page of an explanation: what goes into it, and writing it."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..explanation.advice import stage_of
from ..explanation.compare import Comparison
from ..explanation.explanation import Explanation
from ..explanation.spectrum import Spectrum
from ..prune.outcome import PruneReport
from ..registry import views
from ..store import written
from .condense import Condensed
from .page import render_page
from .pruning import pruning_data

if TYPE_CHECKING:
    import pandas as pd

_LONGEST = 256  # frequencies of an axis: no chart of bars has room for more


@views.register("page")
def write_page(
    why: Explanation,
    path: str | Path,
    *,
    comparison: Comparison | None = None,
    pruning: PruneReport | None = None,
    results: pd.DataFrame | None = None,
    overwrite: bool = False,
) -> None:
    """Write the page of an explanation, with a comparison, a pruning or results if there are."""
    text = render_page(page_data(why, comparison, pruning, results))
    with written(Path(path), overwrite=overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8")


def page_data(
    why: Explanation,
    comparison: Comparison | None = None,
    pruning: PruneReport | None = None,
    results: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """Everything the page shows, as plain numbers and text."""
    from .. import __version__

    paths = list(why)
    return {
        "title": why.title,
        "version": __version__,
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "basis": why.basis,
        "weighted": why.weighted,
        "weighting": why.weighting,
        "summary": {
            "parameters": why.parameters,
            "spatial_parameters": sum(layer.parameters for layer in why.layers.values()),
            "layers": len(paths),
            "kernels": sum(layer.kernels for layer in why.layers.values()),
            "fixed_layers": sum(layer.fixed_by is not None for layer in why.layers.values()),
        },
        "advice": [
            {"kind": said.kind, "title": said.title, "text": said.text} for said in why.advice()
        ],
        "shapes": [_shape_data(why, shape, paths) for shape in why.totals],
        "layers": [_layer_data(why, path, stage) for path, stage in stage_of(paths).items()],
        "skipped": [{"path": path, "reason": reason} for path, reason in why.skipped.items()],
        "comparison": _comparison_data(comparison) if comparison else None,
        "pruning": pruning_data(pruning) if pruning else None,
        "results": None if results is None else _results_data(results),
    }


def _shape_data(why: Explanation, shape: tuple[int, ...], paths: list[str]) -> dict[str, Any]:
    basis, shown = why.bases[shape], Condensed.of(shape, why.totals)
    named = basis.frequencies is not None and shown.groups is None
    return {
        "name": _name(shape),
        "shape": list(shape),
        "pictured": list(shown.pictured),
        "groups": shown.groups,
        "note": shown.note,
        "basis": shown.picture(shown.filters(basis.rows)).tolist(),
        "frequencies": [list(k) for k in basis.frequencies or ()] if named else None,
        "layers": [i for i, path in enumerate(paths) if why.layers[path].shape == shape],
        "total": _spectrum_data(why.totals[shape], shown),
    }


def _layer_data(why: Explanation, path: str, stage: str) -> dict[str, Any]:
    layer = why.layers[path]
    shown = Condensed.of(layer.shape, why.totals)
    samples = torch.empty(0, 0) if layer.samples is None else layer.samples.flatten(1)
    if len(samples):
        samples = shown.picture(samples[: shown.samples(len(why))])
    return {
        "path": path,
        "stage": stage,
        "shape": _name(layer.shape),
        "kernels": layer.kernels,
        "parameters": layer.parameters,
        "fixed": layer.fixed_by,
        "saliency_share": why.share_of(path),
        "needed": layer.needed,
        "filters": math.prod(layer.shape),
        "steered": layer.steered,
        "low_share": layer.low_share,
        "low_chance": list(layer.low_chance),
        "band": shown.band(layer.energy_chance),
        "samples": samples.tolist(),
        **_spectrum_data(why[path], shown),
    }


def _spectrum_data(spectrum: Spectrum, shown: Condensed) -> dict[str, Any]:
    few = max(spectrum.shape) <= _LONGEST
    return {
        "ed": shown.energies(spectrum.ed),
        "e1": [axis.tolist() for axis in spectrum.e1] if few else [],
        "e0": spectrum.e0.tolist() if few and spectrum.e0 is not None else None,
    }


def _comparison_data(comparison: Comparison) -> dict[str, Any]:
    return {
        "other": comparison.after.title,
        "answer": comparison.verdict,
        "layers": [
            {
                "path": path,
                "distance": change.distance,
                "changed": change.changed,
                "kernels": change.kernels,
                "moved": change.moved,
                "ed_a": _energies(comparison.before, path),
                "ed_b": _energies(comparison.after, path),
            }
            for path, change in comparison.layers.items()
        ],
    }


def _energies(why: Explanation, path: str) -> list[float]:
    return Condensed.of(why.layers[path].shape, why.totals).energies(why[path].ed)


def _results_data(results: pd.DataFrame) -> dict[str, Any]:
    """A table as it stands: the index first, then the columns, as text."""
    frame = results.reset_index()
    rows = frame.astype(object).to_numpy().tolist()
    return {"columns": list(frame.columns), "rows": [[str(cell) for cell in row] for row in rows]}


def _name(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
