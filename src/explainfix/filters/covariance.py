"""Covariance: normal kernels whose weights vary together as those of trained filters do."""

import math
from typing import Literal

import numpy as np

from ..registry import filters
from .exact import Array, Draw, exp, ordered_product, ordered_sum

# The variance of the Gaussians, per weight along an axis, that comes nearest to the depthwise
# filters of the first, middle and last third of a MobileNetV2 trained on ImageNet.
VARIANCES = {"early": 0.2, "middle": 0.3, "late": 0.5}
_ROUNDING = 2.0**-48  # of the largest variance: so little is no variance


@filters.register("covariance")
def covariance(
    shape: tuple[int, ...],
    draw: Draw,
    *,
    depth: Literal["middle", "early", "late"] = "middle",
) -> Array:
    """Normal kernels of zero mean and covariance Σ(p, q) ∝ g(p) g(q) g(p - q), trace one.

    g(x) = exp(-|x|²/2σ²): weights vary most at the centre of a kernel, and the nearer two are, the
    more alike. σ² = v·m along an axis of m weights, with v from `VARIANCES`: trained filters are
    wider the deeper their layer lies. A layer does not know its depth here, so it is an option,
    for all layers that a call fixes.

    The idea is that of Trockman, Willmott and Kolter (arXiv 2210.03651): a covariance in closed
    form, wider with depth, for large depthwise kernels. The formula is ours, not theirs: a product
    of Gaussians is a covariance for every shape and width, with nothing to clip, and it falls into
    one factor per axis, so that any number of axes works, and kernels of any sides.

    >>> kernels = covariance((64, 32, 5, 5), Draw(0, "stem"))
    >>> bool(abs((kernels**2).sum((2, 3)).mean() - 1) < 0.05)
    True
    """
    sides = shape[2:]
    kernels = draw.normal(*sides, math.prod(shape[:2]))  # kernels last: along memory
    for axis, side in enumerate(sides):
        root = cholesky(axis_covariance(side, VARIANCES[depth]))
        kernels = np.moveaxis(ordered_product(root, np.moveaxis(kernels, axis, 0)), 0, axis)
    return np.ascontiguousarray(np.moveaxis(kernels, -1, 0)).reshape(shape)


def axis_covariance(side: int, variance: float) -> Array:
    """The factor of Σ along an axis, `(side, side)`, trace one.

    >>> axis_covariance(1, 0.3).tolist()
    [[1.0]]
    """
    x = np.arange(side) - (side - 1) / 2
    p, q = x[:, None], x[None, :]
    factor = exp((p * p + q * q + (p - q) * (p - q)) / (-2.0 * variance * side))
    return factor / ordered_sum(np.diag(factor))


def cholesky(matrix: Array) -> Array:
    """L with LLᵀ = matrix, in one order of operations, by columns that tell the most first.

    What only rounding would fill is zero: the weights of a wide Gaussian depend on each other.

    >>> cholesky(np.array([[1.0, 2.0], [2.0, 4.0]])).tolist()
    [[1.0, 0.0], [2.0, 0.0]]
    """
    rest, root = matrix.copy(), np.zeros_like(matrix)
    for column in range(len(matrix)):
        pivot = int(np.argmax(np.diag(rest)))
        if rest[pivot, pivot] <= _ROUNDING * matrix.max():
            break
        root[:, column] = rest[:, pivot] / np.sqrt(rest[pivot, pivot])
        rest -= root[:, column, None] * root[None, :, column]
    return root
