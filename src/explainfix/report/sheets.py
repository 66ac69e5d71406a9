"""Sheets of filters: what a method's kernels look like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_filters(kernels: Mapping[str, NDArray[Any]], *, columns: int = 14) -> Figure:
    """A row of kernels per name, from arrays `(n, h, w)`; blue is negative, red positive.

    Each kernel has its own scale, symmetric about zero, which is white.
    """
    from matplotlib.figure import Figure

    label = 0.085 * max(map(len, kernels)) + 0.2  # inches
    width, height = label + 0.56 * columns, 0.6 * len(kernels) + 0.05
    figure = Figure(figsize=(width, height), dpi=160)
    grid = figure.subplots(len(kernels), columns, squeeze=False)
    figure.subplots_adjust(label / width, 0.015, 0.995, 0.985, 0.12, 0.14)
    for row, (name, sheet) in zip(grid, kernels.items(), strict=True):
        row[0].text(
            -0.2, 0.5, name, ha="right", va="center", fontsize=10, transform=row[0].transAxes
        )
        for axes, kernel in zip(row, _padded(sheet, columns), strict=True):
            axes.set_axis_off()
            if kernel is not None:
                limit = max(float(np.abs(kernel).max()), 1e-12)
                axes.imshow(kernel, cmap="RdBu_r", vmin=-1.15 * limit, vmax=1.15 * limit)
    return figure


def _padded(sheet: NDArray[Any], columns: int) -> list[NDArray[Any] | None]:
    shown = list(sheet[:columns])
    return shown + [None] * (columns - len(shown))
