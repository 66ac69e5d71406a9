"""Orthonormal bases to look at kernels through, for any kernel shape, low to high frequency."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..filters.dct2 import dct_basis, frequency_order
from ..registry import bases

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Basis:
    """An orthonormal basis for kernels of one shape.

    `filters` is `(m, *shape)`. Where each filter is a product of 1-D vectors, `frequencies` tells
    which: one index per axis, the order of the vector in its 1-D basis.
    """

    filters: Tensor
    frequencies: tuple[tuple[int, ...], ...] | None

    @property
    def rows(self) -> Tensor:
        """The filters, flattened: B of the paper, `(m, m)`."""
        return self.filters.flatten(1)


def make_basis(name: str, shape: Shape, kernels: Callable[[], Tensor]) -> Basis:
    """The basis of that name for a kernel shape; `kernels()` gives the model's own, `(n, m)`.

    >>> make_basis("dct2", (3, 3), lambda: torch.empty(0, 9)).filters.shape
    torch.Size([9, 3, 3])
    """
    basis: Basis = bases.find(name)(shape, kernels)
    return basis


@bases.register("dct2")
def dct2(shape: Shape, kernels: Callable[[], Tensor]) -> Basis:
    """The DCT-II: cosines, in the paper's order."""
    return Basis(torch.from_numpy(dct_basis(shape)), tuple(frequency_order(shape)))


@bases.register("haar")
def haar(shape: Shape, kernels: Callable[[], Tensor]) -> Basis:
    """The Haar wavelets: steps. Index 0 is the mean, then from coarse to fine.

    Where a side is no power of two, halves are as equal as they can be, and steps have unequal
    heights so that the basis is still orthonormal.
    """
    vectors, scales = zip(*map(_haar_vectors, shape), strict=True)
    order = sorted(
        itertools.product(*map(range, shape)),
        key=lambda index: sum(scale[i] for scale, i in zip(scales, index, strict=True)),
    )
    rows = torch.ones(1, 1, dtype=torch.float64)
    for along in vectors:
        rows = torch.kron(rows, torch.from_numpy(along))
    raster = [int(np.ravel_multi_index(index, shape)) for index in order]
    return Basis(rows[raster].reshape(-1, *shape), tuple(order))


@bases.register("pca")
def pca(shape: Shape, kernels: Callable[[], Tensor]) -> Basis:
    """The principal axes of the model's own kernels of that shape, the strongest first."""
    rows = kernels().double()
    axes = torch.linalg.eigh(rows.T @ rows).eigenvectors.T.flip(0)
    return Basis(axes.reshape(-1, *shape), None)


def _haar_vectors(size: int) -> tuple[NDArray[np.float64], list[int]]:
    """The 1-D basis, a vector per row, and how often each one's interval was halved before."""
    vectors, scales = [np.full(size, 1 / np.sqrt(size))], [0]
    intervals = [(0, size, 1)]
    for start, length, scale in intervals:  # which grows meanwhile: coarse ones come first
        if length > 1:
            left, right = length - length // 2, length // 2
            vector = np.zeros(size)
            vector[start : start + left] = np.sqrt(right / (left * length))
            vector[start + left : start + length] = -np.sqrt(left / (right * length))
            vectors.append(vector)
            scales.append(scale)
            intervals += [(start, left, scale + 1), (start + left, right, scale + 1)]
    return np.stack(vectors), scales
