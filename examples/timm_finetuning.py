"""Fine-tune a network of timm with fixed filters: save it small, load it again.

    python examples/timm_finetuning.py
    python examples/timm_finetuning.py --model resnet50 --pretrained

With --pretrained (a download) the filters are those that ImageNet taught it, fixed as they are.
Without, they are drawn with the statistics of filters trained on ImageNet, which ship with
explainfix. All the rest learns. Needs: pip install 'explainfix[timm]'
"""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import explainfix as xf

SHAPES = ("disc", "square", "cross")


def draw(count: int, side: int = 32) -> tuple[Tensor, Tensor]:
    """Coloured shapes on noise, and which they are. Put your own images here."""
    labels = torch.randint(3, (count,))
    middle = torch.rand(count, 2, 1, 1) - 0.5
    size = 0.25 + 0.2 * torch.rand(count, 1, 1)
    grid = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, side)] * 2, indexing="ij"))
    x, y = (grid - middle).unbind(1)
    square = torch.maximum(x.abs(), y.abs()) < size
    cross = square & (torch.minimum(x.abs(), y.abs()) < size / 3)
    shapes = torch.stack([x**2 + y**2 < size**2, square, cross], 1)
    shape = shapes[torch.arange(count), labels][:, None].float()
    colour = 0.5 + torch.rand(count, 3, 1, 1)
    return shape * colour + 0.3 * torch.randn(count, 3, side, side), labels


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--model", default="resnet14t", help="any convolutional network of timm")
    options.add_argument("--pretrained", action="store_true")
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--tiny", action="store_true", help="a trial of seconds")
    given = options.parse_args()
    torch.manual_seed(0)

    weights = "pretrained" if given.pretrained else None
    model = xf.create_model(f"timm:{given.model}", num_classes=len(SHAPES), weights=weights)
    if given.pretrained:
        print(xf.fix_(model, "unchanged"))
    else:
        print(xf.fix_(model, "guidedsteer", guide="imagenet", seed=0))
    sizes = [(p.numel(), p.requires_grad) for p in model.parameters()]
    learns, whole = sum(n for n, free in sizes if free), sum(n for n, _ in sizes)
    print(f"{learns:,} of {whole:,} parameters learn")

    steps = 4 if given.tiny else given.steps
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=steps)
    for step in range(1, steps + 1):
        images, labels = draw(32)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == steps:
            print(f"step {step}: loss {loss:.3f}")

    xf.check_fixed(model.eval())
    images, labels = draw(200)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        file = Path(folder, "shapes.safetensors")
        xf.save(model, file)
        again = xf.load(file).eval()  # the file knows which network it is
        answers = again(images)
        print(f"{file.stat().st_size / 1e6:.1f} MB instead of {4 * whole / 1e6:.1f}")
        print(f"loaded, it answers the same: {torch.equal(answers, model(images))}")
    print(f"accuracy {(answers.argmax(1) == labels).float().mean():.0%}, chance is 33%")


if __name__ == "__main__":
    main()
