"""Draw the pictures of the documentation.

    python docs/draw.py WEIGHTS DATA
    python docs/draw.py RUN

WEIGHTS is a file with the trunk of a MobileNetV2 trained on ImageNet, its tensors in the order of
torchvision's `mobilenet_v2().features`: its filters are shown, explained, and guide GuidedSteer.
DATA is a file of grey images (see `explainfix.lab.data.arrays`) that its saliency is measured on.
RUN is the folder of a run, whose training is drawn: docs/loop.md has that of `explainfix train
--epochs 12 --schedule onecycle --data-option count=200 size=64`.
"""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import torch
from playwright.sync_api import sync_playwright

import explainfix as xf
from explainfix.lab.data.arrays import batches, read_arrays
from explainfix.report.sheets import plot_basis, plot_filters
from explainfix.store import read_weights
from explainfix.watch import Timeline

PICTURES = Path(__file__).parent / "img"
LAYER = "10.conv.1.0"  # 384 depthwise 3x3 filters in the middle of the network
TITLES = {
    "ones": "Ones",
    "dct2": "DCT2",
    "unchanged": "Unchanged (random)",
    "ghaar": "GHaar",
    "psine": "Psine",
    "guidedsteer": "GuidedSteer",
    "covariance": "Covariance",
    "masterkeys": "Masterkeys",
}


def main(weights: str, data: str) -> None:
    learned = xf.create_model("torchvision:mobilenet_v2").features
    state = read_weights(weights)
    learned.load_state_dict(dict(zip(learned.state_dict(), state.values(), strict=True)))
    draw_methods(learned)
    plot_basis((5, 5)).savefig(PICTURES / "basis5.png")
    draw_page(learned, data)


def draw_methods(learned: torch.nn.Module) -> None:
    sheets = {}
    for method, title in TITLES.items():
        torch.manual_seed(0)
        model = xf.create_model("torchvision:mobilenet_v2").features
        guide = {"guide": learned} if method == "guidedsteer" else {}
        xf.fix_(model, method, seed=0, layers=LAYER, **guide)
        sheets[title] = kernels(model)
    sheets["learned on ImageNet"] = kernels(learned)
    plot_filters(sheets).savefig(PICTURES / "filters.png")


def draw_page(learned: torch.nn.Module, data: str) -> None:
    """The heatmap and a screenshot of the page, weighted by saliency over fifteen batches."""
    grey = read_arrays(data)[0][:60]
    images = (grey.expand(-1, 3, -1, -1) - 0.45) / 0.225
    scores = xf.saliency(learned, batches(images, None, 4))
    why = xf.explain(learned, saliency=scores, title="MobileNetV2, trained on ImageNet")
    page = PICTURES / "page.html"
    why.to_html(page, overwrite=True)
    why.plot().savefig(PICTURES / "heatmap.png")
    take_picture(page, PICTURES / "page.png", height=930)
    page.unlink()


def draw_training(run: str) -> None:
    """A screenshot of the page of a training."""
    page = PICTURES / "moved.html"
    line = Timeline.load(Path(run) / "spectra.json")
    replace(line, title="U-NetD learns to find nuclei").to_html(page, overwrite=True)
    take_picture(page, PICTURES / "moved.png", height=1390)
    page.unlink()


def take_picture(page: Path, picture: Path, *, height: int) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--headless=new"]
        )
        window = browser.new_page(viewport={"width": 1280, "height": height})
        window.goto(page.resolve().as_uri())
        window.screenshot(path=picture)
        browser.close()


def kernels(model: torch.nn.Module):
    return xf.spatial_layers(model)[LAYER].weight.detach().flatten(0, 1).numpy()


if __name__ == "__main__":
    draw_training(*sys.argv[1:]) if len(sys.argv) == 2 else main(*sys.argv[1:])
