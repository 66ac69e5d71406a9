"""DCT2: filters of the orthonormal DCT-II basis, each equally often; unsteered."""

import itertools
import math

import numpy as np

from ..registry import filters
from .exact import Array, Draw, cos_pi


def dct_vectors(size: int) -> Array:
    """The 1-D basis s·cos(π/N·k·(x+½)), frequency k per row, `(size, size)`; Eq. (3), mended.

    The paper writes 2π/N, which is not orthonormal; π/N gives SciPy's `dct(norm="ortho")`.
    """
    k, x = np.arange(size)[:, None], np.arange(size)[None, :]
    rows = cos_pi((k * (2 * x + 1)) / (2.0 * size)) * math.sqrt(2 / size)
    rows[0] = math.sqrt(1 / size)
    return rows


def frequency_order(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The frequencies `(k_1, ..., k_d)` of the d-D basis filters, from low to high.

    By total frequency; among equals the one nearest to an axis first, then in raster order.

    >>> [3 * i + j for i, j in frequency_order((3, 3))]
    [0, 1, 3, 2, 6, 4, 5, 7, 8]
    """
    raster = itertools.product(*map(range, shape))
    return sorted(raster, key=lambda k: (sum(k), [-f for f in sorted(k, reverse=True)]))


def dct_basis(shape: tuple[int, ...]) -> Array:
    """The orthonormal DCT-II basis for any kernel shape, low to high frequency, `(m, *shape)`.

    >>> basis = dct_basis((3, 5)).reshape(15, 15)
    >>> bool(np.allclose(basis @ basis.T, np.eye(15)))
    True
    """
    order = np.array(frequency_order(shape))
    basis = np.ones((len(order), *[1] * len(shape)))
    for axis, size in enumerate(shape):
        along_axis = [-1, *[1] * len(shape)]
        along_axis[1 + axis] = size
        basis = basis * dct_vectors(size)[order[:, axis]].reshape(along_axis)
    return basis


@filters.register("dct2")
def dct2(shape: tuple[int, ...], draw: Draw) -> Array:
    """Basis filters in random order, each used equally often (give or take one) in the layer.

    Every run of m = h·w·… kernels, counted along the input channels and then the output channels,
    holds the whole basis once. So a stem with 3 inputs and a depthwise layer cover it as well.

    >>> kernels = dct2((9, 1, 3, 3), Draw(0, "")).reshape(9, 9)
    >>> bool(np.allclose(kernels @ kernels.T, np.eye(9)))  # nine kernels: all nine filters
    True
    """
    count, basis = math.prod(shape[:2]), dct_basis(shape[2:])
    runs = draw.uniform(-(-count // len(basis)), len(basis))
    chosen = np.argsort(runs, axis=1, kind="stable").reshape(-1)[:count]
    return basis[chosen].reshape(shape)
