"""A frozen convolution keeps nothing for the gradient of its weight.

PyTorch's convolution keeps its input for that gradient, even if nobody wants it. A lean one keeps
the shape alone; the gradient of the input asks for no more. Outputs and gradients are the same.
Where a CPU would do more than is asked for, or crawl, the backward pass is another (`_Backward`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .. import private
from ..layers import PLAIN_CONVOLUTIONS, Convolution
from ..layout import layout_of
from .saved import keep_instead

_PLAIN = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


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
        output = _forget(self, args, output)
    return output


def _forget(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
    if torch.compiler.is_compiling():
        return _as_compiled(layer, args, output)
    node = frozen_convolution(output)
    if node is None:
        return output
    if args and (how := _Backward.of(node, layer, args[0], output)) is not None:
        done = [output.detach()]
        return _Convolution.apply(args[0], layer.weight, layer.bias, done, how)  # type: ignore[no-any-return]
    keep_instead(node, "input", _Shape.of)
    return output


def _as_compiled(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """The same for a compiler, which keeps nothing in vain: a backward pass as it should be.

    There is no graph to ask yet, so it is done for PyTorch's own layers alone, where nobody else
    has a hand in it. The convolution is written once more; the first one is not computed then.
    """
    if not torch.is_grad_enabled() or torch.compiler.is_exporting():
        return output  # there is nothing to go back
    if type(layer) not in _PLAIN or len(args) != 1 or not private.is_left_alone(layer):
        return output
    assert isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d)
    if layer.weight.requires_grad or layer.padding_mode != "zeros":
        return output
    if isinstance(padding := layer.padding, str):
        return output
    low = output.dtype in (torch.bfloat16, torch.float16)
    wide = low and layer.weight.shape[1] == 1 < layer.groups and max(layer.stride) > 1
    batched = args[0].device.type == "cpu" and args[0].dim() == layer.weight.dim()
    if not batched or not (wide or layer.bias is not None):
        return output
    still = (0,) * len(layer.stride)
    how = _Backward(wide, layer.stride, padding, layer.dilation, False, still, layer.groups)
    x = args[0].to(output.dtype)  # as autocast does
    return _Convolution.apply(x, layer.weight, layer.bias, [], how)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Backward:
    """The backward pass of a convolution, where on a CPU oneDNN would do it badly.

    With the gradient of a bias it computes that of the weight, which nobody wants: the sum of a few
    numbers at the price of a convolution. For a depthwise convolution with strides in low precision
    (`wide`) it has nothing but a plain loop: 53 ms where float32 takes 0.4, for 5x5 kernels on 672
    channels of 14 x 14, four images.
    """

    wide: bool
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int

    @classmethod
    def of(cls, node: Any, layer: nn.Module, x: Tensor, output: Tensor) -> _Backward | None:
        """That of a node, if it convolved `x`, computed by another, with a layer's parameters."""
        made, _, (bias, _) = node.next_functions
        low = output.dtype in (torch.bfloat16, torch.float16)
        strided = isinstance(layer, PLAIN_CONVOLUTIONS) and max(layer.stride) > 1 < layer.groups
        if x.device.type != "cpu" or not ((low and strided) or bias is not None):
            return None
        own = dict(layer.named_parameters(recurse=False))
        if "weight" not in own or not private.computes_as(layer, *PLAIN_CONVOLUTIONS):
            return None  # some standardise or scale their weight first
        if bias is not None and _leaf(bias) is not own.get("bias"):
            return None
        if made != (x.grad_fn, x.output_nr) or private.in_transform(x):
            return None
        known = private.saved_values(
            node, "stride", "padding", "dilation", "transposed", "output_padding", "groups"
        )
        if known is None:
            return None
        depthwise = own["weight"].shape[1] == 1 < known[-1] and not known[3]
        wide = low and depthwise and max(known[0]) > 1
        return cls(wide, *known) if wide or bias is not None else None

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        bias = None if bias is None else bias.to(x.dtype)
        return torch.convolution(
            x, weight.to(x.dtype), bias, self.stride, self.padding, self.dilation, self.transposed,
            self.output_padding, self.groups,
        )  # fmt: skip

    def of_input(self, gradient: Tensor, weight: Tensor, x: _Shape) -> Tensor:
        dtype = torch.float32 if self.wide else gradient.dtype
        weight = weight.to(gradient.dtype).to(dtype)  # as the forward pass had it
        found = torch.ops.aten.convolution_backward(
            gradient.to(dtype), replace(x, dtype=dtype).restore(), weight, None,
            self.stride, self.padding, self.dilation, self.transposed, self.output_padding,
            self.groups, (True, False, False),
        )  # fmt: skip
        return found[0].to(x.dtype)  # type: ignore[no-any-return]


def _leaf(node: Any) -> Tensor | None:
    """The parameter that a gradient goes to from a node, straight or through a cast."""
    if node.name().startswith("ToCopy"):
        node = node.next_functions[0][0]
    return getattr(node, "variable", None)


class _Convolution(torch.autograd.Function):
    """A convolution with a backward pass of its own.

    Its name, and the weight's place, say what it is to those who look at the graph (`node_of`).
    If it is done already, its output is handed over in a list: as an input it would be known as a
    view, and an activation in place must not write to a view.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, done: list[Tensor], how: _Backward
    ) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.x, ctx.how, ctx.bias_dtype = _Shape.of(x), how, None if bias is None else bias.dtype
        return done.pop() if done else how.convolve(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        of_x = of_bias = None
        (gradient,), (weight,) = gradients, ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            of_x = ctx.how.of_input(gradient, weight, ctx.x)
        if ctx.needs_input_grad[2]:
            of_bias = gradient.sum((0, *range(2, gradient.dim())), dtype=ctx.bias_dtype)
        return of_x, None, of_bias, None, None


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
        return cls(x.shape, x.dtype, x.device, layout_of(x))

    def restore(self) -> Tensor:
        return torch.empty(
            self.shape, dtype=self.dtype, device=self.device, memory_format=self.format
        )
