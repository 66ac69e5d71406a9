"""Sheets of filters: what bases and methods look like."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..filters.dct2 import dct_basis, dct_vectors, frequency_order
from ..filters.exact import Draw
from ..filters.ghaar import mixtures
from ..filters.psine import centred, draw_term, polynomials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[Any]
_FINE = 20  # points per axis of a high-resolution counterpart, as in the paper


def plot_filters(kernels: Mapping[str, Array], *, columns: int = 14) -> Figure:
    """A row of kernels per name, from arrays `(n, h, w)`; blue is negative, red positive.

    Each kernel has its own scale, symmetric about zero, which is white.
    """
    from .figure import Figure

    label = 0.085 * max(map(len, kernels)) + 0.2  # inches
    width, height = label + 0.56 * columns, 0.6 * len(kernels) + 0.05
    figure = Figure(figsize=(width, height), dpi=160)
    grid = figure.subplots(len(kernels), columns, squeeze=False)
    figure.subplots_adjust(label / width, 0.015, 0.995, 0.985, 0.12, 0.14)
    for row, (name, sheet) in zip(grid, kernels.items(), strict=True):
        row[0].text(
            -0.2, 0.5, name, ha="right", va="center", fontsize=10, transform=row[0].transAxes
        )
        for axes, kernel in zip_longest(row, sheet[:columns]):
            axes.set_axis_off()
            if kernel is not None:
                _draw(axes, kernel)
    return figure


def plot_basis(shape: tuple[int, int]) -> Figure:
    """The DCT-II basis for a kernel shape: each filter with its number, from low to high frequency.

    The first row and column show the 1-D vectors whose product a filter is.
    """
    from .figure import Figure

    height, width = shape
    figure = Figure(figsize=(0.72 * (width + 1), 0.8 * (height + 1)), dpi=160)
    figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.02)
    grid = figure.subplots(height + 1, width + 1, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for row, vector in enumerate(dct_vectors(height)):
        _draw(grid[row + 1, 0], vector[:, None])
    for column, vector in enumerate(dct_vectors(width)):
        _draw(grid[0, column + 1], vector[None, :])
    filters = dct_basis(shape)
    for number, (row, column) in enumerate(frequency_order(shape)):
        axes = grid[row + 1, column + 1]
        _draw(axes, filters[number])
        axes.set_title(str(number), fontsize=7, pad=2)
    return figure


def plot_resolutions(
    method: Literal["ghaar", "psine"], *, size: int = 3, columns: int = 12, seed: int = 0
) -> Figure:
    """Kernels of a method above the finely drawn filters that they sample."""
    sheets = {
        name: filters_at(method, size, columns, seed, fine=fine)
        for name, fine in ((f"{size}x{size}", False), ("finely", True))
    }
    return plot_filters(sheets, columns=columns)


def filters_at(
    method: Literal["ghaar", "psine"], size: int, count: int, seed: int, *, fine: bool = False
) -> Array:
    """The same random filters as kernels of `size`, or at high resolution."""
    points = _FINE if fine else size
    if method == "ghaar":
        steps = np.linspace(0, size - 1, points)
        return mixtures(Draw(seed, ""), count, [steps, steps], "shared")
    places = np.linspace(0, 1, points)
    return polynomials(Draw(seed, ""), count, [places, places])


def plot_psine_steering(*, columns: int = 10, seed: int = 0) -> Figure:
    """Psine filters that steer the full space, ℓ ≥ 2 max(p) + 1, above ones that cannot."""
    sheets = {
        "full: ℓ = 13, p ≤ 6": psine_of(13, 6, columns, seed),
        "full: ℓ = 41, p ≤ 20": psine_of(41, 20, columns, seed),
        "degenerate: ℓ = 1, p ≤ 6": psine_of(1, 6, columns, seed),
        "degenerate: ℓ = 2, p ≤ 20": psine_of(2, 20, columns, seed),
    }
    return plot_filters(sheets, columns=columns)


def plot_ghaar_construction() -> Figure:
    """The Haar filters (2x2) and what GHaar makes of them for 3x3 kernels at f = 1."""
    sheets = {}
    for name, size in (("Haar, 2x2", 2), ("GHaar, 3x3, f = 1", 3), ("GHaar, finely", _FINE)):
        a, b = np.ones(size), np.cos(np.linspace(0, math.pi, size))
        sheets[name] = np.stack([np.outer(b, a), np.outer(a, b), np.outer(b, b)])
    return plot_filters(sheets, columns=3)


def psine_of(terms: int, highest_power: int, count: int, seed: int) -> Array:
    """Psine filters with a given number of terms, the powers spread up to the highest."""
    draw, places = Draw(seed, str(terms)), np.linspace(0, 1, _FINE)
    highest = draw.uniform(count, low=1, high=5)
    total = np.zeros((_FINE, _FINE, count))
    for power in np.linspace(highest_power, 1, terms).round().astype(np.int64):
        total += draw_term(draw, [places, places], np.full(count, power), highest)
    return np.moveaxis(centred(total, "range"), -1, 0)


def _draw(axes: Any, kernel: Array) -> None:
    """One kernel, blue to red about a white zero."""
    limit = 1.15 * max(float(np.abs(kernel).max()), 1e-12)
    axes.imshow(kernel, cmap="RdBu_r", vmin=-limit, vmax=limit)
