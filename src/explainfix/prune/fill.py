"""fill_zero_: kernels that are still nought after pruning get values again, as in the paper."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..filters.exact import Draw
from ..fix import recipes_follow
from ..layers import Convolution, kernels_by_output, require_writable_kernels, spatial_layers


def fill_zero_(model: nn.Module, *, seed: int = 0) -> dict[str, int]:
    """Fill zero weights of spatial layers: FillZero.

    A kernel of noughts gets Kaiming uniform values; single noughts in other kernels get normal
    ones with the mean and variance of their kernel. Gives the number of weights filled per layer.
    Fixed layers stay fixed, as they are then.
    """
    layers = spatial_layers(model)
    require_writable_kernels(layers)
    filled: dict[str, int] = {}
    with torch.no_grad(), recipes_follow(model):
        for path, layer in layers.items():
            nought = layer.weight == 0
            if bool(nought.any()):
                values = _values(layer, Draw(seed, f"fill:{path}")).to(layer.weight)
                layer.weight.copy_(torch.where(nought, values, layer.weight))
                filled[path] = int(nought.sum())
    return filled


def _values(layer: Convolution, draw: Draw) -> Tensor:
    """What would fill each weight of the layer if it were nought."""
    kernels = layer.weight.detach().double().cpu().flatten(2)
    empty = (kernels == 0).all(2, keepdim=True)
    fan_in = math.prod(kernels_by_output(layer, layer.weight.cpu().double().numpy()).shape[1:])
    bound = math.sqrt(6 / fan_in)
    uniform = torch.from_numpy(draw.uniform(*kernels.shape, low=-bound, high=bound))
    normal = _normal(draw, tuple(kernels.shape))
    around = kernels.mean(2, keepdim=True) + kernels.std(2, keepdim=True, correction=0) * normal
    return torch.where(empty, uniform, around).reshape(layer.weight.shape)


def _normal(draw: Draw, shape: tuple[int, ...]) -> Tensor:
    """Normal numbers from two uniform ones each."""
    radius = torch.from_numpy(1.0 - draw.uniform(*shape)).log().mul(-2).sqrt()
    return radius * torch.from_numpy(draw.uniform(*shape)).mul(2 * math.pi).cos()
