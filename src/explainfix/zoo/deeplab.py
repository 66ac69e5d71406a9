"""DeepLabV3+ with plain convolutions, as the paper's baselines on microscopy have it.

The DeepLabV3+ of segmentation-models-pytorch has separable ones, so other parameter counts.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..extras import needed_for

ENCODERS = ("mobilenet_v2", "resnet50")


class DeepLabV3Plus(nn.Module):
    """DeepLabV3+ for images `(n, 3, h, w)` to logits `(n, num_classes, h, w)`.

    The encoder's deepest features, of a 16th of the size, go through four convolutions of
    different reach and a mean over the image; enlarged and joined with features of a quarter of
    the size, they are decoded by one more.

    >>> sum(p.numel() for p in DeepLabV3Plus("mobilenet_v2").parameters())
    5220577
    """

    def __init__(self, encoder: str, num_classes: int = 1) -> None:
        super().__init__()
        self.early, self.late, early, late = _split_encoder(encoder)
        self.pyramid = Pyramid(late, 256, rates=(6, 12, 18))
        self.skip = _block(early, 48, 1)
        self.decode = nn.Sequential(_block(304, 256, 3), nn.Conv2d(256, num_classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        early = self.early(x)
        deep = F.interpolate(self.pyramid(self.late(early)), size=early.shape[2:], mode="bilinear")
        logits = self.decode(torch.cat([self.skip(early), deep], dim=1))
        return F.interpolate(logits, size=x.shape[2:], mode="bilinear")


class Pyramid(nn.Module):
    """Atrous spatial pyramid pooling: a 1x1, dilated 3x3s and the image's mean, then mixed."""

    def __init__(self, inputs: int, width: int, rates: tuple[int, ...]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [_block(inputs, width, 1), *(_block(inputs, width, 3, rate) for rate in rates)]
        )
        self.mean = _block(inputs, width, 1)
        self.mix = nn.Sequential(_block(width * (len(rates) + 2), width, 1), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        mean = self.mean(x.mean((2, 3), keepdim=True)).expand(-1, -1, *x.shape[2:])
        mixed: Tensor = self.mix(torch.cat([*(branch(x) for branch in self.branches), mean], 1))
        return mixed


def _block(inputs: int, outputs: int, kernel: int, dilation: int = 1) -> nn.Sequential:
    padding = dilation * (kernel // 2)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=padding, dilation=dilation, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


def _split_encoder(name: str) -> tuple[nn.Module, nn.Module, int, int]:
    """A classifier's layers up to a quarter of the size, the others, and their channels.

    The last halving of the size is undone: its stride becomes dilation.
    """
    with needed_for("deeplabv3plus"):
        import torchvision.models as tv

    if name == "resnet50":
        net = tv.resnet50(replace_stride_with_dilation=[False, False, True])
        early = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool, net.layer1)
        return early, nn.Sequential(net.layer2, net.layer3, net.layer4), 256, 2048
    features = tv.mobilenet_v2().features
    for number, block in enumerate(features[14:18]):
        depthwise = next(m for m in block.modules() if getattr(m, "groups", 1) > 1)
        depthwise.stride = (1, 1)
        if number:
            depthwise.dilation = depthwise.padding = (2, 2)
    return features[:4], features[4:18], 24, 320
