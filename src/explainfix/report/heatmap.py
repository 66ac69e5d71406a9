"""The paper's figures of spectra, for print: the heatmap of e(d) over layers, the bars of e(0)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..explanation.advice import stage_of
from ..explanation.explanation import Explanation
from ..extras import needed_for
from ..registry import views
from .labels import short_labels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Shape = tuple[int, ...]


@views.register("heatmap")
def plot_heatmap(
    why: Explanation, *, per_layer: bool = False, shapes: Sequence[Shape] | None = None
) -> Figure:
    """Rows are basis filters from low to high frequency, columns are layers in order.

    Bars give the sums of rows and columns. `per_layer` divides each column by its sum. Kernel
    shapes share the columns, one block of rows each; a shape with a single layer, such as a 7x7
    stem among 3x3 layers, is left out unless it is in `shapes`.
    """
    from .figure import Figure

    chosen = list(shapes) if shapes is not None else main_shapes(why)
    paths = [path for path, layer in why.layers.items() if layer.shape in chosen]
    blocks = energy_blocks(why, chosen, per_layer=per_layer)
    rows = [len(block) for block in blocks]
    height = 2.0 + sum(rows) * (0.24 if sum(rows) <= 12 else 0.14)
    width = float(np.clip(2.2 + 0.16 * len(paths), 5, 16))
    figure = Figure(figsize=(width, height), dpi=150)
    figure.set_layout_engine("constrained", h_pad=0.03, w_pad=0.03)
    grid = figure.subplots(
        1 + len(blocks), 2, squeeze=False, sharex="col",
        height_ratios=[max(6, 0.25 * sum(rows)), *rows], width_ratios=[max(len(paths), 12), 6],
    )  # fmt: skip
    top = max(float(np.nanmax(block)) for block in blocks) or 1.0
    sums = np.nansum(np.concatenate(blocks), axis=0)
    grid[0, 0].bar(range(len(paths)), sums, color="#2a788e", width=0.85)
    _bare(grid[0, 0])
    heading = f"{why.title}: energy e(d) per layer\n{why.weighting}"
    grid[0, 0].set_title(heading, fontsize=9, loc="left")
    grid[0, 1].set_axis_off()
    for axes, shape, block in zip(grid[1:], chosen, blocks, strict=True):
        picture = axes[0].imshow(
            block, aspect="auto", cmap="viridis", vmin=0, vmax=top, interpolation="nearest"
        )
        name = "x".join(map(str, shape))
        axes[0].set_ylabel(f"{name} basis filter", fontsize=8)
        axes[0].set_yticks(range(0, len(block), 1 if len(block) <= 9 else 4))
        axes[0].tick_params(labelsize=7, bottom=False)
        axes[1].barh(range(len(block)), np.nansum(block, axis=1), color="#2a788e", height=0.85)
        axes[1].set_ylim(len(block) - 0.5, -0.5)
        _bare(axes[1])
    _name_layers(grid[:, 0], paths)
    bar = figure.colorbar(picture, ax=grid[1:, 1], fraction=0.12, pad=0.1, aspect=30)
    bar.ax.tick_params(labelsize=7)
    bar.set_label("share of the layer" if per_layer else "energy", fontsize=8)
    return figure


def _name_layers(column: Any, paths: list[str]) -> None:
    """Name each layer below its column, or, where names are too many or too long, each stage."""
    last = column[-1]
    last.set_xlabel("spatial layers, first to last", fontsize=8)
    labels = short_labels(paths)
    if len(paths) <= 30 and max(map(len, labels)) <= 30:
        last.set_xticks(range(len(paths)), labels, rotation=90, fontsize=6.5)
        return
    stages = list(stage_of(paths).values())
    starts = [i for i, stage in enumerate(stages) if i == 0 or stage != stages[i - 1]]
    ends = [*starts[1:], len(paths)]
    middles = [(start + end - 1) / 2 for start, end in zip(starts, ends, strict=True)]
    last.set_xticks(middles, [stages[start] for start in starts], fontsize=7)
    for axes in column[1:]:
        for start in starts[1:]:
            axes.axvline(start - 0.5, color="white", linewidth=1.2)


def plot_frequencies(explanations: Sequence[Explanation], shape: Shape = (3, 3)) -> Figure:
    """e(0) of several models: bars of energy per frequency, low to high, as shares of the model."""
    with needed_for("a figure"):
        from matplotlib import colormaps

    from .figure import Figure

    known = [
        why for why in explanations if why.totals.get(shape) and why.totals[shape].e0 is not None
    ]
    if not known:
        name = "x".join(map(str, shape))
        raise ValueError(f"none of the explanations has {name} kernels with an e(0)")
    figure = Figure(figsize=(1.2 + 1.1 * len(known), 2.6), dpi=150)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    count = shape[0]
    places = (0.85 - 0.75 * i / max(count - 1, 1) for i in range(count))
    colours = [colormaps["viridis"](place) for place in places]
    for place, why in enumerate(known):
        values = np.asarray(why.totals[shape].e0)
        shares = values / max(values.sum(), 1e-300)
        offsets = place + (np.arange(count) - (count - 1) / 2) * 0.8 / count
        axes.bar(offsets, shares, width=0.75 / count, color=colours)
    axes.set_xticks(range(len(known)), [why.title for why in known], fontsize=8)
    axes.set_ylabel("share of energy e(0)", fontsize=8)
    axes.tick_params(labelsize=8)
    handles = [axes.bar(0, 0, color=colour) for colour in colours]
    labels = ["lowest", *[""] * (count - 2), "highest frequency"]
    axes.legend(
        handles, labels, fontsize=7, frameon=False, ncols=count, loc="lower right",
        bbox_to_anchor=(1, 1), columnspacing=0.6, handletextpad=0.4, borderaxespad=0,
    )  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def main_shapes(why: Explanation) -> list[Shape]:
    """The kernel shapes that more than one layer has, or all if there is none such."""
    counts = Counter(layer.shape for layer in why.layers.values())
    return [shape for shape, count in counts.items() if count > 1] or list(counts)


def energy_blocks(
    why: Explanation, shapes: Sequence[Shape], *, per_layer: bool = False
) -> list[NDArray[Any]]:
    """For each kernel shape the spectra as columns, NaN where a layer has another of them."""
    layers = [(path, layer.shape) for path, layer in why.layers.items() if layer.shape in shapes]
    blocks = [np.full((math.prod(shape), len(layers)), np.nan) for shape in shapes]
    for column, (path, shape) in enumerate(layers):
        values = np.asarray(why[path].ed)
        blocks[shapes.index(shape)][:, column] = (
            values / max(values.sum(), 1e-300) if per_layer else values
        )
    return blocks


def _bare(axes: Any) -> None:
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    axes.tick_params(left=False, labelleft=False, bottom=False, labelbottom=False)
