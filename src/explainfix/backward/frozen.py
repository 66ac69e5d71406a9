"""A frozen convolution keeps nothing for the gradient of its weight.

PyTorch's convolution keeps its input for that gradient, even if nobody wants it. A lean one keeps
the shape alone; the gradient of the input asks for no more. Outputs and gradients are the same.
One that is depthwise with strides computes that gradient in float32 where it would crawl otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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


def _forget_input(self: nn.Module, args: tuple[Tensor], output: Tensor) -> Tensor:
    """After a convolution: keep the shape of its input, if its weight is not learned.

    A hook is told its layer and need not hold it, whose end would then wait for the garbage
    collector. TorchScript compiles hooks: this one has the types of an ordinary convolution's
    forward, and nothing to do there.
    """
    if not torch.jit.is_scripting():  # type: ignore[attr-defined]
        output = _forget(args, output)
    return output


def _forget(args: tuple[Tensor, ...], output: Tensor) -> Tensor:
    node = frozen_convolution(output)
    if node is None:
        return output
    if args and (how := _Crawling.of(node, args[0], output)) is not None:
        return _WideConvolution.apply(args[0], output.detach(), how)  # type: ignore[no-any-return]
    keep_instead(node, "input", _Shape.of)
    return output


@dataclass(frozen=True)
class _Crawling:
    """A depthwise convolution with strides, in low precision, on a CPU.

    For its backward pass oneDNN has no kernel but a plain loop: 53 ms where float32 takes 0.4, for
    5x5 kernels on 672 channels of 14 x 14, four images.
    """

    weight: Tensor
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @classmethod
    def of(cls, node: Any, x: Tensor, output: Tensor) -> _Crawling | None:
        """The convolution of a node, if it is one and read `x`, computed by another, as it is."""
        if x.device.type != "cpu" or output.dtype not in (torch.bfloat16, torch.float16):
            return None
        made, _, (bias, _) = node.next_functions
        known = private.saved_values(
            node, "transposed", "weight", "stride", "padding", "dilation", "groups"
        )
        if known is None or known[0] or made != (x.grad_fn, x.output_nr) or bias is not None:
            return None
        found = cls(*known[1:])
        depthwise = found.weight.shape[1] == 1 < found.groups
        return found if depthwise and max(found.stride) > 1 else None


class _WideConvolution(torch.autograd.Function):
    """A convolution that is done already, with its backward pass in float32.

    Its name says what it is to those who look at the graph (`node_of`).
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, output: Tensor, how: _Crawling) -> Tensor:
        return output.view_as(output)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.x, ctx.how = _Shape.of(inputs[0]), inputs[2]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        how, x = ctx.how, replace(ctx.x, dtype=torch.float32).restore()
        found = torch.ops.aten.convolution_backward(
            gradients[0].float(), x, how.weight.float(), None, how.stride, how.padding,
            how.dilation, False, (0,) * len(how.stride), how.groups, (True, False, False),
        )  # fmt: skip
        return found[0].to(ctx.x.dtype), None, None


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
