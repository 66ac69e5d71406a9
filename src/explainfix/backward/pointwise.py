"""Large pointwise convolutions in bf16 and channels last on a CPU, as products of matrices.

For a convolution oneDNN brings the weight into an order of its own, in both directions, and its
gradient back, which is then copied once more. Where a large weight meets few pixels that is up to
half of the layer's time. A product of the rows of pixels with the weight needs none of it.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LARGE = 2**17  # weights: of fewer a convolution is as fast
FEW = 4096  # pixels, of all images: with more the weight is soon the least of it

_Pointwise = nn.Conv2d | nn.Conv3d


def multiply_pointwise_(model: nn.Module) -> None:
    """Let large pointwise convolutions of a network multiply matrices, where that is faster."""
    for module in model.modules():
        if (kind := _KINDS.get(type(module))) is None:
            continue
        layer = cast(_Pointwise, module)
        plain = layer.groups == 1 and layer.padding_mode == "zeros"
        alone = {*layer.kernel_size, *layer.stride} == {1} and set(layer.padding) == {0}
        if plain and alone and layer.weight.numel() >= LARGE:
            layer.__class__ = kind


def _fits(x: Tensor, layer: _Pointwise) -> bool:
    """Whether a product is faster for this input."""
    known = x.dim() == layer.weight.dim() and x.shape[1] == layer.in_channels
    if not known or x.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    low = x.dtype == layer.weight.dtype == torch.bfloat16
    if torch.is_autocast_enabled("cpu"):
        low = torch.get_autocast_dtype("cpu") == torch.bfloat16
    return low and x.numel() <= FEW * layer.in_channels and x.movedim(1, -1).is_contiguous()


def _multiply(x: Tensor, layer: _Pointwise) -> Tensor:
    return F.linear(x.movedim(1, -1), layer.weight.flatten(1), layer.bias).movedim(-1, 1)


class _Conv2d(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        return _multiply(input, self) if _fits(input, self) else super().forward(input)


class _Conv3d(nn.Conv3d):
    def forward(self, input: Tensor) -> Tensor:
        return _multiply(input, self) if _fits(input, self) else super().forward(input)


_KINDS: dict[type, type[_Pointwise]] = {nn.Conv2d: _Conv2d, nn.Conv3d: _Conv3d}
