"""What is known about a value: the channel each of its elements belongs to, and its constants.

Both are kept compact: an axis along which nothing differs has length one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

NONE = -1  # the label of an element that belongs to no channel that could be cut
WILD = -2  # of a tensor made of one number: as large as whatever it will be joined with


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
                const = unknown(len(self.shape))
                break
        size = self.shape[axis]
        return labels.reshape(-1).expand(size), const.reshape(-1).expand(size)


def unknown(rank: int) -> Tensor:
    """The constants of a value that varies."""
    return torch.full((1,) * rank, torch.nan, dtype=torch.float64)


def plain(shape: tuple[int, ...], label: int = NONE, const: float = torch.nan) -> Value:
    """A value that has no channels, and varies unless a constant is given."""
    ones = (1,) * len(shape)
    return Value(shape, torch.full(ones, label), torch.full(ones, const, dtype=torch.float64))


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


def joined(one: Tensor, other: Tensor) -> Tensor:
    """The labels of elements that belong together: a channel's, where one of the two has one."""
    return torch.where(one >= 0, one, torch.maximum(one, other))
