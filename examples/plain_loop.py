"""Fixed filters in a training loop of your own: plain PyTorch, five calls of explainfix.

    python examples/plain_loop.py
    python examples/plain_loop.py --method psine --steps 500

A small network tells flat, wavy and checkered textures apart, which the script draws. Its spatial
filters are fixed before the loop, checked after it, explained, and left out of the file.
"""

import argparse
import math
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import explainfix as xf


def draw(count: int, side: int = 32) -> tuple[Tensor, Tensor]:
    """Noisy textures and their class: 0 flat, 1 waves along an axis, 2 a checkered pattern."""
    labels = torch.randint(3, (count,))
    places = torch.arange(side) * 2 * math.pi
    pitch, phase = 4 + 6 * torch.rand(count, 2, 1), 6.3 * torch.rand(count, 2, 1)
    along, down = (torch.sin(places / pitch + phase)).unbind(1)
    waves = along[:, None, :].expand(-1, side, -1)
    patterns = torch.stack([torch.zeros_like(waves), waves, waves * down[:, :, None]], 1)
    images = patterns[torch.arange(count), labels][:, None]
    return images + 0.7 * torch.randn_like(images), labels


def network() -> nn.Module:
    """Depthwise filters, and 1x1 convolutions that learn to combine what they see."""

    def layer(inputs: int, outputs: int) -> nn.Sequential:
        spatial = nn.Conv2d(inputs, inputs, 5, padding=2, groups=inputs, bias=False)
        mixing = nn.Conv2d(inputs, outputs, 1, bias=False)
        return nn.Sequential(spatial, mixing, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))

    body = [nn.Conv2d(1, 16, 1), layer(16, 24), layer(24, 32)]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--method", default="ghaar", choices=xf.list_filters())
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--tiny", action="store_true", help="a trial of seconds")
    given = options.parse_args()
    torch.manual_seed(0)

    model = network()
    print(xf.fix_(model, given.method, seed=0))  # 1. sets and freezes every spatial filter

    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=0.01)
    for _ in range(20 if given.tiny else given.steps):
        images, labels = draw(32)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    images, labels = draw(300)
    with torch.no_grad():
        print(f"accuracy {(model(images).argmax(1) == labels).float().mean():.0%}, chance is 33%")

    xf.check_fixed(model)  # 2. raises, and names the layers, if a kernel has changed
    print("all fixed filters are as they were fixed")
    scores = xf.saliency(model, [(images, labels)])  # 3. which kernels matter
    for said in xf.explain(model, saliency=scores).advice():  # 4. and what they look for
        print(f"- {said}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "textures.safetensors")
        xf.save(model, file)  # 5. without the filters: the recipe gives them back
        again = xf.load(file, network()).eval()
        print(f"{file.stat().st_size:,} bytes, loaded: {torch.equal(again(images), model(images))}")


if __name__ == "__main__":
    main()
