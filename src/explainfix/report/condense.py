"""Large kernels on a page of bounded size: groups of basis filters, parts of pictures.

A page holds every basis filter as a picture, so it would grow with the square of the kernel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

_MOST_ROWS = 256  # basis filters shown one by one; more are shown in groups
_GROUPS = 64
_PIXELS = 256  # of a picture
_BASIS_NUMBERS = 66_000  # in pictures of basis filters, over all large shapes
_SAMPLE_NUMBERS = 60_000  # in pictures of kernels, over all layers


@dataclass(frozen=True)
class Condensed:
    """How kernels of one shape are shown."""

    shape: tuple[int, ...]
    groups: list[tuple[int, int]] | None  # first and last basis filter of each row, if grouped
    pixels: Tensor  # which elements of a kernel a picture has
    pictured: tuple[int, ...]  # the shape of that picture

    @staticmethod
    def of(shape: tuple[int, ...], shapes: Collection[tuple[int, ...]]) -> Condensed:
        """How to show a shape on a page that has these shapes.

        >>> Condensed.of((3, 3), [(3, 3)]).note
        ''
        >>> print(Condensed.of((16, 16, 16), [(16, 16, 16)]).note)
        4,096 basis filters in 64 groups; pictures show the middle slice
        """
        size = math.prod(shape)
        groups = None
        if size > _MOST_ROWS:
            edges = [size * i // _GROUPS for i in range(_GROUPS + 1)]
            groups = [(a, b - 1) for a, b in itertools.pairwise(edges)]
        large = sum(math.prod(other) > _GROUPS for other in shapes)
        rows = len(groups or range(size))
        most = max(16, min(_PIXELS, _BASIS_NUMBERS // (rows * max(large, 1))))
        pixels = torch.arange(size).reshape(shape)
        if size > max(most, _GROUPS):
            if len(shape) > 2:
                pixels = pixels[tuple(side // 2 for side in shape[:-2])]
            step = math.ceil((pixels.numel() / most) ** (1 / pixels.dim()))
            pixels = pixels[(slice(None, None, step),) * pixels.dim()]
        return Condensed(shape, groups, pixels.flatten(), tuple(pixels.shape))

    @property
    def note(self) -> str:
        """What is left out, in words; nothing if all is shown."""
        said = []
        if self.groups:
            said.append(f"{math.prod(self.shape):,} basis filters in {len(self.groups)} groups")
        parts = []
        if len(self.pictured) < len(self.shape):
            parts.append("the middle slice")
        if self.pictured != self.shape[-len(self.pictured) :]:
            parts.append("some of the pixels")
        if parts:
            said.append(f"pictures show {', '.join(parts)}")
        return "; ".join(said)

    def picture(self, kernels: Tensor) -> Tensor:
        """Kernels or basis filters `(n, m)` as their pictures have them."""
        return kernels[:, self.pixels]

    def filters(self, rows: Tensor) -> Tensor:
        """The basis filter that stands for each row: its own, or the first of the group."""
        return rows if self.groups is None else rows[[first for first, _ in self.groups]]

    def energies(self, ed: Tensor) -> list[float]:
        """e(d), summed over each group."""
        if self.groups is None:
            return list(ed.tolist())
        return [float(ed[first : last + 1].sum()) for first, last in self.groups]

    @property
    def even(self) -> list[float]:
        """The share of each of `energies` by chance: random kernels have all filters alike."""
        size = math.prod(self.shape)
        if self.groups is None:
            return [1 / size] * size
        return [(last - first + 1) / size for first, last in self.groups]

    def band(self, chance: tuple[float, float]) -> list[float]:
        """The band of chance of one value of `energies`: that of a sum of independent values."""
        count = 1 if self.groups is None else math.prod(self.shape) / len(self.groups)
        middle, spread = sum(chance) / 2, (chance[1] - chance[0]) / 2
        if count == 1:
            return list(chance)
        return [
            max(count * middle - math.sqrt(count) * spread, 0.0),
            count * middle + math.sqrt(count) * spread,
        ]

    def samples(self, layers: int) -> int:
        """How many kernels of a layer fit, in a network of so many layers."""
        return max(2, _SAMPLE_NUMBERS // (len(self.pixels) * layers))
