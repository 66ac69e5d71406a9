"""Sums over channels: what convolutions and linear layers do, and which weights are zero."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .graph import Node


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
        if not bool(filled.any()):
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
