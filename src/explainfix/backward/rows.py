"""BatchNorm in channels last on a CPU, where the channels fill no vector register.

PyTorch's loops go over the channels of one pixel, and crawl if their number is no multiple of 16:
18 channels of 224 x 224, four images in bf16, take seven times as long as in the usual layout. But
several pixels side by side are a row of many channels. Its statistics give those of the channels,
and what is left to do is the same for every number in it.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

PIXELS = 32  # in a row, or what of it divides the number of all, but no fewer than 4
LANES = 16  # numbers in a vector register
ENOUGH = 8192  # pixels: of fewer the small operations around take as long as is gained


def normalise_in_rows_(model: nn.Module) -> None:
    """Let the BatchNorms of a network see rows of pixels in training, where that is faster."""
    for module in model.modules():
        if (kind := _KINDS.get(type(module))) is None:
            continue
        norm = cast(_BatchNorm, module)
        whole = norm.weight is not None and norm.bias is not None and norm.running_mean is not None
        if whole and norm.num_features % LANES:
            norm.__class__ = kind


class _InRows(_BatchNorm):
    """A BatchNorm whose state, and whose output in evaluation, are those of PyTorch's."""

    dims: int

    def forward(self, input: Tensor) -> Tensor:
        pixels = self._pixels(input)
        if pixels < 4:
            return super().forward(input)
        y, mean, variance = _BatchNormInRows.apply(input, self.weight, self.bias, self.eps, pixels)
        count, own = input.numel() // self.num_features, cast(Any, self)  # which has all of them
        with torch.no_grad():
            own.num_batches_tracked.add_(1)
            # Without a momentum they are the plain averages of all batches.
            share = own.momentum if own.momentum is not None else 1 / int(own.num_batches_tracked)
            own.running_mean.lerp_(mean, share)
            own.running_var.lerp_(variance * (count / (count - 1)), share)
        return cast(Tensor, y)

    def _pixels(self, x: Tensor) -> int:
        """How many make a row; 1 if PyTorch does as well."""
        known = x.dim() == self.dims and x.shape[1] == self.num_features
        known = known and x.device.type == "cpu" and x.dtype in (torch.float32, torch.bfloat16)
        if not known or not self.training or torch.compiler.is_compiling():
            return 1
        count = x.numel() // self.num_features
        if count < ENOUGH or self.weight.dtype != torch.float32 or not _last(x).is_contiguous():
            return 1
        return math.gcd(count, PIXELS)


class _BatchNorm2d(_InRows, nn.BatchNorm2d):
    dims = 4


class _BatchNorm3d(_InRows, nn.BatchNorm3d):
    dims = 5


_KINDS: dict[type, type[_InRows]] = {nn.BatchNorm2d: _BatchNorm2d, nn.BatchNorm3d: _BatchNorm3d}


class _BatchNormInRows(torch.autograd.Function):
    """The output, the mean and the variance of a batch; with n numbers a channel, z normalised,

    dx = weight / deviation * (dy - sum(dy) / n - z * sum(z * dy) / n).
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, pixels: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows = _last(x).reshape(-1, pixels * x.shape[1])
        still = torch.zeros(rows.shape[1]), torch.ones(rows.shape[1])
        found = torch.ops.aten.batch_norm_update_stats(rows, *still, 0.0)
        means, variances = (each.view(pixels, -1) for each in found)
        mean = means.mean(0)
        variance = (variances + (means - mean).square()).mean(0)
        y = normalise_rows(x, weight, bias, mean=mean, variance=variance, eps=eps, pixels=pixels)
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.explainfix_keeps = ("input", "weight", "mean", "variance")  # what private.py asks for
        ctx.eps, ctx.pixels = eps, pixels
        ctx.mark_non_differentiable(mean, variance)
        return y.detach(), mean, variance  # to a view nothing could write in place

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance = ctx.saved_tensors
        rows = _last(x).reshape(-1, ctx.pixels * x.shape[1])
        dy = _last(gradients[0]).contiguous().view_as(rows)

        def wide(each: Tensor) -> Tensor:
            return each.repeat(ctx.pixels)

        sums = torch.ops.aten.native_batch_norm_backward(
            dy, rows, wide(weight), wide(mean), wide(variance), None, None, False, ctx.eps,
            (False, True, True),
        )[1:]  # fmt: skip
        of_weight, of_bias = (each.view(ctx.pixels, -1).sum(0) for each in sums)
        count, inverse = x.numel() // len(mean), (variance + ctx.eps).rsqrt()
        slope = weight * inverse
        bend = -slope * inverse * of_weight / count
        shift = -slope * of_bias / count - bend * mean
        shift, bend, slope = (wide(each).to(x.dtype) for each in (shift, bend, slope))
        dx = torch.addcmul(shift, rows, bend).addcmul_(dy, slope)
        return _as(dx, x), of_weight, of_bias, None, None


def normalise_rows(
    x: Tensor, weight: Tensor, bias: Tensor, *, mean: Tensor, variance: Tensor, eps: float,
    pixels: int,
) -> Tensor:  # fmt: skip
    """A batch normalised by these statistics, so many pixels at a time."""
    rows = _last(x).reshape(-1, pixels * x.shape[1])
    wide = (each.repeat(pixels) for each in (weight, bias, mean, variance))
    return _as(torch.ops.aten.native_batch_norm(rows, *wide, False, 0.0, eps)[0], x)


def _last(x: Tensor) -> Tensor:
    """The channels as the last dimension."""
    return x.movedim(1, -1)


def _as(rows: Tensor, x: Tensor) -> Tensor:
    """Rows in the shape of `x`."""
    return rows.view(_last(x).shape).movedim(-1, 1)
