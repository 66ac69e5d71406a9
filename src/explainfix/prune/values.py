"""What is known about a value: the channel each of its elements belongs to, and its constants.

Both are kept compact: an axis along which nothing differs has length one. What is known about sums
over channels, as convolutions and linear layers make them, is here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..recording.graph import Node

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
        if not labels.numel() or not const.numel():  # nothing is in it, so nothing is known
            return torch.full((size,), NONE), torch.full((size,), torch.nan, dtype=torch.float64)
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


@dataclass
class Mixing:
    """An operation whose every output channel is a weighted sum over input channels.

    `kernels` is `(outputs, inputs of a group, elements)`, with the inputs' constants in `const`.
    """

    node: Node
    outputs: Tensor
    inputs: Tensor
    kernels: Tensor
    groups: int
    const: Tensor
    exact: bool  # it adds a constant everywhere, at the border of the image as well
    weight: str
    bias: str | None

    @cached_property
    def uses(self) -> NDArray[np.bool_]:
        """Which output has a weight for which input of its group, `(groups, outputs, inputs)`.

        In NumPy, which takes `any` of Booleans many times faster.
        """
        single = self.kernels.shape[2] == 1
        size = self.kernels[:, :, 0] if single else self.kernels.abs().sum(2)
        if size.dtype == torch.bfloat16:  # unknown to NumPy
            size = size.float()
        used: NDArray[np.bool_] = size.cpu().numpy() != 0  # zero only if every weight is
        return used.reshape(self.groups, -1, used.shape[1])

    def read_by(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which inputs some of the chosen outputs have a weight for."""
        if self.groups == 1:
            read: NDArray[np.bool_] = self.uses[0][rows].any(0)
            return read
        return (self.uses & rows.reshape(self.groups, -1, 1)).any(1).reshape(-1)

    def reads(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which outputs have a weight for some of the chosen inputs."""
        return (self.uses & chosen.reshape(self.groups, 1, -1)).any(2).reshape(-1)

    def sum_over(self, const: Tensor) -> Tensor:
        """What inputs with these constants add to each output, away from the border."""
        filled = const != 0
        if not filled.any():
            return torch.zeros(len(self.outputs), dtype=torch.float64)
        if self.groups == 1:
            sums = self.kernels[:, filled.to(self.kernels.device)].double().sum(2).cpu()
            return sums @ const[filled]
        sums = self.kernels.double().sum(2).cpu().reshape(self.groups, -1, self.kernels.shape[1])
        return (sums * const.reshape(self.groups, 1, -1)).sum(2).reshape(-1)


@dataclass(frozen=True)
class Grouping:
    """A grouped convolution: groups that are left have equally many inputs and outputs each."""

    weight: str
    transposed: bool
    inputs: Tensor  # labels, (groups, inputs of a group)
    outputs: Tensor  # labels, (groups, outputs of a group)
