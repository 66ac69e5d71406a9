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

Order = Literal["mean", "energy", "frequency"]


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

    `weights` is how much each kernel counts, `(groups, outputs, inputs)`. By "mean" the constant
    filter comes first, whatever it holds: images and activations are smooth, so that outputs hang
    on the means of kernels more than on anything else.
    """
    weighted = kernels if weights is None else kernels * weights[..., None].sqrt()
    bank = _whole_bank(method, weighted, shape, order)
    if filters is not None and filters > bank.shape[2]:
        size = "x".join(map(str, shape))
        raise ValueError(f"filters={filters}, but {size} kernels have no more than {bank.shape[2]}")
    held = true = torch.einsum("goit,gimt->goim", weighted, bank).square().sum((0, 1, 2))
    ranks = torch.arange(len(held))  # a basis comes from low to high frequency
    if order != "frequency":
        if order == "mean":
            held = held + (ranks == 0) * held.sum()
        ranks = held.argsort(descending=True, stable=True)
    if energy is not None:
        filters = fewest(true[ranks], energy)
    return bank[:, :, ranks[:filters].sort().values]


def _whole_bank(method: str, kernels: Tensor, shape: tuple[int, ...], order: Order) -> Tensor:
    """A whole basis for every input channel, the same for all, or, of "pca", each its own.

    The principal axes of an input channel's own kernels hold more than those of all kernels of
    the layer could, and cost no more: a filter bank is by channel anyway.
    """
    if method != "pca":
        rows = make_basis(method, shape, lambda: kernels.flatten(0, 2)).rows.to(kernels)
        return rows.expand(kernels.shape[0], kernels.shape[2], -1, -1)
    if order == "frequency":
        raise ValueError("principal axes have no frequency: choose order='mean' or 'energy'")
    by_input = kernels.transpose(1, 2)
    products = by_input.mT @ by_input
    if order == "mean":  # the constant filter is the strongest axis, the others are of the rest
        trace = products.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
        strongest = torch.where(trace > 0, 2 * trace, 1)
        products = products - _smoothed(products) + strongest / kernels.shape[-1]
    axes: Tensor = torch.linalg.eigh(products).eigenvectors.mT.flip(-2)
    return axes


def _smoothed(products: Tensor) -> Tensor:
    """The part of a quadratic form that the constant filter has to do with."""
    rows, columns = products.mean(-1, keepdim=True), products.mean(-2, keepdim=True)
    return rows + columns - rows.mean(-2, keepdim=True)


def fitted_weights(kernels: Tensor, bank: Tensor) -> Tensor:
    """The weights with which any bank comes nearest to the kernels, by least squares."""
    return torch.einsum("goit,gitm->goim", kernels, torch.linalg.pinv(bank, rtol=_RANK))


def kernels_of(weights: Tensor, bank: Tensor) -> Tensor:
    """The kernels that steering weights and filters make."""
    return torch.einsum("goim,gimt->goit", weights, bank)
