"""Draw the pictures of the documentation.

    python docs/draw.py WEIGHTS

WEIGHTS is a file with the trunk of a MobileNetV2 trained on ImageNet, its tensors in the order of
torchvision's `mobilenet_v2().features`. Its 3x3 filters are shown, and guide GuidedSteer.
"""

import sys
from pathlib import Path

import torch

import explainfix as xf
from explainfix.report.sheets import plot_filters
from explainfix.store import read_weights

LAYER = "10.conv.1.0"  # 384 depthwise 3x3 filters in the middle of the network
TITLES = {
    "ones": "Ones",
    "dct2": "DCT2",
    "unchanged": "Unchanged (random)",
    "ghaar": "GHaar",
    "psine": "Psine",
    "guidedsteer": "GuidedSteer",
}


def main(weights: str) -> None:
    learned = xf.create_model("torchvision:mobilenet_v2").features
    state = read_weights(weights)
    learned.load_state_dict(dict(zip(learned.state_dict(), state.values(), strict=True)))
    sheets = {}
    for method, title in TITLES.items():
        torch.manual_seed(0)
        model = xf.create_model("torchvision:mobilenet_v2").features
        guide = {"guide": learned} if method == "guidedsteer" else {}
        xf.fix_(model, method, seed=0, layers=LAYER, **guide)
        sheets[title] = kernels(model)
    sheets["learned on ImageNet"] = kernels(learned)
    plot_filters(sheets).savefig(Path(__file__).parent / "img" / "filters.png")


def kernels(model: torch.nn.Module):
    return xf.spatial_layers(model)[LAYER].weight.detach().flatten(0, 1).numpy()


if __name__ == "__main__":
    main(sys.argv[1])
