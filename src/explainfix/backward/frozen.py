"""A frozen convolution keeps nothing for the gradient of its weight.

PyTorch's convolution keeps its input for that gradient, even if nobody wants it. A lean one keeps
the shape alone; the gradient of the input asks for no more. Outputs and gradients are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .. import private
from ..layers import PLAIN_CONVOLUTIONS, Convolution
from .saved import keep_instead


def make_lean(layer: Convolution) -> None:
    """Let a layer keep nothing that only a gradient of a frozen weight would need."""
    # Another operation than a convolution keeps other things.
    if isinstance(layer, PLAIN_CONVOLUTIONS) and not is_lean(layer):
        private.add_hook(layer, _forget_input)


def make_ordinary(layer: Convolution) -> None:
    """Undo `make_lean`."""
    private.remove_hooks(layer, _forget_input)


def is_lean(layer: nn.Module) -> bool:
    """Whether `make_lean` was called."""
    return private.has_hook(layer, _forget_input)


def frozen_convolution(output: Tensor) -> Any:
    """The convolution that made an output, if no gradient goes to its weight.

    The graph is asked, not the parameter: some layers compute their weight from others.
    """
    node = node_of(output, "Convolution")
    return node if node is not None and is_frozen(node) else None


def is_frozen(convolution: Any) -> bool:
    """Whether no gradient goes to the weight of a convolution, by its node of the graph."""
    return convolution.next_functions[1][0] is None


def node_of(tensor: Tensor, kind: str) -> Any:
    """The node of the graph that made a tensor, if it is of that kind."""
    # The compiler decides by itself what to keep; a trace would record what is done here.
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
        return None
    node: Any = tensor.grad_fn
    if node is not None and node.name() == "SqueezeBackward1":  # a single image
        node = node.next_functions[0][0]
    return node if node is not None and kind in node.name() else None


def _forget_input(self: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
    """After a convolution: keep the shape of its input, if its weight is not learned.

    A hook is told its layer and need not hold it, whose end would then wait for the garbage
    collector. TorchScript compiles hooks: this one has the types of an ordinary convolution's
    forward, and nothing to do there.
    """
    if not torch.jit.is_scripting():  # type: ignore[attr-defined]
        _forget(output)


def _forget(output: Tensor) -> None:
    if (node := frozen_convolution(output)) is not None:
        keep_instead(node, "input", _Shape.of)


@dataclass(frozen=True)
class _Shape:
    """Of an input only shape and layout are read, so what it holds does not matter."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    format: torch.memory_format

    own: ClassVar[tuple[Tensor, ...]] = ()

    @classmethod
    def of(cls, x: Tensor) -> _Shape:
        layout = torch.contiguous_format
        for dim, last in ((4, torch.channels_last), (5, torch.channels_last_3d)):
            if x.dim() == dim and not x.is_contiguous() and x.is_contiguous(memory_format=last):
                layout = last
        return cls(x.shape, x.dtype, x.device, layout)

    def restore(self) -> Tensor:
        return torch.empty(
            self.shape, dtype=self.dtype, device=self.device, memory_format=self.format
        )
