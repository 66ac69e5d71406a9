"""Segment volumes with a network of MONAI: fixed filters and learned steering, explained, pruned.

    python examples/monai_segmentation.py
    python examples/monai_segmentation.py --filters 2 --zero 0.8

The script draws its own scans: a bright ball in noise, and its mask. Every dense 3x3x3 layer of a
SegResNet becomes a few fixed filters for each channel and a learned 1x1x1, which is far less to
store and to learn. Needs: pip install 'explainfix[medical]'
"""

import argparse

import torch
from monai.losses import DiceLoss
from monai.networks.nets import SegResNet
from torch import Tensor, nn

import explainfix as xf


def draw(count: int, side: int) -> tuple[Tensor, Tensor]:
    """Scans `(n, 1, d, h, w)` and masks. Put your own here."""
    axes = torch.meshgrid(*[torch.linspace(-1, 1, side)] * 3, indexing="ij")
    places = torch.stack(axes) - (torch.rand(count, 3, 1, 1, 1) - 0.5)
    reach = 0.3 + 0.3 * torch.rand(count, 1, 1, 1)
    masks = (places.norm(dim=1) < reach)[:, None].float()
    return masks + 0.7 * torch.randn_like(masks), masks


@torch.no_grad()
def dice(model: nn.Module, scans: Tensor, masks: Tensor) -> float:
    found = model(scans) > 0
    return (2 * (found & (masks > 0)).sum() / (found.sum() + masks.sum())).item()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--filters", type=int, default=4, help="fixed filters for each channel")
    options.add_argument("--zero", type=float, default=0.5, help="share of kernels to prune by")
    options.add_argument("--steps", type=int, default=60)
    options.add_argument("--tiny", action="store_true", help="a trial of seconds")
    given = options.parse_args()
    torch.manual_seed(0)

    model = SegResNet(init_filters=8, in_channels=1, out_channels=1, norm="batch")
    print(xf.steer_(model, "ghaar", filters=given.filters))

    side, steps = (16, 4) if given.tiny else (24, given.steps)
    loss_of = DiceLoss(sigmoid=True)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=steps)
    for step in range(1, steps + 1):
        scans, masks = draw(4, side)
        logits = model(scans)
        loss = loss_of(logits, masks) + nn.functional.binary_cross_entropy_with_logits(
            logits, masks
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 20 == 0 or step == steps:
            print(f"step {step}: loss {loss:.3f}")
    model.eval()
    xf.check_fixed(model)
    scans, masks = draw(8, side)
    print(f"Dice {dice(model, scans, masks):.3f} on {len(scans)} new scans")

    scores = xf.saliency(model, [draw(4, side) for _ in range(2)])
    for said in xf.explain(model, saliency=scores).advice():
        print(f"- {said}")

    xf.zero_(model, scores, given.zero)  # changes what it computes
    zeroed = dice(model, scans, masks)
    report = xf.prune_(model, scans[:1])  # does not
    print(f"Dice {zeroed:.3f} zeroed, {dice(model, scans, masks):.3f} pruned")
    print(report)


if __name__ == "__main__":
    main()
