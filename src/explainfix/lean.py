"""The lean frozen convolution: it keeps nothing for a gradient that nobody wants.

PyTorch's convolution keeps its input for the gradient of the weight, even if the weight is frozen.
This one keeps the shape of the input alone; the gradient of the input needs no more.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .layers import Convolution

_PLAIN = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TURNED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
Sizes = tuple[int, ...]


def make_lean(layer: Convolution) -> None:
    """Let a layer compute as before and keep less. A class with a forward of its own is left."""
    for kinds, method, lean in ((_PLAIN, "_conv_forward", _forward), (_TURNED, "forward", _turned)):
        own = next((kind for kind in kinds if isinstance(layer, kind)), None)
        if own is None or type(layer).forward is not own.forward:
            continue
        if getattr(type(layer), method) is getattr(own, method):
            # A partial, not a method: it can be copied and pickled with the layer.
            setattr(layer, method, partial(lean, layer))


def make_ordinary(layer: Convolution) -> None:
    """Undo `make_lean`."""
    for method in _lean_methods(layer):
        delattr(layer, method)


def is_lean(layer: nn.Module) -> bool:
    """Whether `make_lean` did something to a layer."""
    return bool(_lean_methods(layer))


def kept_for_backward(model: nn.Module, *inputs: Tensor) -> int:
    """The bytes that a forward pass keeps for its backward pass, parameters and buffers apart."""
    own = {tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(*inputs)
    return sum(kept.values())


def _lean_methods(layer: nn.Module) -> list[str]:
    return [
        name
        for name, held in vars(layer).items()
        if isinstance(held, partial) and held.func in (_forward, _turned)
    ]


def _forward(layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What `_conv_forward` does, of any dimension."""
    if weight.requires_grad or not torch.is_grad_enabled():
        ordinary: Tensor = type(layer)._conv_forward(layer, x, weight, bias)
        return ordinary
    padding = layer.padding
    if layer.padding_mode != "zeros":
        x = F.pad(x, layer._reversed_padding_repeated_twice, mode=layer.padding_mode)
        padding = (0,) * len(layer.kernel_size)
    elif isinstance(padding, str):
        x, padding = _named_padding(layer, x)
    return _convolve(layer, x, weight, bias, padding, (0,) * len(layer.kernel_size))


def _turned(layer: Any, x: Tensor, output_size: list[int] | None = None) -> Tensor:
    """What the forward of a transposed convolution does, of any dimension."""
    if layer.weight.requires_grad or not torch.is_grad_enabled():
        ordinary: Tensor = type(layer).forward(layer, x, output_size)
        return ordinary
    extra = layer._output_padding(
        x,
        output_size,
        layer.stride,
        layer.padding,
        layer.kernel_size,
        len(layer.kernel_size),
        layer.dilation,
    )
    return _convolve(layer, x, layer.weight, layer.bias, layer.padding, tuple(extra))


def _named_padding(layer: Any, x: Tensor) -> tuple[Tensor, Sizes]:
    """'same' and 'valid' as numbers; an odd one out is put at the end, as PyTorch does."""
    if layer.padding == "valid":
        return x, (0,) * len(layer.kernel_size)
    pairs = zip(layer.dilation, layer.kernel_size, strict=True)
    total = [dilation * (size - 1) for dilation, size in pairs]
    odd = [number % 2 for number in total]
    if any(odd):
        x = F.pad(x, [side for extra in reversed(odd) for side in (0, extra)])
    return x, tuple(number // 2 for number in total)


def _convolve(
    layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None, padding: Sizes, extra: Sizes
) -> Tensor:
    """A convolution, lean, of a batch or of a single image, with or without autocast."""
    single = x.dim() == len(layer.kernel_size) + 1
    x = x.unsqueeze(0) if single else x
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    settings = (layer.stride, padding, layer.dilation, layer.transposed, extra, layer.groups)
    y: Tensor = _Lean.apply(x, weight, bias, *settings)
    return y.squeeze(0) if single else y


class _Lean(torch.autograd.Function):
    """A convolution whose weight is a constant."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> Tensor:
        return torch.convolution(x, weight, bias, *settings)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, bias, *settings = inputs
        ctx.save_for_backward(weight)
        ctx.shape, ctx.settings = x.shape, settings
        ctx.format = torch.contiguous_format
        for dim, last in ((4, torch.channels_last), (5, torch.channels_last_3d)):
            if x.dim() == dim and not x.is_contiguous() and x.is_contiguous(memory_format=last):
                ctx.format = last
        ctx.bias = None if bias is None else list(bias.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = ctx.saved_tensors
        wanted = (ctx.needs_input_grad[0], False, ctx.needs_input_grad[2])
        # Of the input only the shape and the format are read, so what it holds does not matter.
        shape = torch.empty(
            ctx.shape, dtype=gradient.dtype, device=gradient.device, memory_format=ctx.format
        )
        of_x, _, of_bias = torch.ops.aten.convolution_backward(
            gradient, shape, weight, ctx.bias, *ctx.settings, wanted
        )
        return of_x, None, of_bias, *(None,) * len(ctx.settings)
