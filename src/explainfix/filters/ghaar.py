"""GHaar: random mixtures of generalised Haar filters, cosines of random frequency."""

import itertools
import math
from typing import Literal

import numpy as np

from ..registry import filters
from .exact import Array, Draw, cos_pi

_BLOCK = 2**14  # kernels at a time: what is computed on the way stays in the cache


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
    steps = [np.arange(size, dtype=np.float64) for size in shape[2:]]
    return mixtures(draw, math.prod(shape[:2]), steps, frequencies).reshape(shape)


def mixtures(
    draw: Draw, count: int, steps: list[Array], frequencies: Literal["shared", "independent"]
) -> Array:
    """GHaar filters, evaluated at the given steps along each axis: 0, 1, … m-1 for a kernel.

    Finer steps show the filter that a kernel samples.
    """
    varying = [axis for axis, places in enumerate(steps) if len(places) > 1]
    products = [s for r in range(len(varying)) for s in itertools.combinations(varying, r + 1)]
    weights = draw.uniform(len(products), count, low=-1)
    turns = draw.uniform(1 if frequencies == "shared" else len(products), count)

    total = np.zeros((*map(len, steps), count))  # kernels last: every operation runs along memory
    for start in range(0, count, _BLOCK):
        block = slice(start, start + _BLOCK)
        for number, axes in enumerate(products):
            term = weights[number, block]
            for axis in axes:
                # cos(f·x), f = 2(m-1)·turns and x = linspace(0, π, m) = π·steps/(m-1): m cancels.
                others = [a for a in range(len(steps) + 1) if a != axis]
                places = np.expand_dims(steps[axis], others)
                term = term * cos_pi(2.0 * places * turns[number % len(turns), block])
            total[..., block] += term
    return np.moveaxis(total, -1, 0)
