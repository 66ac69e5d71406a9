"""A plain U-Net: dense 3x3 convolutions, BatchNorm, ReLU, nothing that mixes channels alone."""

from itertools import pairwise

import torch
from torch import nn


def block(inputs, outputs):
    layers = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]
        layers.append(nn.ReLU(inplace=True))
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self, in_channels, num_classes, width):
        super().__init__()
        widths = [width * 2**level for level in range(4)]
        self.down = nn.ModuleList(block(*pair) for pair in pairwise((in_channels, *widths)))
        joined = [(low + high, low) for low, high in pairwise(widths)]
        self.up = nn.ModuleList(block(*pair) for pair in reversed(joined))
        self.head = nn.Conv2d(width, num_classes, 1)

    def forward(self, x):
        skips = []
        for level, down in enumerate(self.down):
            x = down(x if level == 0 else nn.functional.max_pool2d(x, 2))
            skips.append(x)
        for up, skip in zip(self.up, reversed(skips[:-1]), strict=True):
            x = nn.functional.interpolate(x, size=skip.shape[2:], mode="nearest")
            x = up(torch.cat([skip, x], 1))
        return self.head(x)


def unet(num_classes=1, in_channels=3):
    return UNet(in_channels, num_classes, width=8)


def wide_unet(num_classes=1, in_channels=3):
    return UNet(in_channels, num_classes, width=16)
