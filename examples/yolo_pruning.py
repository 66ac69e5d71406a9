"""Prune a YOLO detector so that its outputs stay as they are.

    python examples/yolo_pruning.py
    python examples/yolo_pruning.py --yolo yolov8n.yaml     # or weights.pt: if ultralytics is there
    python examples/yolo_pruning.py --share 0.8

The channels of every spatial layer that matter least are switched off, which changes the outputs;
then all that died of it is cut, which does not. Without --yolo it is the small detector below, in
the style of YOLO, with random weights: it shows that the cut is exact, and detects nothing.
"""

import argparse
import copy
from itertools import pairwise

import torch
from torch import Tensor, nn

import explainfix as xf


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.SiLU())


class Parted(nn.Module):
    """Half of the channels go through residual blocks, the other half around them."""

    def __init__(self, channels: int, blocks: int = 2):
        super().__init__()
        half = channels // 2
        self.enter, self.leave = conv(channels, channels, 1), conv(half * (blocks + 2), channels, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(conv(half, half), conv(half, half)) for _ in range(blocks)
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.enter(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(parts[-1] + block(parts[-1]))
        return self.leave(torch.cat(parts, 1))


class SmallYolo(nn.Module):
    """Boxes and classes, 5 + `classes` numbers for each cell of grids of 8 and of 16 pixels."""

    def __init__(self, classes: int = 3):
        super().__init__()
        self.stem = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2), Parted(32))
        self.fine = nn.Sequential(conv(32, 64, 3, 2), Parted(64))
        self.coarse = nn.Sequential(conv(64, 128, 3, 2), Parted(128))
        self.join = nn.Sequential(conv(192, 64, 1), Parted(64))
        self.heads = nn.ModuleList(nn.Conv2d(c, 5 + classes, 1) for c in (64, 128))

    def forward(self, images: Tensor) -> Tensor:
        fine = self.fine(self.stem(images))
        coarse = self.coarse(fine)
        fine = self.join(torch.cat([nn.functional.interpolate(coarse, scale_factor=2), fine], 1))
        found = [head(x) for head, x in zip(self.heads, (fine, coarse), strict=True)]
        return torch.cat([grid.flatten(2) for grid in found], 2)


def load_yolo(name: str) -> nn.Module:
    from ultralytics import YOLO  # AGPL-3.0: mind its licence

    return YOLO(name).model.float()


def silence_(model: nn.Module, images: Tensor, share: float) -> None:
    """Zero the channels of every spatial layer that matter least, and their BatchNorm with them."""
    scores = xf.saliency(model, [images])  # one for each kernel
    for (path, layer), (_, norm) in pairwise(model.named_modules()):
        if path in scores and isinstance(norm, nn.BatchNorm2d):
            weakest = scores[path].mean(1).argsort()[: int(share * layer.out_channels)]
            with torch.no_grad():
                for parameter in (layer.weight, norm.weight, norm.bias):
                    parameter[weakest] = 0


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--yolo", help="a model or weights, by a name that ultralytics knows")
    options.add_argument("--share", type=float, default=0.5, help="of channels to switch off")
    options.add_argument("--tiny", action="store_true", help="a trial of seconds")
    given = options.parse_args()
    torch.manual_seed(0)
    images = torch.rand(2, 3, *[64 if given.tiny else 256] * 2)  # better: images of your own

    model = load_yolo(given.yolo) if given.yolo else SmallYolo()
    if not str(given.yolo).endswith(".pt"):  # random weights: let BatchNorm see some data
        with torch.no_grad():
            for _ in range(20):
                model.train()(images)
    model.eval()

    silence_(model, images, given.share)
    silenced = copy.deepcopy(model)
    print(xf.prune_(model, images[:1]))

    new = torch.rand(1, 3, *[side + 32 for side in images.shape[2:]])  # other numbers, another size
    with torch.no_grad():
        before, after = (found(new)[0] for found in (silenced, model))
    moved = (after - before).abs().max() / before.square().mean().sqrt()
    print(f"On an image of {new.shape[2]} px detections moved by {moved:.0e} of their size.")


if __name__ == "__main__":
    main()
