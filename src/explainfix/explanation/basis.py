"""Orthonormal bases to look at kernels through, for any kernel shape, low to high frequency."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
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
    """The Haar wavelets: steps. Sides must be powers of two; index 0 is the mean, then scales."""
    if any(side & (side - 1) for side in shape):
        size = "x".join(map(str, shape))
        raise ValueError(
            f"there is no orthonormal Haar basis for {size} kernels: sides must be 2^k"
        )
    scales = [[0, *(int(np.log2(i)) + 1 for i in range(1, side))] for side in shape]
    order = sorted(
        itertools.product(*map(range, shape)),
        key=lambda index: sum(scale[i] for scale, i in zip(scales, index, strict=True)),
    )
    rows = torch.ones(1, 1, dtype=torch.float64)
    for side in shape:
        rows = torch.kron(rows, torch.from_numpy(_haar_vectors(side)))
    raster = [int(np.ravel_multi_index(index, shape)) for index in order]
    return Basis(rows[raster].reshape(-1, *shape), tuple(order))


@bases.register("pca")
def pca(shape: Shape, kernels: Callable[[], Tensor]) -> Basis:
    """The principal axes of the model's own kernels of that shape, the strongest first."""
    rows = kernels().double()
    axes = torch.linalg.eigh(rows.T @ rows).eigenvectors.T.flip(0)
    return Basis(axes.reshape(-1, *shape), None)


def _haar_vectors(size: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    vectors = np.zeros((size, size))
    vectors[0] = 1 / np.sqrt(size)
    for index in range(1, size):
        scale = 2 ** int(np.log2(index))
        width = size // scale
        start = (index - scale) * width
        vectors[index, start : start + width // 2] = np.sqrt(scale / size)
        vectors[index, start + width // 2 : start + width] = -np.sqrt(scale / size)
    return vectors
