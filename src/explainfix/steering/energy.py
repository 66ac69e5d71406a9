"""How much of a layer's kernels each filter of a basis holds, and which filters to keep.

The filters are orthonormal, so that what the kernels lose without one is what it holds (Parseval).
Kernels are `(groups, outputs, inputs, taps)`, a bank of filters `(groups, inputs, m, taps)`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..explanation.basis import make_basis
from ..explanation.spectrum import fewest

# Directions in which the filters of a channel hardly differ are left alone: weights would explode.
_RANK = 1e-3

Order = Literal["energy", "frequency"]


def choose_bank(
    method: str,
    kernels: Tensor,
    shape: tuple[int, ...],
    weights: Tensor | None,
    order: Order,
    filters: int | None,
    energy: float | None,
) -> Tensor:
    """The filters of a basis to keep for a layer: so many, those that hold so much, or all.

    `weights` is how much each kernel counts, `(groups, outputs, inputs)`.
    """
    weighted = kernels if weights is None else kernels * weights[..., None].sqrt()
    bank = _whole_bank(method, weighted, shape)
    if filters is not None and filters > bank.shape[2]:
        size = "x".join(map(str, shape))
        raise ValueError(f"filters={filters}, but {size} kernels have no more than {bank.shape[2]}")
    held = torch.einsum("goit,gimt->goim", weighted, bank).square().sum((0, 1, 2))
    # Of principal axes the strongest comes first; a basis comes from low to high frequency.
    falling = held.argsort(descending=True, stable=True)
    ranks = falling if order == "energy" else torch.arange(len(held))
    if energy is not None:
        filters = fewest(held[ranks], energy)
    return bank[:, :, ranks[:filters].sort().values]


def _whole_bank(method: str, kernels: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A whole basis for every input channel, the same for all, or, of "pca", each its own.

    The principal axes of an input channel's own kernels hold more than those of all kernels of
    the layer could, and cost no more: a filter bank is by channel anyway.
    """
    if method == "pca":
        rows = kernels.transpose(1, 2)
        axes: Tensor = torch.linalg.eigh(rows.mT @ rows).eigenvectors.mT.flip(-2)
        return axes
    rows = make_basis(method, shape, lambda: kernels.flatten(0, 2)).rows.to(kernels)
    return rows.expand(kernels.shape[0], kernels.shape[2], -1, -1)


def fitted_weights(kernels: Tensor, bank: Tensor) -> Tensor:
    """The weights with which any bank comes nearest to the kernels, by least squares."""
    return torch.einsum("goit,gitm->goim", kernels, torch.linalg.pinv(bank, rtol=_RANK))


def kernels_of(weights: Tensor, bank: Tensor) -> Tensor:
    """The kernels that steering weights and filters make."""
    return torch.einsum("goim,gimt->goit", weights, bank)
