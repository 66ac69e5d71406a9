"""Masterkeys: the few filters that depthwise networks learn, as discrete Gaussian derivatives."""

import itertools
import math
from typing import Literal

import numpy as np

from ..registry import filters
from .exact import Array, Draw, ordered_sum

# t of the discrete Gaussian, its variance. Medium comes nearest to trained depthwise 3x3 filters.
WIDTHS = {"fine": 0.375, "medium": 0.75, "coarse": 1.5}
_TERMS = 25  # of the Bessel functions' series: the last is below 2^-53 of the first for t < 2


@filters.register("masterkeys")
def masterkeys(
    shape: tuple[int, ...],
    draw: Draw,
    *,
    width: Literal["medium", "fine", "coarse"] = "medium",
) -> Array:
    """Filters of `master_keys`, each equally often (give or take one), of either sign, unit norm.

    Trained depthwise networks come down to eight filters, up to a factor and a constant (Babaiee et
    al., arXiv 2412.16751 and 2509.11711), which are modelled well by differences of the discrete
    Gaussian (Lindeberg et al., arXiv 2509.12746). We take the model, not the eight arrays that were
    found: those are 7x7, of several widths, and some lie half a step off the centre. Constants are
    left out, and all filters count the same, whatever trained networks use most.

    >>> kernels = masterkeys((8, 1, 3, 3), Draw(0, "stem")).reshape(8, 9)
    >>> bool(np.allclose((kernels**2).sum(1), 1)), len(master_keys((3, 3), 0.75))
    (True, 8)
    """
    count, keys = math.prod(shape[:2]), master_keys(shape[2:], WIDTHS[width])
    runs = draw.uniform(-(-count // len(keys)), len(keys))
    chosen = np.argsort(runs, axis=1, kind="stable").reshape(-1)[:count]
    signs = np.where(draw.uniform(count) < 0.5, -1.0, 1.0)
    return (keys[chosen].reshape(count, -1) * signs[:, None]).reshape(shape)


def master_keys(sides: tuple[int, ...], variance: float) -> Array:
    """The filters for a kernel shape, `(n, *sides)`, each of unit norm.

    Smoothing: L, the discrete Gaussian. Edges and bars: its first and its second difference along
    each axis. Corners: the mixed difference of each two axes. Spots: ∇²L, the sum of the second
    ones. Sharpening: L - ∇²L/2. That is 8 in 2-D, 4 in 1-D, where spots are bars, and 12 in 3-D. An
    axis of length one does not count, and one of two has no second difference.
    """
    lines = [differences(side, variance) for side in sides]
    edges = [axis for axis, side in enumerate(sides) if side > 1]
    bars = [axis for axis, side in enumerate(sides) if side > 2]
    orders = [{axis: 1} for axis in edges] + [{axis: 2} for axis in bars]
    orders += [{one: 1, other: 1} for one, other in itertools.combinations(edges, 2)]
    smoothed, keys = _product(lines, {}), [_product(lines, order) for order in orders]
    if bars:
        spots = ordered_sum(_product(lines, {axis: 2}) for axis in bars)
        keys += [spots] if len(bars) > 1 else []
        keys.append(smoothed - 0.5 * spots)
    rows = np.stack([smoothed, *keys]).reshape(1 + len(keys), -1)
    return (rows / np.sqrt(ordered_sum((rows * rows).T))[:, None]).reshape(-1, *sides)


def differences(side: int, variance: float) -> Array:
    """The discrete Gaussian along an axis, its first and its second difference, `(3, side)`.

    Up to a common factor. Differences are central: T(x+1) - T(x-1) over two. An even side has its
    centre between two weights: there T is the mean of its neighbours, and the difference theirs.
    """
    if side == 1:
        return np.array([[1.0], [0.0], [0.0]])
    gaussian = discrete_gaussian(side // 2 + 2, variance)
    line = np.concatenate([gaussian[:0:-1], gaussian])
    if side % 2:
        middle, first = line[1:-1], (line[2:] - line[:-2]) * 0.5
        second = line[2:] - 2.0 * middle + line[:-2]
    else:
        halves = (line[1:] + line[:-1]) * 0.5
        middle, first = halves[1:-1], (line[1:] - line[:-1])[1:-1]
        second = halves[2:] - 2.0 * middle + halves[:-2]
    return np.stack([middle, first, second])


def discrete_gaussian(count: int, variance: float) -> Array:
    """T(n, t) = I_n(t), n = 0 … count-1, but for the factor e^-t; I_n by its power series.

    >>> discrete_gaussian(2, 1.0).round(4).tolist()
    [1.2661, 0.5652]
    """
    n = np.arange(count, dtype=np.float64)
    half = variance / 2
    term = np.ones(count)
    for k in range(1, count):  # (t/2)^n / n!
        term = np.where(n >= k, term * half / k, term)
    terms = [term]
    for k in range(1, _TERMS):
        term = term * (half * half) / (k * (n + k))
        terms.append(term)
    return ordered_sum(terms)


def _product(lines: list[Array], orders: dict[int, int]) -> Array:
    """The outer product of one line per axis: differences of the orders given, else smoothing."""
    product = np.ones([1] * len(lines))
    for axis, line in enumerate(lines):
        along_axis = [-1 if a == axis else 1 for a in range(len(lines))]
        product = product * line[orders.get(axis, 0)].reshape(along_axis)
    return product
