"""Networks that keep less for their backward pass, with the same outputs and gradients.

PyTorch's convolution keeps its input for the gradient of its weight, even if the weight is frozen.
A lean one keeps the shape alone; the gradient of the input asks for no more. A frugal network goes
further, for a little more work: what is cheap to compute again is not kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ..layers import Convolution, spatial_layers
from .saved import keep_instead

# A pointwise convolution that widens this much is computed again: it keeps little and makes much.
WIDER = 4


def make_lean(layer: Convolution) -> None:
    """Let a layer keep nothing that only a gradient of a frozen weight would need."""
    if is_lean(layer) or not isinstance(layer, _ConvNd):  # another operation keeps other things
        return
    layer.register_forward_hook(_forget_input)


def make_ordinary(layer: Convolution) -> None:
    """Undo `make_lean`."""
    _remove_hooks(layer, _forget_input)


def is_lean(layer: nn.Module) -> bool:
    """Whether `make_lean` was called."""
    return _forget_input in layer._forward_hooks.values()


def make_frugal_(model: nn.Module) -> None:
    """Let a network keep less for its backward pass, for a little more work in it.

    What a pointwise convolution widens `WIDER` times or more before a BatchNorm is computed again
    from what that convolution keeps anyway. A ReLU before a fixed layer, and a ReLU6 anywhere,
    keeps a mask. Outputs and gradients are the same, bit for bit. `make_lavish_` undoes it.
    """
    make_lavish_(model)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.register_forward_hook(_forget_widened)
        elif isinstance(module, nn.ReLU6):
            module.register_forward_hook(_mask_output)
    for layer in spatial_layers(model).values():
        layer.register_forward_hook(_mask_input)


def make_lavish_(model: nn.Module) -> None:
    """Undo `make_frugal_`."""
    for module in model.modules():
        _remove_hooks(module, _forget_widened, _mask_output, _mask_input)


def _remove_hooks(module: nn.Module, *ours: Any) -> None:
    hooks = module._forward_hooks
    for key in [key for key, hook in hooks.items() if hook in ours]:
        del hooks[key]


def _forget_input(self: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
    """After a convolution: keep the shape of its input, if its weight is not learned.

    A hook is told its layer and need not hold it, whose end would then wait for the garbage
    collector. TorchScript compiles hooks: this one has the types of an ordinary convolution's
    forward, and nothing to do there.
    """
    if not torch.jit.is_scripting():  # type: ignore[attr-defined]
        _forget(output)


def _forget(output: Tensor) -> None:
    if (node := _frozen(output)) is not None:
        keep_instead(node, "input", _Shape.of)


def _forget_widened(norm: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
    """After a BatchNorm: forget its input, if a pointwise convolution makes it again cheaply."""
    made = _node_of(args[0], "Convolution") if args else None
    if made is not None:
        keep_instead(_node_of(output, "BatchNorm"), "input", lambda _: _Again.of(made))


def _mask_input(layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
    """After a frozen convolution: nobody keeps its input, so the ReLU before it need not either."""
    if args and _frozen(output) is not None:
        _keep_mask(args[0])


def _mask_output(relu: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
    _keep_mask(output)


def _keep_mask(x: Tensor) -> None:
    """Let the ReLU or ReLU6 that made `x` keep where it let through, not what: a quarter of it."""
    if (node := _node_of(x, "Relu")) is not None:
        keep_instead(node, "result", lambda y: _Mask(y > 0, y.dtype))
    node = _node_of(x, "Hardtanh")
    if node is not None and (node._saved_min_val, node._saved_max_val) == (0, 6):
        keep_instead(node, "self", lambda y: _Mask((y > 0) & (y < 6), y.dtype))


def _frozen(output: Tensor) -> Any:
    """The convolution that made an output, if no gradient goes to its weight.

    The graph is asked, not the parameter: some layers compute their weight from others.
    """
    node = _node_of(output, "Convolution")
    return node if node is not None and node.next_functions[1][0] is None else None


def _node_of(tensor: Tensor, kind: str) -> Any:
    """The node of the graph that made a tensor, if it is of that kind."""
    # The compiler decides by itself what to keep; a trace would record what is done here.
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
        return None
    node: Any = tensor.grad_fn
    if node is not None and node.name() == "SqueezeBackward1":  # a single image
        node = node.next_functions[0][0]
    return node if node is not None and kind in node.name() else None


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
    settings: tuple[Any, Any, Any]

    own: ClassVar[tuple[Tensor, ...]] = ()

    @classmethod
    def of(cls, made: Any) -> _Again | None:
        """The convolution of a node, if it is pointwise, without bias, and widens much."""
        x, weight = made._saved_input, made._saved_weight
        if x is None or weight is None or made._saved_transposed or made._saved_groups != 1:
            return None
        if any(made._saved_bias_sym_sizes_opt or ()):  # a bias is not kept: it cannot be added
            return None
        if weight[0, 0].numel() > 1 or len(weight) < WIDER * weight.shape[1]:
            return None
        settings = (made._saved_stride, made._saved_padding, made._saved_dilation)
        return cls(x.detach(), weight.detach(), settings)

    def restore(self) -> Tensor:
        still = (0,) * len(self.settings[0])
        with torch.no_grad():
            return torch.convolution(self.x, self.weight, None, *self.settings, False, still, 1)
