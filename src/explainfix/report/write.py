"""The page of an explanation: what goes into it, and writing it."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

import torch

from ..explanation.advice import stage_of
from ..explanation.compare import Comparison, as_change
from ..explanation.explanation import Explanation
from ..explanation.spectrum import Spectrum
from ..marks.untrained import RANDOM
from ..prune.outcome import PruneReport
from ..registry import views
from ..store import written
from .condense import Condensed
from .labels import short_labels
from .page import render_page
from .pruning import pruning_data
from .scale import against_chance, chance_limit, difference_limit, differences
from .story import Story, story_data

_LONGEST = 256  # frequencies of an axis: no chart of bars has room for more


@views.register("page")
def write_page(
    why: Explanation,
    path: str | Path,
    *,
    comparison: Comparison | None = None,
    pruning: PruneReport | None = None,
    story: Story | None = None,
    overwrite: bool = False,
) -> None:
    """Write the page of an explanation, with a comparison, a pruning or a story if there are."""
    text = render_page(page_data(why, comparison, pruning, story))
    with written(Path(path), overwrite=overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8")


def page_data(
    why: Explanation,
    comparison: Comparison | None = None,
    pruning: PruneReport | None = None,
    story: Story | None = None,
) -> dict[str, Any]:
    """Everything the page shows, as plain numbers and text."""
    from .. import __version__

    paths = list(why)
    compared = {} if comparison is None else comparison.layers
    after = None if comparison is None else comparison.after
    labels = dict(zip(paths, short_labels(paths), strict=True))
    layers = [
        _layer_data(why, path, stage, after if path in compared else None) | {"label": labels[path]}
        for path, stage in stage_of(paths).items()
    ]
    return {
        "title": story.title if story else f"{why.title} → {after.title}" if after else why.title,
        "warning": comparison.warning if comparison else RANDOM if why.untrained else None,
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
        "advice": []
        if comparison
        else [{"kind": said.kind, "title": said.title, "text": said.text} for said in why.advice()],
        "scales": _scales(why, comparison),
        "shapes": [_shape_data(why, shape, layers) for shape in why.totals],
        "layers": layers,
        "skipped": [
            {"path": path, "reason": reason}
            for path, reason in (comparison.not_compared if comparison else why.skipped).items()
        ],
        "comparison": _comparison_data(comparison) if comparison else None,
        "pruning": pruning_data(pruning) if pruning else None,
        "story": story_data(story) if story else None,
    }


def _scales(why: Explanation, comparison: Comparison | None) -> list[tuple[str, str]]:
    """What colour can show, the first at the start."""
    if comparison:
        return [("difference", "B minus A"), ("before", "A"), ("after", "B")]
    totals = [float(spectrum.ed.sum()) for spectrum in why.values()]
    alike = max(totals) - min(totals) <= 0.01 * max(totals)  # then energy would say the same
    return [("chance", "Against chance"), *([] if alike else [("energy", "Energy")])]


def _shape_data(
    why: Explanation, shape: tuple[int, ...], layers: list[dict[str, Any]]
) -> dict[str, Any]:
    mine = [layer for layer in layers if layer["shape"] == _name(shape)]
    others = [layer["other"] for layer in mine if layer["other"]]
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
        "layers": [i for i, layer in enumerate(layers) if layer["shape"] == _name(shape)],
        "limits": {
            "chance": chance_limit(side["against"] for side in (*mine, *others)),
            "difference": difference_limit(side["difference"] for side in others),
        },
        "total": {"ed": shown.energies(why.totals[shape].ed), **_reductions(why.totals[shape])},
    }


def _layer_data(
    why: Explanation, path: str, stage: str, after: Explanation | None
) -> dict[str, Any]:
    layer = why.layers[path]
    other = None
    if after is not None:
        pair = (
            Condensed.of(layer.shape, why.totals).energies(side[path].ed) for side in (why, after)
        )
        other = _side_data(after, path) | {"difference": differences(*pair)}
    return {
        "path": path,
        "stage": stage,
        "shape": _name(layer.shape),
        "parameters": layer.parameters,
        "fixed": layer.fixed_by,
        "saliency_share": why.share_of(path),
        "needed": layer.needed,
        "filters": math.prod(layer.shape),
        "steered": layer.steered,
        "low_share": layer.low_share,
        "low_chance": list(layer.low_chance),
        "other": other,
        **_side_data(why, path),
        **_reductions(why[path]),
    }


def _side_data(why: Explanation, path: str) -> dict[str, Any]:
    """What is shown of a layer in either network of a comparison."""
    layer = why.layers[path]
    shown = Condensed.of(layer.shape, why.totals)
    samples = torch.empty(0, 0) if layer.samples is None else layer.samples.flatten(1)
    if len(samples):
        samples = shown.picture(samples[: shown.samples(len(why))])
    energies = shown.energies(why[path].ed)
    return {
        "kernels": layer.kernels,
        "ed": energies,
        "against": against_chance(energies, shown.even),
        "band": shown.band(layer.energy_chance),
        "samples": samples.tolist(),
    }


def _reductions(spectrum: Spectrum) -> dict[str, Any]:
    few = max(spectrum.shape) <= _LONGEST
    return {
        "e1": [axis.tolist() for axis in spectrum.e1] if few else [],
        "e0": spectrum.e0.tolist() if few and spectrum.e0 is not None else None,
    }


def _comparison_data(comparison: Comparison) -> dict[str, Any]:
    before, after = comparison.before, comparison.after
    return {
        "before": before.title,
        "after": after.title,
        "verdict": comparison.verdict,
        "tone": {True: "good", False: "bad", None: ""}[comparison.still_fixed],
        "layers": [
            {
                "path": path,
                "distance": change.distance,
                "changed": change.changed,
                "kernels": change.kernels,
                "moved": change.moved,
                "change": as_change(change.change),
                "low_before": before.layers[path].low_share,
                "low_after": after.layers[path].low_share,
                "fixed": comparison.fixed_by(path),
            }
            for path, change in comparison.layers.items()
        ],
    }


def _name(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
