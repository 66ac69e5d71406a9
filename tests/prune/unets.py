"""Two plain U-Nets: upsampling by transposed convolution, and by interpolation."""

import torch
from torch import nn
from torch.nn import functional as F


def double_convolution(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, learned_upsampling):
        super().__init__()
        widths = [16, 32, 64]
        self.down = nn.ModuleList(
            double_convolution(i, o) for i, o in zip([3, *widths], [*widths, 128], strict=False)
        )
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(w * 2, w, 2, 2) if learned_upsampling else nn.Conv2d(w * 2, w, 1)
            for w in widths[::-1]
        )
        self.join = nn.ModuleList(double_convolution(w * 2, w) for w in widths[::-1])
        self.learned_upsampling = learned_upsampling
        self.head = nn.Conv2d(16, 1, 1)

    def forward(self, x):
        skips = []
        for number, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if number else x)
            skips.append(x)
        for up, join, skip in zip(self.up, self.join, skips[-2::-1], strict=True):
            if not self.learned_upsampling:
                x = F.interpolate(x, size=skip.shape[2:], mode="bilinear")
            x = join(torch.cat([up(x), skip], 1))
        return self.head(x)


def transposed():
    return UNet(learned_upsampling=True)


def interpolated():
    return UNet(learned_upsampling=False)
