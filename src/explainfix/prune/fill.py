"""fill_zero_: kernels that are still zero after pruning get values again, as in the paper."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from ..filters.exact import Draw
from ..layers import Convolution, kernels_by_output, require_writable_kernels, spatial_layers
from ..marks.untrained import teaches_nothing
from ..recipe import recipes_follow

_CLOSE_TO_ZERO = 1e-8  # what torch.isclose allows beside zero


@teaches_nothing
def fill_zero_(model: nn.Module, *, seed: int = 0) -> dict[str, int]:
    """Fill zero weights of spatial layers: FillZero.

    A kernel of zeros gets uniform values of PyTorch's default bound, 1/√fan_in; single zeros
    in other kernels get normal ones with the mean and variance of their kernel. Weights of at most
    1e-8 count as zero. Both are as in the code of the paper's results. Gives the number of weights
    filled per layer. Fixed layers stay fixed, as they are then.
    """
    layers = spatial_layers(model)
    require_writable_kernels(layers)
    filled: dict[str, int] = {}
    with torch.no_grad(), recipes_follow(model):
        for path, layer in layers.items():
            zero = layer.weight.abs() <= _CLOSE_TO_ZERO
            if bool(zero.any()):
                values = _values(layer, zero, Draw(seed, f"fill:{path}"))
                layer.weight.masked_scatter_(zero, values.to(layer.weight))
                filled[path] = len(values)
    return filled


def _values(layer: Convolution, zero: Tensor, draw: Draw) -> Tensor:
    """What fills the zeros of the layer, in their order."""
    where = zero.flatten(2).flatten(0, 1).cpu()
    empty = where.all(1, keepdim=True)
    inside = where & ~empty
    bound = 1 / math.sqrt(_fan_in(layer))  # √(6/fan_in) is louder than the kernels that were kept
    uniform = draw.uniform_at(empty.expand_as(where).numpy(), -bound, bound)
    if not bool(inside.any()):
        return torch.from_numpy(uniform)
    holed = inside.any(1)
    kernels = layer.weight.detach().flatten(2).flatten(0, 1).cpu()[holed].double()
    counts = torch.from_numpy(np.count_nonzero(inside[holed].numpy(), axis=1))
    mean = kernels.mean(1, keepdim=True)
    spread = (kernels - mean).square_().mean(1).sqrt_()  # four times as fast as std
    mean, spread = (each.flatten().repeat_interleave(counts) for each in (mean, spread))
    values = torch.empty(int(where.sum()), dtype=torch.float64)
    of_empty = empty.expand_as(where)[where]
    values[of_empty] = torch.from_numpy(uniform)
    values[~of_empty] = mean + spread * _normal(draw, inside.numpy())
    return values


def _fan_in(layer: Convolution) -> int:
    shape = np.zeros(tuple(layer.weight.shape), dtype=np.int8)
    return math.prod(kernels_by_output(layer, shape).shape[1:])


def _normal(draw: Draw, where: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Tensor:
    """Normal numbers from two uniform ones each."""
    radius = torch.from_numpy(1.0 - draw.uniform_at(where)).log().mul(-2).sqrt()
    return radius * torch.from_numpy(draw.uniform_at(where)).mul(2 * math.pi).cos()
