"""GHaar: random mixtures of generalised Haar filters, cosines of random frequency."""

import itertools
import math
from typing import Literal

import numpy as np

from ..registry import filters
from .exact import Array, Draw, cos_pi


@filters.register("ghaar")
def ghaar(
    shape: tuple[int, ...],
    draw: Draw,
    *,
    frequencies: Literal["shared", "independent"] = "shared",
) -> Array:
    """h·baᵀ + v·abᵀ + d·bbᵀ with a = 1, b = cos(f·linspace(0, π, m)), h, v, d ~ U(-1, 1).

    In more dimensions, one product for every choice of axes along which the filter varies (1 in
    1-D, 3 in 2-D, 7 in 3-D); an axis of length one does not vary. The frequency f ~ U[0, 2(m-1)]
    is one per kernel, which the paper's results were made with, or one per product, as its text
    reads ("independent").

    >>> ghaar((64, 32, 5, 5), Draw(0, "stem")).shape
    (64, 32, 5, 5)
    """
    count, kernel = math.prod(shape[:2]), shape[2:]
    varying = [axis for axis, size in enumerate(kernel) if size > 1]
    products = [s for r in range(len(varying)) for s in itertools.combinations(varying, r + 1)]
    weights = draw.uniform(len(products), count, low=-1)
    turns = draw.uniform(1 if frequencies == "shared" else len(products), count)

    total = np.zeros((*kernel, count))  # kernels last: every operation runs along memory
    for number, axes in enumerate(products):
        term = weights[number]
        for axis in axes:
            term = term * _cosine(turns[number % len(turns)], axis, kernel)
        total += term
    return np.moveaxis(total, -1, 0).reshape(shape)


def _cosine(turns: Array, axis: int, kernel: tuple[int, ...]) -> Array:
    """cos(f·x) along one axis, with f = 2(m-1)·turns and x = linspace(0, π, m): m cancels."""
    steps = np.arange(kernel[axis]).reshape([-1 if a == axis else 1 for a in range(len(kernel))])
    return cos_pi(2.0 * steps[..., None] * turns)
