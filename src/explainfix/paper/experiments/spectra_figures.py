"""Heatmaps of spectra, one below the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...explanation import Explanation
from ...report.heatmap import main_shapes
from ..figures import LABELS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def heatmap(why: Explanation) -> Figure:
    """The library's own, whose heading our caption replaces."""
    figure = why.plot()
    figure.axes[0].set_title("", loc="left")
    return figure


def plot_methods(pairs: Mapping[str, tuple[Explanation, Explanation | None]]) -> Figure:
    """A row per initialisation: the heatmaps without and with saliency, each on its own scale."""
    rows = [_rows(plain) for plain, _ in pairs.values()]
    figure = new_figure(7.0, 0.3 + sum(min(0.045 * count, 0.9) + 0.15 for count in rows))
    grid = figure.subplots(len(pairs), 2, squeeze=False, height_ratios=rows)
    for row, (method, pair) in zip(grid, pairs.items(), strict=True):
        for axes, why in zip(row, pair, strict=True):
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(False)
            if why is not None:
                axes.imshow(stacked(why), aspect="auto", cmap="viridis", vmin=0,
                            interpolation="nearest")  # fmt: skip
        row[0].set_ylabel(
            LABELS[method], fontsize=8, rotation=0, ha="right", va="center", labelpad=4
        )
    for axes, name in zip(grid[0], ("without saliency", "with saliency"), strict=True):
        axes.set_title(name, fontsize=9)
    return figure


def stacked(why: Explanation) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """e(2) of the main kernel shapes, one block of rows each; NaN where a layer has another."""
    shapes = main_shapes(why)
    paths = [path for path, layer in why.layers.items() if layer.shape in shapes]
    blocks = []
    for shape in shapes:
        block = np.full((int(np.prod(shape)), len(paths)), np.nan)
        for column, path in enumerate(paths):
            if why.layers[path].shape == shape:
                block[:, column] = np.asarray(why[path].ed)
        blocks.append(block)
    return np.concatenate(blocks)


def _rows(why: Explanation) -> int:
    return sum(int(np.prod(shape)) for shape in main_shapes(why))
