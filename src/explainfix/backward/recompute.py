"""Frugal networks keep less for their backward pass, for a little more work in it.

What is cheap to compute again is not kept, and of some activations a mask says enough. Outputs and
gradients are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .. import private
from ..layers import spatial_layers
from .frozen import frozen_convolution, node_of
from .saved import keep_instead

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

# A pointwise convolution that widens this much is computed again: it keeps little and makes much.
WIDER = 4


def make_frugal_(model: nn.Module) -> None:
    """Let a network keep less for its backward pass, for a little more work in it.

    What a pointwise convolution widens `WIDER` times or more before a BatchNorm is computed again
    from what that convolution keeps anyway. A ReLU before a fixed layer, and a ReLU6 anywhere,
    keeps a mask. Outputs and gradients are the same, bit for bit. `undo_frugal_` undoes it.
    """
    undo_frugal_(model)
    for module in model.modules():
        if isinstance(module, _BATCH_NORMS):
            private.add_hook(module, _forget_widened)
        elif isinstance(module, nn.ReLU6):
            private.add_hook(module, _mask_output)
    for layer in spatial_layers(model).values():
        private.add_hook(layer, _mask_input)


def undo_frugal_(model: nn.Module) -> None:
    """Undo `make_frugal_`."""
    for module in model.modules():
        private.remove_hooks(module, _forget_widened, _mask_output, _mask_input)


def _forget_widened(norm: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
    """After a BatchNorm: forget its input, if a pointwise convolution makes it again cheaply."""
    made = node_of(args[0], "Convolution") if args else None
    if made is not None:
        keep_instead(node_of(output, "BatchNorm"), "input", lambda _: _Again.of(made))


def _mask_input(layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
    """After a frozen convolution: nobody keeps its input, so the ReLU before it need not either."""
    if args and frozen_convolution(output) is not None:
        _keep_mask(args[0])


def _mask_output(relu: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
    _keep_mask(output)


def _keep_mask(x: Tensor) -> None:
    """Let the ReLU or ReLU6 that made `x` keep where it let through, not what: a quarter of it."""
    if (node := node_of(x, "Relu")) is not None:
        keep_instead(node, "result", lambda y: _Mask(y > 0, y.dtype))
    node = node_of(x, "Hardtanh")
    if node is not None and private.saved_values(node, "min_val", "max_val") == (0, 6):
        keep_instead(node, "self", lambda y: _Mask((y > 0) & (y < 6), y.dtype))


@dataclass(frozen=True)
class _Mask:
    """Where a ReLU let through: its backward pass asks for no more."""

    where: Tensor
    dtype: torch.dtype

    @property
    def own(self) -> tuple[Tensor, ...]:
        return (self.where,)

    def restore(self) -> Tensor:
        return self.where.to(self.dtype)


@dataclass(frozen=True)
class _Again:
    """A convolution to be done again, from what it keeps itself."""

    x: Tensor
    weight: Tensor
    settings: tuple[Any, Any, Any]  # stride, padding, dilation

    own: ClassVar[tuple[Tensor, ...]] = ()

    @classmethod
    def of(cls, made: Any) -> _Again | None:
        """The convolution of a node, if it is pointwise, without bias, and widens much."""
        values = private.saved_values(
            made, "input", "weight", "transposed", "groups", "bias_sym_sizes_opt",
            "stride", "padding", "dilation",
        )  # fmt: skip
        if values is None:
            return None
        x, weight, transposed, groups, bias, stride, padding, dilation = values
        if x is None or weight is None or transposed or groups != 1:
            return None
        if any(bias or ()):  # a bias is not kept: it cannot be added
            return None
        if weight[0, 0].numel() > 1 or len(weight) < WIDER * weight.shape[1]:
            return None
        return cls(x.detach(), weight.detach(), (stride, padding, dilation))

    def restore(self) -> Tensor:
        still = (0,) * len(self.settings[0])
        with torch.no_grad():
            return torch.convolution(self.x, self.weight, None, *self.settings, False, still, 1)
