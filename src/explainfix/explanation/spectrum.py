"""The energy spectrum of a set of kernels, and its reductions: Algorithm "ExplainSteer"."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .basis import Basis

_CHUNK = 16384  # kernels at a time: few enough to stay in the cache


@dataclass(frozen=True)
class Spectrum:
    """How much energy each basis filter contributes to a set of kernels of one shape.

    `ed` has a value per basis filter, low to high frequency; `e1` a tensor per axis with a value
    per 1-D frequency; `e0` a value per frequency, or `None` unless all sides are equal. `e1` is
    empty for a basis that is not made of 1-D vectors.
    """

    ed: Tensor
    e1: tuple[Tensor, ...]
    e0: Tensor | None
    shape: tuple[int, ...]


def spectrum(kernels: Tensor, basis: Basis, weights: Tensor | None = None) -> Spectrum:
    """The spectrum of kernels `(n, *shape)`, each with its weight, 1/n by default.

    e(d) = w |F Bᵀ|, Eq. (5); e(1) and e(0) from its d-th roots, Eqs. (8) and (9).

    >>> from explainfix.explanation.basis import make_basis
    >>> basis = make_basis("dct2", (3, 3), lambda: torch.empty(0, 9))
    >>> spectrum(basis.filters[4:5], basis).ed.round(decimals=6).tolist()
    [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    """
    rows = kernels.flatten(1)
    if not rows.is_floating_point() or rows.dtype in (torch.float16, torch.bfloat16):
        rows = rows.float()
    filters = basis.rows.to(rows)
    ed = torch.zeros(len(filters), dtype=torch.float64, device=rows.device)
    for start in range(0, len(rows), _CHUNK):
        part = slice(start, start + _CHUNK)
        energies = (filters @ rows[part].T).abs_()  # a row per filter: sums run along memory
        ed += energies.sum(1) if weights is None else energies @ weights[part].to(rows)
    return reduced(ed.cpu() / (len(rows) if weights is None else 1), basis)


def filters_needed(
    kernels: Tensor, basis: Basis, weights: Tensor | None = None, share: float = 0.95
) -> int:
    """The fewest filters of the basis that hold that share of the kernels' squares.

    >>> from explainfix.explanation.basis import make_basis
    >>> basis = make_basis("dct2", (3, 3), lambda: torch.empty(0, 9))
    >>> filters_needed(basis.filters[:1] + 0.1 * basis.filters[1:2], basis)
    1
    """
    rows = kernels.flatten(1).double()
    products = rows.T @ (rows if weights is None else rows * weights[:, None].double())
    filters = basis.rows.to(products)
    held = ((filters @ products) * filters).sum(1)
    return fewest(held.sort(descending=True).values, share)


def fewest(held: Tensor, share: float) -> int:
    """How many of these, from the first on, hold that share of the sum.

    >>> fewest(torch.tensor([5.0, 3.0, 1.0, 1.0]), 0.8), fewest(torch.ones(4), 1)
    (2, 4)
    """
    total = held.cumsum(0)
    enough = total >= share * total[-1] * (1 - 1e-12)
    return int(enough.int().argmax()) + 1


def reduced(ed: Tensor, basis: Basis) -> Spectrum:
    """e(d) with its reductions onto the 1-D frequencies."""
    shape = tuple(basis.filters.shape[1:])
    if basis.frequencies is None:
        return Spectrum(ed, (), None, shape)
    roots = ed ** (1 / len(shape))
    indices = torch.tensor(basis.frequencies)
    e1 = tuple(
        torch.zeros(side, dtype=ed.dtype).index_add_(0, indices[:, axis], roots)
        for axis, side in enumerate(shape)
    )
    e0 = torch.stack(e1).mean(0) if len(set(shape)) == 1 else None
    return Spectrum(ed, e1, e0, shape)


def low_frequencies(basis: Basis) -> Tensor:
    """Which basis filters are of low frequency: below half of the highest total frequency.

    Without frequencies (a basis of principal axes), the first third.
    """
    if basis.frequencies is None:
        count = len(basis.filters)
        return torch.arange(count) < max(1, count // 3)
    total = torch.tensor([sum(frequency) for frequency in basis.frequencies])
    return total < total.max() / 2


@dataclass(frozen=True)
class Chance:
    """What kernels of the same norms and weights but random directions would show, 95% of the time.

    `energy` bounds one value of e(d); `low_share` bounds the share of the low frequencies in it.
    """

    energy: tuple[float, float]
    low_share: tuple[float, float]


def chance(kernels: Tensor, basis: Basis, weights: Tensor | None = None) -> Chance:
    """The band of chance for the spectrum of these kernels.

    In any orthonormal basis a coefficient c of a random direction in m dimensions has E|c| =
    Γ(m/2) / (√π Γ((m+1)/2)) and E c² = 1/m. Sums of many are normal; the share is a ratio, bounded
    to first order, in which norms cancel: there |c| varies as if c were normal, by (1 - 2/π)/m.
    """
    rows = kernels.flatten(1).float()
    scale = torch.linalg.vector_norm(rows, dim=1)
    if weights is not None:
        scale *= weights.to(scale)
    size, number = rows.shape[1], len(rows) if weights is None else 1
    usual = math.exp(math.lgamma(size / 2) - math.lgamma((size + 1) / 2)) / math.sqrt(math.pi)
    mean = float(scale.sum(dtype=torch.float64)) / number * usual
    length = float(torch.linalg.vector_norm(scale)) / number
    spread = 1.96 * length * math.sqrt(1 / size - usual**2)
    count, low = len(basis.filters), int(low_frequencies(basis).sum())
    share = low / count
    if mean == 0:
        return Chance((0.0, 0.0), (share, share))
    apart = 1.96 * length * math.sqrt((1 - 2 / math.pi) / size)
    wobble = apart / (mean * count) * math.sqrt(low * (count - low) / count)
    return Chance(
        (max(mean - spread, 0.0), mean + spread),
        (max(share - wobble, 0.0), min(share + wobble, 1.0)),
    )
