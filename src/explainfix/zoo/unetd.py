"""U-NetD: the paper's small U-Net of depthwise separable blocks."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Separable(nn.Sequential):
    """1x1 expansion, 3x3 depthwise, 1x1 projection; BatchNorm each, CELU after the first two."""

    def __init__(self, inputs: int, outputs: int, hidden: int, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, hidden, 1, bias=False),
            nn.BatchNorm2d(hidden),
            nn.CELU(),
            nn.Conv2d(hidden, hidden, 3, stride, padding=1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.CELU(inplace=True),  # then it keeps its output, as the next layer does: one tensor
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )


class Merge(nn.Module):
    """A decoder level: resize to the skip's size, block, learned weighted mean with it, block."""

    def __init__(self, inputs: int, outputs: int, hidden: int) -> None:
        super().__init__()
        self.before = Separable(inputs, outputs, hidden)
        self.after = Separable(outputs, outputs, hidden)
        self.weights = nn.Parameter(torch.full((2,), 0.5))

    def forward(self, deep: Tensor, skip: Tensor) -> Tensor:
        deep = self.before(F.interpolate(deep, size=skip.shape[2:], mode="nearest"))
        w_deep, w_skip = self.weights
        merged: Tensor = self.after((w_deep * deep + w_skip * skip) / (w_deep + w_skip + 1e-5))
        return merged


class UNetD(nn.Module):
    """U-NetD for images `(n, in_channels, h, w)` to logits `(n, num_classes, h, w)`.

    Each encoder level is two blocks, the second of stride 3, six times as wide inside as the
    level's input; each decoder level mirrors it and merges with that input. The graph is that of
    the paper's experiments, which alone has its parameter counts: nearest resizing, BatchNorm
    before CELU and a 1x1 last layer, where its text says bilinear, after, and spatial.

    >>> sum(p.numel() for p in UNetD().parameters())
    116695
    """

    def __init__(self, num_classes: int = 1, in_channels: int = 3) -> None:
        super().__init__()
        levels = list(pairwise((in_channels, 8, 16, 32, 64)))
        self.encoder = nn.ModuleList(
            nn.Sequential(
                Separable(outer, inner, 6 * outer), Separable(inner, inner, 6 * outer, stride=3)
            )
            for outer, inner in levels
        )
        self.decoder = nn.ModuleList(
            Merge(inner, outer, 6 * outer) for outer, inner in reversed(levels)
        )
        self.head = nn.Conv2d(in_channels, num_classes, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for level in self.encoder:
            skips.append(x)
            x = level(x)
        for level, skip in zip(self.decoder, reversed(skips), strict=True):
            x = level(x, skip)
        logits: Tensor = self.head(x)
        return logits
