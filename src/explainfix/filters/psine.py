"""Psine: random polynomials of sinusoids, centred in their range, with unit norm."""

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..registry import filters
from .exact import Array, Draw, cos_pi, ordered_sum

Integers = NDArray[np.int64]
Centre = Literal["range", "mean", "none"]

# Kernels made at a time, the fastest of a few sizes. Part of the recipe: another size, other bits.
_BLOCK = 32768


@filters.register("psine")
def psine(shape: tuple[int, ...], draw: Draw, *, centre: Centre = "range") -> Array:
    """Σᵢ wᵢ (g(xᵢ) g(yᵢ)ᵀ)^pᵢ for i = 1…ℓ, element-wise powers, then centred, with unit norm.

    g(x) = cos(f·linspace(0, π, m) + φ) with its own f ~ U[0, F] and φ ~ U[0, 2π] per term and axis;
    F ~ U[1, 5] per kernel; w ~ U(-1, 1); ℓ and p from `draw_lengths` and `draw_powers`.

    We read the paper's f ∈ U[1, 5] as the highest frequency of a kernel, and give the sinusoid a
    phase. Read as each term's frequency, 5x5 kernels would favour high frequencies (the paper says
    low), and without a phase every power of cos(0) is one, which piles the weight into a corner.

    `centre` is what is taken off each kernel: the middle of its range, (max + min)/2, as in the
    code that the paper's results were made with, which leaves 7% of the energy in the mean; or the
    "mean", as the text reads; or nothing ("none", which leaves 24%). Kernels without a mean pass no
    brightness on, and a network of nothing else sees only changes.

    >>> kernels = psine((64, 32, 3, 3), Draw(0, "stem")).reshape(-1, 9)
    >>> middle = (kernels.max(1) + kernels.min(1)) / 2
    >>> bool(abs(middle).max() < 1e-12), bool(abs((kernels**2).sum(1) - 1).max() < 1e-12)
    (True, True)
    """
    points = [np.arange(size) / max(size - 1, 1) for size in shape[2:]]
    count = math.prod(shape[:2])
    return polynomials(draw, count, points, centre).reshape(shape)


def polynomials(draw: Draw, count: int, points: list[Array], centre: Centre = "range") -> Array:
    """Psine filters, evaluated at the given points along each axis, from 0 to 1.

    More points show the filter that a kernel samples.
    """
    kernel = tuple(map(len, points))
    made = np.empty((count, *kernel))
    for start in range(0, count, _BLOCK):
        lengths = draw_lengths(draw, min(_BLOCK, count - start))
        falling = np.argsort(-lengths, kind="stable")
        highest = draw.uniform(len(lengths), low=1, high=5)
        block = np.zeros((*kernel, len(lengths)))
        for term in range(int(lengths.max())):
            # Sorted by length: the kernels that have this term are the first ones.
            active = lengths[falling[: np.count_nonzero(lengths > term)]]
            powers = draw_powers(draw, term, active)
            block[..., : len(active)] += draw_term(draw, points, powers, highest[: len(active)])
        made[start + falling] = np.moveaxis(centred(block, centre), -1, 0)
    return made


def draw_lengths(draw: Draw, count: int) -> Integers:
    """The number of terms ℓ of each kernel: 4 + ⌊2^(6u)⌋, so 5 to 67, log-uniform."""
    powers_of_two = np.log2(np.arange(1, 64)) / 6
    return 4 + np.searchsorted(powers_of_two, draw.uniform(count), side="right")


def draw_powers(draw: Draw, term: int, lengths: Integers) -> Integers:
    """The power p of one term in kernels of `lengths` terms: 1, 2, then uniform in 1…⌊(ℓ-1)/2⌋.

    So p always holds an odd and an even number, and ℓ ≥ 2 max(p) + 1: the full space is steered.
    """
    if term < 2:
        return np.full(len(lengths), 1 + term)
    highest = (lengths - 1) // 2
    return 1 + np.floor(draw.uniform(len(lengths)) * highest).astype(np.int64)


def draw_term(draw: Draw, points: list[Array], powers: Integers, highest: Array) -> Array:
    """w (g(x) g(y)ᵀ)^p, that is w·g(x)^p ⊗ g(y)^p, for n kernels: `(*kernel, n)`."""
    term = draw.uniform(len(powers), low=-1)
    for axis, places in enumerate(points):
        if len(places) > 1:
            frequency = draw.uniform(len(powers)) * highest
            phase = draw.uniform(len(powers), high=2)
            wave = _power(cos_pi(places[:, None] * frequency + phase), powers)
            along_axis = [-1 if a == axis else 1 for a in range(len(points))]
            term = term * wave.reshape(*along_axis, len(powers))
    return term


def _power(base: Array, exponents: Integers) -> Array:
    """base^exponents by repeated squaring: the same bits everywhere."""
    result = np.ones_like(base)
    while exponents.any():
        result *= np.where(exponents & 1, base, 1.0)
        base, exponents = base * base, exponents >> 1
    return result


def centred(kernels: Array, centre: Centre) -> Array:
    """Kernels `(*shape, n)` about their centre, each with unit norm."""
    rows = kernels.reshape(-1, kernels.shape[-1])
    if centre == "range":
        rows = rows - (rows.max(axis=0) + rows.min(axis=0)) / 2
    elif centre == "mean":
        rows = rows - ordered_sum(rows) / len(rows)
    return (rows / np.sqrt(ordered_sum(rows * rows))).reshape(kernels.shape)
