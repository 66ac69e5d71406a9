"""What is known about a value: the channel each of its elements belongs to, and its constants.

Both are kept compact: an axis along which nothing differs has length one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

NONE = -1  # the label of an element that belongs to no channel that could be cut


@dataclass(frozen=True)
class Value:
    """`labels` numbers the channel of each element; `const` has its value, or NaN if that varies.

    `parameter` is the name of the raw parameter or buffer that this is, `turned` if transposed.
    """

    shape: tuple[int, ...]
    labels: Tensor
    const: Tensor
    parameter: str | None = None
    turned: bool = False

    def along(self, axis: int) -> tuple[Tensor, Tensor] | None:
        """The labels and constants along one axis, or `None` if they differ along others too."""
        axis %= len(self.shape)
        labels, const = self.labels, self.const
        for other in range(len(self.shape)):
            if other != axis and (labels.shape[other] > 1):
                return None
        for other in range(len(self.shape)):
            if other != axis and const.shape[other] > 1:
                const = torch.full((1,) * len(self.shape), torch.nan, dtype=torch.float64)
                break
        size = self.shape[axis]
        return labels.reshape(-1).expand(size), const.reshape(-1).expand(size)


def plain(shape: tuple[int, ...]) -> Value:
    """A value that varies and has no channels."""
    ones = (1,) * len(shape)
    return Value(shape, torch.full(ones, NONE), torch.full(ones, torch.nan, dtype=torch.float64))


def channels(shape: tuple[int, ...], axis: int, labels: Tensor, const: Tensor) -> Value:
    """A value with the given labels and constants along one axis."""
    layout = [1] * len(shape)
    layout[axis] = -1
    return Value(shape, labels.reshape(layout), const.reshape(layout))


def compact(full: Tensor) -> Tensor:
    """The same with length one along every axis along which nothing differs."""
    for axis in range(full.dim()):
        if full.shape[axis] > 1:
            first = full.narrow(axis, 0, 1)
            same = full == first
            if full.is_floating_point():
                same |= full.isnan() & first.isnan()
            if bool(same.all()):
                full = first
    return full


def widened(tensor: Tensor, shape: tuple[int, ...], axes: set[int]) -> Tensor:
    """Expanded to its whole length along some axes."""
    return tensor.expand([shape[a] if a in axes else tensor.shape[a] for a in range(len(shape))])
